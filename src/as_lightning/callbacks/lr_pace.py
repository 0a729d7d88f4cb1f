"""How a learning-rate schedule with ``interval="step"`` keeps the pace of the data.

Lightning advances such a scheduler once for each optimizer step. A schedule that was built from
``trainer.estimated_stepping_batches`` counts the steps of a training with one step for each batch.
Accumulation takes fewer steps: the schedule would not reach its end.

Source: Lightning's training loop advances a scheduler on a stepping batch :math:`b` with
:math:`(b + 1) \\bmod \\text{frequency} = 0`, where :math:`b` counts from 0 in each epoch.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import lightning.pytorch as pl


def follow_batches(
    trainer: pl.Trainer, pl_module: pl.LightningModule, *, last_batch: int, batches: int, stepped: bool
) -> None:
    """Advance the schedulers as ``batches`` windows of one batch would have, after a window of ``batches``.

    Call it in ``on_train_batch_end`` of the window's last batch: Lightning has advanced each scheduler at most once by
    then. Where ``Trainer(max_steps)`` may end training before the data do, only a part of the batches counts: see
    :func:`scheduled_batches`.

    Args:
        trainer: the trainer, for its schedulers and limits.
        pl_module: the module, whose ``lr_scheduler_step`` advances a scheduler.
        last_batch: 0-based index in the epoch of the window's last batch.
        batches: the window's length.
        stepped: whether the optimizer has stepped on the last batch.
    """
    end = last_batch + 1
    counted = scheduled_batches(trainer, last_batch, batches, stepped=stepped)

    def missing(frequency: int) -> int:
        taken = int(stepped and end % frequency == 0)  # by Lightning, on the last batch
        return end // frequency - (end - counted) // frequency - taken

    _advance(trainer, pl_module, missing)


def scheduled_batches(trainer: pl.Trainer, last_batch: int, batches: int, *, stepped: bool) -> int:
    """How many of a window's ``batches`` count for a schedule of ``trainer.estimated_stepping_batches`` steps.

    All of them, unless ``Trainer(max_steps)`` may end training before the data do. Then the remaining length of the
    schedule is the largest number of optimizer steps that can still come, ``min(steps left, batches left)``.
    """
    if trainer.max_steps == -1:
        return batches
    batches_left = math.inf
    if trainer.max_epochs not in (None, -1) and trainer.num_training_batches != math.inf:
        batches_left = (trainer.max_epochs - trainer.current_epoch) * trainer.num_training_batches - last_batch - 1
    steps_left = trainer.max_steps - trainer.global_step
    before = min(steps_left + stepped, batches_left + batches)
    return int(before - min(steps_left, batches_left))


def _advance(trainer: pl.Trainer, pl_module: pl.LightningModule, missing: Callable[[int], int]) -> None:
    """Advance each ``interval="step"`` scheduler ``missing(frequency)`` times.

    ``ReduceLROnPlateau`` counts checks of its metric, not data, and is left to Lightning.
    """
    for config in trainer.lr_scheduler_configs:
        if config.interval != "step" or config.reduce_on_plateau:
            continue
        for _ in range(missing(config.frequency)):
            pl_module.lr_scheduler_step(config.scheduler, None)
