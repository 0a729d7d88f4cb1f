"""The margin warm-up."""

import math

import lightning.pytorch as pl
import pytest
import torch
from harness.scripted_masking import quiet_trainer
from harness.searches import FindsInTheSecondEpoch
from lightning.pytorch.callbacks import BatchSizeFinder, LearningRateFinder, OnExceptionCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from as_lightning import AdaptiveGradientAccumulation, ASSoftmaxLoss, DeltaWarmup, MaskingMonitor


def test_hold_stays_at_initial_and_then_drops_to_delta_and_linear_goes_there_in_equal_steps():
    hold = DeltaWarmup(ratio=0.3, initial=0.9)
    assert [hold.delta_at(batch, 10, 0.1) for batch in range(10)] == [0.9] * 3 + [0.1] * 7
    linear = DeltaWarmup(batches=4, initial=0.9, shape="linear")
    deltas = [linear.delta_at(batch, math.inf, 0.1) for batch in range(6)]
    assert deltas == pytest.approx([0.9, 0.7, 0.5, 0.3, 0.1, 0.1])


def test_the_length_is_the_ratio_of_the_batches_also_where_a_float_is_below_it():
    for hundredths in range(101):
        warmup = DeltaWarmup(ratio=hundredths / 100)
        assert sum(warmup.delta_at(batch, 100, 0.1) == 1.0 for batch in range(100)) == hundredths


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({}, "ratio and batches"),
        ({"ratio": 0.1, "batches": 3}, "ratio and batches"),
        ({"ratio": 1.5}, "ratio"),
        ({"ratio": "a"}, "ratio"),
        ({"batches": -1}, "batches"),
        ({"batches": 1.5}, "batches"),
        ({"ratio": 0.1, "initial": 2.0}, "initial"),
        ({"ratio": 0.1, "shape": "cosine"}, "shape"),
    ],
)
def test_bad_arguments_are_refused_by_name(arguments, name):
    with pytest.raises((ValueError, TypeError), match=name):
        DeltaWarmup(**arguments)


class Module(pl.LightningModule):
    """Notes the margin of each batch, and of the last validation."""

    lengths = (24, 24, 24, 24)
    fails_at: int | None = None

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(4, 3)
        self.criterion = ASSoftmaxLoss(delta=0.2)
        self.deltas: list[float] = []

    def train_dataloader(self):
        rows = self.lengths[self.trainer.current_epoch]
        inputs, target = torch.ones(rows, 4), torch.zeros(rows, dtype=torch.long)
        return DataLoader(TensorDataset(inputs, target), batch_size=4)

    val_dataloader = train_dataloader

    def training_step(self, batch, batch_idx):
        self.deltas.append(self.criterion.delta)
        if len(self.deltas) - 1 == self.fails_at:
            raise RuntimeError("out of memory")
        return self.criterion(self.net(batch[0]), batch[1])

    def validation_step(self, batch, batch_idx):
        self.validation_delta = self.criterion.delta

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(module, *callbacks, ckpt_path=None, data=None, **arguments) -> pl.Trainer:
    trainer = quiet_trainer(**{"max_epochs": 2, **arguments, "callbacks": list(callbacks)})
    trainer.fit(module, data, ckpt_path=ckpt_path)
    return trainer


def test_it_counts_batches_and_not_optimizer_steps_and_validation_uses_the_final_margin():
    module, monitor = Module(), MaskingMonitor()
    fit(
        module,
        DeltaWarmup(ratio=0.6),
        monitor,
        accumulate_grad_batches=3,
        log_every_n_steps=1,
        val_check_interval=2,
    )
    assert module.deltas == [1.0] * 7 + [0.2] * 5
    assert module.validation_delta == module.criterion.delta == 0.2
    assert [epoch.samples for epoch in monitor.history] == [24, 24]


class ChangesLength(Module):
    """Each epoch has a length of its own, and saves a checkpoint."""

    lengths = (32, 8, 24)

    def on_train_epoch_end(self):
        folder = self.trainer.default_root_dir
        self.trainer.save_checkpoint(f"{folder}/{self.trainer.current_epoch}.ckpt")


