"""compare() of modules as users write them, in real trainings."""

import math
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar

import lightning.pytorch as pl
import pytest
import torch
import torch.nn.functional as F
from harness import own_modules
from harness.own_modules import Points, WithCriterion, WithMixin
from lightning.pytorch import callbacks
from torch import Tensor, nn
from torch.utils.data import ConcatDataset, DataLoader, random_split

from as_lightning import LogitAdjustedLoss, compare
from as_lightning.bench.run.predictions import Predictions
from as_lightning.comparison.api import own_comparison
from as_lightning.comparison.candidates import own_candidate
from as_lightning.comparison.engine import execution
from as_lightning.comparison.look import Prepared
from as_lightning.comparison.make import CodeChanged, make
from as_lightning.comparison.methods import with_losses
from as_lightning.comparison.plan import Run
from as_lightning.functional import as_cross_entropy
from as_lightning.report.record import ComparisonRecord

QUICK: dict[str, Any] = {
    "monitor": "val/acc",
    "seeds": 3,
    "trials": 1,
    "half_epochs": False,
    "methods": ["as_softmax"],
    "replaces": "criterion",
    "trainer": {"max_epochs": 2, "accelerator": "cpu"},
    "progress": False,
}
FINAL = Run("final", "own", {}, 0)


class Focal(nn.Module):
    """The focal loss; with gamma 0 it is cross-entropy."""

    def __init__(self, gamma: float = 2.0):
        super().__init__()
        self.gamma = gamma

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        loss = F.cross_entropy(logits, target, reduction="none")
        return ((1 - torch.exp(-loss)) ** self.gamma * loss).mean()


def looked(
    factory: Any = WithCriterion, data: Any = Points, monitor: str = "val/acc", **trainer: Any
) -> Prepared:
    """One's own module after the look, beside another one."""
    settings = {"max_epochs": 1, "accelerator": "cpu"} | trainer
    factories = {"own": factory, "other": factory}
    given = {"factory": factories, "datamodule": data(), "monitor": monitor, "mode": "max"}
    return own_comparison(given | {"trainer": settings})


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


def with_loss(loss: nn.Module) -> Any:
    """A class whose loss is this one."""

    class WithLoss(WithCriterion):
        def __init__(self, lr: float = 0.01) -> None:
            super().__init__(lr)
            self.criterion = loss

    return WithLoss


def logits_of(module: Any, batch: Any) -> tuple[Tensor, Tensor]:
    return module(batch[0]), batch[1]


@pytest.mark.parametrize(("module", "replaces"), [(WithCriterion, "criterion"), (WithMixin, None)])
def test_a_module_of_each_form_is_compared_with_built_in_losses_and_its_own(
    module, replaces, tmp_path
):
    counts = torch.tensor([20.0, 20, 20, 20, 20])
    asked = {
        "replaces": replaces,
        "methods": ["as_softmax", "as_speed"],
        "losses": {"focal": Focal(), "adjusted": partial(LogitAdjustedLoss, class_counts=counts)},
        "seeds": 1,
        "logits": logits_of,
    }
    report = compare(lambda lr=0.01: module(lr), Points(), folder=tmp_path, **(QUICK | asked))
    record = report.record
    names = ["softmax", "as_softmax", "as_speed", "focal", "adjusted"]
    runs = record.final.set_index("candidate")
    assert list(runs.index) == names
    assert (record.failures, record.split, record.splits, record.notes) == ([], "test", "fixed", [])
    masked = runs["masking"]["as_softmax"].split()
    assert (len(masked), masked[-1].partition("/")[2] > "0") == (2, True)
    assert runs["calibration_error_unscaled"].notna().all()
    stored = [Predictions.read(file.parent) for file in tmp_path.rglob("predictions.csv")]
    assert [len(found.ids) for found in stored if found is not None] == [100] * 5
    (session,) = set(runs["session"])
    assert session
    page = report.save(tmp_path)
    assert repr(report) == f"ComparisonReport({report.advice!r})"
    assert report.advice.split(".")[0] in page.html.read_text(encoding="utf-8")


