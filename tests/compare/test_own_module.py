"""compare() of modules as users write them, in real trainings."""

import importlib
import math
import os
import pickle
import random
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any, ClassVar

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from harness import own_modules
from harness.own_modules import HuggingFace, Points, Sentences, WithCriterion, WithMixin
from lightning.pytorch import callbacks
from lightning.pytorch.utilities import CombinedLoader
from torch import Tensor, nn
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    random_split,
)
from torch.utils.data.distributed import DistributedSampler

from as_lightning import MaskingMonitor, TemperatureScaling, compare
from as_lightning.bench.run.fingerprint import of_split
from as_lightning.bench.run.predictions import Predictions
from as_lightning.compare.own_loss import OwnLosses, TargetFinder
from as_lightning.compare.own_module import OwnCandidate, OwnModules
from as_lightning.compare.plan import Run
from as_lightning.functional import as_cross_entropy, logit_adjusted_loss

QUICK: dict[str, Any] = {
    "monitor": "val/acc",
    "seeds": 3,
    "trials": 1,
    "half_epochs": False,
    "methods": ["as_softmax"],
}
QUICK |= {
    "replaces": "criterion",
    "trainer": {"max_epochs": 2, "accelerator": "cpu"},
    "progress": False,
}
FINAL = Run("final", "softmax", {}, 1.0, 0)


class Focal(nn.Module):
    """The focal loss; with gamma 0 it is cross-entropy."""

    def __init__(self, gamma: float = 2.0):
        super().__init__()
        self.gamma = gamma

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        loss = F.cross_entropy(logits, target, reduction="none")
        return ((1 - torch.exp(-loss)) ** self.gamma * loss).mean()


def own_module(
    factory: Any = WithCriterion, data: Any = Points, monitor="val/acc", **trainer: Any
) -> OwnModules:
    settings = {"max_epochs": 1, "accelerator": "cpu"} | trainer
    losses = OwnLosses(["softmax", "as_softmax"])
    own = OwnModules(
        {"own": OwnCandidate(factory, data())}, losses, "criterion", monitor, "max", settings
    )
    own.look(4.0)
    return own


def trainer(**settings: Any) -> dict[str, Any]:
    return {"trainer": QUICK["trainer"] | settings}


def variant(base: type, **attributes: Any) -> Any:
    return type("Variant", (base,), attributes)


def without(base: type, name: str) -> Any:
    """A subclass that is without a method of Lightning's."""
    kind = pl.LightningModule if issubclass(base, pl.LightningModule) else pl.LightningDataModule
    return variant(base, **{name: getattr(kind, name)})


def no_batch(data: pl.LightningDataModule) -> list[Any]:
    return []


def with_method(
    module: Any, method: str, replaces: str | None, losses: Any = None, **settings: Any
) -> Any:
    OwnLosses([] if losses else [method], losses).put_in(module, method, replaces, settings)
    return module


@pytest.mark.parametrize(
    ("factory", "data", "replaces"),
    [
        (lambda: WithCriterion(lr=0.01), Points, "criterion"),
        (lambda: WithMixin(lr=0.01), Points, None),
        (lambda: HuggingFace(lr=1e-3), Sentences, "model"),
    ],
)
def test_a_module_of_each_form_is_compared_with_built_in_losses_and_its_own(
    factory, data, replaces, tmp_path
):
    asked = {
        "replaces": replaces,
        "methods": ["as_softmax", "entmax"],
        "losses": {"focal": Focal()},
        "seeds": 1,
    }
    report = compare(factory, data(), folder=tmp_path, **(QUICK | asked))
    record = report.record
    assert [run.candidate for run in record.results] == ["softmax", "as_softmax", "entmax", "focal"]
    assert (record.failures, record.split, record.splits, record.notes) == ([], "test", "fixed", [])
    (masked,) = [run.masking for run in record.results if run.candidate == "as_softmax"]
    assert (len(masked), masked[-1]["samples"] > 0) == (2, True)
    stored = [Predictions.read(file.parent) for file in tmp_path.rglob("predictions.csv")]
    assert all(
        found.ids.tolist() == list(range(len(found.ids))) for found in stored if found is not None
    )
    assert len(stored) == 4
    (session,) = {run.session for run in record.results}
    assert session
    page = report.save(tmp_path)
    assert repr(report) == f"ComparisonReport({report.advice!r})"
    assert report.advice.split(".")[0] in page.html.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("own", "more"), [(nn.CrossEntropyLoss(), ["entmax"]), (nn.MultiMarginLoss(), [])]
)
def test_the_argument_of_ones_own_loss_is_tuned_in_its_range_and_no_method_contains_another_loss(
    own, more
):
    losses = {
        "focal": (Focal, {"gamma": {"low": 0.5, "high": 5.0, "default": 2.0, "neutral": 0.0}})
    }
    asked = QUICK | {"losses": losses, "methods": more, "trials": 4, "tuning_seeds": 1, "seeds": 1}
    record = compare(
        variant(WithCriterion, criterion=own), Points, **(asked | trainer(max_epochs=1))
    ).record
    assert any("softmax is the module's own loss" in note for note in record.notes) == (not more)
    tried = {trial.settings["gamma"] for trial in record.tuning["focal"] if not trial.shared}
    assert 2.0 in tried
    assert len(tried) > 1
    assert {trial.settings["gamma"] for trial in record.tuning["focal"] if trial.shared} == {0.0}
    assert [
        name for name, trials in record.tuning.items() if any(trial.shared for trial in trials)
    ] == [*more, "focal"]
    for other in (
        nn.CrossEntropyLoss(label_smoothing=0.1, ignore_index=2),
        partial(Focal(), ignore_index=2),
    ):
        (finder := TargetFinder()).loss(torch.zeros(6, 3), torch.arange(6) % 3, other)
        assert (finder.softmax, finder.ignore_index) == (False, 2)


