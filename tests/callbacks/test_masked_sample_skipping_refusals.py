"""What skipping cannot work with is refused before training, with the way out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from harness.scripted_masking import BatchStream, quiet_trainer
from harness.sleeping_samples import SAMPLES, NumberedSamples, SleepingClassifier, numbered_loader
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch.utils.data import DataLoader, TensorDataset

from as_lightning.callbacks import MaskedSampleSkipping
from as_lightning.callbacks.full_epochs import FullEpochs
from as_lightning.masking_counter import MaskingCounter


def fit(callbacks: list[pl.Callback], loader: Any = None, *, module: Any = None, **settings: Any) -> None:
    trainer = quiet_trainer(**({"max_epochs": 3, "callbacks": callbacks} | settings))
    trainer.fit(SleepingClassifier() if module is None else module, numbered_loader() if loader is None else loader)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"max_sleep": -1}, ValueError, "max_sleep must be an integer from 0 to 255, got -1"),
        ({"delta": 1.5}, ValueError, "delta"),
        ({"patience": 0}, ValueError, "patience"),
        ({"min_masked": 2}, ValueError, "min_masked must be a share"),
        ({"max_woken": -1}, ValueError, "max_woken must be a share"),
        ({"class_floor": 1.1}, ValueError, "class_floor must be a share"),
        ({"lr_pace": "batches"}, ValueError, "lr_pace must be 'data' or 'steps', got 'batches'"),
        ({"full_epochs": (0.5, 0.5)}, ValueError, r"full_epochs=\(0.5, 0.5\) leaves no epoch to skip samples in"),
        ({"full_epochs": (-1, 0)}, ValueError, "full_epochs must be counts of at least 0"),
        ({"full_epochs": (0, 1.5)}, ValueError, r"shares in \[0, 1\] \(float\), got end=1.5"),
        ({"full_epochs": ("1", 0)}, TypeError, "full_epochs must be numbers of epochs"),
        ({"full_epochs": (float("nan"), 0)}, ValueError, r"shares in \[0, 1\] \(float\), got start=nan"),
        ({"full_epochs": 1}, TypeError, r"full_epochs must be a pair \(start, end\), such as \(1, 0\), got 1"),
        ({"full_epochs": "10"}, TypeError, r"full_epochs must be a pair \(start, end\), such as \(1, 0\), got '10'"),
        ({"full_epochs": (1, 0, 2)}, ValueError, r"full_epochs must be a pair .*, got \(1, 0, 2\)"),
        ({"skip_backward": "no"}, TypeError, "skip_backward must be True or False, got 'no'"),
        ({"refresh_batch_norm": 1}, TypeError, "refresh_batch_norm must be True or False, got 1"),
        ({"targets": ["cat", "dog"]}, TypeError, r"targets must be integers from 0, .*, got \['cat', 'dog'\]"),
        ({"targets": [0.0, 1.0]}, TypeError, "targets must be integers from 0, .*, got torch.float32"),
        ({"targets": [0, -1]}, ValueError, "targets must be integers from 0, .*, got -1"),
    ],
)
def test_arguments_out_of_range_are_refused_by_name(settings: dict[str, Any], error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        MaskedSampleSkipping(**settings)


def test_targets_of_another_shape_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=rf"targets must have shape \({SAMPLES},\), one class for .*, got \(1,\)"):
        fit([MaskedSampleSkipping(targets=[0])])


def test_counts_that_leave_no_epoch_are_refused() -> None:
    with pytest.raises(MisconfigurationException, match="leaves none of the 3 epochs to skip samples in"):
        fit([MaskedSampleSkipping(full_epochs=(1, 2))])


def test_one_epoch_needs_no_epoch_to_skip_in() -> None:
    fit([MaskedSampleSkipping()], fast_dev_run=True)


def test_epochs_at_the_end_need_to_know_the_end() -> None:
    with pytest.raises(MisconfigurationException, match="needs to know when training ends"):
        fit([MaskedSampleSkipping(full_epochs=(1, 1))], max_epochs=-1, max_steps=3)


@pytest.mark.parametrize(("share", "epochs", "count"), [(0.125, 8, 1), (0.125, 12, 2), (0.1, 30, 3), (0.0, 9, 0)])
def test_a_share_is_rounded_up_to_whole_epochs(share: float, epochs: int, count: int) -> None:
    full = FullEpochs(0, share)
    assert [full.contains(epoch, epochs) for epoch in range(epochs)] == [False] * (epochs - count) + [True] * count


class Another(MaskedSampleSkipping):
    pass


def test_two_skipping_callbacks_are_refused() -> None:
    with pytest.raises(MisconfigurationException, match="both decide which samples an epoch takes: remove one"):
        fit([MaskedSampleSkipping(), Another(delta=0.5)])
    with pytest.raises(RuntimeError, match="more than one stateful callback of type `MaskedSampleSkipping`"):
        fit([MaskedSampleSkipping(), MaskedSampleSkipping(delta=0.5)])  # by Lightning


def test_an_old_length_that_lightning_keeps_is_refused() -> None:
    with pytest.raises(MisconfigurationException, match=r"reload_dataloaders_every_n_epochs=2.* set it to 1, or leave"):
        fit([MaskedSampleSkipping()], reload_dataloaders_every_n_epochs=2)


def test_nothing_sleeps_while_lightning_overfits_the_same_batches() -> None:
    module, skipping = SleepingClassifier(), MaskedSampleSkipping(min_masked=0.0)
    fit([skipping], module=module, overfit_batches=2, max_epochs=4)
    assert module.epochs == [module.epochs[0]] * 4
    assert [epoch.awake for epoch in skipping.history] == [SAMPLES] * 4


@pytest.mark.parametrize(
    ("loader", "message"),
    [
        (DataLoader(BatchStream([torch.ones(2)])), "BatchStream is an iterable data set"),
        (DataLoader(NumberedSamples(), batch_size=None), "batch_size=None"),
        ([(torch.ones(2, 6), torch.ones(2).long(), torch.arange(2))], "got a Tensor"),
        ({"a": numbered_loader(), "b": numbered_loader()}, "train on one loader"),
    ],
)
def test_loaders_whose_samples_have_no_numbers_are_refused(loader: Any, message: str) -> None:
    with pytest.raises(MisconfigurationException, match=message):
        fit([MaskedSampleSkipping()], loader)


def test_a_module_without_a_counter_is_refused() -> None:
    module = SleepingClassifier()
    del module.masking_counter
    with pytest.raises(MisconfigurationException, match=r"Mix in as_lightning.ASSoftmaxMixin"):
        fit([MaskedSampleSkipping()], module=module)


class SaysNothing(SleepingClassifier):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = super().training_step(batch, batch_idx)
        self.masking_counter.take_live()
        return loss


def test_a_loss_that_does_not_say_which_samples_are_live_is_refused() -> None:
    with pytest.raises(MisconfigurationException, match="has not said which samples are live: compute the training"):
        fit([MaskedSampleSkipping()], module=SaysNothing())


class Flattens(SleepingClassifier):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = super().training_step(batch, batch_idx)
        self.masking_counter.live = self.masking_counter.live.repeat(3)
        return loss


def test_live_samples_of_another_number_than_the_batch_are_refused() -> None:
    with pytest.raises(MisconfigurationException, match=r"shape \(24,\), but the batch has 8 samples"):
        fit([MaskedSampleSkipping()], module=Flattens())


class TakesTheIterator(SleepingClassifier):
    def training_step(self, dataloader_iter: Iterator[Any]) -> Any:  # type: ignore[override]
        return None


def test_a_training_step_that_takes_the_iterator_is_refused() -> None:
    with pytest.raises(MisconfigurationException, match="takes a dataloader_iter"):
        fit([MaskedSampleSkipping()], module=TakesTheIterator())


class Grows(NumberedSamples):
    def __init__(self) -> None:
        super().__init__()
        self.length = SAMPLES

    def __len__(self) -> int:
        return self.length


class GrowsEachEpoch(SleepingClassifier):
    def __init__(self) -> None:
        super().__init__()
        self.grows = Grows()

    def train_dataloader(self) -> DataLoader[Any]:
        return numbered_loader(self.grows)

    def on_train_epoch_end(self) -> None:
        self.grows.length -= 1


def test_a_data_set_that_changes_its_length_is_refused() -> None:
    trainer = quiet_trainer(max_epochs=3, callbacks=[MaskedSampleSkipping()])
    with pytest.raises(
        MisconfigurationException, match="planned for 61 samples of training data, but there are 60 now"
    ):
        trainer.fit(GrowsEachEpoch())


class YieldsNames:
    def __iter__(self) -> Iterator[list[str]]:
        return iter([["a", "b"]])

    def __len__(self) -> int:
        return 1


def test_a_batch_sampler_that_yields_what_is_no_list_of_numbers_is_refused() -> None:
    with pytest.raises(MisconfigurationException, match=r"yields lists of sample numbers, .*got \['a', 'b'\]"):
        fit([MaskedSampleSkipping()], numbered_loader(batch_sampler=YieldsNames()))


def test_a_checkpoint_of_another_data_set_is_refused(tmp_path: Any) -> None:
    trainer = quiet_trainer(max_epochs=2, callbacks=[MaskedSampleSkipping()])
    trainer.fit(SleepingClassifier(), numbered_loader())
    trainer.save_checkpoint(tmp_path / "saved.ckpt")
    again = quiet_trainer(max_epochs=4, callbacks=[MaskedSampleSkipping()])
    with pytest.raises(ValueError, match="of 61 samples, but the data set has 50"):
        again.fit(SleepingClassifier(), numbered_loader(NumberedSamples(50)), ckpt_path=tmp_path / "saved.ckpt")


def test_a_data_set_without_targets_has_no_class_floor_and_is_warned_of() -> None:
    class Unpacked(SleepingClassifier):
        def __init__(self) -> None:
            super().__init__()
            self.masking_counter = MaskingCounter()

    samples = NumberedSamples()
    data = TensorDataset(samples.inputs, samples.targets, torch.arange(SAMPLES))
    with pytest.warns(
        UserWarning, match=r"TensorDataset has no attribute `targets`.*targets=\.\.\.\), or class_floor=0"
    ):
        fit([MaskedSampleSkipping()], numbered_loader(data), module=Unpacked(), max_epochs=1)
    fit([MaskedSampleSkipping(targets=samples.targets)], numbered_loader(data), module=Unpacked(), max_epochs=1)


@pytest.mark.parametrize(("epochs", "full"), [(2, []), (4, [3]), (6, [5]), (8, [7]), (12, [10, 11])])
def test_a_share_of_the_epochs_is_the_nearest_count_and_a_half_is_rounded_up(epochs: int, full: list[int]) -> None:
    last = FullEpochs(0, 0.125)
    assert [epoch for epoch in range(epochs) if last.contains(epoch, epochs)] == full
