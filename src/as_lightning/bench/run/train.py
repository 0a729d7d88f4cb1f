"""The app: one run of one method on one data set, configured by Hydra."""

from __future__ import annotations

import logging
import math
import platform
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from lightning.pytorch.callbacks import LearningRateMonitor
from lightning.pytorch.loggers import Logger, TensorBoardLogger
from lightning.pytorch.utilities import rank_zero_only
from omegaconf import DictConfig, OmegaConf, open_dict
from torch.optim.lr_scheduler import OneCycleLR

from as_lightning.bench.data.base import BenchmarkDataModule
from as_lightning.bench.data.files import checksum
from as_lightning.bench.run.checkpoint_io import WholeFileCheckpointIO
from as_lightning.bench.run.feature_cache import cache_features
from as_lightning.bench.run.identity import WITHOUT_EFFECT, code_files, digest
from as_lightning.bench.run.predictions import PredictionRecorder, example_ids
from as_lightning.bench.run.recorder import RunRecorder
from as_lightning.bench.run.result import Result
from as_lightning.bench.run.resume import ResumedState, checked_start, checkpoint_to_resume
from as_lightning.bench.run.runner import RunOutput, finished_or_made, trained
from as_lightning.bench.run.settings import (
    SettingError,
    checked_settings,
    class_arguments,
    located,
    nearest,
    parts_with_target,
)

log = logging.getLogger(__name__)


@rank_zero_only
def log_settings(loggers: Sequence[Logger], config: DictConfig, result: Result) -> None:
    """Log the hyperparameters, five at most, to every logger, and the test score to TensorBoard."""
    delta = float(
        config.method.get("delta", 1.0)
    )  # with margin 1 nothing is masked: plain cross-entropy
    hyperparameters = {
        "delta": delta,
        "method": config.method.name,
        "seed": config.seed,
    }
    if (lr := config.optimizer.get("lr")) is not None:
        hyperparameters["lr"] = float(lr)
    scores = {
        f"hparams/test_{name}": value
        for name, value in result.metrics.items()
        if name == result.score
    }
    for logger in loggers:
        logger.log_hyperparams(
            hyperparameters, *([scores] if isinstance(logger, TensorBoardLogger) else [])
        )
        logger.finalize("success")


class OneCycle(OneCycleLR):
    """PyTorch's `OneCycleLR`, which starts at the maximum where a training is too short to rise.

    The rise ends at step `pct_start * total_steps - 1`. PyTorch's class divides by zero where that
    is step 0.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, total_steps: int, pct_start: float, **cycle: Any
    ) -> None:
        if total_steps == math.inf:  # trainer.max_epochs=-1
            raise SettingError(
                "a training without an end has no schedule: set lr_scheduler=null or "
                "trainer.max_steps"
            )
        if pct_start * total_steps <= 1.0 + 1e-9:
            total_steps = max(
                total_steps, 2
            )  # the only step of a training of one step is not the schedule's last
            pct_start = (1.0 - 1e-6) / total_steps
        super().__init__(optimizer, total_steps=total_steps, pct_start=pct_start, **cycle)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Refuse another kind of schedule, and one of another length: it would end before this
        training, or after.
        """
        if (steps := state_dict.get("total_steps", "unknown")) != self.total_steps:
            raise SettingError(
                f"the checkpoint's schedule is of {steps} steps, this training's of "
                f"{self.total_steps}: give both runs "
                "the same lr_scheduler, trainer.max_epochs and data, or lr_scheduler=null"
            )
        super().load_state_dict(state_dict)


OF_COMPARISONS = (
    "search",
    "baseline",
    "own_module",
)  # keys of a method that are no settings of a run


def comparable_config(config: DictConfig) -> dict[str, Any]:
    """The resolved configuration without what differs between machines: names replace paths."""
    config = config.copy()
    with open_dict(config):
        config.data_dir, config.output_dir = "<data_dir>", "<output_dir>"
        for name in OF_COMPARISONS:
            config.method.pop(name, None)
        if config.get("test"):
            del config.test
        if checkpoint := config.pop("ckpt_path", None):
            config.ckpt_path = Path(checkpoint).name
    return OmegaConf.to_container(config, resolve=True)  # type: ignore[return-value]