def test_a_loss_is_the_methods_in_training_and_the_modules_own_outside_and_softmax_leaves_a_module_unchanged():
    batch = (torch.randn(6, 8), torch.arange(6) % 5)
    module = WithCriterion()
    logits, plain = module(batch[0]), module.training_step(batch, 0)
    for method, loss in {
        "as_softmax": as_cross_entropy(logits, batch[1], 0.2),
        "label_smoothing": F.cross_entropy(logits, batch[1], label_smoothing=0.3),
        "focal": Focal()(logits, batch[1]),
    }.items():
        made = WithCriterion()
        made.load_state_dict(module.state_dict())
        losses = {"focal": Focal()} if method == "focal" else None
        made = with_method(made, method, "criterion", losses, delta=0.2, smoothing=0.3)
        torch.testing.assert_close(made.training_step(batch, 0), loss)
        compiled = torch.compile(made.criterion, backend="eager", fullgraph=True)
        torch.testing.assert_close(compiled(logits, batch[1]), loss)
        torch.testing.assert_close(made.eval().training_step(batch, 0), plain)
        assert type(made) is WithCriterion
        made.criterion._own = made.criterion.weight = weight = torch.arange(1.0, 6.0)
        assert (made.criterion.outside._own is weight, made.criterion.ignore_index) == (True, -100)
        assert isinstance(pickle.loads(pickle.dumps(made)).criterion, nn.CrossEntropyLoss)
        weighed = F.cross_entropy(logits, batch[1], weight=weight)
        torch.testing.assert_close(made.training_step(batch, 0), weighed)
        if method == "as_softmax":
            weighed = as_cross_entropy(logits, batch[1], 0.2, weight=weight)
            torch.testing.assert_close(made.train().training_step(batch, 0), weighed)
    assert module.criterion is with_method(module, "softmax", "criterion").criterion
    module.criterion = nn.CrossEntropyLoss(
        weight=torch.arange(5.0), ignore_index=1, reduction="sum"
    )
    plain = module.training_step(batch, 0)
    torch.testing.assert_close(
        with_method(module, "focal", "criterion", gamma=0.0).training_step(batch, 0), plain
    )
    module.criterion.register_forward_hook(lambda *_: None)
    with pytest.raises(TypeError, match="whose _forward_hooks would be lost"):
        with_method(module, "entmax", "criterion")
    assert with_method(WithMixin(), "softmax", None).as_softmax_delta == 1.0
    assert with_method(WithMixin(), "as_softmax", None, delta=0.3).as_softmax_delta == 0.3


@pytest.mark.slow
def test_a_loss_that_asks_for_class_counts_gets_those_of_the_training_data_of_its_run():
    class Tail(Points):  # without a class that chance chooses
        def setup(self, stage: str | None = None):
            super().setup(stage)
            missing = int(torch.randint(5, ()))
            self.rows_left = [row for row in self.parts[0] if row[1] != missing or stage == "test"]

        def train_dataloader(self) -> DataLoader:
            return DataLoader(self.rows_left, batch_size=len(self.rows_left))

    def asks(logits: Tensor, target: Tensor, class_counts: Tensor) -> Tensor:
        assert class_counts.equal(torch.bincount(target[target != 4], minlength=5))
        return logit_adjusted_loss(logits, target, class_counts=class_counts)

    quick = QUICK | {
        "methods": ["logit_adjusted", "class_weighted"],
        "losses": {"asks": asks},
        "seeds": [1],
    }
    own = variant(WithCriterion, criterion=nn.CrossEntropyLoss(ignore_index=4))
    assert compare(own, Tail(), **quick, n_jobs=2).record.failures == []
    two = {
        "max_epochs": 1,
        "accelerator": "cpu",
        "devices": 2,
        "strategy": "ddp",
    }  # whose sampler may be the user's

    def of_two(data: Points) -> CombinedLoader:
        return CombinedLoader(
            DataLoader(data.parts[0], sampler=DistributedSampler(data.parts[0], 2, 0))
        )

    half = variant(Points, train_dataloader=of_two)
    own = OwnModules(
        {"own": OwnCandidate(small, half)},
        OwnLosses(["softmax"]),
        "criterion",
        "val/acc",
        "max",
        two,
    )
    assert own._set_up("own", 0).trainer.world_size == 1
    assert (
        own._class_counts(1, 5, 0).sum() == 100
    )  # as where the sampler has asked a process group of two


