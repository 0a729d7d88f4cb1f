"""A user's own LightningModule in a comparison: a run trained and scored."""

from __future__ import annotations

import copy
import hashlib
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import DeviceStatsMonitor, LearningRateMonitor, ModelCheckpoint, ProgressBar
from lightning.pytorch.utilities.parsing import lightning_getattr, lightning_hasattr, lightning_setattr
from torch import Tensor, nn

from as_lightning.benchmark.compare.engine import best_validation
from as_lightning.benchmark.compare.own_loss import OwnLosses
from as_lightning.benchmark.compare.plan import Run, default_setting, epochs_of
from as_lightning.benchmark.compare.search import RATE, Space, learning_rates
from as_lightning.benchmark.run.evaluation import metrics_of_test
from as_lightning.benchmark.run.folder import run_lock
from as_lightning.benchmark.run.predictions import PredictionRecorder
from as_lightning.benchmark.run.recorder import RunRecorder
from as_lightning.benchmark.run.result import Result
from as_lightning.benchmark.run.resume import readable_result
from as_lightning.callbacks import MaskingMonitor, TemperatureScaling

RATES = ("lr", "learning_rate")
QUIET = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "num_sanity_val_steps": 0}
# what a run that keeps its best weights needs
NEEDED = {"enable_checkpointing": True, "fast_dev_run": False, "barebones": False}
LOGGING = (LearningRateMonitor, DeviceStatsMonitor)  # which refuse a trainer without a logger


class BestWeights(ModelCheckpoint):
    """Keeps the weights of the best validation, which are scored; validations that log no score are passed over.

    As a class of its own it may stand beside a ``ModelCheckpoint`` of the user.
    """

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.monitor in trainer.callback_metrics:
            super().on_validation_end(trainer, pl_module)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.monitor in trainer.callback_metrics:
            super().on_train_epoch_end(trainer, pl_module)


class SeenLogits:
    """Logits and target of a batch that has just been evaluated.

    The logits are what ``forward`` has returned. The target is the part of the batch that the training loss is called
    with: it need not be the last one.

    Args:
        target: the key or the position of the target in a batch.
    """

    def __init__(self, target: str | int) -> None:
        self.target = target
        self._output: Tensor | None = None

    def watch(self, module: pl.LightningModule) -> None:
        """Keep the logits of the forward passes of a module."""

        def keep(part: nn.Module, inputs: Any, output: Any) -> None:
            logits = getattr(output, "logits", output)
            if not torch.is_grad_enabled() and isinstance(logits, Tensor) and logits.dim() >= 2:
                self._output = logits

        module.register_forward_hook(keep)

    def __call__(self, module: pl.LightningModule, batch: Any) -> tuple[Any, Any]:
        if hasattr(module, "validation_logits"):
            return module.validation_logits(batch)  # type: ignore[operator]
        return self._output, batch[self.target]


