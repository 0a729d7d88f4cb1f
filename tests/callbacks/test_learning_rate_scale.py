"""With ``lr_scale`` a window of k batches steps at sqrt(k) or k times the rate, and nothing else
changes.
"""

import math
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from harness.scripted_masking import (
    ScriptedMasking,
    batches_of,
    loader_of,
    quiet_trainer,
    same_weights,
    with_a_scaler,
)
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from oracles.accumulation_loop import train_by_hand
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, ExponentialLR, OneCycleLR

from as_lightning import AccumulationSchedule, AdaptiveGradientAccumulation
from as_lightning.callbacks.accumulation_policy import MaskingPolicy

pytestmark = pytest.mark.usefixtures("one_thread")

SCHEDULE = {0: 1, 2: 3, 5: 4}
BATCHES = 14
FACTORS = {"none": lambda k: 1.0, "sqrt": math.sqrt, "linear": float}


class TwoGroups(ScriptedMasking):
    """Two parameter groups, and a schedule that is computed from the rates as they stand."""

    def __init__(self, build=ExponentialLR, tensor_rates=False, **kwargs):
        super().__init__((1, 3, 4), dtype=torch.float64)
        self.build, self.build_arguments, self.tensor_rates = build, kwargs, tensor_rates

    def make(self) -> tuple[Optimizer, Any]:
        rates = [torch.tensor(rate) if self.tensor_rates else rate for rate in (0.01, 0.03)]
        groups = [
            {"params": self.net[i].parameters(), "lr": rate}
            for i, rate in zip((0, 2), rates, strict=True)
        ]
        optimizer = torch.optim.AdamW(groups, weight_decay=0.1)
        return optimizer, self.build(optimizer, **self.build_arguments)

    def configure_optimizers(self) -> Any:
        optimizer, scheduler = self.make()
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }


SCHEDULERS = [
    (ExponentialLR, {"gamma": 0.97}),
    (CosineAnnealingLR, {"T_max": 2 * BATCHES}),
    (OneCycleLR, {"max_lr": 0.05, "total_steps": 2 * BATCHES}),
]


def fit(module, lr_scale, *, policy=None, loader=None, **arguments):
    speed = AdaptiveGradientAccumulation(
        policy or AccumulationSchedule(SCHEDULE), lr_scale=lr_scale
    )
    fit_arguments = {"ckpt_path": arguments.pop("ckpt_path", None)}
    callbacks = [*arguments.pop("callbacks", ()), speed]
    trainer = quiet_trainer(**{"max_epochs": 2, "callbacks": callbacks, **arguments})
    data = loader_of(batches_of(BATCHES, dtype=torch.float64)) if loader is None else loader
    trainer.fit(module, data, **fit_arguments)
    return speed


def by_hand(module, speed, scale, **options):
    """The loop that sets the rates before each step, puts them back, and advances the schedule by
    the batches.
    """
    optimizer, scheduler = module.make()
    train_by_hand(
        module,
        optimizer,
        [batches_of(BATCHES, dtype=torch.float64)] * 2,
        [(window.epoch, window.batch, window.length) for window in speed.history],
        loss_of=module.loss_of,
        rate_scale=FACTORS.get(scale, scale),
        after_step=lambda length: [scheduler.step() for _ in range(length)],
        **options,
    )
    return module


@pytest.mark.filterwarnings("ignore:Detected call of .lr_scheduler")
@pytest.mark.parametrize("lr_scale", sorted(FACTORS))
@pytest.mark.parametrize(
    ("build", "arguments"), SCHEDULERS, ids=lambda value: getattr(value, "__name__", "")
)
def test_weights_and_rates_equal_the_hand_written_loop(lr_scale, build, arguments):
    module = TwoGroups(build, **arguments)
    speed = fit(module, lr_scale)
    assert {window.length for window in speed.history} >= {1, 3, 4}
    assert same_weights(module, by_hand(TwoGroups(build, **arguments), speed, lr_scale))


AS_SPEED = MaskingPolicy(max_steps=4)


class WithoutRate(TwoGroups):
    def make(self) -> tuple[Optimizer, Any]:
        optimizer, scheduler = super().make()
        optimizer.param_groups[0]["lr"] = None
        return optimizer, scheduler