class Rates(pl.Callback):
    """The learning rate that the optimizer of each training has."""

    seen: ClassVar[list[float]] = []

    def on_train_start(self, trainer, pl_module):
        (optimizer,) = trainer.optimizers
        self.seen.append(optimizer.param_groups[0]["lr"])


@pytest.mark.parametrize(
    "factory",
    [
        lambda lr=2e-3: WithCriterion(lr=lr),  # an argument of the factory
        lambda: WithCriterion(lr=2e-3),  # a hyperparameter
        lambda lr=None: WithCriterion(lr=lr or 2e-3),  # an argument without a number as its default
    ],
)
def test_every_run_trains_with_the_learning_rate_that_its_result_names(factory, monkeypatch):
    monkeypatch.setattr(Rates, "seen", [])
    asked = {"trials": 2, "tuning_seeds": 1, "seeds": 1, "methods": ["entmax"], "equal_within": 100}
    record = compare(
        factory, Points(), **(QUICK | asked | trainer(max_epochs=1, callbacks=[Rates()]))
    ).record
    final = [run.settings["lr"] for run in record.results if run.candidate not in record.same_as]
    tried = [
        trial.settings["lr"]
        for trials in record.tuning.values()
        for trial in trials
        if not trial.shared
    ]
    looks = [
        2e-3,
        2e-3,
        2e-3,
        4e-3,
    ]  # a batch in search of the target, of each method, and at another learning rate
    assert sorted(Rates.seen) == pytest.approx(sorted(looks + tried + final))


class IgnoresItsRate(WithCriterion):
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


class WarmUp(WithCriterion):
    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=1.0)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: step * self.hparams["lr"]
        )
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


class NoRate(IgnoresItsRate):
    def __init__(self):
        super().__init__()
        self.hparams.clear()


@pytest.mark.parametrize(
    ("factory", "reason"),
    [
        (NoRate, "NoRate has no argument or hyperparameter lr"),
        (IgnoresItsRate, "IgnoresItsRate trains the same whatever its lr is"),
        (
            lambda: IgnoresItsRate(0.1),
            "IgnoresItsRate trains the same whatever its lr is",
        ),  # of a hyperparameter
        (WarmUp, None),  # which alone reads it
    ],
)
def test_a_learning_rate_that_cannot_be_tuned_is_not_and_the_reason_said(factory, reason):
    own = own_module(factory)
    assert {name: rates.default for name, rates in own.rates.items()} == (
        {"own": 0.01} if reason is None else {}
    )
    assert reason is None or f"The learning rate was not tuned: {reason}" in " ".join(own.notes)


class Falling(WithCriterion):
    """Its weight is the epoch; ``val/acc`` is best in the first, ``val/loss`` in the last."""

    def __init__(self):
        super().__init__()
        self.epoch = nn.Parameter(torch.zeros(()), requires_grad=False)

    def on_train_epoch_start(self):
        self.epoch += 1

    def validation_step(self, batch: Any, batch_idx: int):
        self(batch[0])
        self.log("val/acc", 1 - self.epoch / 10)
        self.log("val/loss", -self.epoch)

    def test_step(self, batch: Any, batch_idx: int):
        self(batch[0])
        self.log("test/acc", self.epoch)


def test_the_scored_weights_are_those_of_the_best_validation_whatever_the_user_adds(tmp_path):
    kept = [
        callbacks.ModelCheckpoint(tmp_path, monitor=metric) for metric in ("val/loss", "val/acc")
    ]
    own = own_module(
        Falling, max_epochs=3, callbacks=[*kept, callbacks.ModelCheckpoint(tmp_path, save_top_k=0)]
    )
    assert (
        own.make(FINAL, tmp_path / "run").metrics["val/acc"] == 1
    )  # the epoch whose validation was best
    scored = variant(WithCriterion, accuracy=lambda self, batch: self.net[0].weight.double().norm())
    averaged = own_module(scored, max_epochs=2, callbacks=callbacks.EMAWeightAveraging(decay=0.9))
    result = averaged.make(FINAL, tmp_path / "averaged")
    best = max(evaluation["score"] for evaluation in result.evaluations)
    assert result.metrics["val/acc"] == pytest.approx(best, abs=1e-9)


class InEverySecondEpoch(WithCriterion):
    first = 0

    def validation_step(self, batch: Any, batch_idx: int):
        if self.current_epoch % 2 == self.first:
            super().validation_step(batch, batch_idx)


@pytest.mark.parametrize("first", [0, 1])
def test_a_metric_that_is_logged_in_every_second_epoch_is_read_where_it_is(first, tmp_path):
    own = own_module(variant(InEverySecondEpoch, first=first), max_epochs=4)
    result = own.make(FINAL, tmp_path)
    assert [each["epoch"] for each in result.evaluations] == [first, first + 2]
    assert 0 < result.metrics["val/acc"] <= 1
    assert any("is not logged in every epoch" in note for note in own.notes)


