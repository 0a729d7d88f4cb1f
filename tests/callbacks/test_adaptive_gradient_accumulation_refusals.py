"""What cannot work is refused when fit starts, with the way out in the message."""

from __future__ import annotations

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

from as_lightning.callbacks import AdaptiveGradientAccumulation
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


def test_manual_optimization() -> None:
    module = NeverTrains()
    module.automatic_optimization = False
    with pytest.raises(MisconfigurationException, match=r"automatic_optimization is False.*Set it to True, or remove"):
        fit(module)


class AccumulatesByItself(SingleDeviceStrategy):
    handles_gradient_accumulation = True


def test_a_strategy_that_accumulates_by_itself() -> None:
    with pytest.raises(MisconfigurationException, match=r"AccumulatesByItself, which \(as DeepSpeed.*Use strategy="):
        fit(NeverTrains(), strategy=AccumulatesByItself(torch.device("cpu")))


def test_deepspeed_is_such_a_strategy() -> None:
    deepspeed = object.__new__(DeepSpeedStrategy)  # its constructor wants the package and a GPU
    assert deepspeed.handles_gradient_accumulation is True


def test_an_accumulation_that_the_trainer_was_given() -> None:
    with pytest.raises(MisconfigurationException, match=r"accumulate_grad_batches=2\).*Remove that argument"):
        fit(NeverTrains(), accumulate_grad_batches=2)


def test_a_scheduler_of_the_accumulation_beside_it() -> None:
    with pytest.raises(MisconfigurationException, match=r"GradientAccumulationScheduler both set .* remove"):
        fit(NeverTrains(), callbacks=[GradientAccumulationScheduler({0: 1, 4: 2})])


def test_a_scheduler_of_the_accumulation_that_the_module_brings() -> None:
    class Brings(NeverTrains):
        def configure_callbacks(self) -> list[pl.Callback]:
            return [GradientAccumulationScheduler({0: 1, 4: 2})]

    with pytest.raises(MisconfigurationException, match="GradientAccumulationScheduler both set"):
        fit(Brings())


def test_two_of_them() -> None:
    class Another(AdaptiveGradientAccumulation):  # Lightning itself refuses a second one of the same class
        pass

    with pytest.raises(MisconfigurationException, match=r"AdaptiveGradientAccumulation and Another both set .* remove"):
        fit(NeverTrains(), callbacks=[Another(max_steps=2)])


def test_weight_averaging_that_renews_batch_norm() -> None:
    module = NeverTrains()
    module.net.append(nn.BatchNorm1d(4))
    with pytest.raises(MisconfigurationException, match="StochasticWeightAveraging both set"):
        fit(module, callbacks=[StochasticWeightAveraging(0.1)])


def test_weight_averaging_without_batch_norm_is_welcome() -> None:
    fit(ScriptedMasking((4,)), callbacks=[StochasticWeightAveraging(0.1)])


def test_a_module_without_a_masking_counter() -> None:
    module = NeverTrains()
    del module.masking_counter
    with pytest.raises(MisconfigurationException, match=r"NeverTrains.masking_counter is None. Mix in as_lightning"):
        fit(module)


def test_a_module_that_makes_its_counter_in_setup_is_welcome() -> None:
    class MakesItLate(ScriptedMasking):
        def setup(self, stage: str) -> None:
            self.masking_counter = MaskingCounter()

    module = MakesItLate((4,))
    del module.masking_counter
    fit(module)


def test_a_module_that_turns_to_manual_optimization_in_setup() -> None:
    class TurnsManual(NeverTrains):
        def setup(self, stage: str) -> None:
            self.automatic_optimization = False

    with pytest.raises(MisconfigurationException, match="automatic_optimization is False"):
        fit(TurnsManual())


def test_a_module_that_counts_nothing() -> None:
    class Silent(ScriptedMasking):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return self.loss_of(batch)

    with pytest.raises(MisconfigurationException, match="has reported no masking counts"):
        fit(Silent())


def test_a_training_step_that_takes_an_iterator() -> None:
    class TakesIterator(NeverTrains):
        def training_step(self, dataloader_iter: Any) -> Any:  # type: ignore[override]
            raise AssertionError("training has started")

    with pytest.raises(MisconfigurationException, match="dataloader_iter: take"):
        fit(TakesIterator())


@pytest.mark.parametrize("hook", ["on_train_batch_start", "on_train_epoch_start", "on_train_batch_end"])
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
        ({"warmup_windows": -1}, "warmup_windows must be an integer of at least 0, got -1"),
        ({"update_every": 0}, "update_every must be an integer of at least 1, got 0"),
        ({"lr_pace": "epochs"}, "lr_pace must be 'data' or 'steps', got 'epochs'"),
    ],
)
def test_arguments_outside_their_range(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AdaptiveGradientAccumulation(**arguments)