def run_inputs(config: DictConfig) -> dict[str, str]:
    """Checksums of the user's data, encoder, tokenizer, code, checkpoint; Python's version for data
    of its library.
    """
    inputs: dict[str, str] = {}
    data = instantiate(class_arguments(config.data, "data"))
    if data.from_standard_library:
        inputs["python"] = f"{platform.python_implementation()} {platform.python_version()}"
    with suppress(
        OSError
    ):  # the run itself reports a missing file, and a finished run does not need it
        if data.paths:
            inputs["data"] = checksum(data.files().values())
    if config.model._target_.endswith("AutoModelEncoder") and Path(config.model.name).is_dir():
        inputs["model"] = checksum([Path(config.model.name)])
    if (tokenizer := config.data.get("tokenizer")) and Path(tokenizer).is_dir():
        inputs["tokenizer"] = checksum([Path(tokenizer)])
    modules = set()
    for _, part in parts_with_target(config):
        target = part.path if part._target_.startswith("hydra.utils.get_") else part._target_
        modules.add(getattr(located(target), "__module__", ""))
    code = code_files()
    if any(getattr(sys.modules.get(name), "__file__", None) in code for name in modules):
        inputs["code"] = digest(*(code[path] for path in sorted(code)))
    if config.get("ckpt_path") is not None:
        inputs["ckpt_path"] = checksum([Path(config.ckpt_path)])
    return inputs


def train(config: DictConfig) -> Result:
    """Train, test, and write `result.json` into `config.output_dir`; a `SettingError` names a
    setting that is refused.

    A finished run of the same configuration and inputs is read, an interrupted one goes on, any
    other is replaced.
    """
    config = config.copy()
    with open_dict(config):
        fields = OmegaConf.to_container(config.pop("comparison", OmegaConf.create({})))
    config, foreign = checked_settings(config)
    for setting in foreign:
        log.info("method.%s is no setting of %s: it goes without", setting, config.method.name)
    if type(config.seed) is not int or not 0 <= config.seed < 2**32:
        hint = "; several are -m seed=0,1" * (not isinstance(config.seed, int))
        raise SettingError(
            f"seed must be an integer from 0 to {2**32 - 1}, got {config.seed}{hint}"
        )
    epochs = config.trainer.max_epochs
    if epochs is not None and (type(epochs) is not int or (epochs < 1 and epochs != -1)):
        raise SettingError(
            "trainer.max_epochs must be an integer of at least 1, or -1 for no limit, got "
            f"{epochs!r}"
        )
    ckpt_path = config.get("ckpt_path")
    if ckpt_path is not None and not Path(ckpt_path).is_file():
        raise SettingError(
            f"ckpt_path={ckpt_path}: there is no such file; give a run's checkpoints/last.ckpt"
        )
    model_checkpoint = config.callbacks.get("model_checkpoint") or {}
    save_top_k, filename = (
        model_checkpoint.get("save_top_k", 1),
        str(model_checkpoint.get("filename") or "{epoch}"),
    )
    if save_top_k not in (0, 1) and "{" not in filename:
        raise SettingError(
            f"callbacks.model_checkpoint.save_top_k={save_top_k}: all would be named "
            f"{filename}.ckpt, each written "
            "over the one before; add, with both quotes, "
            "\"callbacks.model_checkpoint.filename='{epoch}'\""
        )
    directory, settings, inputs = (
        Path(config.output_dir),
        comparable_config(config),
        run_inputs(config),
    )
    return finished_or_made(
        directory, settings, inputs, lambda: _run(config, directory, settings, inputs, fields)
    )


def _run(
    config: DictConfig,
    directory: Path,
    settings: dict[str, Any],
    inputs: dict[str, str],
    fields: Any,
) -> RunOutput:
    loggers = _made(config.logger)
    datamodule = read_data(config)
    module = made_module(config, datamodule)
    score = config.data.score
    plugins = list(instantiate(config.trainer.get("plugins")) or [])
    if str(config.trainer.strategy).startswith(
        ("auto", "ddp")
    ):  # others write checkpoints in their own way
        plugins.append(WholeFileCheckpointIO())
    recorder = RunRecorder(f"val/{score}", settings, inputs)
    method_callbacks, app_callbacks = _made(config.method.callbacks), _made(config.callbacks)
    if not loggers:  # a LearningRateMonitor refuses a trainer that could not log its rates
        app_callbacks = [
            callback for callback in app_callbacks if not isinstance(callback, LearningRateMonitor)
        ]
    # the app's callbacks come last: they see what the method's have logged and decided
    prediction_recorder = PredictionRecorder(
        example_ids(datamodule.example_names("test")) if config.test else None
    )
    meaning = meaning_of(datamodule)
    callbacks = [
        *method_callbacks,
        recorder,
        ResumedState(directory, meaning),
        prediction_recorder,
        *app_callbacks,
    ]
    trainer = instantiate(
        config.trainer,
        callbacks=callbacks,
        logger=loggers,
        plugins=plugins,
        default_root_dir=str(directory),
    )
    checkpoint = checkpoint_to_resume(directory / "checkpoints", recorder.identity)
    if checkpoint is None and config.get("ckpt_path") is not None:
        checkpoint = checked_start(Path(config.ckpt_path), settings, meaning)
    encoder = module.encoder
    assert isinstance(encoder, torch.nn.Module)
    if checkpoint is not None:
        take_frozen_weights(encoder, checkpoint)
    cache_features(
        datamodule, encoder, Path(config.data_dir).expanduser()
    )  # not every data module has a data_dir
    result, test_predictions = trained(
        trainer,
        module,
        datamodule,
        checkpoint,
        test_metric=f"test/{score}" if config.test else None,
        name=str(config.name),  # YAML reads a name like 2024 as a number
        score=score,
        seed=config.seed,
        config=settings,
        resumed=checkpoint is not None,
        inputs=inputs,
        **(
            {"candidate": config.method.name, "epochs": config.trainer.max_epochs}
            | (fields or _job_overrides())
        ),
    )
    log_settings(loggers, config, result)
    return result, test_predictions


