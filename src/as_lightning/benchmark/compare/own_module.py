"""A user's own LightningModule in a comparison: a run trained and scored."""

from __future__ import annotations

import copy
import inspect
import pprint
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import DeviceStatsMonitor, LearningRateMonitor, ModelCheckpoint, ProgressBar
from lightning.pytorch.utilities.parsing import lightning_hasattr, lightning_setattr
from torch import Tensor, nn

from as_lightning.benchmark.compare.engine import best_validation
from as_lightning.benchmark.compare.own_loss import OwnLosses, in_training
from as_lightning.benchmark.compare.plan import Run, epochs_of
from as_lightning.benchmark.compare.search import RATE, Space, learning_rates
from as_lightning.benchmark.run.predictions import PredictionRecorder
from as_lightning.benchmark.run.recorder import RunRecorder
from as_lightning.benchmark.run.result import Result
from as_lightning.benchmark.run.runner import finished_or_made, fitted, measure_test
from as_lightning.callbacks import TemperatureScaling

RATES = ("lr", "learning_rate")
QUIET = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "num_sanity_val_steps": 0}
# what cannot be otherwise where budgets are shares of max_epochs and the weights of the best validation are scored
NEEDED = {"max_steps": -1, "max_time": None, "enable_checkpointing": True, "fast_dev_run": False, "barebones": False}
Kind = TypeVar("Kind")


class BestWeights(ModelCheckpoint):
    """Keeps the weights of the best validation, which are scored; validations that log no score are passed over.

    As a class of its own it may stand beside a ``ModelCheckpoint`` of the user.
    """

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.monitor in trainer.callback_metrics:
            super().on_validation_end(trainer, pl_module)