def test_the_test_metric_may_come_from_any_of_several_test_dataloaders(tmp_path):
    def twice(name):
        return lambda owner: [getattr(Points, name)(owner)] * 2

    def step(name):
        return lambda self, batch, _, dataloader_idx: getattr(WithCriterion, name)(self, batch, 0)

    loaders, steps = ("val_dataloader", "test_dataloader"), ("validation_step", "test_step")
    data = variant(Points, **{name: twice(name) for name in loaders})
    own = own_module(
        variant(WithCriterion, **{name: step(name) for name in steps}),
        data,
        "val/acc/dataloader_idx_1",
    )
    assert own.test_metric == "test/acc/dataloader_idx_1"
    metrics = own.make(FINAL, tmp_path).metrics
    assert metrics[own.monitor] == metrics["acc/dataloader_idx_1"]


def test_a_metric_of_steps_and_of_the_epoch_is_that_of_the_epoch():
    def step(name):
        return lambda self, batch, _: self.log(
            name, self.accuracy(batch), on_step=True, on_epoch=True
        )

    own = own_module(
        variant(WithCriterion, validation_step=step("val/acc"), test_step=step("test/acc"))
    )
    assert own.test_metric == "test/acc"


@pytest.mark.parametrize(
    ("factory", "data", "limit"),
    [
        (without(WithCriterion, "test_step"), Points, 1.0),
        (WithCriterion, without(Points, "test_dataloader"), 1.0),
        (WithCriterion, variant(Points, test_dataloader=no_batch), 1.0),
        (WithCriterion, Points, 0),
    ],
)
def test_without_a_test_the_validation_split_is_scored_and_it_is_said(factory, data, limit):
    own = own_module(factory, data, limit_test_batches=limit)
    assert own.test_metric is None
    assert (
        "The scores are of the validation split: there is no test/acc of a test_step"
        in " ".join(own.notes)
    )


@pytest.mark.parametrize(
    ("trainer", "candidate", "epochs"),
    [
        ({"val_check_interval": 2}, "softmax", [0, 0]),
        (
            {"val_check_interval": 6, "check_val_every_n_epoch": None, "max_epochs": 2},
            "softmax",
            [1, 1],
        ),
        (
            {"check_val_every_n_epoch": 3, "max_epochs": 4},
            "softmax_half",
            [1],
        ),  # validated at its end
    ],
)
def test_validation_may_be_at_another_interval_than_an_epoch_or_than_half_of_them(
    trainer, candidate, epochs, tmp_path
):
    modules = own_module(**trainer)
    modules.half = "softmax_half", "softmax"
    result = modules.make(Run("final", candidate, {}, 0), tmp_path)
    assert [evaluation["epoch"] for evaluation in result.evaluations] == epochs


def test_a_run_without_a_finite_validation_score_or_with_logits_of_nan_counts_as_diverged():
    def scored(score: float) -> Any:
        return lambda self, batch, _: self.log("val/acc", self.accuracy(batch) * score)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.net(inputs) * (1.0 if self.training else math.nan)

    broken = {
        str(x): variant(WithCriterion, validation_step=scored(x)) for x in (math.inf, math.nan)
    }
    broken |= {"logits": variant(WithCriterion, forward=forward), "fine": WithCriterion}
    spoilt = {
        "accuracy": lambda self, batch: (self.net(batch[0]).argmax(-1) == batch[1]).float().mean()
    }
    spoilt |= {"on_train_batch_end": lambda self, *_: nn.init.constant_(self.net[0].bias, math.nan)}
    broken["weights"] = variant(WithCriterion, **spoilt)
    record = compare(broken, Points(), baseline="fine", **(SEVERAL | {"trials": 1})).record
    assert "4 final runs diverged and count as the worst score." in record.notes
    assert not any(
        math.isfinite(e["score"]) for run in record.results[-1:] for e in run.evaluations
    )


def test_hyperparameters_that_torch_loads_from_no_file_but_its_own_do_not_end_a_run_at_its_test(
    tmp_path,
):
    def with_a_path(lr=0.01):
        module = WithCriterion(lr)
        module.save_hyperparameters({"folder": tmp_path})
        return module

    assert 0 <= own_module(with_a_path).make(FINAL, tmp_path).metrics["val/acc"] <= 1


class Grouped(Points):
    """Batches of inputs, labels and something else."""

    def setup(self, stage: str | None = None):
        super().setup(stage)
        self.parts = [TensorDataset(*part.tensors, part.tensors[1].flip(0)) for part in self.parts]


def test_calibration_and_predictions_take_the_target_of_the_training_loss_and_not_the_last_of_the_batch(
    tmp_path,
):
    found = []
    for name, data in (("pairs", Points), ("grouped", Grouped)):
        own = own_module(
            variant(WithCriterion, criterion=nn.CrossEntropyLoss(ignore_index=4)), data
        )
        assert own.target == 1
        found.append(own.make(FINAL, tmp_path / name).metrics["calibration_error"])
        predictions, made = Predictions.read(tmp_path / name), data()
        made.setup()
        assert predictions.target.tolist() == [
            each for each in made.parts[2].tensors[1].tolist() if each != 4
        ]
    assert found[0] == pytest.approx(found[1], abs=1e-6)


