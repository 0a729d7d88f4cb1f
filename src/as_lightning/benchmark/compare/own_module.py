"""A user's own LightningModule in a comparison: a first look at it and its data, and a run trained and scored.

What would fail every run, or spoil it silently, the first look says at once.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import DeviceStatsMonitor, LearningRateMonitor, ModelCheckpoint, ProgressBar
from lightning.pytorch.utilities.model_helpers import is_overridden
from lightning.pytorch.utilities.parsing import lightning_getattr, lightning_hasattr, lightning_setattr
from torch import nn

from as_lightning.benchmark.compare.engine import Subject, best_validation, one_by_one
from as_lightning.benchmark.compare.own_loss import BASELINE, OwnLosses, TargetFinder
from as_lightning.benchmark.compare.plan import Run, epochs_of
from as_lightning.benchmark.compare.search import RATE, Range, learning_rates
from as_lightning.benchmark.run.fingerprint import described, digest, of_made, of_split, source_of
from as_lightning.benchmark.run.predictions import PredictionRecorder
from as_lightning.benchmark.run.recorder import RunRecorder
from as_lightning.benchmark.run.result import Result
from as_lightning.benchmark.run.runner import finished_or_made, fitted, measure_test, metrics_of_test
from as_lightning.benchmark.run.settings import nearest
from as_lightning.callbacks import MaskingMonitor, TemperatureScaling

RATES = ("lr", "learning_rate")
QUIET = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "num_sanity_val_steps": 0}
# what would contradict max_epochs, or leave no weights to score
UNCHANGED = {"max_steps": -1, "max_time": None, "fast_dev_run": False, "enable_checkpointing": True}
LOOK = {
    **dict.fromkeys(("limit_train_batches", "limit_val_batches", "limit_test_batches", "check_val_every_n_epoch"), 1),
    "max_epochs": 2,  # some metrics are logged in every second epoch
    "val_check_interval": 1.0,  # Lightning refuses an interval that is longer than the epoch
}


class BestWeights(ModelCheckpoint):
    """Keeps the weights of the best validation; those that log no score are passed over.

    As a class of its own it may stand beside a ``ModelCheckpoint`` of the user.
    """

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.monitor in trainer.callback_metrics:
            super().on_validation_end(trainer, pl_module)


@dataclass
class OwnModule:
    """What is compared, as `compare` takes it, and what `look` has found."""

    factory: Callable[..., pl.LightningModule]
    datamodule: Any
    replaces: str | None
    monitor: str
    mode: str
    trainer: Mapping[str, Any]
    losses: OwnLosses
    name: str = "comparison"
    # what the first look finds
    test_metric: str | None = None  # None where the validation split is scored
    rates: Range | None = None  # None where the learning rate cannot be tuned
    target: str | int | None = None  # its key or position in a batch; None where calibration cannot be measured
    inputs: dict[str, str] = field(default_factory=dict)  # digests of the module and of the data
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not callable(self.factory) or isinstance(self.factory, nn.Module):
            raise TypeError(
                "expected a function that makes a fresh module, e.g. compare(lambda: LitModel(lr=1e-3), ...); got "
                f"{type(self.factory).__name__}: one module cannot be trained several times from its start"
            )
        if self.mode not in ("max", "min"):
            raise ValueError(f"mode must be 'max' or 'min', got {self.mode!r}")
        if not isinstance(self.trainer, Mapping):
            raise TypeError(
                f'trainer must be the arguments of each run\'s Trainer, as {{"max_epochs": 10}}, got {self.trainer!r}'
            )
        for name in self.trainer.keys() - (known := inspect.signature(pl.Trainer).parameters.keys()):
            raise ValueError(f"trainer has {name!r}, which lightning.Trainer does not take: {nearest(name, known)}")
        refused = [name for name, needed in UNCHANGED.items() if self.trainer.get(name, needed) != needed]
        for name in [*refused, *(["limit_val_batches"] if self.trainer.get("limit_val_batches") == 0 else [])]:
            raise ValueError(
                f"trainer must not set {name}={self.trainer[name]!r}: budgets are shares of max_epochs, and the "
                "weights of the best validation are scored"
            )
        callbacks = self.trainer.get("callbacks") or []
        callbacks = [callbacks] if isinstance(callbacks, pl.Callback) else callbacks
        to_log = () if self.trainer.get("logger") else (LearningRateMonitor, DeviceStatsMonitor)
        unused = (ProgressBar, MaskingMonitor, TemperatureScaling, *to_log)
        why = "the runs have what they need of it, and without a logger of the trainer's nothing is logged"
        self.notes += [f"{type(each).__name__} was left out: {why}." for each in callbacks if isinstance(each, unused)]
        self.trainer = {**self.trainer, "callbacks": [each for each in callbacks if not isinstance(each, unused)]}

    def look(self, lr_factor: float | None, directory: Path) -> Subject:
        """Train a batch by each method, and raise for all that would fail the comparison, or spoil it silently.

        The first learning rates are a factor to each side of the module's, which without one is not tuned; the runs
        will lie below ``directory``.
        """
        made = []
        for _ in range(2):
            pl.seed_everything(0, workers=True, verbose=False)
            made.append(checked(self.factory(), pl.LightningModule, "the factory must return a module at each call"))
        module, again = made
        if module is again:
            raise ValueError(
                "the factory returned the same object twice: it must make a new module at each call, as "
                "lambda: LitModel(...) does, or the second run would go on from the first one's weights"
            )
        kind, data, examples = type(module).__name__, self.data(), self._same_splits()
        self.rates = None if lr_factor is None else self._rates(module, lr_factor)
        arguments, built = described([getattr(self.factory, "keywords", {}), dict(module.hparams)]), of_made(module)
        if built != of_made(again):  # something in it is of the moment
            built = source_of(*(type(part) for part in module.modules()))
        self.inputs = {
            "module": digest(built, arguments),
            "data": digest(source_of(type(data)), described(dict(data.hparams)), examples),
        }
        self._first_look()
        trained = {method: self._look_at(method) for method in self.losses.names}
        reason = f"{kind} has no argument or hyperparameter lr" if lr_factor else "search.lr_factor is null"
        if self.rates is not None and self._look_at(BASELINE, lr=2 * self.rates.default) == trained[BASELINE]:
            self.rates = None
            reason = f"{kind} trains the same whatever its lr is (configure_optimizers must read the lr that is tuned)"
        if self.rates is None:
            self.notes.append(f"The learning rate was not tuned: {reason}, so all methods ran at its own.")
        shared = {} if self.rates is None else {RATE: self.rates}
        spaces = {method: {**shared, **self.losses.knobs[method]} for method in self.losses.names}
        split = "validation" if self.test_metric is None else "test"
        facts = {"name": self.name, "score": self.monitor, "mode": self.mode, "split": split, "notes": self.notes}
        return Subject(spaces, one_by_one(lambda run: self.train(run, directory / run.folder)), facts, examples)

    def _rates(self, module: pl.LightningModule, factor: float) -> Range | None:
        """The learning rates around that of a module that the factory has made; None if it cannot be set."""
        argument, attribute = rate_name(self.factory), rate_name(module)
        rate = inspect.signature(self.factory).parameters[argument].default if argument else None
        if not isinstance(rate, (int, float)) and attribute:
            rate = lightning_getattr(module, attribute)
        return learning_rates(float(rate), factor) if isinstance(rate, (int, float)) else None

    def _same_splits(self) -> str:
        """A digest of the data; those of validation and test must not depend on when they are set up."""
        found, trained = [], []
        for seed in (0, 1):
            pl.seed_everything(seed, workers=True, verbose=False)
            data = self.data()
            data.trainer = pl.Trainer(**{**QUIET, **self.trainer, "callbacks": [], "max_epochs": 1})
            data.prepare_data()
            data.setup("fit")
            data.setup("test")
            found.append(digest(of_split(data, "val_dataloader"), of_split(data, "test_dataloader")))
            trained.append(of_split(data, "train_dataloader"))
        if found[0] != found[1]:
            raise ValueError(
                f"{type(data).__name__} makes other validation or test splits each time it is set up, so that runs "
                "would be tested on examples that others were trained on: split by a generator with a seed of its own, "
                "as in random_split(dataset, lengths, torch.Generator().manual_seed(0))"
            )
        return digest(found[0], *(trained[:1] if trained[0] == trained[1] else []))  # not where it is drawn by the seed

    def _first_look(self) -> None:
        """Find the target in the batch and the test metric, and note what is missing."""
        finder = TargetFinder()
        self.losses.losses["first look"] = (finder.loss, {})
        with TemporaryDirectory() as folder:
            result, trainer = self.fit(Run("tuning", "first look", {}, 1.0, 0), folder, LOOK, {}, finder)
            module, data = trainer.lightning_module, trainer.datamodule  # type: ignore[attr-defined]
            tests = is_overridden("test_step", module) and is_overridden("test_dataloader", data)
            name = name_in_test(self.monitor)
            self.test_metric = name if tests and name in metrics_of_test(trainer, module, data) else None
        if not finder.places:
            raise ValueError(
                f"training_step of {type(module).__name__} never called the loss that was put in: name the attribute "
                "that it calls as loss(logits, target), or call a Hugging Face model as self.model(..., labels=labels)"
            )
        self.target = None if finder.hidden else finder.source.target
        missed = len(result.evaluations) < len(result.epoch_seconds)
        notes = {
            "Calibration was not measured, and predictions were not stored: the target of the training loss "
            "is no part of the batch by itself, or validation_step does not call self(x).": self.target is None,
            f"{self.monitor} is not logged in every epoch: of those that log it the best one is scored.": missed,
            f"The scores are of the validation split: there is no {name} of a test_step on the batches of a "
            "test_dataloader. They are too high: the same split chose settings and epoch.": self.test_metric is None,
        }
        self.notes += [note for note, holds in notes.items() if holds]

    def _look_at(self, method: str, **settings: float) -> list[Any]:
        """Train and validate on one batch; return what tells this training from one at another learning rate."""
        with TemporaryDirectory() as folder:
            _, trainer = self.fit(Run("tuning", method, settings, 1.0, 0), folder, LOOK, {})
        groups = [group for optimizer in trainer.optimizers for group in optimizer.param_groups]
        numbers = [{k: v for k, v in group.items() if isinstance(v, (int, float))} for group in groups]
        return [*numbers, *(float(part.detach().double().sum()) for part in trainer.lightning_module.parameters())]

    def module(self, method: str, settings: Mapping[str, Any]) -> pl.LightningModule:
        """A fresh module that trains by a method."""
        rate, argument = settings.get(RATE), rate_name(self.factory)
        made = self.factory(**{argument: rate}) if rate is not None and argument else self.factory()
        checked(made, pl.LightningModule, "the factory must return a module at each call")
        if rate is not None and not argument:
            lightning_setattr(made, str(rate_name(made)), rate)
        self.losses.put_in(made, method, self.replaces, settings)
        return made

    def data(self) -> pl.LightningDataModule:
        """A copy of the data module, or a new one where a function makes it."""
        if callable(self.datamodule):
            made = self.datamodule()
        else:
            try:
                made = copy.deepcopy(self.datamodule)
            except Exception as error:
                kind = type(self.datamodule).__name__
                raise TypeError(
                    f"{kind} cannot be copied for each run ({error}): give a function that makes it, as in "
                    f"lambda: {kind}()"
                ) from None
        hint = "LightningDataModule.from_datasets(train, validation, test) makes one"
        return checked(made, pl.LightningDataModule, hint)

    def train(self, run: Run, directory: Path) -> Result:
        """Make one run; one that has finished in ``directory`` with the same settings and inputs is read instead."""
        config = {
            "comparison": run.about(epochs_of(run.budget, self.trainer["max_epochs"])),
            "seed": run.seed,
            "method": {"name": run.method, **self.losses.facts(run.method)},
            "replaces": self.replaces,
            "monitor": self.monitor,
            "mode": self.mode,
            "trainer": {name: described(value) for name, value in self.trainer.items()},
        }
        return finished_or_made(directory, config, self.inputs, lambda: self._make(run, config, directory))

    def _make(self, run: Run, config: dict[str, Any], directory: Path) -> Result:
        epochs, every = config["comparison"]["epochs"], self.trainer.get("check_val_every_n_epoch", 1)
        limits = {"max_epochs": epochs, "check_val_every_n_epoch": every and min(every, epochs)}
        with TemporaryDirectory() as folder:
            result, trainer = self.fit(run, folder, limits, config)
            if run.phase == "final" and self.test_metric is None:
                result.metrics = {self.monitor: best_validation(result, 1.0 if self.mode == "max" else -1.0)[0]}
            elif run.phase == "final":
                (best,) = (c.best_model_path for c in trainer.checkpoint_callbacks if isinstance(c, BestWeights))
                data: pl.LightningDataModule = trainer.datamodule  # type: ignore[attr-defined]
                measure_test(result, trainer, trainer.lightning_module, data, best, directory)
                result.metrics[self.monitor] = result.metrics[str(self.test_metric).removeprefix("test/")]
                if "calibration_error_unscaled" in result.metrics:
                    result.metrics.setdefault("calibration_error", result.metrics["calibration_error_unscaled"])
        return result

    def fit(
        self, run: Run, folder: str, limits: Mapping[str, Any], config: dict[str, Any], *more: pl.Callback
    ) -> tuple[Result, pl.Trainer]:
        """Train a fresh module by the settings of a run, with ``limits`` in the place of the trainer's arguments."""
        pl.seed_everything(run.seed, workers=True, verbose=False)
        module, data = self.module(run.method, run.settings), self.data()
        recorder = RunRecorder(self.monitor)
        best = BestWeights(folder, filename="best", monitor=self.monitor, mode=self.mode, save_on_train_epoch_end=False)
        callbacks = [*copy.deepcopy(self.trainer["callbacks"]), *self.losses.callbacks(run.method), recorder, *more]
        for measuring in () if self.target is None else (TemperatureScaling(), PredictionRecorder()):
            measuring.source.target = self.target
            callbacks.append(measuring)
        settings = {**QUIET, **self.trainer, **limits, "callbacks": [*callbacks, best], "default_root_dir": folder}
        trainer = pl.Trainer(**settings)
        about: dict[str, Any] = {"name": self.name, "method": run.method, "score": self.monitor, "seed": run.seed}
        result = fitted(trainer, module, data, **about, config=config, inputs=self.inputs)
        if not recorder.evaluations:
            if not trainer.callback_metrics:
                raise ValueError(
                    f"no batch was trained and validated: {type(data).__name__} needs training data and, to choose "
                    f"settings by, validation data of a val_dataloader, and {type(module).__name__} a validation_step"
                )
            logged = ", ".join(trainer.callback_metrics)
            raise ValueError(
                f"monitor {self.monitor!r} is never logged: there is {logged}; "
                "name one of these as monitor=... (on the command line module.monitor=...)"
            )
        return result, trainer