def test_an_optimizer_without_a_learning_rate_is_refused_before_the_first_step() -> None:
    with pytest.raises(MisconfigurationException, match="lr_scale"):
        fit(WithoutRate(gamma=0.97), "auto", policy=AS_SPEED)


class Watches(pl.Callback):
    def __init__(self) -> None:
        self.rates: list[list[float]] = []

    def on_train_batch_end(self, trainer: pl.Trainer, *args: Any) -> None:
        self.rates.append([group["lr"] for group in trainer.optimizers[0].param_groups])


class SetsRates(TwoGroups):
    """Warms the rates up by itself, in one of the hooks that run inside the optimizer's step."""

    def set_rates(self) -> None:
        warm = min(1.0, (self.trainer.global_step + 1) / 6)
        for group, rate in zip(self.trainer.optimizers[0].param_groups, (0.01, 0.03), strict=True):
            group["lr"] = warm * rate


def sets_rates_in(hook: str) -> SetsRates:
    def sets(self: SetsRates, *arguments: Any) -> Any:
        self.set_rates()
        return getattr(super(SetsRates, self), hook)(*arguments)

    return type("Sets", (SetsRates,), {hook: sets})(gamma=1.0)


@pytest.mark.parametrize("hook", ["training_step", "on_train_batch_start"])
def test_rates_that_are_set_before_the_loss_is_computed_are_scaled_too(hook: str) -> None:
    module, watches = sets_rates_in(hook), Watches()
    speed = fit(module, "sqrt", callbacks=[watches])

    def warmed_up(length: int) -> float:
        warm = min(1.0, (next(groups) // 2 + 1) / 6)
        return warm * math.sqrt(length)

    groups = iter(range(2 * len(speed.history)))  # of all steps
    expected = by_hand(TwoGroups(gamma=1.0), speed, warmed_up)
    for trained, parameter in zip(module.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(trained, parameter, rtol=1e-13, atol=1e-15)
    assert watches.rates[-1] == [0.01, 0.03]


class CallsItsBase(torch.optim.AdamW):
    def step(self, closure: Any = None) -> Any:
        return super().step(closure)


class CallsBase(TwoGroups):
    def make(self) -> tuple[Optimizer, Any]:
        of_base, _ = super().make()  # from here on the hooks run in the step of the base class too
        optimizer = CallsItsBase(of_base.param_groups, weight_decay=0.1)
        return optimizer, self.build(optimizer, **self.build_arguments)


def with_tensor_rates(gamma: float) -> TwoGroups:
    return TwoGroups(gamma=gamma, tensor_rates=True)


@pytest.mark.parametrize(("make", "tolerance"), [(CallsBase, 0.0), (with_tensor_rates, 1e-4)])
def test_an_optimizer_of_another_kind_is_scaled_once_and_its_rates_put_back(make, tolerance):
    plain, other = TwoGroups(gamma=0.97), make(gamma=0.97)
    fit(plain, "linear")
    fit(other, "linear")
    for trained, expected in zip(other.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(trained, expected, rtol=tolerance, atol=tolerance / 100)
    ours, theirs = (module.optimizers().param_groups for module in (other, plain))
    for group, expected_group in zip(ours, theirs, strict=True):
        assert float(group["lr"]) == pytest.approx(expected_group["lr"], rel=tolerance)


class Overflows(TwoGroups):
    """One window's gradient is not finite."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = super().training_step(batch, batch_idx)
        return loss * math.inf if (self.trainer.current_epoch, batch_idx) == (0, 6) else loss


@pytest.mark.parametrize("lr_scale", ["sqrt", "linear"])
def test_a_step_that_the_gradient_scaler_leaves_out_changes_no_rate(lr_scale: str) -> None:
    module, watches = Overflows(gamma=1.0), Watches()
    speed = fit(module, lr_scale, plugins=[plugin := with_a_scaler()], callbacks=[watches])
    assert plugin.scaler.get_scale() == 2.0**15  # it has left out one step
    assert watches.rates == [[0.01, 0.03]] * 2 * BATCHES

    left_out = next(
        i
        for i, window in enumerate(speed.history)
        if window.batch <= 6 < window.batch + window.length
    )
    del speed.history[left_out]
    assert same_weights(module, by_hand(TwoGroups(gamma=1.0), speed, lr_scale))