def test_without_the_target_in_the_batch_calibration_is_left_out_and_said(tmp_path):
    def training_step(self, batch, _):
        return self.criterion(self(batch[0]), 4 - batch[1])

    own = own_module(variant(WithCriterion, training_step=training_step))
    assert "Calibration was not measured" in " ".join(own.notes)
    assert "calibration_error" not in own.make(FINAL, tmp_path).metrics
    assert Predictions.read(tmp_path) is None


def test_the_users_callbacks_and_data_are_copied_for_each_run():
    orders = []

    class Once(pl.Callback):
        started = 0

        def on_fit_start(self, trainer, pl_module):
            self.started += 1
            assert self.started == 1

    class Shuffled(Points):
        def __init__(self):
            super().__init__()
            self.generator = torch.Generator().manual_seed(7)

        def train_dataloader(self) -> DataLoader:
            orders.append(torch.randperm(50, generator=self.generator).tolist())
            return super().train_dataloader()

    compare(WithCriterion, Shuffled(), **(QUICK | trainer(max_epochs=1, callbacks=[Once()])))
    assert all(order == orders[0] for order in orders)
    assert len(orders) > 6


def test_bars_and_monitors_without_a_logger_are_left_out_with_a_note(tmp_path):
    theirs = [
        callbacks.RichProgressBar(),
        callbacks.LearningRateMonitor(),
        callbacks.DeviceStatsMonitor(),
    ]
    theirs += [MaskingMonitor(), TemperatureScaling()]
    own = own_module(callbacks=theirs)
    own.target = 1
    for method in ("softmax", "as_softmax"):
        assert own.make(replace(FINAL, candidate=method), tmp_path / method).evaluations
    assert [note.split(" was")[0] for note in own.notes] == [
        type(callback).__name__ for callback in theirs
    ]
    stopped = own_module(
        max_epochs=3, callbacks=callbacks.EarlyStopping("val/acc", mode="max", stopping_threshold=0)
    )
    assert len(stopped.make(FINAL, tmp_path / "stopped").evaluations) == 1