@dataclass
class OwnModule:
    """What is compared, and what a first look at it has shown.

    Args:
        factory: makes a fresh module at each call; if it has an argument ``lr`` (or ``learning_rate``), it gets the
            learning rate.
        datamodule: the data, which are copied for each run, or what makes them at each call.
        replaces: the attribute that ``training_step`` calls as ``loss(logits, target)``, or that holds a Hugging Face
            model which computes its loss from ``labels``; None for a module that calls ``self.as_softmax_loss``.
        monitor: the validation metric that is compared.
        mode: ``"max"`` if more of it is better, or ``"min"``.
        trainer: arguments of ``lightning.Trainer``; ``max_epochs`` is the full budget.
        losses: the methods.
        name: of the comparison.
        arguments: of the module and the data, for the record.

    Attributes:
        test_metric: the metric of the test split; None where the validation split is scored. This and what follows is
            found by `inspect_module`.
        learning_rate: the default; None where it cannot be tuned.
        target: the key or position of the target in a batch; None where calibration cannot be measured.
        inputs: digests of the module's source, and of the data and theirs.
        data_set: a digest of the validation and test examples.
    """

    factory: Callable[..., pl.LightningModule]
    datamodule: Any
    replaces: str | None
    monitor: str
    mode: str
    trainer: dict[str, Any]
    losses: OwnLosses
    name: str = "comparison"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    test_metric: str | None = None
    learning_rate: float | None = None
    target: str | int | None = None
    inputs: dict[str, str] = field(default_factory=dict)
    data_set: str = ""
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not callable(self.factory) or isinstance(self.factory, nn.Module):
            raise TypeError(
                "expected a function that makes a fresh module, e.g. compare(lambda: LitModel(lr=1e-3), ...); got "
                f"{type(self.factory).__name__}: one module cannot be trained several times from its start"
            )
        if self.mode not in ("max", "min"):
            raise ValueError(f"mode must be 'max' or 'min', got {self.mode!r}")
        epochs = self.trainer.get("max_epochs")
        if not isinstance(epochs, int) or isinstance(epochs, bool) or epochs < 1:
            raise ValueError(
                'trainer must set max_epochs, the full budget, to at least 1, as in trainer={"max_epochs": 10}; got '
                f"{epochs!r}"
            )
        if self.trainer.get("max_steps", -1) != -1 or self.trainer.get("max_time") is not None:
            raise ValueError("trainer must not set max_steps or max_time: budgets are shares of max_epochs")
        if self.trainer.get("limit_val_batches") == 0:
            raise ValueError("trainer must not set limit_val_batches=0: settings are chosen by validation data")
        for name, needed in NEEDED.items():
            if name in self.trainer and bool(self.trainer[name]) is not needed:
                raise ValueError(
                    f"trainer must not set {name}={self.trainer[name]!r}: the weights of the best validation are "
                    "scored, from a checkpoint in a temporary folder"
                )
        callbacks = self.trainer.get("callbacks") or []
        kept = []
        for callback in [callbacks] if isinstance(callbacks, pl.Callback) else list(callbacks):
            kind = type(callback).__name__
            if isinstance(callback, ProgressBar):
                self.notes.append(f"{kind} was left out: one bar shows all runs.")
            elif isinstance(callback, LOGGING) and not self.trainer.get("logger"):
                self.notes.append(f"{kind} was left out: it writes to a logger, and the trainer has none.")
            else:
                kept.append(callback)
        self.trainer = {**self.trainer, "callbacks": kept}

    @property
    def split(self) -> str:
        """What the scores are of."""
        return "validation" if self.test_metric is None else "test"

    @property
    def full_epochs(self) -> int:
        """The epochs of budget 1."""
        return int(self.trainer["max_epochs"])

    def spaces(self, factor: float | None = None) -> dict[str, Space]:
        """What is tuned of each method."""
        factor = float(default_setting("search")["lr_factor"]) if factor is None else factor
        shared = {} if self.learning_rate is None else {RATE: learning_rates(self.learning_rate, factor)}
        return {method: self.losses.space(method, shared) for method in self.losses.names}

    def module(self, method: str, settings: Mapping[str, Any]) -> pl.LightningModule:
        """A fresh module that trains by a method."""
        lr, argument = settings.get(RATE), rate_argument(self.factory)
        made = self.factory(**{argument: lr}) if lr is not None and argument else self.factory()
        check_module(made)
        if lr is not None and not argument:
            attribute = rate_attribute(made)
            assert attribute is not None
            lightning_setattr(made, attribute, lr)
        self.losses.put_in(made, method, self.replaces, settings)
        return made

    def data(self) -> pl.LightningDataModule:
        """A copy of the data module, or a new one where a function makes it.

        Raises:
            TypeError: if it is no LightningDataModule, or cannot be copied.
        """
        given = self.datamodule
        if isinstance(given, pl.LightningDataModule):
            try:
                return copy.deepcopy(given)
            except Exception as error:
                raise TypeError(
                    f"{type(given).__name__} cannot be copied for each run ({error}): give a function that makes it, "
                    f"as in lambda: {type(given).__name__}(...)"
                ) from None
        data = given() if callable(given) else given
        if not isinstance(data, pl.LightningDataModule):
            refuse_other_lightning(data)
            raise TypeError(
                f"expected a LightningDataModule, or a function that makes one, got {type(data).__name__}: "
                "LightningDataModule.from_datasets(train, validation, test, batch_size=...) makes one of data sets"
            )
        return data

    def train(self, run: Run, directory: Path) -> Result:
        """Make one run; one that has finished in ``directory`` with the same settings and inputs is read instead."""
        epochs = epochs_of(run.budget, self.full_epochs)
        config = {
            "comparison": run.about(epochs),
            "seed": run.seed,
            "method": {"name": run.method},
            "replaces": self.replaces,
            "monitor": self.monitor,
            "mode": self.mode,
            "arguments": {name: described(value) for name, value in self.arguments.items()},
            "trainer": {name: described(value) for name, value in self.trainer.items()},
        }
        directory.mkdir(parents=True, exist_ok=True)
        with run_lock(directory):
            finished = readable_result(directory)
            if finished is not None and (finished.config, finished.inputs) == (config, self.inputs):
                return finished
            result = self._make(run, config, directory)
            result.write(directory)
        return result

    def _make(self, run: Run, config: dict[str, Any], directory: Path) -> Result:
        every = self.trainer.get("check_val_every_n_epoch", 1)
        epochs = config["comparison"]["epochs"]
        limits = {"max_epochs": epochs, "check_val_every_n_epoch": None if every is None else min(every, epochs)}
        with TemporaryDirectory() as folder:
            fit = self.fit(run, folder, limits)
            callbacks: list[pl.Callback] = fit.trainer.callbacks  # type: ignore[attr-defined]
            result = Result(
                name=self.name,
                method=run.method,
                score=self.monitor,
                seed=run.seed,
                metrics={},
                train_seconds=fit.recorder.train_seconds,
                epoch_seconds=fit.recorder.epoch_seconds,
                evaluations=fit.recorder.evaluations,
                loss_accuracy_correlation=None,
                masking=[e._asdict() for c in callbacks if isinstance(c, MaskingMonitor) for e in c.history],
                accumulation=[list(window[:5]) for window in fit.recorder.accumulation],
                optimizer_steps=fit.trainer.global_step,
                config=config,
                inputs=self.inputs,
            )
            if run.phase == "final" and self.test_metric is None:
                result.metrics[self.monitor] = best_validation(result, 1.0 if self.mode == "max" else -1.0)[0]
            elif run.phase == "final":
                self._test(result, fit, directory)
        return result

    def _test(self, result: Result, fit: Fit, directory: Path) -> None:
        assert self.test_metric is not None
        metrics = metrics_of_test(fit.trainer, fit.module, fit.data, fit.best.best_model_path)
        result.metrics = {name.removeprefix("test/"): value for name, value in metrics.items()}
        result.metrics[self.monitor] = metrics[self.test_metric]
        for callback in fit.trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, TemperatureScaling) and callback.diagrams:
                result.reliability = {name: bins.points() for name, bins in callback.diagrams.items()}
            if isinstance(callback, PredictionRecorder) and callback.predictions is not None:
                callback.predictions.write(directory)
                result.test_samples = len(callback.predictions.ids)
        if "calibration_error_unscaled" in result.metrics:
            result.metrics.setdefault("calibration_error", result.metrics["calibration_error_unscaled"])

    def fit(self, run: Run, folder: str, limits: Mapping[str, Any]) -> Fit:
        """Train a fresh module by the settings of a run, with ``limits`` in the place of the trainer's arguments."""
        pl.seed_everything(run.seed, workers=True, verbose=False)
        module, data = self.module(run.method, run.settings), self.data()
        recorder = RunRecorder(self.monitor, monitor=self.monitor)
        best = BestWeights(folder, filename="best", monitor=self.monitor, mode=self.mode)
        callbacks = [*copy.deepcopy(self.trainer["callbacks"]), *self.losses.callbacks(run.method), recorder]
        if self.target is not None:
            seen = SeenLogits(self.target)
            seen.watch(module)
            callbacks += [TemperatureScaling(logits=seen), PredictionRecorder(logits=seen)]
        settings = {**QUIET, **self.trainer, **limits, "callbacks": [*callbacks, best], "default_root_dir": folder}
        trainer = pl.Trainer(**settings)
        trainer.fit(module, datamodule=data)
        if recorder.passed_over and not recorder.evaluations:
            raise ValueError(
                f"monitor {self.monitor!r} is never logged: after a validation there is {recorder.passed_over[0]}; "
                "name one of these as monitor=... (on the command line module.monitor=...)"
            )
        return Fit(trainer, module, data, recorder, best)


