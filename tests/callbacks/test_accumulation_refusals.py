"""What cannot work is refused before a step is taken, with the way out in the message."""

import math
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from harness.scripted_masking import ScriptedMasking, batches_of, loader_of, quiet_trainer
from harness.token_batches import MaskedTagger, Tagger, token_batches
from lightning.pytorch.callbacks import GradientAccumulationScheduler, StochasticWeightAveraging
from lightning.pytorch.strategies import DeepSpeedStrategy, SingleDeviceStrategy
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor

from as_lightning import ASSoftmaxLoss, MaskingCounter
from as_lightning.callbacks import AccumulationSchedule, AdaptiveGradientAccumulation, TokenBudget


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


# Lightning itself refuses a second one of the same class.
class Another(AdaptiveGradientAccumulation):
    pass


class BringsScheduler(NeverTrains):
    def configure_callbacks(self) -> list[pl.Callback]:
        return [GradientAccumulationScheduler({0: 1, 4: 2})]


class TurnsManual(NeverTrains):
    def setup(self, stage: str) -> None:
        self.automatic_optimization = False


class TakesIterator(NeverTrains):
    def training_step(self, dataloader_iter: Any) -> Any:  # type: ignore[override]
        raise AssertionError("training has started")


def without_counter() -> NeverTrains:
    module = NeverTrains()
    del module.masking_counter
    return module


FOURS = AccumulationSchedule({0: 4})


@pytest.mark.parametrize(
    ("make", "arguments", "message"),
    [
        (TurnsManual, {}, "automatic_optimization"),
        (TakesIterator, {}, "dataloader_iter"),
        (without_counter, {}, "masking_counter"),
        (NeverTrains, {"accumulate_grad_batches": 2}, "accumulate_grad_batches=2"),
        (
            NeverTrains,
            {"strategy": AccumulatesByItself(torch.device("cpu"))},
            "AccumulatesByItself",
        ),
        (BringsScheduler, {}, "GradientAccumulationScheduler"),
        (NeverTrains, {"callbacks": [Another(max_steps=2)]}, "Another"),
        (NeverTrains, {"callbacks": [StochasticWeightAveraging(0.1)]}, "StochasticWeight"),
        (without_counter, {"ours": AdaptiveGradientAccumulation(FOURS, items="module")}, "masking"),
    ],
)
def test_what_cannot_work_is_refused_before_training(make, arguments, message):
    ours = arguments.pop("ours", AdaptiveGradientAccumulation(max_steps=4))
    callbacks = [ours, *arguments.get("callbacks", ())]
    trainer, module = quiet_trainer(**arguments | {"max_epochs": 1, "callbacks": callbacks}), make()
    for _ in range(2):  # what is refused once is refused again
        with pytest.raises(MisconfigurationException, match=message):
            trainer.fit(module, loader_of(batches_of(6)))


def test_deepspeed_accumulates_by_itself() -> None:
    deepspeed = object.__new__(DeepSpeedStrategy)  # its constructor wants the package and a GPU
    assert deepspeed.handles_gradient_accumulation is True


def test_a_module_that_makes_its_counter_in_setup_is_welcome() -> None:
    class MakesItLate(ScriptedMasking):
        def setup(self, stage: str) -> None:
            self.masking_counter = MaskingCounter()

    module = MakesItLate()
    del module.masking_counter
    fit(module)


def test_a_loss_that_is_there_for_validation_alone_is_refused_where_its_masking_is_needed() -> None:
    class OnlyValidates(ScriptedMasking):
        def __init__(self) -> None:
            super().__init__()
            del self.masking_counter
            self.masked = ASSoftmaxLoss(0.1)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return self.loss_of(batch)

    schedule = AdaptiveGradientAccumulation(AccumulationSchedule({0: 2}))
    quiet_trainer(max_epochs=1, callbacks=[schedule]).fit(OnlyValidates(), loader_of(batches_of(4)))
    assert [window.length for window in schedule.history] == [2, 2]
    with pytest.raises(MisconfigurationException, match="OnlyValidates"):
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


# Items


class ReturnsRows(Tagger):
    """Its masked loss has a number for each row, so nobody can say what its mean divides by."""

    def __init__(self) -> None:
        super().__init__()
        self.criterion = ASSoftmaxLoss(reduction="none")

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.criterion(self.net(batch[0]).flatten(0, 1), batch[1].flatten()).mean()


