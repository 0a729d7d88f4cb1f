"""What skipping samples cannot work with, refused before training starts."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities.signature_utils import is_param_in_hook_signature

from as_lightning.callbacks.epoch_batches import replicas_of
from as_lightning.callbacks.numbered_loader import NumberedLoader


def refuse_trainer(trainer: pl.Trainer, callback: pl.Callback, kind: type[pl.Callback]) -> None:
    """Raise unless ``callback``, one of its ``kind``, alone decides which samples an epoch takes."""
    name, settings = type(callback).__name__, _settings(trainer)
    for other in settings.callbacks:
        if other is not callback and isinstance(other, kind):
            raise MisconfigurationException(
                f"{name} and {type(other).__name__} both decide which samples an epoch takes: remove one of the two "
                "callbacks."
            )
    if settings.reload_dataloaders_every_n_epochs > 1:
        raise MisconfigurationException(
            f"{name} changes the length of every epoch, but Trainer(reload_dataloaders_every_n_epochs="
            f"{settings.reload_dataloaders_every_n_epochs}) keeps an old one: set it to 1, or leave it out."
        )


def refuse_module(pl_module: pl.LightningModule, callback: pl.Callback) -> None:
    """Raise unless Lightning tells which batch comes."""
    if is_param_in_hook_signature(pl_module.training_step, "dataloader_iter", explicit=True):
        raise MisconfigurationException(
            f"{type(callback).__name__} needs to know which batch comes, but {type(pl_module).__name__}.training_step "
            "takes a dataloader_iter: take (batch, batch_idx), or remove the callback."
        )


def refuse_unsharded(trainer: pl.Trainer, loader: NumberedLoader, callback: pl.Callback) -> None:
    """Raise unless several processes share the data by a ``DistributedSampler``, whose order is that of them all."""
    replicas, _ = replicas_of(loader.loader)
    if trainer.world_size > 1 and replicas != trainer.world_size:
        raise MisconfigurationException(
            f"{type(callback).__name__} makes one plan for the {trainer.world_size} processes of the training, but the "
            f"sampler of the training loader is for {replicas}: leave Trainer(use_distributed_sampler=True), so that "
            "Lightning gives the loader a DistributedSampler, or give it one yourself."
        )


def _settings(trainer: pl.Trainer) -> Any:
    """The trainer, whose public settings its type does not name."""
    return trainer


def refuse_other_samples(samples: int, planned: int, callback: pl.Callback) -> None:
    """Raise if the data set has changed its length."""
    if samples != planned:
        raise MisconfigurationException(
            f"{type(callback).__name__} has planned for {planned} samples of training data, but there are {samples} "
            "now: a data set must keep its samples, and their numbers, in every epoch."
        )


def refuse_other_loader(trainer: pl.Trainer, loader: NumberedLoader | None, callback: pl.Callback) -> None:
    """Raise unless training is on ``loader`` alone."""
    if trainer.train_dataloader is not loader:
        raise MisconfigurationException(
            f"{type(callback).__name__} needs one torch.utils.data.DataLoader for training, got "
            f"{type(trainer.train_dataloader).__name__}: train on one loader, or remove the callback."
        )