def checked(made: Any, kind: type, hint: str) -> Any:
    """What a function of the user's has made; a TypeError unless it is of that class of ``lightning``."""
    if isinstance(made, kind):
        return made
    if any(base.__module__.startswith("pytorch_lightning") for base in type(made).__mro__):
        hint = "it is of the package pytorch_lightning: import it from lightning.pytorch instead"
    raise TypeError(f"expected a {kind.__name__}, got {type(made).__name__}: {hint}")


def rate_name(owner: Any) -> str | None:
    """The argument of a factory, or the attribute or hyperparameter of a module, that is its learning rate."""
    if isinstance(owner, pl.LightningModule):
        return next((name for name in RATES if lightning_hasattr(owner, name)), None)
    return next((name for name in RATES if name in inspect.signature(owner).parameters), None)


def name_in_test(metric: str) -> str:
    """The test metric's name: that of a validation metric with ``test`` for the first word ``val`` (or alike).

    >>> [name_in_test(name) for name in ("val/acc", "valid_acc", "acc/validation", "val/eval_f1", "interval")]
    ['test/acc', 'test_acc', 'acc/test', 'test/eval_f1', 'interval']
    """
    return re.sub(r"(?<![A-Za-z0-9])(validation|valid|val)(?![a-z])", "test", metric, count=1)
