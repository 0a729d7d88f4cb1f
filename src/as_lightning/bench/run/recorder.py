"""What a run measures while it trains: its time and its evaluations."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import lightning.pytorch as pl
import torch
from torch.nn.parameter import is_lazy

from as_lightning.bench.run.identity import RunIdentity

LOSSES = {"val/loss", "val_loss", "test/loss", "test_loss"}


class RunRecorder(pl.Callback):
    """Records the time spent training, and every evaluation with the training time up to it.

    The clock stops in validation. It includes the loading of data, the writing of checkpoints, the
    time between two epochs, and the callbacks that come before this one. The score is logged as
    `monitor`, and averaged over the processes; the run's `identity` is saved in its checkpoints.

    An evaluation has diverged if a trained weight is not finite, or the loss that it logs is NaN.
    Its score is then NaN, whatever a metric computes from the class that stands for NaN.
    """

    RESTORED = ("train_seconds", "epoch_seconds", "evaluations")

    def __init__(
        self,
        monitor: str,
        identity: RunIdentity | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.monitor, self.identity = monitor, identity
        self.train_seconds = 0.0
        self.epoch_seconds: list[float] = []  # each with the preparation of its epoch
        # epoch, step, train_seconds, score; loss if it is logged
        self.evaluations: list[dict[str, float]] = []
        self.diverged = False  # whether the latest evaluation has diverged
        self._before: dict[str, Any] = {}  # what was logged before this validation
        self._clock = clock
        self._mark = 0.0

    def _count(self) -> None:
        now = self._clock()
        self.train_seconds += now - self._mark
        self._mark = now

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._mark = self._clock()

    def on_train_batch_end(self, trainer: pl.Trainer, *args: Any, **kwargs: Any) -> None:
        self._count()

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._count()
        self.epoch_seconds.append(self.train_seconds - sum(self.epoch_seconds))

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._before = dict(trainer.callback_metrics)
        if not trainer.sanity_checking:
            self._count()

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._note_divergence(trainer, pl_module)
        self._mark = self._clock()
        logged = trainer.callback_metrics
        if trainer.sanity_checking or self.monitor not in logged:
            return
        if logged[self.monitor] is self._before.get(self.monitor):
            return  # Lightning keeps the value of a metric that this validation does not log
        score = over_ranks(trainer, logged[self.monitor])
        evaluation = {
            # not current_epoch, which is one more where a callback validates at the end of training
            "epoch": trainer.fit_loop.epoch_progress.current.ready - 1,
            "step": trainer.global_step,
            "train_seconds": self.train_seconds,
            "score": math.nan if self.diverged else score,
        }
        for name in ("val_loss", "val/loss"):
            if name in logged:
                evaluation["loss"] = over_ranks(trainer, logged[name])
        self.evaluations.append(evaluation)

    def on_test_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._note_divergence(trainer, pl_module)

    def _note_divergence(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        finite = all(bool(weight.isfinite().all()) for weight in trained_weights(pl_module))
        for name in LOSSES & trainer.callback_metrics.keys():
            finite &= not trainer.callback_metrics[name].isnan()
        self.diverged = not trainer.strategy.reduce_boolean_decision(finite)

    def state_dict(self) -> dict[str, Any]:
        state = {name: getattr(self, name) for name in self.RESTORED}
        return state | {"identity": asdict(self.identity) if self.identity else None}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for name in self.RESTORED:
            setattr(self, name, state_dict[name])


def trained_weights(module: torch.nn.Module) -> list[torch.Tensor]:
    return [each for each in module.parameters() if each.requires_grad and not is_lazy(each)]


def over_ranks(trainer: pl.Trainer, value: Any) -> float:
    """Return the mean over the processes, each of which has the value of its own data."""
    if trainer.world_size > 1:
        value = trainer.strategy.reduce(torch.as_tensor(value).detach().clone(), reduce_op="mean")
    return float(value)
