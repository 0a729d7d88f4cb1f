"""Renews the running statistics of BatchNorm layers on random batches of all data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.utilities.rank_zero import rank_zero_warn
from lightning.pytorch.utilities.seed import isolate_rng
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.data import DataLoader, RandomSampler

from as_lightning.callbacks.numbered_loader import NumberedLoader
from as_lightning.functional.argument_checks import check_switch


class BatchNormRefresh:
    """The BatchNorm layers that training batches update, where epochs leave out samples.

    A frozen layer (``layer.eval()``) keeps its statistics, and needs no warning.

    Args:
        refreshes: whether :meth:`refresh` does anything. If not, a warning says that it could.
    """

    def __init__(self, refreshes: bool) -> None:
        self.refreshes = check_switch("refresh_batch_norm", refreshes)
        self._warned = self._seen = False
        self._training: list[nn.Module] = []  # the layers that are in training mode in training batches

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_training": []}  # a copy does not copy the module's layers

    def start(self) -> None:
        """A training begins."""
        self._seen, self._training = False, []

    def see_batch(self, pl_module: pl.LightningModule, batch_idx: int, callback: pl.Callback) -> None:
        """See which layers training finds in training mode. (Before a validation, all are in evaluation mode.)

        Only the first batch of an epoch, or of a training that begins inside one, is looked at.
        """
        if batch_idx and self._seen:
            return
        self._seen = True
        self._training = _in_training(pl_module)
        if not (self.refreshes or self._warned) and _with_statistics(self._training):
            self._warned = True
            rank_zero_warn(
                f"{type(pl_module).__name__} has BatchNorm layers, whose running statistics will see only the samples "
                f"that {type(callback).__name__} does not skip. Set refresh_batch_norm=True to renew them on random "
                "batches of all data before each validation."
            )

    @torch.no_grad()
    def refresh(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        loader: NumberedLoader,
        *,
        seed: int,
        batches: int = 32,
    ) -> None:
        """Replace the running statistics by the mean over ``batches`` batches drawn at random from all of the data.

        Every layer is in the mode that it was in when the epoch began. The module is called as
        :func:`torch.optim.swa_utils.update_bn` calls it: on the first element of a batch that is a tuple or a list, on
        the batch otherwise, in the trainer's precision. Parameters, modes and random states stay as they are, and every
        process draws the same batches.

        Args:
            trainer: gives the precision, and moves the batches to the device.
            pl_module: the module.
            loader: gives the data set, the size of a batch (that of its largest so far) and how one is made.
            seed: of the random batches.
            batches: how many, fewer if the data set has fewer.
        """
        layers = _with_statistics(self._training)
        if not (self.refreshes and layers):
            return
        dataset: Any = loader.loader.dataset
        size = max(loader.largest_batch, 1)
        with isolate_rng(), _modes_of_training(pl_module, self._training), _fresh_means(layers):
            torch.manual_seed(seed)
            drawn = DataLoader(
                dataset,
                batch_size=size,
                sampler=RandomSampler(dataset, num_samples=min(batches * size, len(dataset))),
                drop_last=len(dataset) >= size,  # BatchNorm refuses a last batch of one sample
                collate_fn=loader.loader.collate_fn,
            )
            for batch in drawn:
                batch = trainer.strategy.batch_to_device(trainer.precision_plugin.convert_input(batch))
                with trainer.precision_plugin.forward_context():
                    pl_module(batch[0] if isinstance(batch, (list, tuple)) else batch)


def _in_training(pl_module: nn.Module) -> list[nn.Module]:
    return [layer for layer in pl_module.modules() if layer.training]


def _with_statistics(layers: list[nn.Module]) -> list[_BatchNorm]:
    return [layer for layer in layers if isinstance(layer, _BatchNorm) and layer.track_running_stats]


@contextmanager
def _modes_of_training(pl_module: nn.Module, training: list[nn.Module]) -> Iterator[None]:
    """Only the layers of ``training`` are in training mode, and then every layer is in its own mode again."""
    modes = {layer: layer.training for layer in pl_module.modules()}
    wanted = set(training)
    try:
        for layer in modes:
            layer.training = layer in wanted
        yield
    finally:
        for layer, mode in modes.items():
            layer.training = mode


@contextmanager
def _fresh_means(layers: list[_BatchNorm]) -> Iterator[None]:
    """The running statistics begin anew, and are the plain mean over what comes."""
    momenta = [layer.momentum for layer in layers]
    try:
        for layer in layers:
            layer.reset_running_stats()
            layer.momentum = None
        yield
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
