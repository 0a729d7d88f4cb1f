"""The most memory that a run's training steps take, as the system or the device tells it."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
import torch

from as_lightning.process_memory import peak_resident_memory, reset_peak, resident_memory, return_free_memory


class PeakMemory(pl.Callback):
    """Record the peak of the training steps, optimizer steps included, and validation and checkpoints left out.

    On the CPU it is what the process holds beyond what it held when the callback was made (Linux alone): make it before
    data and model. On CUDA it is what PyTorch has allocated on the device.

    Attributes:
        bytes: the peak so far; None where the system does not tell, or before the first step.
    """

    def __init__(self) -> None:
        self.bytes: int | None = None
        self._before = resident_memory() if reset_peak() else None
        self._watching = False

    def on_train_batch_start(self, trainer: pl.Trainer, *args: Any) -> None:
        if self._watching:
            return
        self._watching = True
        device = trainer.strategy.root_device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        elif self._before is not None:
            return_free_memory()  # of a validation
            reset_peak()

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._look(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._look(trainer)

    def _look(self, trainer: pl.Trainer) -> None:
        if not self._watching:
            return
        self._watching = False
        device = trainer.strategy.root_device
        if device.type == "cuda":
            found = torch.cuda.max_memory_allocated(device)
        elif device.type == "cpu" and self._before is not None:
            found = max(0, peak_resident_memory() - self._before)
        else:
            return
        self.bytes = found if self.bytes is None else max(self.bytes, found)

    def state_dict(self) -> dict[str, Any]:
        return {"bytes": self.bytes}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.bytes = state_dict["bytes"]