class SeenLogits(pl.Callback):
    """Logits and target of a batch that has just been evaluated: what ``forward`` returned, and a part of the batch.

    The part is what the training loss, the attribute ``loss`` of the module, is called with; it need not be the last.
    ``target`` is its key or position; where it is None, `find_target` finds it after a training.
    """

    def __init__(self, loss: str, target: str | int | None) -> None:
        self.loss, self.target = loss, target
        self._logits: Tensor | None = None
        self._batch: Any = None
        self._given: Any = None
        self._missed = False

    def __call__(self, module: pl.LightningModule, batch: Any) -> tuple[Any, Any]:
        if hasattr(module, "validation_logits"):
            return module.validation_logits(batch)  # type: ignore[operator]
        return self._logits, batch[self.target]

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        if stage == "fit":
            pl_module.register_forward_hook(self._keep_logits)
            if self.target is None:
                self._watch_loss(pl_module)

    def _keep_logits(self, module: nn.Module, inputs: Any, output: Any) -> None:
        logits = getattr(output, "logits", output)
        if not torch.is_grad_enabled() and isinstance(logits, Tensor) and logits.dim() >= 2:
            self._logits = logits

    def _watch_loss(self, module: pl.LightningModule) -> None:
        parent_name, _, attribute = self.loss.rpartition(".")
        parent = attrgetter(parent_name)(module) if parent_name else module
        loss = getattr(parent, attribute)

        def keep(part: Any, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> None:
            if self._given is None and in_training(module):
                self._given = named.get("labels", arguments[1] if len(arguments) > 1 else named.get("target"))

        def watched(*arguments: Any, **named: Any) -> Any:
            keep(None, arguments, named)
            return loss(*arguments, **named)

        if isinstance(loss, nn.Module):
            loss.register_forward_pre_hook(keep, with_kwargs=True)
        else:
            parent.__dict__[attribute] = watched

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self._batch = batch if self._batch is None else self._batch

    def on_validation_batch_end(self, trainer: Any, pl_module: pl.LightningModule, *batch: Any) -> None:
        self._missed |= self._logits is None and not hasattr(pl_module, "validation_logits")

    def find_target(self) -> str | int | None:
        """The key or position of the target; None if it is no part of the batch, or a validation showed no logits."""
        batch, given = self._batch, self._given
        if not isinstance(given, Tensor) or self._missed:
            return None
        parts = batch.items() if isinstance(batch, Mapping) else enumerate(batch if isinstance(batch, Sequence) else ())
        tensors = {place: part for place, part in parts if isinstance(part, Tensor) and part.dtype == given.dtype}
        places = [place for place, part in tensors.items() if part is given]
        places = places or [place for place, part in tensors.items() if torch.equal(part, given)]
        return places[0] if len(places) == 1 else None


@dataclass
class OwnModule:
    """What is compared, as `compare` takes it, and what a first look at it, `inspect_module`, has shown."""

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
    learning_rate: float | None = None  # the default; None where it cannot be tuned
    target: str | int | None = None  # its key or position in a batch; None where calibration cannot be measured
    inputs: dict[str, str] = field(default_factory=dict)  # digests of the module's source and arguments, and the data's
    data_set: str = ""  # a digest of the validation and test examples
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
                'trainer must be the arguments of lightning.Trainer, as in trainer={"max_epochs": 10}, got '
                f"{type(self.trainer).__name__}: each run makes a Trainer of its own"
            )
        epochs = self.trainer.get("max_epochs")
        if not isinstance(epochs, int) or isinstance(epochs, bool) or epochs < 1:
            raise ValueError(f"trainer must set max_epochs, the full budget, to at least 1, got {epochs!r}")
        refused = [name for name, needed in NEEDED.items() if self.trainer.get(name, needed) != needed]
        for name in [*refused, *(["limit_val_batches"] if self.trainer.get("limit_val_batches") == 0 else [])]:
            raise ValueError(
                f"trainer must not set {name}={self.trainer[name]!r}: budgets are shares of max_epochs, and the "
                "weights of the best validation are scored, from a checkpoint in a temporary folder"
            )
        callbacks = self.trainer.get("callbacks") or []
        kept = []
        for callback in [callbacks] if isinstance(callbacks, pl.Callback) else callbacks:
            logs = isinstance(callback, (LearningRateMonitor, DeviceStatsMonitor)) and not self.trainer.get("logger")
            if logs or isinstance(callback, ProgressBar):
                why = "it writes to a logger, and the trainer has none" if logs else "one bar shows all runs"
                self.notes.append(f"{type(callback).__name__} was left out: {why}.")
            else:
                kept.append(callback)
        self.trainer = {**self.trainer, "callbacks": kept}

    def spaces(self, factor: float) -> dict[str, Space]:
        """What is tuned of each method; the first learning rates are a factor to each side of the default."""
        shared = {} if self.learning_rate is None else {RATE: learning_rates(self.learning_rate, factor)}
        return {method: {**shared, **self.losses.knobs[method]} for method in self.losses.names}

    def module(self, method: str, settings: Mapping[str, Any]) -> pl.LightningModule:
        """A fresh module that trains by a method."""
        rate, argument = settings.get(RATE), rate_argument(self.factory)
        made = self.factory(**{argument: rate}) if rate is not None and argument else self.factory()
        checked(made, pl.LightningModule, "the factory must return a module at each call")
        if rate is not None and not argument:
            lightning_setattr(made, str(rate_attribute(made)), rate)
        self.losses.put_in(made, method, self.replaces, settings)
        return made

    def data(self) -> pl.LightningDataModule:
        """A copy of the data module, or a new one where a function makes it."""
        given = self.datamodule
        try:
            made = given() if callable(given) else copy.deepcopy(given)
        except Exception as error:
            if callable(given):
                raise
            raise TypeError(
                f"{type(given).__name__} cannot be copied for each run ({error}): give a function that makes it, as in "
                f"lambda: {type(given).__name__}(...)"
            ) from None
        return checked(
            made, pl.LightningDataModule, "LightningDataModule.from_datasets(train, validation, test) makes one"
        )

    def train(self, run: Run, directory: Path) -> Result:
        """Make one run; one that has finished in ``directory`` with the same settings and inputs is read instead."""
        config = {
            "comparison": run.about(epochs_of(run.budget, self.trainer["max_epochs"])),
            "seed": run.seed,
            "method": {"name": run.method},
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
        self, run: Run, folder: str, limits: Mapping[str, Any], config: dict[str, Any]
    ) -> tuple[Result, pl.Trainer]:
        """Train a fresh module by the settings of a run, with ``limits`` in the place of the trainer's arguments."""
        pl.seed_everything(run.seed, workers=True, verbose=False)
        module, data = self.module(run.method, run.settings), self.data()
        recorder = RunRecorder(self.monitor)
        seen = SeenLogits(self.replaces or "as_softmax_loss", self.target)
        best = BestWeights(folder, filename="best", monitor=self.monitor, mode=self.mode, save_on_train_epoch_end=False)
        callbacks = [*copy.deepcopy(self.trainer["callbacks"]), *self.losses.callbacks(run.method), recorder, seen]
        if self.target is not None:
            callbacks += [TemperatureScaling(logits=seen), PredictionRecorder(logits=seen)]
        settings = {**QUIET, **self.trainer, **limits, "callbacks": [*callbacks, best], "default_root_dir": folder}
        trainer = pl.Trainer(**settings)
        result = fitted(
            trainer,
            module,
            data,
            name=self.name,
            method=run.method,
            score=self.monitor,
            seed=run.seed,
            config=config,
            inputs=self.inputs,
        )
        if recorder.passed_over and not recorder.evaluations:
            raise ValueError(
                f"monitor {self.monitor!r} is never logged: after a validation there is {recorder.passed_over[0]}; "
                "name one of these as monitor=... (on the command line module.monitor=...)"
            )
        return result, trainer


def checked(made: Any, kind: type[Kind], hint: str) -> Kind:
    """What a function of the user's has made; a TypeError unless it is of that class of ``lightning``."""
    if isinstance(made, kind):
        return made
    if any(base.__module__.startswith("pytorch_lightning") for base in type(made).__mro__):
        hint = "it is of the package pytorch_lightning: import it from lightning.pytorch instead"
    raise TypeError(f"expected a {kind.__name__}, got {type(made).__name__}: {hint}")


def rate_argument(factory: Callable[..., Any]) -> str | None:
    """The argument of a factory that is the learning rate; None if it has none."""
    return next((name for name in RATES if name in inspect.signature(factory).parameters), None)


def rate_attribute(module: pl.LightningModule) -> str | None:
    """The attribute or hyperparameter of a module that is its learning rate; None if it has none."""
    return next((name for name in RATES if lightning_hasattr(module, name)), None)


def described(value: Any) -> str:
    """A value as text that is the same in every process: callbacks with their settings, no addresses in memory.

    >>> described(pl.Callback)
    "[<class 'lightning.pytorch.callbacks.callback.Callback'>]"
    """
    parts = value if isinstance(value, (list, tuple)) else [value]
    shown = [(type(part), vars(part)) if isinstance(part, pl.Callback) else part for part in parts]
    return re.sub(r" at 0x[0-9a-fA-F]+", "", pprint.pformat(shown, width=1))  # so narrow that it sorts sets
