"""A user's own LightningModule in a comparison: its loss replaced, its learning rate set, a run trained and scored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import lightning.pytorch as pl
from torch import nn

from as_lightning.benchmark.compare.engine import best_validation, epochs_of
from as_lightning.benchmark.compare.module_with_method import with_method
from as_lightning.benchmark.compare.own_learning_rate import rate_argument, set_rate
from as_lightning.benchmark.compare.plan import Run
from as_lightning.benchmark.compare.scored_split import metrics_of_test
from as_lightning.benchmark.compare.search import Range, Space, learning_rates
from as_lightning.benchmark.compare.stored_run import stored_run
from as_lightning.benchmark.compare.trainer_arguments import (
    NEEDED,
    QUIET,
    BestWeights,
    copied_callbacks,
    described,
    shortened,
)
from as_lightning.benchmark.run.recorder import RunRecorder
from as_lightning.benchmark.run.result import Result
from as_lightning.callbacks import AdaptiveGradientAccumulation, MaskingMonitor, TemperatureScaling

METHODS = ("softmax", "as_softmax", "as_speed")
DELTA = Range(0.02, 0.8, default=0.1, log=True)


@dataclass
class OwnModule:
    """What is compared, and what a first look at it has shown.

    Args:
        factory: makes a fresh module at each call; if it has an argument ``lr`` (or ``learning_rate``), it gets the
            learning rate.
        datamodule: the data, or what makes them at each call.
        replaces: the attribute that ``training_step`` calls as ``loss(logits, target)``, or that holds a Hugging Face
            model which computes its loss from ``labels``; None for a module that calls ``self.as_softmax_loss``.
        monitor: the validation metric that is compared.
        mode: ``"max"`` if more of it is better, or ``"min"``.
        trainer: arguments of ``lightning.Trainer``; ``max_epochs`` is the full budget.
        name: of the comparison.

    Attributes:
        test_metric: the metric of the test split; None where the validation split is scored. This and what follows is
            found by :func:`~as_lightning.benchmark.compare.own_inspection.inspect_module`.
        learning_rate: the default; None where it cannot be set.
        calibrated: whether the module's logits can be seen, and so be calibrated.
    """

    factory: Callable[..., pl.LightningModule]
    datamodule: Any
    replaces: str | None
    monitor: str
    mode: str
    trainer: dict[str, Any]
    name: str = "comparison"
    test_metric: str | None = None
    learning_rate: float | None = None
    calibrated: bool = True
    notes: list[str] = field(default_factory=list)
    arguments: Mapping[str, Any] = field(default_factory=dict)

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

    @property
    def split(self) -> str:
        """What the scores are of."""
        return "validation" if self.test_metric is None else "test"

    @property
    def full_epochs(self) -> int:
        """The epochs of budget 1."""
        return int(self.trainer["max_epochs"])

    def spaces(self, methods: tuple[str, ...]) -> dict[str, Space]:
        """What is tuned of each method."""
        shared: dict[str, Range] = {} if self.learning_rate is None else {"lr": learning_rates(self.learning_rate)}
        return {method: shared if method == "softmax" else shared | {"delta": DELTA} for method in methods}

    def module(self, method: str, settings: Mapping[str, Any]) -> pl.LightningModule:
        """A fresh module that trains by a method."""
        lr, argument = settings.get("lr"), rate_argument(self.factory)
        made = self.factory(**{argument: lr}) if lr is not None and argument else self.factory()
        if not isinstance(made, pl.LightningModule):
            raise TypeError(f"the factory must return a lightning LightningModule, got {type(made).__name__}")
        if lr is not None and not argument:
            set_rate(made, lr)
        return with_method(made, method, self.replaces, float(settings.get("delta", DELTA.default)))

    def data(self) -> pl.LightningDataModule:
        """The data module, or a new one where a function makes it."""
        given = self.datamodule
        data = given() if callable(given) and not isinstance(given, pl.LightningDataModule) else given
        if not isinstance(data, pl.LightningDataModule):
            raise TypeError(
                f"expected a LightningDataModule, or a function that makes one, got {type(data).__name__}: "
                "LightningDataModule.from_datasets(train, validation, test, batch_size=...) makes one of data sets"
            )
        return data

    def _data_in_words(self) -> str:
        """What tells data from other data: the class and its hyperparameters (other attributes come with its setup)."""
        data, kind = self.datamodule, type(self.datamodule)
        if not isinstance(data, pl.LightningDataModule):
            return described(data)
        return f"{kind.__module__}.{kind.__qualname__}({described(dict(data.hparams))})"

    def train(self, run: Run, directory: Path | None = None) -> Result:
        """Make one run; one that has finished in ``directory`` with the same settings is read instead."""
        epochs = epochs_of(run.budget, self.full_epochs)
        config = {
            "comparison": {
                "phase": run.phase,
                "budget": run.budget,
                "epochs": epochs,
                "settings": dict(run.settings),
            },
            "seed": run.seed,
            "method": {"name": run.method},
            "replaces": self.replaces,
            "monitor": self.monitor,
            "mode": self.mode,
            "data": self._data_in_words(),
            "arguments": {name: described(value) for name, value in self.arguments.items()},
            "trainer": {name: described(value) for name, value in self.trainer.items()},
        }
        return replace(stored_run(directory, config, lambda: self._make(run, config)), name=self.name)

    def _make(self, run: Run, config: dict[str, Any]) -> Result:
        epochs = config["comparison"]["epochs"]
        with TemporaryDirectory() as folder:
            trainer, module, recorder = self.fit(run, folder, shortened(self.trainer, epochs))
            result = Result(
                name=self.name,
                method=run.method,
                score=self.monitor,
                seed=run.seed,
                metrics={},
                train_seconds=recorder.train_seconds,
                epoch_seconds=recorder.epoch_seconds,
                evaluations=recorder.evaluations,
                loss_accuracy_correlation=None,
                masking=[
                    epoch._asdict()
                    for callback in trainer.callbacks  # type: ignore[attr-defined]
                    if isinstance(callback, MaskingMonitor)
                    for epoch in callback.history
                ],
                accumulation=[list(window[:5]) for window in recorder.accumulation],
                optimizer_steps=trainer.global_step,
                config=config,
            )
            if run.phase == "final":
                self._score(result, trainer, module)
        return result

    def _score(self, result: Result, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if self.test_metric is None:
            result.metrics[self.monitor] = best_validation(result, self.mode == "max")
            return
        (best,) = [callback for callback in trainer.callbacks if isinstance(callback, BestWeights)]  # type: ignore[attr-defined]
        metrics = metrics_of_test(trainer, module, self.data(), best.best_model_path)
        result.metrics = {name.removeprefix("test/"): float(value) for name, value in metrics.items()}
        result.metrics[self.monitor] = float(metrics[self.test_metric])
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, TemperatureScaling):
                result.reliability = {name: bins.points() for name, bins in callback.diagrams.items()}
                if not callback.multilabel:
                    result.test_samples = int(callback.diagrams["scaled"].predictions.sum())
        if "calibration_error_unscaled" in result.metrics:
            result.metrics.setdefault("calibration_error", result.metrics["calibration_error_unscaled"])

    def fit(
        self, run: Run, folder: str, limits: Mapping[str, Any]
    ) -> tuple[pl.Trainer, pl.LightningModule, RunRecorder]:
        """Train a fresh module by the settings of a run, with ``limits`` in the place of the trainer's arguments."""
        pl.seed_everything(run.seed, workers=True, verbose=False)
        module = self.module(run.method, run.settings)
        recorder = RunRecorder(self.monitor, monitor=self.monitor)
        callbacks = copied_callbacks(self.trainer)
        if run.method != "softmax":
            callbacks.append(MaskingMonitor())
        if run.method == "as_speed":
            callbacks.append(AdaptiveGradientAccumulation())
        callbacks.append(recorder)
        if self.calibrated:
            callbacks.append(TemperatureScaling())
        callbacks.append(BestWeights(folder, filename="best", monitor=self.monitor, mode=self.mode))
        settings: dict[str, Any] = QUIET | self.trainer | dict(limits)
        settings |= {"callbacks": callbacks, "default_root_dir": folder}
        trainer = pl.Trainer(**settings)
        trainer.fit(module, datamodule=self.data())
        return trainer, module, recorder
