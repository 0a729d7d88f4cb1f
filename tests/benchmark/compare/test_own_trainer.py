"""One run of a user's module, with the loaders, callbacks and Trainer arguments that users bring."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from harness.own_modules import Points, WithCriterion
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from torch.utils.data import DataLoader

from as_lightning.benchmark.compare.own_inspection import inspect_module
from as_lightning.benchmark.compare.own_module import OwnModule
from as_lightning.benchmark.compare.plan import Run

FINAL = Run("final", "softmax", {}, 1.0, 0)


class SeveralLoaders(Points):
    """Two dataloaders of the validation split, and two of the test split."""

    def val_dataloader(self) -> list[DataLoader]:
        return [super().val_dataloader()] * 2

    def test_dataloader(self) -> list[DataLoader]:
        return [super().test_dataloader()] * 2


class TwoLoaders(WithCriterion):
    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        super().validation_step(batch, batch_idx)

    def test_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        super().test_step(batch, batch_idx)


class Falling(WithCriterion):
    """Its weight is the epoch; ``val/acc`` is best in the first, ``val/loss`` in the last."""

    def __init__(self) -> None:
        super().__init__()
        self.epoch = torch.nn.Parameter(torch.zeros(()), requires_grad=False)

    def on_train_epoch_start(self) -> None:
        self.epoch += 1

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self(batch[0])
        self.log("val/acc", 1 - self.epoch / 10)
        self.log("val/loss", -self.epoch)

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self(batch[0])
        self.log("test/acc", self.epoch)


def own_module(factory: Any = WithCriterion, data: Any = Points, monitor: str = "val/acc", **trainer: Any) -> OwnModule:
    settings = {"max_epochs": 1, "accelerator": "cpu"} | trainer
    own = OwnModule(factory, data(), "criterion", monitor, "max", settings)
    inspect_module(own, ("softmax",))
    return own


@pytest.mark.parametrize("loader", [0, 1])
def test_the_test_metric_may_come_from_any_of_several_test_dataloaders(loader: int) -> None:
    own = own_module(TwoLoaders, SeveralLoaders, f"val/acc/dataloader_idx_{loader}")
    assert own.test_metric == f"test/acc/dataloader_idx_{loader}"
    metrics = own.train(FINAL).metrics
    assert metrics[own.monitor] == metrics[f"acc/dataloader_idx_{loader}"]


class Renamed(WithCriterion):
    """A module with other names of the validation and the test metric."""

    names = ("val/acc", "test/acc")

    def log(self, name: str, value: Any, **how: Any) -> None:
        names = {"val/acc": self.names[0], "test/acc": self.names[1]}
        super().log(names.get(name, name), value, **how)


@pytest.mark.parametrize("names", [("valid_acc", "test_acc"), ("val/eval_f1", "test/eval_f1"), ("acc", "acc")])
def test_the_test_metric_is_found_by_the_words_that_name_the_splits(names, monkeypatch) -> None:
    monkeypatch.setattr(Renamed, "names", names)
    assert own_module(Renamed, monitor=names[0]).test_metric == names[1]


@pytest.mark.parametrize(
    "checkpoint",
    [
        lambda folder: ModelCheckpoint(folder, monitor="val/loss"),
        lambda folder: ModelCheckpoint(folder, monitor="val/acc", mode="max"),
        lambda folder: ModelCheckpoint(folder, save_top_k=0),
    ],
    ids=["of another metric", "of the same metric", "which saves nothing"],
)
def test_the_scored_weights_are_those_of_the_best_validation_beside_a_checkpoint_of_the_user(
    checkpoint, tmp_path: Path
) -> None:
    own = own_module(Falling, max_epochs=3, callbacks=[checkpoint(tmp_path)])
    assert own.train(FINAL).metrics["val/acc"] == 1  # the epoch whose validation was best


def test_a_single_callback_needs_no_list() -> None:
    own = own_module(max_epochs=3, callbacks=EarlyStopping("val/acc", mode="max", stopping_threshold=0.0))
    assert len(own.train(FINAL).evaluations) == 1


class CountsTrainings(pl.Callback):
    trainings = 0

    def __init__(self, every: int, then: Any = None) -> None:
        self.every, self.then, self.parts = every, then, {"clip": object()}

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        CountsTrainings.trainings += 1


def test_new_callback_objects_with_the_same_settings_read_the_finished_run(tmp_path: Path, monkeypatch) -> None:
    def trainings(every: int) -> int:
        monkeypatch.setattr(CountsTrainings, "trainings", 0)
        callbacks = [CountsTrainings(every, then=lambda: None), EarlyStopping("val/acc", mode="max")]
        own = OwnModule(
            WithCriterion,
            Points(),
            "criterion",
            "val/acc",
            "max",
            {"max_epochs": 1, "accelerator": "cpu", "callbacks": callbacks},
        )
        own.train(FINAL, tmp_path)
        return CountsTrainings.trainings

    assert [trainings(every) for every in (1, 1, 2)] == [1, 0, 1]
    text = (tmp_path / "result.json").read_text(encoding="utf-8")
    assert " at 0x" not in text
    assert "CountsTrainings(every=2" in text


@pytest.mark.parametrize(
    "trainer",
    [
        {"val_check_interval": 2},
        {"val_check_interval": 6, "check_val_every_n_epoch": None, "max_epochs": 2},
    ],
    ids=lambda trainer: ",".join(trainer),
)
def test_validation_may_be_at_another_interval_than_an_epoch(trainer) -> None:
    own = own_module(**trainer)
    assert own.train(FINAL).evaluations


def test_a_monitor_that_is_never_logged_is_refused_also_if_only_every_second_epoch_is_validated() -> None:
    with pytest.raises(ValueError, match="'val/f1' is never logged"):
        own_module(monitor="val/f1", max_epochs=2, check_val_every_n_epoch=2)


def test_a_budget_that_is_shorter_than_the_interval_of_validation_is_validated_at_its_end() -> None:
    own = own_module(max_epochs=4, check_val_every_n_epoch=3)
    result = own.train(Run("final", "softmax", {}, 0.5, 0))
    assert [evaluation["epoch"] for evaluation in result.evaluations] == [1]
