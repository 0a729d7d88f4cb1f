"""What skipping the backward pass does not work with is refused, with the way out."""

from __future__ import annotations

import warnings
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from harness.narrowed_modules import NO_GUARDS, OneClass, backward_skipping, fit
from harness.sleeping_samples import SleepingClassifier
from lightning.pytorch.strategies import FSDPStrategy
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor, nn

from as_lightning import MaskedSampleSkipping
from as_lightning.callbacks.backward_skipping import BackwardSkipping


@pytest.mark.parametrize(("slack", "error"), [(-0.1, ValueError), (1.5, ValueError), ("0.1", TypeError)])
def test_a_slack_out_of_range_is_refused_by_name(slack: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="slack must be a share in"):
        MaskedSampleSkipping(skip_backward=True, slack=slack)


class WithBatchNorm(OneClass):
    frozen = False

    def __init__(self) -> None:
        super().__init__()
        self.body.append(nn.BatchNorm1d(8).double())

    def on_train_epoch_start(self) -> None:
        if self.frozen:
            self.body[-1].eval()


def test_batch_norm_in_training_mode_is_refused_and_a_frozen_one_is_not() -> None:
    module = WithBatchNorm()
    with pytest.raises(
        MisconfigurationException, match=r"BatchNorm in training mode.*layer\.eval\(\).*skip_backward=False"
    ):
        fit(module, [backward_skipping()])
    assert "training_step" not in vars(module)  # put back after the error too
    module.frozen = True
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(module, [backward_skipping()])
    assert not [warning for warning in caught if "BatchNorm" in str(warning.message)]
    assert min(module.sizes) < 8


def test_a_module_without_the_mixin_is_refused() -> None:
    with pytest.raises(MisconfigurationException, match="SleepingClassifier is not one: mix it in, or sleep only"):
        fit(SleepingClassifier(), [backward_skipping()])


def test_manual_optimization_and_so_several_optimizers_are_refused() -> None:
    class Manual(OneClass):
        automatic_optimization = False

    with pytest.raises(MisconfigurationException, match=r"Manual\.automatic_optimization is False.*or sleep only"):
        fit(Manual(), [backward_skipping()])


class WithoutLog(OneClass):
    """torch 2.13 does not compile Lightning's ``self.log``."""

    def log(self, *arguments: Any, **settings: Any) -> None:
        pass


def test_a_module_compiled_as_a_whole_is_refused() -> None:
    module: Any = torch.compile(WithoutLog(), backend="eager")
    with pytest.raises(
        MisconfigurationException, match=r"compile the network inside WithoutLog \(self.net.compile\(\)\)"
    ):
        fit(module, [backward_skipping()])
    fit(module, [])  # it is compiled as before


def test_a_margin_where_nothing_is_masked_is_refused() -> None:
    with pytest.raises(MisconfigurationException, match=r"margin 0.95 and slack=0.1 make 1 or more.*Lower one"):
        fit(OneClass(delta=0.95), [backward_skipping()])


def test_a_strategy_that_shards_the_model_is_refused() -> None:
    trainer = pl.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    trainer.strategy.__class__ = type("Sharded", (FSDPStrategy,), {})
    with pytest.raises(MisconfigurationException, match="works on one device and with strategy='ddp', not with Shard"):
        BackwardSkipping(0.1).install(trainer, OneClass(), lambda: 8)


class TwoLosses(OneClass):
    def loss(self, inputs: Tensor, target: Tensor) -> Tensor:
        return super().loss(inputs, target) + super().loss(-inputs, target)


class FirstOfTwo(OneClass):
    """The second loss comes later, when batches have been narrowed for long."""

    def loss(self, inputs: Tensor, target: Tensor) -> Tensor:
        loss = super().loss(inputs, target)
        return loss + super().loss(-inputs, target) if self.trainer.global_step == 40 else loss


@pytest.mark.parametrize("module", [TwoLosses, FirstOfTwo])
def test_two_losses_in_a_step_are_refused(module: type[OneClass]) -> None:
    with pytest.raises(
        MisconfigurationException, match="needs one loss per step, but training_step has computed a sec"
    ):
        fit(module(), [backward_skipping()])


def test_a_loss_that_is_not_reduced_is_refused() -> None:
    class Unreduced(OneClass):
        def loss(self, inputs: Tensor, target: Tensor) -> Tensor:
            return self.as_softmax_loss(self.head(self.body(inputs)), target, reduction="none").mean()

    with pytest.raises(MisconfigurationException, match=r"got reduction='none'.*Use 'mean' or 'sum', or sleep only"):
        fit(Unreduced(), [backward_skipping()])


class Flattened(OneClass):
    def loss(self, inputs: Tensor, target: Tensor) -> Tensor:
        return super().loss(inputs.repeat(3, 1), target.repeat(3))


class OfElsewhere(OneClass):
    """Takes its samples from its first batch, not from the running one."""

    kept: Any = None

    def loss(self, inputs: Tensor, target: Tensor) -> Tensor:
        self.kept = self.kept or (inputs, target)
        return super().loss(*self.kept)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Flattened, r"shape \(24,\), but the batch has 8 samples: give the loss targets whose first dimension"),
        (OfElsewhere, "narrowed to . live samples, but the loss has 8: training_step must take all its samples from"),
    ],
)
def test_a_loss_of_other_samples_than_the_batch_is_refused(module: type[OneClass], message: str) -> None:
    with pytest.raises(MisconfigurationException, match=message):
        fit(module(), [backward_skipping()])


def test_a_loss_that_is_not_the_mixins_is_refused() -> None:
    class Other(OneClass):
        def loss(self, inputs: Tensor, target: Tensor) -> Tensor:
            return nn.functional.cross_entropy(self.head(self.body(inputs)), target)

    with pytest.raises(MisconfigurationException, match=r"has not said which samples are live|no masking counts"):
        fit(Other(), [backward_skipping()])


def test_a_part_of_a_batch_that_cannot_be_narrowed_is_refused_with_the_hook_that_narrows_it() -> None:
    class Pairs(OneClass):
        """Its batch has one row more than samples."""

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            (inputs, target, numbers), starts = batch
            assert len(starts) == len(target) + 1
            return super().training_step((inputs, target, numbers), batch_idx)

    class WithHook(Pairs):
        def narrow_batch(self, part: Tensor, kept: Tensor) -> Tensor:
            return part[: len(kept) + 1]

    def collate(samples: list[Any]) -> Any:
        return torch.utils.data.default_collate(samples), torch.arange(len(samples) + 1)

    with pytest.raises(
        MisconfigurationException, match=r"batch\[1\] is a Tensor of shape \(9,\): define `def narrow_batch"
    ):
        fit(Pairs(), [backward_skipping()], collate_fn=collate)
    module = WithHook()
    fit(module, [backward_skipping()], collate_fn=collate)
    assert min(module.sizes) < 8


def test_without_the_flag_none_of_this_is_refused() -> None:
    module = TwoLosses()
    fit(module, [MaskedSampleSkipping(1, **NO_GUARDS)])
    assert module.sizes