class TwoLosses(ReturnsRows):
    """The second is of the first tokens alone."""

    def __init__(self, rows: int = 8) -> None:
        super().__init__()
        self.criterion, self.rows = ASSoftmaxLoss(), slice(rows)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        logits, target = self.net(batch[0]).flatten(0, 1), batch[1].flatten()
        return self.criterion(logits, target) + self.criterion(logits[self.rows], target[self.rows])


class CountsNothing(MaskedTagger):
    """Every second batch is of a task with a loss of its own."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor | None:
        kind = Tagger if batch_idx % 2 else MaskedTagger
        return kind.training_step(self, batch, batch_idx)


@pytest.mark.parametrize(
    ("make", "policy", "items", "message"),
    [
        (Tagger, FOURS, lambda batch: -1, "items of a batch"),
        (Tagger, FOURS, lambda batch: batch["labels"], "items= does not fit"),
        (Tagger, FOURS, lambda batch: float("nan"), "got nan"),
        (Tagger, FOURS, lambda batch: torch.tensor(float("inf")), "items of a batch"),
        (Tagger, FOURS, lambda batch: None, "got None"),
        (Tagger, FOURS, lambda batch: batch[1] != -100, "got tensor"),
        (ReturnsRows, FOURS, "module", "items=lambda batch"),
        (TwoLosses, FOURS, "module", "items=lambda batch"),
        (CountsNothing, FOURS, "module", "items=lambda batch"),
    ],
)
def test_items_that_are_no_number_or_cannot_be_known_are_refused_before_the_step(
    make, policy, items, message
):
    module, before = make(), make()
    callback = AdaptiveGradientAccumulation(policy, items=items)
    with pytest.raises((TypeError, ValueError, MisconfigurationException), match=message):
        quiet_trainer(max_epochs=1, callbacks=[callback]).fit(
            module, loader_of(token_batches((3, 17, 1, 24, 8)))
        )
    for parameter, untrained in zip(module.parameters(), before.parameters(), strict=True):
        assert torch.equal(parameter, untrained)


def test_two_losses_of_a_batch_that_divide_by_the_same_are_weighed_together() -> None:
    module, callback = TwoLosses(24), AdaptiveGradientAccumulation(FOURS, items="module")
    quiet_trainer(max_epochs=1, callbacks=[callback]).fit(
        module, loader_of(token_batches((3, 17, 1, 24)))
    )
    assert [window.items for window in callback.history] == [45]


# Optimizers that compute the loss again


class ComputesTwice(torch.optim.AdamW):
    """As optimizers do that compute the loss again at other weights (LBFGS, SAM); here they are the
    same.
    """

    def step(self, closure: Any = None) -> Any:
        closure()
        return super().step(closure)


def test_an_optimizer_that_computes_a_loss_again_is_refused() -> None:
    callback = AdaptiveGradientAccumulation(AccumulationSchedule({0: 1}))
    with pytest.raises(MisconfigurationException, match="ComputesTwice"):
        quiet_trainer(max_epochs=1, callbacks=[callback]).fit(
            MaskedTagger(optimizer=ComputesTwice), loader_of(token_batches((3, 17, 1, 24)))
        )


# Arguments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_steps": 0}, "max_steps"),
        ({"max_steps": 2.0}, "max_steps"),
        ({"max_steps": True}, "max_steps"),
        ({"scale": 0.0}, "scale"),
        ({"scale": math.nan}, "scale"),
        ({"scale": "1"}, "scale"),
        ({"lr_interval": "epochs"}, "lr_interval"),
        ({"lr_scale": "cubic"}, "lr_scale"),
        ({"items": "tokens"}, "items"),
        ({"policy": object()}, "policy"),
        ({"policy": 4}, "max_steps=4"),
        ({"policy": FOURS, "max_steps": 4}, "max_steps"),
        ({"policy": TokenBudget(100)}, "TokenBudget"),
        ({"policy": TokenBudget(100), "items": "module"}, "TokenBudget"),
        ({"policy": AccumulationSchedule({0: 1}, by="items")}, "AccumulationSchedule"),
    ],
)
def test_arguments_outside_their_range(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        AdaptiveGradientAccumulation(**arguments)


@pytest.mark.parametrize("schedule", [{}, {1: 2}, {0: 0}, {0: 1, -1: 2}, {0: 1.5}])
def test_a_schedule_that_says_no_length_everywhere_is_refused(schedule: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="schedule"):
        AccumulationSchedule(schedule)
