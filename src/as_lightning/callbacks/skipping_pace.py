"""How learning-rate schedules go on while epochs leave samples out."""

from __future__ import annotations

import math
from typing import Literal

import lightning.pytorch as pl

from as_lightning.callbacks.adaptive_gradient_accumulation import AdaptiveGradientAccumulation
from as_lightning.callbacks.lr_pace import follow_data


class SkippingPace:
    """Advances schedulers with ``interval="step"`` in shortened epochs, so that they end where the data would end.

    Args:
        follows: ``"data"``: the data covered, skipped or not. ``"steps"``: optimizer steps, as Lightning does it.

    Attributes:
        full_batches: batches of an epoch that takes all samples; 0 before there was one.
        followed: batches of the running epoch that the schedulers have followed.
    """

    def __init__(self, follows: Literal["data", "steps"]) -> None:
        if follows not in ("data", "steps"):
            raise ValueError(f"lr_pace must be 'data' or 'steps', got {follows!r}")
        self.follows = follows
        self.forget()

    def forget(self) -> None:
        """The state before training."""
        self.full_batches = self.followed = 0

    def follow(self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch_idx: int) -> None:
        """Advance the schedulers after a batch on which the optimizer has stepped."""
        batches, self.followed = batch_idx + 1 - self.followed, batch_idx + 1
        epoch_batches = int(trainer.num_training_batches)
        if self.follows == "steps" or epoch_batches >= self.full_batches or not pl_module.automatic_optimization:
            return
        callbacks: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]
        adaptive = any(isinstance(callback, AdaptiveGradientAccumulation) for callback in callbacks)
        accumulated = 1 if adaptive else trainer.accumulate_grad_batches
        epochs = math.inf if trainer.max_epochs in (None, -1) else trainer.max_epochs
        full_steps = -(-self.full_batches // accumulated) * epochs
        if trainer.max_steps != -1 and trainer.max_steps < full_steps:
            return  # training ends with its steps, whatever the data, and so does the schedule
        follow_data(
            trainer,
            pl_module,
            last_batch=batch_idx,
            batches=batches,
            epoch_batches=epoch_batches,
            full_epoch_batches=self.full_batches,
            accumulated=accumulated,
        )
