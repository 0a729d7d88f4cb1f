"""Whose ``delta`` is it: the margin, or an argument of the module that the mixin is mixed into."""

from __future__ import annotations

import warnings

import lightning.pytorch as pl
import pytest
import torch
from torch import nn

from as_lightning import ASSoftmaxMixin


class Plain(pl.LightningModule):
    def __init__(self, features: int = 4) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Linear(features, 3)


class Huber(pl.LightningModule):
    """Has a delta of its own, as a Huber loss does."""

    def __init__(self, features: int = 4, delta: float = 5.0) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.huber = delta
        self.net = nn.Linear(features, 3)


class PassesOn(Huber):
    def __init__(self, *args, extra: int = 0, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.extra = extra


class PlainAS(ASSoftmaxMixin, Plain):
    pass


class HuberAS(ASSoftmaxMixin, Huber):
    pass


class PassesOnAS(ASSoftmaxMixin, PassesOn):
    pass


@pytest.mark.parametrize("name", ["delta", "as_softmax_delta"])
def test_both_names_set_the_margin_of_a_module_without_a_delta_of_its_own(name):
    module = PlainAS(**{name: 0.3})
    assert module.as_softmax_delta == 0.3
    assert dict(module.hparams) == {"features": 4, "delta": 0.3, "delta_warmup": None}
    assert PlainAS(**{name: None}).hparams.delta == 0.1


def test_the_margin_given_twice_is_refused():
    with pytest.raises(TypeError, match=r"delta=0\.2 and as_softmax_delta=0\.3 are the same margin"):
        PlainAS(delta=0.2, as_softmax_delta=0.3)


@pytest.mark.parametrize("cls", [HuberAS, PassesOnAS])
@pytest.mark.parametrize(
    ("args", "arguments", "huber", "margin"),
    [
        ((), {"delta": 2.0, "as_softmax_delta": 0.3}, 2.0, 0.3),
        ((), {"as_softmax_delta": 0.3}, 5.0, 0.3),
        ((), {"delta": None, "as_softmax_delta": None}, 5.0, 0.1),
        ((4, 7.0), {}, 7.0, 0.1),
    ],
    ids=["both", "the margin alone", "None stands for what is not given", "by position"],
)
def test_a_module_with_a_delta_of_its_own_keeps_it(cls, args, arguments, huber, margin):
    module = (HuberAS if args else cls)(*args, **arguments)  # through *args a position's name cannot be told
    assert (module.huber, module.as_softmax_delta) == (huber, margin)
    assert (module.hparams.delta, module.hparams.as_softmax_delta) == (huber, margin)


@pytest.mark.parametrize("cls", [HuberAS, PassesOnAS])
def test_a_delta_that_could_have_meant_the_margin_is_warned_of_and_names_the_way_out(cls):
    with pytest.warns(UserWarning, match=r"Huber.__init__ has an argument delta of its own.*as_softmax_delta="):
        module = cls(delta=0.3)
    assert (module.huber, module.as_softmax_delta) == (0.3, 0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cls(as_softmax_delta=0.2)
        cls()


@pytest.mark.parametrize("cls", [HuberAS, PassesOnAS])
def test_a_checkpoint_loads_back_with_both_deltas(cls, tmp_path):
    trainer = pl.Trainer(logger=False, accelerator="cpu", default_root_dir=tmp_path)
    trainer.strategy.connect(cls(delta=2.0, as_softmax_delta=0.3))
    trainer.save_checkpoint(tmp_path / "model.ckpt")
    loaded = cls.load_from_checkpoint(tmp_path / "model.ckpt", weights_only=True)
    assert (loaded.huber, loaded.as_softmax_delta) == (2.0, 0.3)


def test_setting_the_margin_changes_the_hyperparameter_that_holds_it():
    plain, huber = PlainAS(delta=0.3), HuberAS(delta=2.0, as_softmax_delta=0.3)
    plain.as_softmax_delta = huber.as_softmax_delta = 0.4
    assert plain.hparams.delta == 0.4
    assert (huber.hparams.delta, huber.hparams.as_softmax_delta, huber.huber) == (2.0, 0.4, 2.0)


@pytest.mark.parametrize("delta", [-0.1, 1.5])
def test_a_margin_outside_zero_and_one_is_refused_when_it_is_set(delta):
    module = PlainAS()
    with pytest.raises(ValueError, match=r"delta .* \[0, 1\], got"):
        module.as_softmax_delta = delta
    assert module.as_softmax_delta == 0.1
    assert torch.is_grad_enabled()