def test_the_argument_of_ones_own_loss_is_tuned_in_its_range():
    gamma = {"low": 0.5, "high": 5.0, "default": 2.0}
    asked = {"losses": {"focal": (Focal, {"gamma": gamma})}, "trials": 4, "tuning_seeds": 1}
    asked["lr_factor"] = None
    own = with_loss(nn.MultiMarginLoss())  # any loss, without methods
    record = compare(
        own, Points, **(QUICK | asked | {"methods": [], "seeds": 1} | trainer(max_epochs=1))
    ).record
    tried = {trial.settings["gamma"] for trial in record.tuning["focal"]}
    assert 2.0 in tried
    assert len(tried) > 1


def test_a_loss_is_the_methods_in_training_and_the_modules_own_outside():
    batch = (torch.randn(6, 8), torch.arange(6) % 5)
    weight = torch.arange(1.0, 6.0)
    own = with_loss(nn.CrossEntropyLoss(weight=weight))
    candidate = own_candidate("own", {}, Points(), None, own)
    made = with_losses(candidate, "criterion", ["as_softmax"], {"own": Focal()})
    knobs: dict[str, Any] = {"softmax": {}, "as_softmax": {"delta": 0.2}, "own": {}}
    modules = {name: each.module(**knobs[name]) for name, each in made.items()}
    logits = modules["softmax"](batch[0])
    plain = F.cross_entropy(logits, batch[1], weight=weight)
    losses = {
        "softmax": plain,
        "as_softmax": as_cross_entropy(logits, batch[1], 0.2, weight=weight),
        "own": Focal()(logits, batch[1]),  # it keeps no settings of another
    }
    for name, module in modules.items():
        module.load_state_dict(modules["softmax"].state_dict(), strict=False)
        torch.testing.assert_close(module.training_step(batch, 0), losses[name])
        torch.testing.assert_close(module.eval().training_step(batch, 0), plain)
        assert type(module) is own
    assert type(modules["softmax"].criterion) is nn.CrossEntropyLoss


class Rates(pl.Callback):
    """The learning rate that the optimizer of each training has."""

    seen: ClassVar[list[float]] = []

    def on_train_start(self, trainer, pl_module):
        (optimizer,) = trainer.optimizers
        own_modules.RATES.append(optimizer.param_groups[0]["lr"])


def test_every_run_trains_with_the_learning_rate_that_its_result_names(monkeypatch):
    monkeypatch.setattr(own_modules, "RATES", [], raising=False)
    asked = {"trials": 2, "tuning_seeds": 1, "seeds": 1, "equal_within": 100}
    record = compare(
        lambda lr=2e-3: WithCriterion(lr=lr),
        Points(),
        **(QUICK | asked | trainer(max_epochs=1, callbacks=[Rates()])),
    ).record
    final = record.final["setting.lr"].astype(float).tolist()
    tried = []
    for trials in record.tuning.values():
        tried += [trial.settings["lr"] for trial in trials]
    looks = [2e-3] * 2  # a batch of each candidate
    assert sorted(own_modules.RATES) == pytest.approx(sorted(looks + tried + final))


class IgnoresItsRate(WithCriterion):
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


class NoRate(IgnoresItsRate):
    def __init__(self):
        super().__init__()
        self.hparams.clear()


def test_a_learning_rate_that_no_module_has_is_not_tuned_and_it_is_said():
    plan, _, _ = looked(NoRate)
    assert "The learning rate was not tuned of own, other" in " ".join(plan.facts["notes"])
    assert not plan.tunes


@pytest.mark.parametrize(
    ("factory", "data", "message"),
    [
        (IgnoresItsRate, Points, "own trains the same whatever its lr is"),
        (lambda: WithCriterion(), lambda: SplitsAnew(), "make another validation split each time"),
    ],
)
def test_what_only_a_training_shows_ends_the_comparison_after_the_first_runs(
    factory, data, message, tmp_path
):
    asked = SEVERAL | {"trials": 3, "tuning_seeds": 2, "folder": tmp_path}
    with pytest.raises(ValueError, match=message):
        compare({"own": factory, "small": small}, data, **asked)
    assert 2 <= len(list(tmp_path.rglob("result.json"))) <= 9
    assert not [*tmp_path.glob("own")]