def test_runs_of_another_width_loss_fixed_margin_or_training_set_are_not_taken_for_these(tmp_path):
    def facts(
        width: int = 8, gamma: float = 0.0, fixed: float = 0.1, rows: int = 300, file: str = "1"
    ) -> list[Any]:
        (tmp_path / "file").write_text(file)

        class ByFile(torch.utils.data.Dataset):  # which it names by its folder
            def __init__(self, rows: Any):
                self.rows, self.folder = rows, tmp_path

            def __len__(self) -> int:
                return len(self.rows)

            def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
                return float((self.folder / "file").read_text()) * self.rows[row][0], self.rows[
                    row
                ][1]

        class Net(WithCriterion):
            def __init__(self):
                super().__init__(0.01)
                self.hidden = nn.Linear(2, width)

        class Fewer(Points):
            def train_dataloader(self) -> DataLoader:
                return DataLoader(
                    ByFile(Subset(super().train_dataloader().dataset, range(rows // 10))),
                    batch_size=10,
                )

        losses = OwnLosses(["softmax", "as_softmax"], {"focal": Focal(gamma)}, {"delta": fixed})
        candidate = OwnCandidate(lambda: Net(), Fewer())
        own = OwnModules(
            {"own": candidate}, losses, "criterion", "val/acc", "max", QUICK["trainer"]
        )
        own.look(None)
        return [*own.inputs["own"].values(), *(losses.facts(name) for name in losses.names)]

    base = facts()
    assert facts() == base
    changes = (
        ({"width": 9}, 0),
        ({"rows": 290}, 1),
        ({"file": "2"}, 1),
        ({"fixed": 0.2}, 3),
        ({"gamma": 1.0}, 4),
    )
    for changed, place in changes:
        assert [
            i for i, (one, two) in enumerate(zip(base, facts(**changed), strict=True)) if one != two
        ] == [place]


def test_finished_runs_are_read_and_those_of_other_code_or_settings_are_made_anew(tmp_path):
    made, file = [], str(tmp_path / "lines")

    class Changed(WithCriterion):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            torch.save(batch_idx, file)
            return 2 * super().training_step(batch, batch_idx)

    def modules_made(module: type = WithCriterion, **changed) -> int:
        made.clear()

        def factory():
            made.append(1)
            return module(lr=0.01)

        compare(
            factory,
            Points(),
            **(QUICK | {"folder": tmp_path, "seeds": 2} | trainer(max_epochs=1) | changed),
        )
        return len(made)

    class Writes(pl.Callback):
        def on_train_end(self, *_: Any) -> None:
            torch.save(0, file)

    all_runs = modules_made()
    assert modules_made(name="again") == all_runs - 4
    (tmp_path / "softmax/seed=1/result.json").write_text("{")
    assert modules_made() == all_runs - 3
    assert (tmp_path / "softmax/seed=1/result.json.unreadable").exists()
    assert [modules_made(Changed) for _ in range(2)] == [all_runs, all_runs - 4]
    assert modules_made(Changed, mode="min") == all_runs
    logged = trainer(
        max_epochs=1, logger=True, default_root_dir=tmp_path / "logs", callbacks=[Writes()]
    )
    assert [modules_made(**logged) for _ in range(2)] == [all_runs, all_runs - 4]
    assert len([*(tmp_path / "logs" / "lightning_logs").iterdir()]) == 4
    assert (tmp_path / "report" / "report.html").exists()
    with pytest.raises(
        ValueError, match=r"holds another comparison: .* its runs are of other data"
    ):
        compare(WithCriterion, Points(rows=150), **(QUICK | {"folder": tmp_path}))


def small(lr: float = 0.01) -> WithCriterion:
    return WithCriterion(lr, 4)


def large(learning_rate: float = 0.01, hidden: int = 64) -> WithCriterion:
    return WithCriterion(learning_rate, hidden)


SEVERAL = {key: value for key, value in QUICK.items() if key not in ("methods", "replaces")}
SEVERAL |= {"trials": 2, "tuning_seeds": 1, "seeds": 1} | trainer(max_epochs=1)


@pytest.mark.slow
def test_modules_are_compared_as_they_are_in_two_processes_as_in_one(tmp_path):
    ranges = {"hidden": {"low": 32, "high": 64}, "learning_rate": [0.01, 0.02]}
    factories, found = {"large": (large, None, ranges), "small": small}, []
    for jobs in (1, 2):
        asked = SEVERAL | {"baseline": "small", "n_jobs": jobs, "folder": tmp_path / str(jobs)}
        record = compare(factories, Points, **asked).record
        found.append(
            [(run.candidate, run.seed, run.metrics, run.parameters) for run in record.results]
        )
        assert (record.baseline, record.failures) == ("small", [])
        assert record.changes["large"] == {"hidden": ["4", "64"]}
        assert {v for trial in record.tuning["large"] for v in trial.settings.values()} <= {
            32,
            64,
            0.01,
            0.02,
        }
    assert found[0] == found[1]
    assert {method: count for method, _, _, count in found[0]}["small"] == 8 * 4 + 4 + 4 * 5 + 5


def test_runs_of_a_tuned_value_are_made_anew_if_its_code_has_changed_and_those_of_others_read(
    tmp_path,
):
    widths, began = {"a": 4, "b": 8}, []

    class Begins(pl.Callback):
        def on_train_start(self, trainer, pl_module):
            began.append(pl_module.hparams.hidden)

    def make(kind: str = "a") -> WithCriterion:
        return WithCriterion(0.01, widths[kind])

    asked = (
        SEVERAL | {"folder": tmp_path, "seeds": [5]} | trainer(max_epochs=1, callbacks=[Begins()])
    )
    for width in (8, 8, 16):
        widths["b"] = width
        began.clear()
        compare({"small": small, "large": (make, None, {"kind": ["a", "b"]})}, Points, **asked)
    assert set(began) == {4, 16}  # 4: of the look


def test_candidates_of_a_seed_train_on_the_same_rows_in_the_same_order():
    seen: dict[int, list[Tensor]] = {}

    class Sees(pl.Callback):
        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            if torch.initial_seed() == 5:
                seen.setdefault(pl_module.hparams.hidden, []).append(batch[1])

    asked = SEVERAL | {"trials": 1, "seeds": [5]} | trainer(max_epochs=1, callbacks=[Sees()])
    compare({"small": small, "large": large}, Points, **asked)
    assert len(seen[4]) == len(seen[64]) == 4
    assert torch.cat(seen[4]).equal(torch.cat(seen[64]))


@pytest.mark.slow
def test_other_processes_run_the_code_that_was_looked_at(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    found = []
    for hidden in (4, 16):  # an edited file that is read again, as in a notebook
        text = f"from harness.own_modules import *\ndef make(lr=0.01): return WithCriterion(lr, {hidden})\n"
        (tmp_path / "users_file.py").write_text(text)
        sys.modules.pop("users_file", None)
        importlib.invalidate_caches()
        factories = {"small": small, "own": importlib.import_module("users_file").make}
        record = compare(factories, Points, n_jobs=2, **(SEVERAL | {"trials": 1})).record
        found.append(record.results[-1].parameters)
    assert found == [8 * 4 + 4 + 4 * 5 + 5, 8 * 16 + 16 + 16 * 5 + 5]
    own = OwnModules(
        {"small": OwnCandidate(small, Points)}, None, None, "val/acc", "max", {"max_epochs": 1}
    )
    own.files = {str(own_modules.__file__): "before"}
    with pytest.raises(
        ValueError, match=r"own_modules.py has changed since the comparison has begun"
    ):
        own.make_in_job(FINAL, tmp_path)
    own.files, own.looked_at = {}, {"small": "99 weights"}
    with pytest.raises(
        ValueError,
        match=r"small is another one in another process, 61 weights.* place of 99 weights",
    ):
        own.make_in_job(replace(FINAL, candidate="small"), tmp_path)


def test_what_goes_on_from_run_to_run_is_refused_by_its_name():
    shared = nn.Linear(8, 8)

    class OnShared(WithCriterion):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(shared, self.net)

    class Counts(nn.Module):
        calls = 0

        def forward(self, logits: Tensor, target: Tensor) -> Tensor:
            self.calls += 1
            return F.cross_entropy(logits, target) / self.calls

    def shuffled(self) -> DataLoader:
        return DataLoader(self.parts[0], batch_size=25, shuffle=True, generator=order)

    first, order = dict[str, Any](), torch.Generator()

    class KeepsOptimizer(WithCriterion):
        def configure_optimizers(self) -> Any:
            return first.setdefault("optimizer", super().configure_optimizers())

    with pytest.raises(ValueError, match=r"net.* goes on from run to run"):
        compare(OnShared, Points(), **QUICK)
    with pytest.raises(ValueError, match=r"the data of .*order goes on from run to run"):
        compare(WithCriterion, variant(Points, train_dataloader=shuffled)(), **QUICK)
    with pytest.raises(
        ValueError, match="Adam that configure_optimizers returned trains no parameter of this"
    ):
        compare(KeepsOptimizer, Points(), **QUICK)
    with pytest.raises(ValueError, match=r"losses\['counts'\].*calls goes on from run to run"):
        compare(WithCriterion, Points(), **(QUICK | {"losses": {"counts": Counts()}}))


class SplitsAnew(Points):
    def setup(self, stage: str | None = None):
        super().setup(stage)
        self.whole = ConcatDataset(self.parts)
        self.parts = random_split(self.whole, [100, 100, 100])


def by_sampler(data: SplitsAnew) -> DataLoader:
    return DataLoader(data.whole, sampler=SubsetRandomSampler(data.parts[1].indices))


SplitBySampler = variant(SplitsAnew, val_dataloader=by_sampler, test_dataloader=by_sampler)


class Draws:
    """Random examples by the generators of numpy and Python, without end."""

    def __iter__(self) -> Iterator[int]:
        while True:
            yield (random.randrange(50) + int(np.random.randint(50))) % 50

    def __len__(self) -> int:
        raise NotImplementedError


Stream: Any = type("Stream", (Draws, torch.utils.data.IterableDataset), {})


@pytest.mark.parametrize(
    "loader", [DataLoader(TensorDataset(torch.arange(50)), sampler=Draws()), DataLoader(Stream())]
)
def test_a_look_at_examples_depends_on_no_random_state_and_moves_none(loader: Any) -> None:
    data, found = variant(pl.LightningDataModule, val_dataloader=lambda self: loader)(), []
    for seed in (0, 1):
        pl.seed_everything(seed, verbose=False)
        before = random.getstate(), np.random.get_state()[2], torch.get_rng_state().tolist()
        found.append(of_split(data, "val_dataloader"))
        assert before == (
            random.getstate(),
            np.random.get_state()[2],
            torch.get_rng_state().tolist(),
        )
    assert found[0] == found[1]


def several(**factories: Any) -> dict[str, Any]:
    return {"factory": factories, "methods": None, "replaces": None}


MODULE, LOCK = WithCriterion(), Lock()
Foreign = variant(object, __module__="pytorch_lightning.core.module")
LocalLoss = variant(
    WithCriterion, training_step=lambda self, batch, _: F.cross_entropy(self(batch[0]), batch[1])
)
ROWS = nn.CrossEntropyLoss(reduction="none")
Anew = variant(
    WithCriterion,
    on_train_epoch_start=lambda self: setattr(self, "criterion", nn.CrossEntropyLoss()),
)
Smoothed = variant(WithCriterion, criterion=nn.CrossEntropyLoss(label_smoothing=0.1))


class OnPlateau(WithCriterion):
    def configure_optimizers(self):
        optimizer: Any = super().configure_optimizers()
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "monitor": "val/acc"},
        }


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"factory": lambda: MODULE}, ValueError, "returned the same object twice"),
        ({"factory": MODULE}, TypeError, "expected a function that makes a fresh module"),
        (several(a=small, b=lambda: nn.Linear(2, 2)), TypeError, "expected a LightningModule"),
        (several(a=small), ValueError, "needs two candidates, each with a name of its own, got a"),
        (
            several(a=small, b=(large, Points(150))),
            ValueError,
            "other validation or test examples than a",
        ),
        (
            several(a=small, b=(small, None, {"c": [1]})),
            ValueError,
            "c: small has no such argument; there are: lr",
        ),
        (
            several(a=small, b=(large, None, {"hidden": [1, 2, 3]})) | {"trials": 2},
            ValueError,
            "cannot try all 3 valu",
        ),
        (
            {"factory": {"a": small, "b": large}},
            ValueError,
            "compared as they are: leave methods, losses and",
        ),
        (several(a=small, b=large) | {"baseline": "c"}, ValueError, "no candidate is called c"),
        ({"baseline": "entmx"}, ValueError, "unknown method 'entmx': did you mean entmax"),
        (
            {"n_jobs": 2, "factory": lambda: LOCK and small()},
            TypeError,
            "n_jobs or a .* can be pickled",
        ),
        (
            {"n_jobs": 2} | trainer(devices=2, strategy="ddp"),
            ValueError,
            "n_jobs=2 is for runs of one process, and th",
        ),
        (trainer(strategy="ddp_spawn"), ValueError, "must not set strategy='ddp_spawn': what its"),
        (
            {"factory": lambda: nn.Linear(2, 2)},
            TypeError,
            "expected a LightningModule, got Linear: the factory",
        ),
        (
            {"factory": Foreign},
            TypeError,
            "got Variant: it is of the package pytorch_lightning: import",
        ),
        (
            {"factory": lambda lr: WithCriterion(lr)},
            TypeError,
            "missing 1 required positional argument: 'lr'",
        ),
        (
            {"factory": lambda lr=0: WithCriterion(lr)},
            ValueError,
            "a learning rate must be positive",
        ),
        (
            {"methods": "as_softmx"},
            ValueError,
            "unknown method 'as_softmx': did you mean as_softmax",
        ),
        ({"methods": ["am_softmax"]}, ValueError, "am_softmax needs a head of its own"),
        (
            {"losses": {"as_softmax": Focal()}},
            ValueError,
            "as_softmax is a method of this comparison: give the loss",
        ),
        (
            {"losses": {"focal": "focal"}},
            TypeError,
            r"losses\['focal'\] must be called as loss\(logits, target\)",
        ),
        (
            {"losses": {"rows": ROWS}},
            ValueError,
            r"the loss rows must return a scalar, got \(25,\)",
        ),
        ({"monitor": "val/f1"}, ValueError, r"'val/f1' is never logged.*val/acc"),
        ({"data": without(Points, "val_dataloader")}, ValueError, "validated: Variant needs"),
        (
            {"data": variant(Points, val_dataloader=no_batch)},
            ValueError,
            "no batch was trained and validated",
        ),
        (
            {"data": variant(Points, train_dataloader=no_batch)},
            ValueError,
            "no batch was trained and validated",
        ),
        ({"data": list}, TypeError, "expected a LightningDataModule, got list: .*from_datasets"),
        (
            {"data": SplitsAnew},
            ValueError,
            "SplitsAnew makes other validation or test splits each time",
        ),
        (
            {"data": SplitBySampler},
            ValueError,
            "Variant makes other validation or test splits each time",
        ),
        (
            {"data": lambda: Points(LOCK)},
            TypeError,
            "Points cannot be copied for each run .*: give a function that",
        ),
        (
            {"factory": Smoothed, "methods": ["focal"]},
            ValueError,
            "label_smoothing=0.1, which the losses in its place",
        ),
        ({"replaces": "net"}, TypeError, "names torch.nn's Sequential"),
        (
            {"replaces": "loss_fn"},
            AttributeError,
            "no attribute 'loss_fn' after.*are: net, criterion",
        ),
        ({"replaces": None}, ValueError, 'replaces="criterion"'),
        (
            {"factory": LocalLoss},
            ValueError,
            "never called the loss that was put in: name the attribute",
        ),
        (
            {"factory": Anew},
            ValueError,
            "criterion has been set to another loss while Variant trained",
        ),
        (
            {"factory": OnPlateau} | trainer(check_val_every_n_epoch=2),
            Exception,
            "val/acc which is not available",
        ),
        ({"mode": "best"}, ValueError, "mode must be"),
        ({"monitor": "val/loss"}, ValueError, "say whether less of val/loss is better"),
        (
            {"trainer": {}},
            TypeError,
            "trainer.max_epochs must be an integer of at least 1, got None",
        ),
        ({"trainer": pl.Trainer}, TypeError, "must be the arguments of each run"),
        (trainer(limit_val_batches=0), ValueError, "must not set limit_val_batches=0"),
        (trainer(acelerator="cpu"), ValueError, "'acelerator', which .* did you mean accelerator"),
        (trainer(max_steps=5), ValueError, "must not set max_steps"),
        (trainer(enable_checkpointing=False), ValueError, "set enable_checkpointing=False"),
        (trainer(fast_dev_run=1), ValueError, "must not set fast_dev_run=1"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else None,
)
def test_bad_input_is_refused_before_the_first_run(arguments, error, message, tmp_path):
    settings = QUICK | {"factory": WithCriterion, "data": Points, "folder": tmp_path} | arguments
    factory, data = settings.pop("factory"), settings.pop("data")
    with pytest.raises(error, match=message) as refused:
        compare(factory, data(), **settings)
    assert "\n" not in str(refused.value)
    assert not list(tmp_path.rglob("result.json"))