@dataclass(frozen=True)
class Fit:
    """A training that has ended."""

    trainer: pl.Trainer
    module: pl.LightningModule
    data: pl.LightningDataModule
    recorder: RunRecorder
    best: BestWeights


def refuse_other_lightning(made: Any) -> None:
    """Raise if an object is of the package ``pytorch_lightning``, whose classes are others than ``lightning``'s."""
    if any(base.__module__.startswith("pytorch_lightning") for base in type(made).__mro__):
        raise TypeError(
            f"{type(made).__name__} is of the package pytorch_lightning: import it from lightning.pytorch instead "
            "(import lightning.pytorch as pl)"
        )


def check_module(made: Any) -> None:
    """Raise unless a factory has made a LightningModule."""
    if not isinstance(made, pl.LightningModule):
        refuse_other_lightning(made)
        raise TypeError(f"the factory must return a lightning LightningModule, got {type(made).__name__}")


def rate_argument(factory: Callable[..., Any]) -> str | None:
    """The argument of a factory that is the learning rate; None if it has none.

    >>> rate_argument(lambda hidden=8, lr=0.1: None)
    'lr'
    """
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return None
    return next((name for name in RATES if name in parameters), None)


def rate_attribute(module: pl.LightningModule) -> str | None:
    """The attribute or hyperparameter of a module that is its learning rate; None if it has none."""
    return next((name for name in RATES if lightning_hasattr(module, name)), None)