class SplitsAnew(Points):
    def setup(self, stage: str | None = None):
        super().setup(stage)
        whole = ConcatDataset(self.parts)
        self.parts = random_split(whole, [100, 100, 100])


class BySeed(SplitsAnew):
    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed


def test_data_that_ask_for_the_seed_may_have_other_splits_for_each():
    asked = SEVERAL | {"seeds": 3, "logits": logits_of}
    record = compare({"small": small, "large": large}, BySeed, **asked).record
    assert (record.splits, record.failures, len(record.final)) == ("per_seed", [], 6)
    assert [spread.error for spread in record.spreads.values()] == [0.0]  # no examples in common


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
    others = [*kept, callbacks.ModelCheckpoint(tmp_path, save_top_k=0)]
    recipe = looked(Falling, max_epochs=3, callbacks=others).recipe
    # the epoch whose validation was best
    assert make(recipe, tmp_path, FINAL).metrics["acc"] == 1
    scored = variant(WithCriterion, accuracy=lambda self, batch: self.net[0].weight.double().norm())
    averaged = looked(scored, max_epochs=2, callbacks=callbacks.EMAWeightAveraging(decay=0.9))
    result = make(averaged.recipe, tmp_path / "averaged", FINAL)
    best = max(evaluation["score"] for evaluation in result.evaluations)
    assert result.metrics["acc"] == pytest.approx(best, abs=1e-9)


class InEverySecondEpoch(WithCriterion):
    first = 0

    def validation_step(self, batch: Any, batch_idx: int):
        if self.current_epoch % 2 == self.first:
            super().validation_step(batch, batch_idx)


@pytest.mark.parametrize(
    ("factory", "trainer", "name", "epochs"),
    [
        (InEverySecondEpoch, {"max_epochs": 4}, "own", [0, 2]),
        (variant(InEverySecondEpoch, first=1), {"max_epochs": 4}, "own", [1, 3]),
        (WithCriterion, {"val_check_interval": 2}, "own", [0, 0]),
        (
            WithCriterion,
            {"check_val_every_n_epoch": None} | {"val_check_interval": 6, "max_epochs": 2},
            "own",
            [1],
        ),
        # validated at its end
        (WithCriterion, {"check_val_every_n_epoch": 3, "max_epochs": 4}, "own_half", [1]),
    ],
)
def test_a_score_is_read_wherever_it_is_logged(factory, trainer, name, epochs, tmp_path):
    result = make(looked(factory, **trainer).recipe, tmp_path, Run("final", name, {}, 0))
    assert [evaluation["epoch"] for evaluation in result.evaluations] == epochs
    assert 0 < result.metrics["acc"] <= 1


def twice(name: str) -> Any:
    return lambda owner: [getattr(Points, name)(owner)] * 2


def of_loaders(name: str) -> Any:
    return lambda self, batch, _, dataloader_idx: getattr(WithCriterion, name)(self, batch, 0)


def of_steps(name: str) -> Any:
    return lambda self, batch, _: self.log(name, self.accuracy(batch), on_step=True, on_epoch=True)


TwoLoaders = variant(
    Points, val_dataloader=twice("val_dataloader"), test_dataloader=twice("test_dataloader")
)
OfLoaders = variant(
    WithCriterion, validation_step=of_loaders("validation_step"), test_step=of_loaders("test_step")
)
OfSteps = variant(
    WithCriterion, validation_step=of_steps("val/acc"), test_step=of_steps("test/acc")
)


class SetUpByStage(Points):
    """Its test split is made for a test alone."""

    def setup(self, stage: str | None = None) -> None:
        super().setup()
        self.test_part = self.parts.pop() if stage == "test" else None

    def test_dataloader(self) -> DataLoader:
        assert self.test_part is not None
        return DataLoader(self.test_part, batch_size=50)