def test_the_length_is_fixed_at_the_first_batch_of_training(tmp_path):
    settings = {
        "max_epochs": 3,
        "reload_dataloaders_every_n_epochs": 1,
        "default_root_dir": tmp_path,
    }
    whole, resumed = ChangesLength(), ChangesLength()
    fit(whole, DeltaWarmup(ratio=0.5), **settings)
    assert whole.deltas == [1.0] * 12 + [0.2] * 4  # half of three epochs of eight batches
    warmup = DeltaWarmup(ratio=0.5)
    fit(resumed, warmup, **settings, ckpt_path=tmp_path / "1.ckpt")
    assert resumed.deltas == whole.deltas[10:]
    resumed.deltas.clear()
    fit(resumed, warmup, **settings)  # another training
    assert resumed.deltas == whole.deltas


@pytest.mark.parametrize("max_epochs", [-1, 2])
def test_a_ratio_beside_max_steps_is_refused_and_names_batches(max_epochs):
    module = Module()
    with pytest.raises(ValueError, match="batches"):
        fit(module, DeltaWarmup(ratio=0.1), max_steps=5, max_epochs=max_epochs)
    assert module.deltas == []
    fit(module, DeltaWarmup(batches=2), max_steps=5, max_epochs=max_epochs)
    assert module.deltas == [1.0] * 2 + [0.2] * 3


@pytest.mark.parametrize(
    "finder",
    [
        LearningRateFinder(num_training_steps=4, early_stop_threshold=None, update_attr=False),
        FindsInTheSecondEpoch(),
    ],
)
def test_a_search_of_the_learning_rate_leaves_it_as_it_is(finder, tmp_path):
    plain, searched = Module(), Module()
    settings = {"max_epochs": 4, "default_root_dir": tmp_path, "limit_val_batches": 0}
    fit(plain, DeltaWarmup(ratio=0.5, shape="linear"), **settings)
    fit(searched, DeltaWarmup(ratio=0.5, shape="linear"), finder, **settings)
    search = slice(6, 10) if isinstance(finder, FindsInTheSecondEpoch) else slice(0, 4)
    del searched.deltas[search]
    assert searched.deltas == plain.deltas


def test_a_search_of_the_batch_size_leaves_it_and_the_counts_as_they_are(tmp_path):
    class Sized(pl.LightningDataModule):
        batch_size = 2

        def train_dataloader(self):
            inputs, target = torch.ones(24, 4), torch.zeros(24, dtype=torch.long)
            return DataLoader(TensorDataset(inputs, target), batch_size=self.batch_size)

        val_dataloader = train_dataloader

    module, finder = Module(), BatchSizeFinder(max_trials=2, steps_per_trial=2)
    monitor, speed = MaskingMonitor(), AdaptiveGradientAccumulation()
    warmup = DeltaWarmup(ratio=0.5)
    fit(module, finder, warmup, monitor, speed, data=Sized(), default_root_dir=tmp_path)
    assert module.deltas[-12:] == [1.0] * 6 + [0.2] * 6  # of 4 samples each
    assert [epoch.samples for epoch in monitor.history] == [24, 24]
    assert sum(window.samples for window in speed.history) == 48


def test_a_ratio_passes_a_fast_dev_run():
    module = Module()
    fit(module, DeltaWarmup(ratio=0.5), fast_dev_run=4)
    assert module.deltas == [1.0, 1.0, 0.2, 0.2]


def test_it_repeats_the_margin_of_a_batch_that_an_exception_has_ended(tmp_path):
    whole, failing, resumed = Module(), Module(), Module()
    fit(whole, DeltaWarmup(batches=10, shape="linear"))
    failing.fails_at = 4
    saves = OnExceptionCheckpoint(tmp_path)
    with pytest.raises(RuntimeError, match="out of memory"):
        fit(failing, DeltaWarmup(batches=10, shape="linear"), saves, enable_checkpointing=True)
    assert failing.criterion.delta == 0.2
    path = tmp_path / "on_exception.ckpt"
    fit(resumed, DeltaWarmup(batches=10, shape="linear"), ckpt_path=path)
    assert failing.deltas == whole.deltas[:5]
    assert resumed.deltas[:6] == whole.deltas[4:10]
