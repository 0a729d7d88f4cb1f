"""Modules and callbacks that something copies or pickles while ``fit`` runs, as weight averaging
and loggers do.
"""

import copy
import pickle
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from harness.own_modules import Points, WithCriterion
from harness.scripted_masking import quiet_trainer

from as_lightning import ASSoftmaxMixin, MarginHistogram, TemperatureScaling
from as_lightning.callbacks import AdaptiveGradientAccumulation, MaskingMonitor


class Masked(ASSoftmaxMixin, WithCriterion):
    as_softmax_replaces = "criterion"


def pickled(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))


class Copies(pl.Callback):
    """Copies the module, and the callbacks before it, inside an epoch and at its end."""

    def __init__(self, *, of_callbacks: bool = False) -> None:
        self.of_callbacks = of_callbacks
        self.modules: list[pl.LightningModule] = []
        self.callbacks: list[pl.Callback] = []

    def _copy(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.of_callbacks:
            first = trainer.callbacks[0]  # type: ignore[attr-defined]
            self.callbacks += [copy.deepcopy(first), pickled(first)]
        else:
            self.modules.append(copy.deepcopy(pl_module))

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.current_epoch == 1 and batch_idx == 0:
            self._copy(trainer, pl_module)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._copy(trainer, pl_module)


def fit(module: pl.LightningModule, callbacks: list[pl.Callback], epochs: int = 2) -> None:
    torch.manual_seed(0)
    quiet_trainer(max_epochs=epochs, callbacks=callbacks, num_sanity_val_steps=0).fit(
        module, Points()
    )


def test_a_copied_module_trains_as_one_that_was_never_trained_with_the_callback() -> None:
    copies, module = Copies(), Masked()
    fit(module, [AdaptiveGradientAccumulation(), copies])
    after = {name: weight.clone() for name, weight in module.state_dict().items()}
    for copied in copies.modules:
        twin = Masked()
        twin.load_state_dict(copied.state_dict())
        fit(twin, [])
        fit(copied, [])
        assert all(
            torch.equal(weight, copied.state_dict()[name])
            for name, weight in twin.state_dict().items()
        )
        fit(copied, [AdaptiveGradientAccumulation()])  # and with a callback of its own
    assert all(torch.equal(weight, module.state_dict()[name]) for name, weight in after.items())


@pytest.mark.parametrize(
    "build", [MaskingMonitor, AdaptiveGradientAccumulation, TemperatureScaling, MarginHistogram]
)
def test_callbacks_can_be_copied_and_pickled_inside_and_after_fit(build):
    callback, copies = build(), Copies(of_callbacks=True)
    fit(Masked(), [callback, copies])
    for copied in (copy.deepcopy(callback), pickled(callback)):
        assert getattr(copied, "history", None) == getattr(callback, "history", None)
    for copied in copies.callbacks:
        fit(Masked(), [copied])
        assert {part.epoch for part in getattr(copied, "history", [])} in ({0, 1}, set())
