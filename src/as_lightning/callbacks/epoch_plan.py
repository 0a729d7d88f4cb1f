"""The batches of an epoch as the trainer can take them: the same number on each process, and not too few."""

from __future__ import annotations

import math
from typing import Any

import lightning.pytorch as pl
from torch import Tensor

from as_lightning.callbacks.batches_of_ranks import least_over_ranks
from as_lightning.callbacks.epoch_batches import batches_of_awake, replicas_of
from as_lightning.callbacks.numbered_loader import NumberedLoader


def plan_epoch(trainer: pl.Trainer, loader: NumberedLoader, awake: Tensor) -> None:
    """Give ``loader`` the batches of the trainer's current epoch, which leaves out what is not ``awake``."""
    batch_sampler: Any = loader.loader.batch_sampler
    if awake.all() and replicas_of(loader.loader) == (1, 0) and hasattr(batch_sampler, "__len__"):
        loader.plan(batch_sampler, len(batch_sampler))  # the very batches of a training without the callback
        return
    batches = batches_of_awake(
        loader.loader,
        awake,
        trainer.current_epoch,
        least=least_batches(trainer),
        broadcast=trainer.strategy.broadcast,
        least_over_ranks=lambda count: least_over_ranks(trainer, count),
    )
    loader.plan(batches, len(batches))


def least_batches(trainer: pl.Trainer) -> int:
    """The fewest batches with which Lightning begins an epoch.

    One batch must be left of a share ``limit_train_batches``. A ``val_check_interval`` in batches, unless it counts
    them over the epochs (``check_val_every_n_epoch=None``), must not be longer than the epoch.
    """
    settings: Any = trainer
    interval, limit = settings.val_check_interval, settings.limit_train_batches
    in_epoch = isinstance(interval, int) and settings.check_val_every_n_epoch is not None
    least = interval if in_epoch and settings.limit_val_batches > 0 else 1
    if not isinstance(limit, float) or limit == 0.0:
        return least
    batches = math.ceil(least / limit)
    return batches if int(batches * limit) >= least else batches + 1  # as Lightning rounds it
