"""Where a callback comes between Lightning and the training loader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.trainer.states import TrainerFn


class LoaderIntercept:
    """Replaces the training loader when Lightning hands it to the strategy, before it asks for its length.

    ``Strategy.process_dataloader`` is the public place where a loader may be wrapped; Lightning calls it once it has
    given the loader a ``DistributedSampler``. While installed, ``Trainer(reload_dataloaders_every_n_epochs)`` is 1:
    Lightning then asks for the loader, and for its length, in each epoch. It would otherwise keep the length of the
    first one, and a shorter epoch would end before ``val_check_batch``, without validation.

    Args:
        replace: called as ``replace(trainer, dataloader)`` for the training loader of each epoch; returns the loader
            to train on.
    """

    def __init__(self, replace: Callable[[pl.Trainer, object], object]) -> None:
        self._replace = replace
        self._installed: tuple[pl.Trainer, int] | None = None  # where, and the trainer's own setting

    def install(self, trainer: pl.Trainer) -> None:
        """Begin to replace the loaders of ``trainer``, and of no other; installing twice is installing once."""
        if self._installed is not None:
            if self._installed[0] is trainer:
                return
            self.remove(self._installed[0])
        process = trainer.strategy.process_dataloader

        def process_dataloader(dataloader: object) -> object:
            processed = process(dataloader)
            fits = trainer.state.fn == TrainerFn.FITTING and trainer.training
            return self._replace(trainer, processed) if fits else processed

        strategy: Any = trainer.strategy
        strategy.process_dataloader = process_dataloader
        settings: Any = trainer
        self._installed = trainer, settings.reload_dataloaders_every_n_epochs
        settings.reload_dataloaders_every_n_epochs = 1

    def remove(self, trainer: pl.Trainer) -> None:
        """Leave the trainer as it was."""
        if self._installed is None or self._installed[0] is not trainer:
            return
        del trainer.strategy.process_dataloader
        settings: Any = trainer
        settings.reload_dataloaders_every_n_epochs = self._installed[1]
        self._installed = None

    def __getstate__(self) -> dict[str, Any]:
        """A copy, also a pickled one, is not installed."""
        return vars(self) | {"_installed": None}
