"""The app: one run of one method on one data set, configured by Hydra."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from hydra.utils import instantiate
from lightning.pytorch.callbacks import LearningRateMonitor, ProgressBar, RichProgressBar
from lightning.pytorch.loggers import Logger, TensorBoardLogger
from lightning.pytorch.utilities import rank_zero_only
from omegaconf import DictConfig, OmegaConf, open_dict
from torch.optim.lr_scheduler import OneCycleLR

from as_lightning.benchmark.data.base import BenchmarkDataModule
from as_lightning.benchmark.run.evaluation import memorisation
from as_lightning.benchmark.run.feature_cache import cache_features
from as_lightning.benchmark.run.folder import run_inputs
from as_lightning.benchmark.run.predictions import PredictionRecorder, example_ids
from as_lightning.benchmark.run.recorder import PeakMemory, RunRecorder
from as_lightning.benchmark.run.result import Result
from as_lightning.benchmark.run.resume import DataLoaderState, RandomState, WholeFileCheckpointIO, checkpoint_to_resume
from as_lightning.benchmark.run.runner import finished_or_made, fitted, measure_test
from as_lightning.benchmark.run.settings import (
    SettingError,
    checked_settings,
    class_arguments,
    foreign_settings,
    nearest,
)

NO_MARGIN = 1.0  # with margin 1 nothing is masked: plain cross-entropy


def run_settings(config: DictConfig) -> dict[str, Any]:
    """Budget, margin, learning rate, method and seed of a run, and all else that may differ as one text."""
    ignored = {"name", "targets", "delta", *foreign_settings(config.method)}
    knobs = {
        str(key): value
        for key, value in config.method.items()
        if isinstance(value, (int, float, str)) and not str(key).startswith("_") and key not in ignored
    }
    data = {"experiment": config.name, "batch_size": config.data.get("batch_size")}
    others = {**data, "max_epochs": config.trainer.max_epochs, **knobs}
    budget = OmegaConf.select(config, "comparison.budget")
    return {
        "budget": 1.0 if budget is None else float(budget),
        "delta": float(config.method.get("delta", NO_MARGIN)),
        "lr": float(config.optimizer.lr),
        "method": config.method.name,
        "seed": config.seed,
        "settings": ", ".join(f"{name} {value}" for name, value in others.items() if value is not None),
    }


@rank_zero_only
def log_settings(loggers: Sequence[Logger], settings: dict[str, Any], result: Result) -> None:
    """Hand the settings to every logger, TensorBoard with the test and the best validation score for its table."""
    scores = {f"hparams/test_{name}": value for name, value in result.metrics.items() if name == result.score}
    if result.evaluations:
        best = max(evaluation["score"] for evaluation in result.evaluations)
        scores[f"hparams/best_validation_{result.score}"] = best
    for logger in loggers:
        logger.log_hyperparams(settings, *([scores] if isinstance(logger, TensorBoardLogger) else []))
        logger.finalize("success")


class OneCycle(OneCycleLR):
    """PyTorch's `OneCycleLR`, also for trainings too short to rise.

    The rise ends at step `pct_start * total_steps - 1`. PyTorch's class divides by zero where that is step 0, and
    trains a single step at the final rate. Where there is no step to rise in, this class starts at the maximum.

    Examples:
        >>> weight = torch.nn.Parameter(torch.zeros(1))
        >>> for total in range(1, 21):
        ...     scheduler = OneCycle(torch.optim.SGD([weight], lr=1.0), total, 0.1, max_lr=1.0, cycle_momentum=False)
    """

    def __init__(self, optimizer: torch.optim.Optimizer, total_steps: int, pct_start: float, **cycle: Any) -> None:
        if pct_start * total_steps <= 1.0 + 1e-9:
            total_steps = max(total_steps, 2)  # the one step of a training of one is not the last
            pct_start = (1.0 - 1e-6) / total_steps
        super().__init__(optimizer, total_steps=total_steps, pct_start=pct_start, **cycle)


class RunProgressBar(RichProgressBar):
    """Lightning's bar, which also shows the latest score `monitor`."""

    def __init__(self, monitor: str, **settings: Any) -> None:
        super().__init__(**settings)
        self.monitor = monitor

    def get_metrics(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> dict[str, Any]:
        shown = {name: value for name, value in super().get_metrics(trainer, pl_module).items() if name != "v_num"}
        score = trainer.callback_metrics.get(self.monitor)
        return shown if score is None else shown | {self.monitor: f"{float(score):.4f}"}


log = logging.getLogger(__name__)


def comparable_config(config: DictConfig) -> dict[str, Any]:
    """The resolved configuration without what differs between machines: paths are left as their names."""
    config = config.copy()
    with open_dict(config):
        config.data_dir, config.output_dir = "<data_dir>", "<output_dir>"
        config.method.pop("search", None)  # what a comparison would tune is no setting of a run
        if config.get("test"):
            del config.test
        if checkpoint := config.pop("ckpt_path", None):
            config.ckpt_path = Path(checkpoint).name
    resolved: Any = OmegaConf.to_container(config, resolve=True)
    return {str(key): value for key, value in resolved.items()}


def train(config: DictConfig) -> Result:
    """Train, test, and write `result.json` into `config.output_dir`; a `SettingError` names a setting that is refused.

    What has finished there with the same configuration and inputs is not run again; what was interrupted goes on from
    its last checkpoint; anything else there is replaced.
    """
    config, foreign = checked_settings(config)
    for setting in foreign:
        log.info("method.%s is no setting of %s: it goes without", setting, config.method.name)
    if type(config.seed) is not int or not 0 <= config.seed < 2**32:
        raise SettingError(
            f"seed must be an integer from 0 to {2**32 - 1}, by which runs are paired, got {config.seed}"
        )
    epochs = config.trainer.max_epochs
    if epochs is not None and (type(epochs) is not int or (epochs < 1 and epochs != -1)):
        raise SettingError(f"trainer.max_epochs must be an integer of at least 1, or -1 for no limit, got {epochs!r}")
    if config.compile is not None and not isinstance(config.compile, DictConfig):
        raise SettingError(f"compile takes keyword arguments of torch.compile, or {{}}, got {config.compile!r}")
    ckpt_path = config.get("ckpt_path")
    if ckpt_path is not None and not Path(ckpt_path).is_file():
        raise SettingError(f"ckpt_path={ckpt_path}: there is no such file; give a run's checkpoints/last.ckpt")
    directory, settings, inputs = Path(config.output_dir), comparable_config(config), run_inputs(config)
    return finished_or_made(directory, settings, inputs, lambda: _run(config, directory, settings, inputs))


def _run(config: DictConfig, directory: Path, settings: dict[str, Any], inputs: dict[str, str]) -> Result:
    loggers = [instantiate(logger) for logger in config.logger.values()]
    pl.seed_everything(config.seed, workers=True, verbose=False)
    memory = PeakMemory()
    datamodule = read_data(config)
    module = made_module(config, datamodule)
    assert isinstance(module.encoder, torch.nn.Module)
    cache_features(datamodule, module.encoder, Path(config.data_dir))
    score = config.data.score
    plugins = list(instantiate(config.trainer.get("plugins")) or [])
    if str(config.trainer.strategy).startswith(("auto", "ddp")):  # others write checkpoints in their own way
        plugins.append(WholeFileCheckpointIO())
    identity = settings | {"inputs": inputs} if inputs else settings  # what a checkpoint has to be of
    recorder = RunRecorder(score, settings=json.dumps(identity, sort_keys=True))
    method_callbacks = [instantiate(callback) for callback in config.method.callbacks.values()]
    app_callbacks = [instantiate(callback) for callback in config.callbacks.values()]
    if not loggers:  # a LearningRateMonitor refuses a trainer that could not log its rates
        app_callbacks = [callback for callback in app_callbacks if not isinstance(callback, LearningRateMonitor)]
    if config.trainer.get("enable_progress_bar") and not any(isinstance(c, ProgressBar) for c in app_callbacks):
        app_callbacks.append(RunProgressBar(f"val/{score}"))
    # the app's callbacks come last: they see what the method's have logged and decided
    predictions = PredictionRecorder(example_ids(datamodule.example_names("test")) if config.test else None)
    callbacks = [*method_callbacks, recorder, memory, RandomState(), DataLoaderState(), predictions, *app_callbacks]
    trainer = instantiate(
        config.trainer, callbacks=callbacks, logger=loggers, plugins=plugins, default_root_dir=str(directory)
    )
    checkpoint = checkpoint_to_resume(directory / "checkpoints", recorder.settings) or config.get("ckpt_path")
    # all that the callbacks hold is taken before the test: it puts them back to where the best checkpoint was written
    result = fitted(
        trainer,
        module,
        datamodule,
        checkpoint,
        name=str(config.name),  # YAML reads a name like 2024 as a number
        method=config.method.name,
        score=score,
        seed=config.seed,
        config=settings,
        resumed=checkpoint is not None,
        inputs=inputs,
    )
    remembered = memorisation(trainer, module, datamodule) if datamodule.true_targets is not None else {}
    if config.test:
        best = getattr(trainer.checkpoint_callback, "best_model_path", "")
        measure_test(result, trainer, module, datamodule, best, directory)
        result.metrics |= remembered
        if score not in result.metrics:
            raise SettingError(f"data.score={score!r} is no metric of this task: {nearest(score, result.metrics)}")
        result.test_samples = len(datamodule.splits["test"])
    log_settings(loggers, run_settings(config), result)
    return result


def read_data(config: DictConfig) -> BenchmarkDataModule:
    """The data module of a configuration, with its splits read."""
    datamodule = instantiate(class_arguments(config.data, "data"))
    datamodule.prepare_data()
    datamodule.setup("fit")
    return datamodule


def made_module(config: DictConfig, datamodule: BenchmarkDataModule) -> pl.LightningModule:
    """The configured model and method, for these data; refuses a model of another kind of data."""
    make_encoder = instantiate(config.model)
    try:
        inspect.signature(make_encoder).bind(**datamodule.input_spec)
    except TypeError as error:
        raise SettingError(
            f"the model does not fit the data: {config.model._target_} cannot be made from "
            f"{', '.join(datamodule.input_spec)}, which data={config.data.name} gives it ({error})"
        ) from error
    encoder = make_encoder(**datamodule.input_spec)
    if config.compile is not None:
        encoder.compile(**instantiate(config.compile))
    return instantiate(class_arguments(config.method, "method"), _partial_=True)(
        encoder=encoder,
        class_names=datamodule.class_names,
        task=datamodule.task,
        optimizer=_checked("optimizer", config.optimizer),
        lr_scheduler=_checked("lr_scheduler", config.lr_scheduler),
    )


def _checked(group: str, config: DictConfig | None) -> Callable[..., Any] | None:
    """What makes the optimizer or its schedule once the parameters are there; None where there is none."""
    make = instantiate(config)

    def made(*args: Any, **kwargs: Any) -> Any:
        try:
            return make(*args, **kwargs)
        except (TypeError, ValueError) as error:
            raise SettingError(f"the settings of {group} are refused: {error}") from error

    return None if make is None else made
