"""Renews the running statistics of BatchNorm layers on random batches of all data."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.utilities.seed import isolate_rng
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim.swa_utils import update_bn
from torch.utils.data import DataLoader, RandomSampler

from as_lightning.callbacks.numbered_loader import NumberedLoader


def has_batch_norm(pl_module: pl.LightningModule) -> bool:
    """Whether a layer of the module keeps running statistics of its batches."""
    return any(isinstance(module, _BatchNorm) and module.track_running_stats for module in pl_module.modules())


def refresh_batch_norm(
    trainer: pl.Trainer, pl_module: pl.LightningModule, loader: NumberedLoader, *, seed: int, batches: int = 32
) -> None:
    """Replace the running statistics by the mean over ``batches`` batches drawn at random from all of the data.

    The module is called as :func:`torch.optim.swa_utils.update_bn` calls it: on the first element of a batch that is a
    tuple or a list, on the batch otherwise. Parameters and random states stay as they are, and every process draws the
    same batches.

    Args:
        trainer: moves the batches to the device.
        pl_module: the module; it is left in the mode that it is in.
        loader: gives the data set, the size of a batch (that of its largest so far) and how one is made.
        seed: of the random batches.
        batches: how many, fewer if the data set has fewer.
    """
    dataset: Any = loader.loader.dataset
    size = max(loader.largest_batch, 1)
    with isolate_rng():
        torch.manual_seed(seed)
        drawn = DataLoader(
            dataset,
            batch_size=size,
            sampler=RandomSampler(dataset, num_samples=min(batches * size, len(dataset))),
            drop_last=len(dataset) >= size,  # BatchNorm refuses a last batch of one sample
            collate_fn=loader.loader.collate_fn,
        )
        update_bn((trainer.strategy.batch_to_device(batch) for batch in drawn), pl_module)
