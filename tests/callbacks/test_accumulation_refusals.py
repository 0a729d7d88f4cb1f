"""What cannot work is refused when fit starts, with the way out in the message."""

import math
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from harness.scripted_masking import ScriptedMasking, batches_of, loader_of, quiet_trainer
from lightning.pytorch.callbacks import GradientAccumulationScheduler, StochasticWeightAveraging
from lightning.pytorch.strategies import DeepSpeedStrategy, SingleDeviceStrategy
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import nn

from as_lightning import ASSoftmaxLoss
from as_lightning.callbacks import AccumulationSchedule, AdaptiveGradientAccumulation, TokenBudget
from as_lightning.masking_counter import MaskingCounter


def fit(module: pl.LightningModule, callbacks: Any = (), **arguments: Any) -> None:
    trainer = quiet_trainer(
        max_epochs=1, callbacks=[AdaptiveGradientAccumulation(max_steps=4), *callbacks], **arguments
    )
    trainer.fit(module, loader_of(batches_of(6)))


class NeverTrains(ScriptedMasking):
    """Refusals come before the first batch."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        raise AssertionError("training has started")


class AccumulatesByItself(SingleDeviceStrategy):
    handles_gradient_accumulation = True


class Another(
    AdaptiveGradientAccumulation
):  # Lightning itself refuses a second one of the same class
    pass


class BringsScheduler(NeverTrains):
    def configure_callbacks(self) -> list[pl.Callback]:
        return [GradientAccumulationScheduler({0: 1, 4: 2})]


class TurnsManual(NeverTrains):
    def setup(self, stage: str) -> None:
        self.automatic_optimization = False


class WithBatchNorm(NeverTrains):
    def __init__(self) -> None:
        super().__init__()
        self.net.append(nn.BatchNorm1d(4))


class TakesIterator(NeverTrains):
    def training_step(self, dataloader_iter: Any) -> Any:  # type: ignore[override]
        raise AssertionError("training has started")


def manual() -> NeverTrains:
    module = NeverTrains()
    module.automatic_optimization = False
    return module


def without_counter() -> NeverTrains:
    module = NeverTrains()
    del module.masking_counter
    return module


@pytest.mark.parametrize(
    ("make", "arguments", "message"),
    [
        (manual, {}, r"automatic_optimization is False.*Set it to True, or remove"),
        (TurnsManual, {}, "automatic_optimization is False"),
        (TakesIterator, {}, "dataloader_iter: take"),
        (without_counter, {}, r"NeverTrains.masking_counter is None. Mix in as_lightning"),
        (
            NeverTrains,
            {"accumulate_grad_batches": 2},
            r"accumulate_grad_batches=2\).*Remove that argument",
        ),
        (
            NeverTrains,
            {"strategy": AccumulatesByItself(torch.device("cpu"))},
            r"AccumulatesByItself, which \(as DeepSpeed.*Use strategy=",
        ),
        (
            NeverTrains,
            {"callbacks": [GradientAccumulationScheduler({0: 1, 4: 2})]},
            r"GradientAccumulationScheduler both set .* remove",
        ),
        (BringsScheduler, {}, "GradientAccumulationScheduler both set"),
        (NeverTrains, {"callbacks": [Another(max_steps=2)]}, "both set .* remove"),
        (
            WithBatchNorm,
            {"callbacks": [StochasticWeightAveraging(0.1)]},
            "StochasticWeightAveraging both set",
        ),
    ],
)
def test_what_cannot_work_is_refused_before_training_with_the_way_out(
    make: Any, arguments: dict[str, Any], message: str
) -> None:
    callbacks = [AdaptiveGradientAccumulation(max_steps=4), *arguments.get("callbacks", ())]
    trainer, module = quiet_trainer(**arguments | {"max_epochs": 1, "callbacks": callbacks}), make()
    for _ in range(2):  # what is refused once is refused again
        with pytest.raises(MisconfigurationException, match=message):
            trainer.fit(module, loader_of(batches_of(6)))


def test_deepspeed_accumulates_by_itself() -> None:
    deepspeed = object.__new__(DeepSpeedStrategy)  # its constructor wants the package and a GPU
    assert deepspeed.handles_gradient_accumulation is True


def test_weight_averaging_without_batch_norm_is_welcome() -> None:
    fit(ScriptedMasking((4,)), callbacks=[StochasticWeightAveraging(0.1)])


def test_a_module_that_makes_its_counter_in_setup_is_welcome() -> None:
    class MakesItLate(ScriptedMasking):
        def setup(self, stage: str) -> None:
            self.masking_counter = MaskingCounter()

    module = MakesItLate((4,))
    del module.masking_counter
    fit(module)


def test_a_schedule_by_steps_needs_no_masking_of_a_loss_that_is_there_for_validation() -> None:
    class OnlyValidates(ScriptedMasking):
        def __init__(self) -> None:
            super().__init__()
            del self.masking_counter
            self.val_loss = ASSoftmaxLoss()

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return self.loss_of(batch)

    schedule = AdaptiveGradientAccumulation(AccumulationSchedule({0: 2}))
    trainer = quiet_trainer(callbacks=[schedule], max_epochs=1)
    trainer.fit(OnlyValidates(), loader_of(batches_of(4)))
    assert [window.length for window in schedule.history] == [2, 2]
    with pytest.raises(MisconfigurationException, match="It has not called its ASSoftmaxLoss"):
        fit(OnlyValidates())


@pytest.mark.parametrize(
    "hook", ["on_train_batch_start", "on_train_epoch_start", "on_train_batch_end"]
)
def test_an_assignment_by_something_else_is_an_error_and_not_a_wrong_gradient(hook: str) -> None:
    class Assigns(ScriptedMasking):
        pass

    setattr(Assigns, hook, lambda self, *_: setattr(self.trainer, "accumulate_grad_batches", 3))
    with pytest.raises(MisconfigurationException, match="something else has since set it to 3"):
        fit(Assigns())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_steps": 0}, "max_steps must be an integer of at least 1, got 0"),
        ({"max_steps": 2.0}, "max_steps must be an integer of at least 1, got 2.0"),
        ({"max_steps": True}, "max_steps"),
        ({"scale": 0.0}, "scale must be a positive number, got 0.0"),
        ({"scale": math.nan}, "scale"),
        ({"scale": "1"}, "scale"),
        ({"lr_interval": "epochs"}, "lr_interval must be one of 'batch', 'step', got 'epochs'"),
        (
            {"lr_scale": "cubic"},
            "lr_scale must be one of 'auto', 'none', 'sqrt', 'linear', got 'cubic'",
        ),
        ({"normalize": "tokens"}, "normalize must be one of 'batches', 'items', got 'tokens'"),
        ({"loss_is": "none"}, "loss_is must be one of 'mean', 'sum', got 'none'"),
        ({"loss_is": "sum"}, "say what they are with items= too"),
        (
            {"items": len, "normalize": "batches"},
            "items= weighs the items of a window: leave it out",
        ),
        ({"items": "tokens"}, "items must be one of 'module', got 'tokens'"),
        ({"policy": AccumulationSchedule}, "policy must be a function of the closed window"),
        ({"policy": object()}, "policy must be a function of the closed window"),
        ({"policy": 4}, r"got 4 \(for AS-Speed write max_steps=4\)"),
        (
            {"policy": AccumulationSchedule({0: 2}), "max_steps": 4},
            "max_steps: arguments of AS-Speed",
        ),
        ({"policy": TokenBudget(100)}, "TokenBudget goes by items: say what they are with items="),
        (
            {"policy": AccumulationSchedule({0: 1}, by="items")},
            "AccumulationSchedule goes by items",
        ),
    ],
)
def test_arguments_outside_their_range(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        AdaptiveGradientAccumulation(**arguments)
