"""A run that is resumed inside an epoch goes on with the batches that it has not taken yet."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl

from as_lightning.benchmark.data.resumable_loader import ResumableLoader


class DataLoaderState(pl.Callback):
    """Load the training loader's place in the epoch from a checkpoint, also where Lightning does not.

    Lightning saves the place and loads it when it makes the loader. A learning-rate schedule that asks for
    ``trainer.estimated_stepping_batches`` has the loader made before Lightning has read the place from the checkpoint,
    and the rest of the epoch would begin with its first batches again.
    """

    def __init__(self) -> None:
        self._saved: list[dict[str, int]] = []

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        self._saved = checkpoint["loops"]["fit_loop"]["state_dict"].get("combined_loader", [])

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        saved, self._saved = self._saved, []
        loader = trainer.train_dataloader
        if saved and isinstance(loader, ResumableLoader):
            loader.load_state_dict(saved[0])