@pytest.mark.parametrize(
    ("factory", "data", "metric", "limit", "test_metric"),
    [
        (WithCriterion, SetUpByStage, "acc", 1.0, "test/acc"),
        (without(WithCriterion, "test_step"), SetUpByStage, "acc", 1.0, None),
        (OfLoaders, TwoLoaders, "acc/dataloader_idx_1", 1.0, "test/acc/dataloader_idx_1"),
        (OfSteps, Points, "acc", 1.0, "test/acc"),
        (without(WithCriterion, "test_step"), Points, "acc", 1.0, None),
        (WithCriterion, without(Points, "test_dataloader"), "acc", 1.0, None),
        (WithCriterion, variant(Points, test_dataloader=no_batch), "acc", 1.0, None),
        (WithCriterion, Points, "acc", 0, None),
    ],
)
def test_the_test_metric_is_scored_or_the_validation_split_and_it_is_said(
    factory, data, metric, limit, test_metric
):
    plan, recipe, _ = looked(factory, data, f"val/{metric}", limit_test_batches=limit)
    assert recipe.test_metric == test_metric
    said = "of the validation split: there is no test/acc" in " ".join(plan.facts["notes"])
    assert said == (test_metric is None)


def test_a_run_without_a_finite_validation_score_counts_as_diverged():
    def scored(score: float) -> Any:
        return lambda self, batch, _: self.log("val/acc", self.accuracy(batch) * score)

    broken = {
        str(x): variant(WithCriterion, validation_step=scored(x)) for x in (math.inf, math.nan)
    }
    broken["fine"] = WithCriterion
    spoilt = {
        "accuracy": lambda self, batch: (self.net(batch[0]).argmax(-1) == batch[1]).float().mean()
    }
    spoilt |= {"on_train_batch_end": lambda self, *_: nn.init.constant_(self.net[0].bias, math.nan)}
    broken["weights"] = variant(WithCriterion, **spoilt)
    record = compare(broken, Points(), baseline="fine", **(SEVERAL | {"trials": 1})).record
    assert "3 final runs diverged and count as the worst score." in record.notes
    assert record.scores()["weights"] == {0: 0.0}


def test_hyperparameters_that_torch_loads_from_no_file_but_its_own_do_not_end_a_run_at_its_test(
    tmp_path,
):
    def with_a_path(lr=0.01):
        module = WithCriterion(lr)
        module.save_hyperparameters({"folder": tmp_path})
        return module

    assert 0 <= make(looked(with_a_path).recipe, tmp_path, FINAL).metrics["acc"] <= 1


def test_nothing_goes_on_from_run_to_run():
    orders = own_modules.ORDERS = []
    generator, shared, started = torch.Generator().manual_seed(7), nn.Linear(8, 8), []

    class Once(pl.Callback):
        def on_fit_start(self, trainer, pl_module):
            started.append(1)
            assert started == [1]

    class Shuffled(Points):
        def train_dataloader(self) -> DataLoader:
            own_modules.ORDERS.append(torch.randperm(50, generator=generator).tolist())
            return super().train_dataloader()

    class OnShared(WithCriterion):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(shared, self.net)

        def on_train_start(self):
            assert self.net[0].weight.equal(START)

    class Counts(nn.Module):
        calls = 0

        def forward(self, logits: Tensor, target: Tensor) -> Tensor:
            self.calls += 1
            assert self.calls <= 8
            return F.cross_entropy(logits, target)

    START = shared.weight.detach().clone()
    asked = {"losses": {"counts": Counts()}} | trainer(callbacks=[Once()])
    record = compare(OnShared, Shuffled(), **(QUICK | asked)).record
    assert record.failures == []
    # each copy begins anew: once for the trainer, once more where the look reads batches
    assert orders.count(orders[0]) >= 9


def test_the_callbacks_that_a_module_with_the_mixin_configures_stay(monkeypatch):
    monkeypatch.setattr(own_modules, "STOPPED", [], raising=False)

    class Notes(pl.Callback):
        def on_fit_start(self, trainer, pl_module):
            own_modules.STOPPED.append(type(pl_module).__name__)

    class Configures(WithMixin):
        def configure_callbacks(self):
            return [*super().configure_callbacks(), Notes()]

    compare(Configures, Points(), **(QUICK | {"replaces": None, "seeds": 1}))
    assert own_modules.STOPPED == ["Configures"] * 4


