"""compare() of modules as users write them, in real trainings."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import ClassVar

import lightning.pytorch as pl
import pytest
import torch
import torch.nn.functional as F
from harness.own_modules import HuggingFace, Points, Sentences, WithCriterion, WithMixin
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import nn

import as_lightning
from as_lightning import ASSoftmaxMixin, compare
from as_lightning.benchmark.compare.huggingface import is_huggingface_classifier
from as_lightning.benchmark.compare.own_inspection import inspect_module
from as_lightning.benchmark.compare.own_module import OwnModule, with_method
from as_lightning.functional import as_cross_entropy

QUICK = {
    "monitor": "val/acc",
    "seeds": 3,
    "trials": 1,
    "budgets": (1,),
    "trainer": {"max_epochs": 2, "accelerator": "cpu"},
    "progress": False,
}


@pytest.mark.parametrize(
    ("factory", "data", "replaces"),
    [
        (lambda: WithCriterion(lr=0.01), Points, "criterion"),
        (lambda: WithMixin(lr=0.01), Points, None),
        (lambda: HuggingFace(lr=1e-3), Sentences, "model"),
    ],
    ids=["criterion", "as_softmax_loss", "huggingface"],
)
def test_a_module_of_each_form_is_compared(factory, data, replaces, tmp_path: Path) -> None:
    report = compare(factory, data(), replaces=replaces, methods=["as_softmax"], **QUICK)
    assert [(arm.method, arm.seeds) for arm in report.findings.arms] == [("softmax", 3), ("as_softmax", 3)]
    assert report.comparison.failures == []
    assert report.findings.split == "test"
    masked = [run.masking for run in report.comparison.results if run.method == "as_softmax"]
    assert all(len(epochs) == 2 and epochs[-1]["samples"] > 0 for epochs in masked)
    page = report.save(tmp_path)
    assert report.advice.split(".")[0] in page.html.read_text(encoding="utf-8")


def test_all_methods_and_budgets_are_tuned_and_run() -> None:
    settings = QUICK | {"trials": 2, "tuning_seeds": 1, "budgets": (0.5, 1)}
    report = compare(lambda: WithCriterion(lr=0.01), Points, replaces="criterion", **settings)
    arms = [(arm.method, arm.epochs) for arm in report.findings.arms]
    assert arms == [(method, epochs) for method in ("softmax", "as_softmax", "as_speed") for epochs in (2, 1)]
    assert set(report.comparison.tuning) == {"softmax", "as_softmax", "as_speed"}
    assert {trial["lr"] for trial, _ in report.comparison.tuning["softmax"]} == {0.01, 0.003162}
    assert all("calibration_error_scaled" in run.metrics for run in report.comparison.results)


def test_an_interrupted_comparison_goes_on_from_its_finished_runs(tmp_path: Path) -> None:
    made = []

    def factory() -> WithCriterion:
        made.append(1)
        return WithCriterion(lr=0.01)

    settings = QUICK | {"folder": tmp_path, "methods": ["as_softmax"]}
    first = compare(factory, Points(), replaces="criterion", **settings)
    count = len(made)
    (tmp_path / "runs/softmax/budget=1,seed=2/result.json").unlink()
    made.clear()
    second = compare(factory, Points(), replaces="criterion", **settings)
    assert len(made) == count - 5  # five of six runs are read
    assert second.advice.split(", in ")[0] == first.advice.split(", in ")[0]
    assert (tmp_path / "report" / "report.html").exists()


def test_runs_of_another_mode_or_other_data_are_made_anew_and_take_the_name_of_the_call(tmp_path: Path) -> None:
    class OtherPoints(Points):
        def __init__(self, shift: float = 0.0) -> None:
            super().__init__()
            self.save_hyperparameters()

        def setup(self, stage: str | None = None) -> None:
            super().setup(stage)
            self.anything = torch.randn(3)

    made = []

    def factory() -> WithCriterion:
        made.append(1)
        return WithCriterion(lr=0.01)

    settings = QUICK | {"folder": tmp_path, "methods": ["as_softmax"]}

    def modules_made(data: pl.LightningDataModule, **changed) -> int:
        made.clear()
        report = compare(factory, data, replaces="criterion", **settings | changed)
        assert report.findings.name == changed.get("name", "comparison")
        return len(made)

    all_runs = modules_made(Points())
    assert modules_made(Points(), name="again") == all_runs - 6
    assert modules_made(Points(), mode="min") == all_runs
    assert modules_made(OtherPoints(), mode="min") == all_runs
    assert modules_made(OtherPoints(), mode="min") == all_runs - 6
    assert modules_made(OtherPoints(shift=0.1), mode="min") == all_runs


def test_delta_one_of_the_replaced_loss_is_the_modules_own() -> None:
    torch.manual_seed(0)
    module = WithCriterion()
    masked = with_method(copy.deepcopy(module), "as_softmax", "criterion", delta=1.0)
    batch = (torch.randn(6, 8), torch.arange(6) % 5)
    torch.testing.assert_close(masked.training_step(batch, 0), module.training_step(batch, 0))


def test_softmax_leaves_a_module_with_its_own_loss_unchanged() -> None:
    module = WithCriterion()
    criterion = module.criterion
    assert with_method(module, "softmax", "criterion", 0.1).criterion is criterion
    assert type(module) is WithCriterion


def test_softmax_of_a_module_with_the_mixin_is_the_margin_one() -> None:
    assert with_method(WithMixin(), "softmax", None, 0.1).as_softmax_delta == 1.0
    assert with_method(WithMixin(), "as_softmax", None, 0.3).as_softmax_delta == 0.3


class ScoresItsLoss(WithCriterion):
    gaps: ClassVar[list[float]] = []

    def validation_step(self, batch, batch_idx):
        logits = self(batch[0])
        loss = self.criterion(logits, batch[1])
        self.gaps.append(float(loss - F.cross_entropy(logits, batch[1])))
        self.log("val/loss", loss)


class MixinScoresItsLoss(WithMixin):
    def validation_step(self, batch, batch_idx):
        logits = self(batch[0])
        loss = self.as_softmax_loss(logits, batch[1])
        ScoresItsLoss.gaps.append(float(loss - F.cross_entropy(logits, batch[1])))
        self.log("val/loss", loss)


@pytest.mark.parametrize(("factory", "replaces"), [(ScoresItsLoss, "criterion"), (MixinScoresItsLoss, None)])
def test_a_comparison_by_the_loss_compares_softmax_cross_entropy_with_every_method(factory, replaces) -> None:
    ScoresItsLoss.gaps.clear()
    settings = QUICK | {"monitor": "val/loss", "mode": "min", "methods": ["as_softmax"]}
    report = compare(lambda: factory(lr=0.01), Points(), replaces=replaces, **settings)
    assert [arm.method for arm in report.findings.arms] == ["softmax", "as_softmax"]
    assert sum(run.masking[-1]["masked_samples"] for run in report.comparison.results if run.masking) > 0
    assert max(map(abs, ScoresItsLoss.gaps)) < 1e-6


def test_a_huggingface_model_has_the_masked_loss_of_its_logits_in_training_alone() -> None:
    module = with_method(HuggingFace(), "as_softmax", "model", delta=0.2)
    module.model.eval()  # no dropout: the loss is that of the logits that come with it
    batch = next(iter(Sentences().train_dataloader()))
    output = module.model(**batch)
    torch.testing.assert_close(output.loss, as_cross_entropy(output.logits, batch["labels"], 0.2))
    output = module.eval().model(**batch)
    torch.testing.assert_close(output.loss, F.cross_entropy(output.logits, batch["labels"]))
    assert isinstance(module, ASSoftmaxMixin)
    del batch["labels"]
    assert module.model(**batch).loss is None


TINY = {"vocab_size": 9, "n_embd": 4, "n_layer": 1, "n_head": 1, "n_positions": 4, "num_labels": 3}


@pytest.mark.parametrize("kind", ["GPT2LMHeadModel", "GPT2DoubleHeadsModel", "GPT2ForQuestionAnswering", "GPT2Model"])
def test_a_huggingface_model_whose_loss_is_no_classification_loss_is_refused(kind: str) -> None:
    transformers = pytest.importorskip("transformers")
    module = WithCriterion()
    module.criterion = getattr(transformers, kind)(transformers.GPT2Config(**TINY))
    with pytest.raises(ValueError, match=rf"{kind} is no classification model of transformers.*ASSoftmaxMixin"):
        with_method(module, "as_softmax", "criterion", delta=0.2)


@pytest.mark.parametrize("kind", ["GPT2ForSequenceClassification", "GPT2ForTokenClassification"])
def test_a_classification_model_is_taken_also_subclassed_or_compiled(kind: str) -> None:
    transformers = pytest.importorskip("transformers")
    head = getattr(transformers, kind)
    own = type("OurClassifier", (head,), {})(transformers.GPT2Config(**TINY))
    assert is_huggingface_classifier(own)
    assert is_huggingface_classifier(torch.compile(own))
    assert not is_huggingface_classifier(nn.CrossEntropyLoss())


def test_the_learning_rate_reaches_the_optimizer_by_argument_or_attribute() -> None:
    for factory in (WithCriterion, lambda: WithCriterion(lr=0.5), lambda lr=0.5: WithCriterion(lr=lr)):
        own = OwnModule(factory, Points(), "criterion", "val/acc", "max", {"max_epochs": 1})
        optimizer = own.module("as_softmax", {"lr": 0.25, "delta": 0.2}).configure_optimizers()
        assert optimizer.param_groups[0]["lr"] == 0.25


class RecordsRate(pl.Callback):
    """The learning rate that the optimizer of each training has."""

    seen: ClassVar[list[float]] = []

    def on_train_start(self, trainer, pl_module):
        (optimizer,) = trainer.optimizers
        self.seen.append(optimizer.param_groups[0]["lr"])


@pytest.mark.parametrize(
    "factory",
    [lambda lr=2e-3: WithCriterion(lr=lr), lambda: WithCriterion(lr=2e-3)],
    ids=["argument of the factory", "hyperparameter"],
)
def test_every_run_trains_with_the_learning_rate_that_its_result_names(factory, monkeypatch) -> None:
    monkeypatch.setattr(RecordsRate, "seen", [])
    settings = QUICK | {"trials": 3, "tuning_seeds": 1, "seeds": 2, "methods": ["as_softmax"]}
    trainer = QUICK["trainer"] | {"callbacks": [RecordsRate()]}
    report = compare(factory, Points(), replaces="criterion", **(settings | {"trainer": trainer}))
    final = [run.config["comparison"]["settings"]["lr"] for run in report.comparison.results]
    tried = [trial["lr"] for trials in report.comparison.tuning.values() for trial, _ in trials]
    looks = [2e-3, 2e-3, 4e-3]  # before the first run a batch of each method, and one at another learning rate
    assert sorted(RecordsRate.seen) == pytest.approx(sorted(looks + tried + final))
    assert 2e-3 not in final


def test_a_learning_rate_that_cannot_be_set_is_reported() -> None:
    class Fixed(WithCriterion):
        def __init__(self) -> None:
            super().__init__()
            self.hparams.clear()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    report = compare(Fixed, Points(), replaces="criterion", methods=["as_softmax"], **QUICK)
    assert "The learning rate was not tuned: Fixed has no argument or hyperparameter lr" in report.advice


class IgnoresItsRate(WithCriterion):
    """Its hyperparameter lr is copied before it can be set."""

    def __init__(self, lr: float = 0.01) -> None:
        super().__init__(lr)
        self.rate = 0.01

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.rate)


@pytest.mark.parametrize("factory", [IgnoresItsRate, lambda: IgnoresItsRate(0.1)], ids=["argument", "hyperparameter"])
def test_a_learning_rate_that_the_training_does_not_depend_on_is_not_tuned_and_reported(factory) -> None:
    report = compare(factory, Points(), replaces="criterion", methods=["as_softmax"], **QUICK)
    assert "The learning rate was not tuned: IgnoresItsRate trains the same whatever its lr is" in report.advice
    assert all("lr" not in settings for settings in report.comparison.settings.values())


def test_a_rate_that_only_a_warm_up_reads_is_tuned() -> None:
    class WarmUp(WithCriterion):
        def configure_optimizers(self):
            optimizer = torch.optim.SGD(self.parameters(), lr=1.0)
            schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step * self.hparams["lr"])
            return [optimizer], [{"scheduler": schedule, "interval": "step"}]

    own = OwnModule(WarmUp, Points(), "criterion", "val/acc", "max", {"max_epochs": 1})
    inspect_module(own, ("softmax", "as_softmax"))
    assert own.learning_rate == 0.01


class WithoutTestStep(WithCriterion):
    test_step = pl.LightningModule.test_step


class WithoutTestData(Points):
    test_dataloader = pl.LightningDataModule.test_dataloader


class EmptyTestData(Points):
    def test_dataloader(self):
        return []


@pytest.mark.parametrize(
    ("factory", "data", "reason"),
    [
        (WithoutTestStep, Points, "WithoutTestStep has no test_step"),
        (WithCriterion, WithoutTestData, "WithoutTestData has no test_dataloader"),
        (WithCriterion, EmptyTestData, "the test data of EmptyTestData hold no batch"),
    ],
    ids=["test_step", "test_dataloader", "batches"],
)
def test_without_a_test_the_validation_split_is_scored_and_the_reason_said(factory, data, reason) -> None:
    report = compare(factory, data(), replaces="criterion", methods=["as_softmax"], **QUICK)
    assert report.findings.split == "validation"
    assert f"The scores are of the validation split: {reason}. They are too high" in report.advice


def test_the_users_callbacks_are_copied_for_each_run() -> None:
    class Counter(pl.Callback):
        started = 0

        def on_fit_start(self, trainer, pl_module):
            self.started += 1
            assert self.started == 1

    counter = Counter()
    trainer = {"max_epochs": 1, "accelerator": "cpu", "callbacks": [counter]}
    compare(WithCriterion, Points(), replaces="criterion", methods=["as_softmax"], **(QUICK | {"trainer": trainer}))
    assert counter.started == 0


def refused(factory, data=Points, **settings) -> None:
    compare(factory, data(), **(QUICK | {"replaces": "criterion"} | settings))


MODULE = WithCriterion()


class WithoutValidation(Points):
    val_dataloader = pl.LightningDataModule.val_dataloader


class EmptyValidation(Points):
    def val_dataloader(self):
        return []


class EmptyTraining(Points):
    def train_dataloader(self):
        return []


class LocalLoss(WithCriterion):
    def training_step(self, batch, batch_idx):
        return F.cross_entropy(self(batch[0]), batch[1])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"factory": lambda: MODULE}, ValueError, "returned the same object twice"),
        ({"factory": MODULE}, TypeError, "expected a function that makes a fresh module"),
        ({"factory": lambda: nn.Linear(2, 2)}, TypeError, "must return a lightning LightningModule, got Linear"),
        ({"factory": lambda lr: WithCriterion(lr)}, TypeError, "must work without arguments"),
        ({"methods": ["as_softmx"]}, ValueError, "unknown method 'as_softmx'"),
        ({"budgets": (3,)}, ValueError, r"in \(0, 2\], got 3"),
        ({"trials": 0}, ValueError, "trials must be"),
        ({"seeds": 0}, ValueError, "seeds must be at least 1"),
        ({"monitor": "val/f1"}, ValueError, r"'val/f1' is never logged.*val/acc"),
        ({"data": WithoutValidation}, ValueError, "WithoutValidation has no val_dataloader"),
        ({"data": EmptyValidation}, ValueError, "the validation data of EmptyValidation hold no batch"),
        ({"data": EmptyTraining}, ValueError, "the training data of EmptyTraining hold no batch"),
        ({"data": list}, TypeError, "expected a LightningDataModule, .* got list: .*from_datasets"),
        ({"factory": lambda: None}, TypeError, "must return a lightning LightningModule, got NoneType"),
        (
            {"replaces": "net"},
            ValueError,
            "names a Sequential with weights of its own, which is no loss",
        ),
        ({"replaces": "loss_fn"}, AttributeError, "WithCriterion has no such attribute"),
        ({"replaces": None}, ValueError, 'replaces="criterion"'),
        ({"factory": LocalLoss}, MisconfigurationException, "reported no masking counts"),
        ({"mode": "best"}, ValueError, "mode must be"),
        ({"trainer": {"max_steps": 5}}, ValueError, "must set max_epochs"),
        ({"trainer": pl.Trainer}, TypeError, "must be the arguments of lightning.Trainer"),
        ({"trainer": {"max_epochs": 2, "limit_val_batches": 0}}, ValueError, "must not set limit_val_batches=0"),
        ({"trainer": {"max_epochs": 2, "max_steps": 5}}, ValueError, "must not set max_steps"),
        ({"trainer": {"max_epochs": 2, "enable_checkpointing": False}}, ValueError, "set enable_checkpointing=False"),
        ({"trainer": {"max_epochs": 2, "fast_dev_run": 1}}, ValueError, "must not set fast_dev_run=1"),
        ({"trainer": {"max_epochs": 2, "barebones": True}}, ValueError, "must not set barebones=True"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else None,
)
def test_bad_input_is_refused_before_the_first_run(arguments, error, message, tmp_path: Path) -> None:
    with pytest.raises(error, match=message):
        refused(**({"factory": WithCriterion, "folder": tmp_path} | arguments))
    assert not list(tmp_path.rglob("result.json"))


def test_compare_is_loaded_when_it_is_asked_for() -> None:
    assert as_lightning.compare is compare
    with pytest.raises(AttributeError, match="no attribute 'comparee'"):
        as_lightning.comparee  # noqa: B018


def test_a_stored_result_that_cannot_be_read_is_set_aside(tmp_path: Path) -> None:
    settings = QUICK | {"methods": ["as_softmax"], "folder": tmp_path}
    compare(lambda: WithCriterion(lr=0.01), Points, replaces="criterion", **settings)
    damaged = next(tmp_path.rglob("result.json"))
    damaged.write_text("{")
    report = compare(lambda: WithCriterion(lr=0.01), Points, replaces="criterion", **settings)
    assert report.comparison.failures == []
    assert damaged.with_name("result.json.unreadable").exists()
