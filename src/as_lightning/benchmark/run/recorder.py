"""What a run measures while it trains: its time, its evaluations, its windows and its peak memory."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from as_lightning.benchmark.machine import peak_resident_memory, reset_peak, resident_memory, return_free_memory
from as_lightning.callbacks import AccumulationWindow, AdaptiveGradientAccumulation


class PeakMemory(pl.Callback):
    """Record the peak memory of the training steps as `bytes`, without validation and checkpoints.

    On CUDA it is what PyTorch has allocated; on the CPU, under Linux alone, what the process holds beyond what it held
    when the callback was made: make it before data and model.
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
        if not self._watching:
            return
        self._watching = False
        device = trainer.strategy.root_device
        if device.type == "cuda":
            self.bytes = max(self.bytes or 0, torch.cuda.max_memory_allocated(device))
        elif device.type == "cpu" and self._before is not None:
            self.bytes = max(self.bytes or 0, peak_resident_memory() - self._before)

    on_train_epoch_end = on_validation_start

    def state_dict(self) -> dict[str, Any]:
        return {"bytes": self.bytes}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.bytes = state_dict["bytes"]


def same_run(written: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    """Whether two configurations are one run's, as JSON holds them: the progress bar tells no runs apart.

    Checkpoints have the ``inputs`` among them. What an older version has not written there is not compared.
    """
    there, here = (json.loads(json.dumps(config)) for config in (written, settings))
    for config in (there, here):
        config.get("trainer", {}).pop("enable_progress_bar", None)  # nor does the folder's name have it
    before, now = there.pop("inputs", {}), here.pop("inputs", {})
    return there == here and all(now.get(name, value) == value for name, value in before.items())


class RunRecorder(pl.Callback):
    """Record the time spent training, and every evaluation with the time at which it came.

    The clock stands still in validation and while a checkpoint is saved. It counts the loading of data, what happens
    between two epochs, and what callbacks do that stand before this one. `monitor` is the name under which the score is
    logged, `settings` the run's configuration as text, for its checkpoints.
    """

    RESTORED = ("train_seconds", "epoch_seconds", "epoch_start", "evaluations")

    def __init__(self, monitor: str, settings: str = "{}", clock: Callable[[], float] = time.perf_counter) -> None:
        self.monitor, self.settings = monitor, settings
        self.train_seconds = 0.0
        self.epoch_seconds: list[float] = []  # with what prepares an epoch
        self.evaluations: list[dict[str, float]] = []  # epoch, step, train_seconds, score, and loss if it is logged
        self.accumulation: list[AccumulationWindow] = []  # also those before the run was resumed
        self._clock = clock
        self._mark = 0.0
        self.epoch_start = 0.0

    def _count(self) -> None:
        """Count the time since the mark, and set the mark."""
        now = self._clock()
        self.train_seconds += now - self._mark
        self._mark = now

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        # Lightning has a hook before a checkpoint is written and none between that and the loading of the next batch,
        # which counts; a checkpoint callback of our own would miss those of the user
        save = trainer.save_checkpoint

        def save_outside_the_time(*args: Any, **kwargs: Any) -> None:
            self._count()
            save(*args, **kwargs)
            self._mark = self._clock()

        trainer.save_checkpoint = save_outside_the_time  # type: ignore[method-assign]
        self._mark = self._clock()

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        vars(trainer).pop("save_checkpoint")  # what is saved now is after the time

    def on_train_batch_end(self, trainer: pl.Trainer, *args: Any, **kwargs: Any) -> None:
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, AdaptiveGradientAccumulation) and callback.history:
                latest = callback.history[-1]  # the callback stands first: it has closed this batch's window
                if not self.accumulation or self.accumulation[-1] != latest:
                    self.accumulation.append(latest)
        self._count()

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not trainer.sanity_checking:
            self._count()

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._mark = self._clock()
        if trainer.sanity_checking:
            return
        logged = trainer.callback_metrics
        if self.monitor in logged:
            # not current_epoch, which is one more where a callback validates at the end of training
            epoch = trainer.fit_loop.epoch_progress.current.ready - 1
            about = {"epoch": epoch, "step": trainer.global_step, "train_seconds": self.train_seconds}
            losses = [float(logged[name]) for name in ("val/loss", "val_loss") if name in logged]
            loss = {"loss": losses[0]} if losses else {}
            self.evaluations.append({**about, "score": float(logged[self.monitor]), **loss})

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._count()
        self.epoch_seconds.append(self.train_seconds - self.epoch_start)
        self.epoch_start = self.train_seconds

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        states = checkpoint["callbacks"]
        written = states[self.state_key]["settings"]
        if not same_run(json.loads(written), json.loads(self.settings)):  # of another run, whose best is not this one's
            states[self.state_key]["evaluations"] = []
            for key in [key for key in states if key.startswith(ModelCheckpoint.__name__)]:
                del states[key]

    def state_dict(self) -> dict[str, Any]:
        saved = {name: getattr(self, name) for name in ("settings", *self.RESTORED)}
        return saved | {"accumulation": [tuple(window) for window in self.accumulation]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for name in self.RESTORED:
            setattr(self, name, state_dict[name])
        self.accumulation = [AccumulationWindow(*window) for window in state_dict["accumulation"]]