def test_candidates_may_have_batches_of_other_sizes():
    def batches_of(size: int) -> Any:
        loader = {"val_dataloader": lambda data: DataLoader(data.parts[1], batch_size=size)}
        return variant(Points, **loader)

    untested = without(WithCriterion, "test_step")
    several = {"small": (untested, batches_of(50)), "large": (large, batches_of(8))}
    record = compare(several, **(SEVERAL | {"trials": 1})).record
    assert (record.failures, record.split) == ([], "validation")


def test_a_callback_may_stop_a_run(tmp_path):
    stop = callbacks.EarlyStopping("val/acc", mode="max", stopping_threshold=0)
    recipe = looked(max_epochs=3, callbacks=stop).recipe
    assert len(make(recipe, tmp_path, FINAL).evaluations) == 1


def test_finished_runs_are_read_and_those_of_other_inputs_are_made_anew(tmp_path, monkeypatch):
    begun = own_modules.RATES = []
    (tmp_path / "file_of_users.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)

    class Doubled(WithCriterion):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            return 2 * super().training_step(batch, batch_idx)

    def runs_made(factory: Any = WithCriterion, data: Any = Points, **changed: Any) -> int:
        begun.clear()
        given = trainer(max_epochs=1, callbacks=[Rates()], **changed.pop("of_trainer", {}))
        compare(factory, data, **(QUICK | {"folder": tmp_path, "seeds": 2} | given | changed))
        return len(begun) - 2  # of the look

    widths = {"a": 4}
    assert [runs_made(), runs_made(name="again")] == [4, 0]
    (tmp_path / "softmax/seed=1/result.json").write_text("{")
    with pytest.raises(ValueError, match=r"seed=1/result.json is not a result"):
        runs_made()
    (tmp_path / "softmax/seed=1/result.json").unlink()
    assert runs_made() == 1
    import file_of_users  # noqa: F401 # one more file of the user's

    for change in (
        {},
        {"factory": lambda lr=0.01: WithCriterion(lr, widths["a"])},
        {"factory": Doubled},
        {"version": "2"},
        {"mode": "min"},
        {"of_trainer": {"gradient_clip_val": 1.0}},
        {"data": lambda: Fewer()},
    ):
        assert runs_made(**change) > 0
        assert runs_made(**change) == 0
    logged = trainer(max_epochs=1, logger=True, default_root_dir=tmp_path / "logs")
    compare(WithCriterion, Points(), **(QUICK | {"folder": tmp_path, "seeds": 2} | logged))
    assert len([*(tmp_path / "logs" / "lightning_logs").iterdir()]) >= 4
    with pytest.raises(ValueError, match="holds another comparison, of other data"):
        compare(WithCriterion, Points(rows=150), **(QUICK | {"folder": tmp_path}))


def test_runs_with_callbacks_that_have_a_state_are_read_again(tmp_path, capsys):
    stateful = trainer(callbacks=[callbacks.ModelCheckpoint(), callbacks.Timer()])
    asked = QUICK | stateful | {"seeds": 1, "folder": tmp_path, "progress": True}
    compare(WithCriterion, Points(), **asked)
    capsys.readouterr()
    compare(WithCriterion, Points(), **asked)
    assert "2 finished runs are read" in capsys.readouterr().out


def test_with_a_version_an_edited_file_makes_no_run_anew(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "file_of_users_2.py").write_text("")
    import file_of_users_2  # noqa: F401

    asked = SEVERAL | {"trials": 1, "seeds": 1, "folder": tmp_path / "folder", "progress": True}

    def runs_made(version: str = "") -> str:
        compare({"small": small, "large": large}, Points(), **asked, version=version)
        (tmp_path / "file_of_users_2.py").write_text(f"# {capsys}")
        return capsys.readouterr().out

    assert "finished runs are read" not in runs_made()
    assert "made anew: 2 with other code (with version=" in runs_made()
    assert "made anew: 2 with other code" in runs_made("1")
    assert "2 finished runs are read from" in runs_made("1")


def test_runs_of_a_module_in_a_notebook_s_cell_are_made_anew_unless_a_version_is_given(
    tmp_path, monkeypatch, capsys
):
    cells = sys.modules["__main__"]
    monkeypatch.delattr(cells, "__file__", raising=False)
    monkeypatch.setitem(vars(cells), "WithCriterion", WithCriterion)
    exec("def cell(lr=0.01):\n    return WithCriterion(lr)", vars(cells))
    cell = vars(cells).pop("cell")
    asked = QUICK | {"seeds": 1, "folder": tmp_path, "progress": True}

    def runs_made(version: str = "") -> str:
        compare(cell, Points(), **asked, version=version)
        return capsys.readouterr().out

    runs_made()
    assert "0 finished runs are read" in runs_made()
    runs_made("1")
    assert "2 finished runs are read" in runs_made("1")


class Stopped(Exception):
    """What ends a run in its second epoch."""


class StopsOnce(pl.Callback):
    def on_train_epoch_start(self, trainer, pl_module):
        if trainer.current_epoch == 1 and not own_modules.STOPPED:
            own_modules.STOPPED.append(1)
            raise Stopped


def test_an_interrupted_run_goes_on_from_its_last_epoch(tmp_path, monkeypatch):
    monkeypatch.setattr(own_modules, "STOPPED", [1], raising=False)
    recipe = looked(max_epochs=3, callbacks=StopsOnce()).recipe
    whole = make(recipe, tmp_path / "whole", FINAL)
    own_modules.STOPPED.clear()
    with pytest.raises(Stopped):
        make(recipe, tmp_path / "resumed", FINAL)
    resumed = make(recipe, tmp_path / "resumed", FINAL)
    assert (whole.resumed, resumed.resumed) == (False, True)
    assert resumed.metrics == whole.metrics
    assert resumed.evaluations[-1]["weights"] == whole.evaluations[-1]["weights"]
    assert (tmp_path / "resumed" / FINAL.folder / "checkpoints" / "best.ckpt").exists()


def test_a_file_that_changes_while_processes_make_runs_ends_the_comparison(tmp_path, monkeypatch):
    recipe = looked().recipe._replace(process=0, files={__file__: "as it was"})
    run_one = partial(make, recipe, tmp_path)
    with pytest.raises(CodeChanged, match="has changed since the comparison has begun"):
        list(execution(run_one)([FINAL]))


class StoppedBySeed(WithCriterion):
    def on_train_start(self):
        if torch.initial_seed() == 5:
            raise KeyboardInterrupt


def test_what_is_decided_can_be_read_while_a_comparison_goes_on(tmp_path):
    asked = SEVERAL | {"trials": 1, "folder": tmp_path, "seeds": "auto", "equal_within": 0.01}
    with pytest.raises(SystemExit, match="stopped; the same call again goes on"):
        compare({"small": small, "other": StoppedBySeed}, Points(), **asked)
    record = ComparisonRecord.read(tmp_path)
    assert record.stopped.startswith("Still running")
    assert len(record.scores()["small"]) == 5
    assert (tmp_path / "report" / "report.html").exists()


class Fewer(Points):
    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.parts[0], batch_size=20)