def take_frozen_weights(encoder: torch.nn.Module, checkpoint: Path) -> None:
    """Load a checkpoint's encoder weights if the frozen ones differ, before `cache_features` keeps
    their outputs.
    """
    saved = torch.load(checkpoint, map_location="cpu", weights_only=True, mmap=True)["state_dict"]
    frozen = {
        name: weight for name, weight in encoder.named_parameters() if not weight.requires_grad
    }
    loaded = {
        name.removeprefix("encoder."): weight
        for name, weight in saved.items()
        if name.startswith("encoder.")
    }
    if any(
        name in loaded and not torch.equal(weight, loaded[name]) for name, weight in frozen.items()
    ):
        encoder.load_state_dict(loaded, strict=False)


def meaning_of(data: BenchmarkDataModule) -> dict[str, str]:
    """Digests of what the rows of a head and of an embedding stand for: the classes, and of texts
    the tokens.
    """
    tokens: dict[str, int] = getattr(getattr(data, "tokenizer", None), "get_vocab", dict)()
    return {
        "classes": digest(*data.class_names),
        "tokens": digest(*sorted(tokens, key=tokens.__getitem__)),
    }


def _job_overrides() -> dict[str, Any]:
    """The overrides of the command, or of a sweep's job, without those that change no number, e.g.
    `data_dir`.
    """
    overrides = HydraConfig.get().overrides.task if HydraConfig.initialized() else []
    return {
        "overrides": [
            w for w in overrides if not WITHOUT_EFFECT.fullmatch(w.lstrip("+~").partition("=")[0])
        ]
    }


def _made(parts: DictConfig) -> list[Any]:
    """The objects of a group that has a part for each; a part that is null is left out."""
    return [instantiate(part) for part in parts.values() if part is not None]


def read_data(config: DictConfig) -> BenchmarkDataModule:
    """The data module of a configuration, with its splits read. Sets ``seed`` first: it also draws
    ``data.shots``.
    """
    pl.seed_everything(config.seed, workers=True, verbose=False)
    datamodule = instantiate(class_arguments(config.data, "data"))
    datamodule.prepare_data()
    datamodule.setup("fit")
    return datamodule


def made_module(config: DictConfig, datamodule: BenchmarkDataModule) -> pl.LightningModule:
    """The configured method with its model, for these data; refuses a model of another kind of
    data.
    """
    try:
        encoder = instantiate(config.model)(**datamodule.input_spec)
    except TypeError as error:
        names = ", ".join(datamodule.input_spec)
        raise SettingError(
            f"the model does not fit the data, which give it {names}: {error}"
        ) from error
    except (ValueError, AssertionError, RuntimeError) as error:
        raise SettingError(f"the settings of model are refused: {error}") from error
    if config.compile is not None:
        encoder.compile(**instantiate(config.compile))
    make_optimizer, make_schedule = instantiate(config.optimizer), instantiate(config.lr_scheduler)
    module = instantiate(class_arguments(config.method, "method"), _partial_=True)(
        encoder=encoder,
        class_names=datamodule.class_names,
        class_groups=datamodule.class_groups,
        task=datamodule.task,
        optimizer=make_optimizer,
        lr_scheduler=make_schedule,
        class_counts=datamodule.class_counts,
    )
    metrics = module.validation_metrics.items()
    scores = [name.removeprefix("val/") for name, metric in metrics if metric.higher_is_better]
    if config.data.score not in scores:
        expected = f"expected a metric of this task of which more is better, got data.score={config.data.score!r}"
        raise SettingError(f"{expected}: {nearest(str(config.data.score), scores)}")
    try:  # once here, where an error can only be a setting's
        optimizer = make_optimizer(module.parameters())
        if make_schedule is not None:
            make_schedule(optimizer, total_steps=100)
    except (TypeError, ValueError) as error:
        raise SettingError(
            f"the settings of optimizer or lr_scheduler are refused: {error}"
        ) from error
    return module