def default_rate(factory: Callable[..., Any], module: pl.LightningModule) -> float | None:
    """The learning rate of a module that ``factory`` has made without arguments; None if it cannot be set.

    Raises:
        ValueError: if it is a number that is not positive.
    """
    argument, attribute = rate_argument(factory), rate_attribute(module)
    rate: Any = None
    if argument is not None:
        rate = inspect.signature(factory).parameters[argument].default
    if not isinstance(rate, (int, float)) and attribute is not None:
        rate = lightning_getattr(module, attribute)
    if not isinstance(rate, (int, float)) or isinstance(rate, bool):
        return None
    if not rate > 0:
        raise ValueError(f"the learning rate of {type(module).__name__} is {rate:g}: a comparison needs a positive one")
    return float(rate)


def source_digest(*kinds: type) -> str:
    """A digest of the source of classes and of those that they inherit from, libraries left out."""
    texts = []
    for kind in dict.fromkeys(base for made in kinds for base in made.__mro__):
        if kind.__module__.partition(".")[0] in ("builtins", "torch", "lightning", "torchmetrics", "as_lightning"):
            continue
        try:
            texts.append(inspect.getsource(kind))
        except (OSError, TypeError):  # typed into an interpreter
            texts.append(kind.__qualname__)
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def described(value: Any, *, inside: bool = False) -> str:
    """A value as text that is the same in every process: objects by class and settings, without addresses in memory.

    Args:
        value: an argument of ``lightning.Trainer``.
        inside: whether it belongs to an object; objects inside an object are named by their class alone.

    >>> described({"max_epochs": 3, "callbacks": [pl.Callback()]})
    "{'max_epochs': 3, 'callbacks': [lightning.pytorch.callbacks.callback.Callback()]}"
    """
    kind = type(value)
    if isinstance(value, Mapping):
        pairs = (f"{key!r}: {described(item, inside=inside)}" for key, item in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(described(item, inside=inside) for item in value) + "]"
    if isinstance(value, (set, frozenset)):
        return "{" + ", ".join(sorted(described(item, inside=inside) for item in value)) + "}"
    if kind.__repr__ is not object.__repr__:
        return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))
    settings = {} if inside else getattr(value, "__dict__", {})
    text = ", ".join(f"{name}={described(setting, inside=True)}" for name, setting in settings.items())
    return f"{kind.__module__}.{kind.__qualname__}({text})"