def test_a_comparison_is_made_lighter_until_its_first_final_run(tmp_path, capsys):
    asked = SEVERAL | {"trials": 3, "seeds": 2, "folder": tmp_path}
    with pytest.raises(ValueError, match="trains the same whatever its lr is"):
        compare({"small": small, "fixed": IgnoresItsRate}, Points, **asked)
    tuned = len(list(tmp_path.rglob("result.json")))
    lighter = asked | {"trials": 2, "seeds": 1, "progress": True}
    compare({"small": small, "large": large}, Points, **lighter)
    assert "finished runs are read" in capsys.readouterr().out
    assert tuned > 1
    for other in ({"equal_within": 1.0}, {"trials": 3}):
        with pytest.raises(ValueError, match="design of its first final run"):
            compare({"small": small, "large": large}, Points, **(lighter | other))


def small(lr: float = 0.01) -> WithCriterion:
    return WithCriterion(lr, 4)


def large(lr: float = 0.01, hidden: int = 64) -> WithCriterion:
    return WithCriterion(lr, hidden)


SEVERAL = {key: value for key, value in QUICK.items() if key not in ("methods", "replaces")}
SEVERAL |= {"trials": 2, "tuning_seeds": 1, "seeds": 1} | trainer(max_epochs=1)


@pytest.mark.slow
def test_modules_are_compared_as_they_are_in_two_processes_as_in_one(tmp_path):
    ranges = {"hidden": {"low": 32, "high": 64}, "lr": [0.01, 0.02]}
    factories, found = {"large": (large, None, ranges), "small": small}, []
    for jobs in (1, 2):
        asked = SEVERAL | {"baseline": "small", "n_jobs": jobs, "folder": tmp_path / str(jobs)}
        record = compare(factories, Points, **asked).record
        columns = ["candidate", "seed", "score", "parameters"]
        found.append(record.final[columns].values.tolist())
        assert (record.baseline, record.failures) == ("small", [])
        tried = {value for trial in record.tuning["large"] for value in trial.settings.values()}
        assert tried <= {32, 64, 0.01, 0.02}
    assert found[0] == found[1]
    assert {method: count for method, _, _, count in found[0]}["small"] == 8 * 4 + 4 + 4 * 5 + 5


def test_candidates_of_a_seed_train_on_the_same_rows_in_the_same_order(monkeypatch):
    monkeypatch.setattr(own_modules, "SEEN", {}, raising=False)

    class Sees(pl.Callback):
        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            if torch.initial_seed() == 5:
                own_modules.SEEN.setdefault(pl_module.hparams.hidden, []).append(batch[1])

    asked = SEVERAL | {"trials": 1, "seeds": [5]} | trainer(max_epochs=1, callbacks=[Sees()])
    compare({"small": small, "large": large}, Points, **asked)
    assert len(own_modules.SEEN[4]) == len(own_modules.SEEN[64]) == 4
    assert torch.cat(own_modules.SEEN[4]).equal(torch.cat(own_modules.SEEN[64]))


SCRIPT = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background process ignores it
sys.path.insert(0, {tests!r})
from harness.own_modules import Points, WithCriterion
from as_lightning import compare

class Slow(WithCriterion):
    def on_train_epoch_start(self):
        time.sleep(0.5)

if __name__ == "__main__":
    compare({{"a": Slow, "b": WithCriterion}}, Points, monitor="val/acc", trials=1, seeds=20, half_epochs=False,
            trainer={{"max_epochs": 9, "accelerator": "cpu"}}, n_jobs=2, folder={folder!r}, progress=False)
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_the_processes_of_a_comparison_end_with_it_and_an_interrupt_is_one_sentence(
    number, tmp_path
):
    (tmp_path / "script.py").write_text(
        SCRIPT.format(tests=str(Path(__file__).parents[1]), folder=str(tmp_path / "folder"))
    )
    process = subprocess.Popen(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    for _ in range(1200):
        if len(list(tmp_path.rglob("result.json"))) > 1 or process.poll() is not None:
            break
        time.sleep(0.1)
    assert len(in_group(process.pid)) >= 3
    if number == signal.SIGKILL:
        process.kill()
    else:  # as Ctrl-C in a terminal
        os.killpg(process.pid, number)
    _, complained = process.communicate(timeout=60)
    for _ in range(100):
        if not in_group(process.pid):
            break
        time.sleep(0.1)
    assert in_group(process.pid) == []
    if number == signal.SIGINT:
        sentence = "as_lightning.compare: stopped; the same call again goes on from here"
        assert complained.strip().splitlines()[-1] == sentence
        assert "Traceback" not in complained


def in_group(group: int) -> list[int]:
    """The living processes of a group."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, process_group = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(process_group) == group and state != "Z":
            found.append(int(folder.name))
    return found


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
FOCAL = {"methods": [], "losses": {"focal": Focal()}}
Smoothed = with_loss(nn.CrossEntropyLoss(label_smoothing=0.1))


class OnPlateau(WithCriterion):
    def configure_optimizers(self):
        optimizer: Any = super().configure_optimizers()
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "monitor": "val/acc"},
        }


# fmt: off
REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"factory": MODULE}, TypeError, "expected a function that makes a module"),
    (several(a=small, b=lambda: nn.Linear(2, 2)), TypeError, "expected a LightningModule"),
    (several(a=small), ValueError, "needs two candidates, each with a name of its own, got a"),
    (several(a=small, b=(large, Points(150))), ValueError, "other validation or test ex"),
    (several(a=small, b=(small, None, {"c": [1]})), TypeError, "unexpected keyword argument 'c'"),
    ({"factory": {"a": small, "b": large}}, ValueError, "leave methods, losses"),
    (several(a=small, b=large) | {"baseline": "c"}, ValueError, "no candidate is called c"),
    ({"baseline": "entmx"}, ValueError, "no candidate is called entmx"),
    ({"n_jobs": 2, "factory": lambda: LOCK and small()}, TypeError, "cannot be pickled"),
    ({"n_jobs": 2} | trainer(devices=2, strategy="ddp"), ValueError, "n_jobs=2"),
    (trainer(strategy="ddp_spawn"), ValueError, "must not set strategy='ddp_spawn': what its"),
    ({"factory": lambda: nn.Linear(2, 2)}, TypeError, "got Linear: the factory"),
    ({"factory": Foreign}, TypeError, "of the package pytorch_lightning"),
    ({"factory": lambda lr: WithCriterion(lr)}, TypeError, "missing .* 'lr'"),
    ({"factory": lambda lr=0: WithCriterion(lr)}, ValueError, "a learning rate must be positive"),
    ({"methods": "entmax"}, ValueError, "softmax, as_softmax, as_speed, got 'entmax'"),
    ({"losses": {"as_softmax": Focal()}}, ValueError, "as_softmax is a method of this comparison"),
    ({"losses": {"focal": "focal"}}, TypeError, "not callable"),
    ({"losses": {"rows": ROWS}}, RuntimeError, "only for scalar outputs"),
    ({"monitor": "val/f1"}, ValueError, r"'val/f1' is never logged.*val/acc"),
    ({"data": without(Points, "val_dataloader")}, ValueError, "of a val_dataloader"),
    ({"data": variant(Points, val_dataloader=no_batch)}, ValueError, "of a val_dataloader"),
    ({"data": variant(Points, train_dataloader=no_batch)}, ValueError, "after training on others"),
    ({"data": list}, TypeError, "expected a LightningDataModule, got list: .*from_datasets"),
    ({"data": lambda: Points(LOCK)}, TypeError, "cannot be pickled"),
    ({"factory": Smoothed}, TypeError, "label_smoothing"),
    ({"replaces": "net"}, TypeError, "takes the place of CrossEntropyLoss"),
    ({"replaces": "loss_fn"}, AttributeError, "no attribute 'loss_fn'"),
    ({"replaces": None}, ValueError, 'replaces="criterion"'),
    ({"factory": LocalLoss} | FOCAL, ValueError, "never called the loss .*replaces"),
    ({"factory": Anew} | FOCAL, ValueError, "set it to no other loss"),
    ({"factory": OnPlateau} | trainer(check_val_every_n_epoch=2), Exception, "val/acc which is"),
    ({"mode": "best"}, ValueError, "mode must be"),
    ({"monitor": "val/cost"}, ValueError, "val/cost"),
    ({"trainer": {}}, TypeError, "trainer.max_epochs must be an integer of at least 1, got None"),
    ({"trainer": pl.Trainer}, TypeError, "trainer must be arguments"),
    (trainer(limit_val_batches=0), ValueError, "is never logged by a validation_step"),
    (trainer(acelerator="cpu"), ValueError, "acelerator"),
    (trainer(max_steps=5), ValueError, "must not set max_steps"),
    (trainer(enable_checkpointing=False), ValueError, "set enable_checkpointing=False"),
    (trainer(fast_dev_run=1), ValueError, "must not set fast_dev_run=1"),
]
# fmt: on


@pytest.mark.parametrize(("arguments", "error", "message"), REFUSED)
def test_bad_input_is_refused_before_the_first_run(arguments, error, message, tmp_path):
    settings = QUICK | {"factory": WithCriterion, "data": Points, "folder": tmp_path} | arguments
    factory, data = settings.pop("factory"), settings.pop("data")
    with pytest.raises(error, match=message) as refused:
        compare(factory, data(), **settings)
    assert "\n" not in str(refused.value)
    assert not list(tmp_path.rglob("result.json"))
