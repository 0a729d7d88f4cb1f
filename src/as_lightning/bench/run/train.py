"""The app: one run of one method on one data set, configured by Hydra."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import lightning.pytorch as pl
import torch
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from hydra.utils import instantiate
from lightning.pytorch.loggers import Logger, TensorBoardLogger
from lightning.pytorch.utilities import rank_zero_only
from omegaconf import DictConfig, OmegaConf, open_dict
from torch.optim.lr_scheduler import OneCycleLR

from as_lightning.bench.data.base import BenchmarkDataModule, check_processes_of_test
from as_lightning.bench.data.files import checksum
from as_lightning.bench.run.feature_cache import cache_features
from as_lightning.bench.run.identity import RunIdentity, code_files, digest
from as_lightning.bench.run.predictions import PredictionRecorder
from as_lightning.bench.run.recorder import RunRecorder
from as_lightning.bench.run.result import RESULT_FILE, Result
from as_lightning.bench.run.resume import ResumedState, checkpoint_to_resume
from as_lightning.bench.run.runner import RunOutput, finished_or_made, trained
from as_lightning.bench.run.settings import (
    SettingError,
    check_run,
    checked_settings,
    class_arguments,
    located,
    nearest,
)

log = logging.getLogger(__name__)
CLASSES_KEPT = 1000  # whose numbers of rows a result holds
# a class or function in a configuration; hydra.utils.get_class and its like name theirs as the path
TARGET = re.compile(r"_target_: (?:hydra\.utils\.get_\w+\s+path: )?(\S+)")
ONE_RUN = (sys.executable, "-m", "as_lightning.bench.commands.train")


class OneCycle(OneCycleLR):
    """PyTorch's `OneCycleLR`, which starts at the maximum where a training is too short to rise:
    PyTorch's divides by zero where ``pct_start * total_steps`` is 1.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, total_steps: int, pct_start: float, **cycle: Any
    ) -> None:
        if pct_start * total_steps <= 1.0 + 1e-9:
            # the only step of a training of one step is not the schedule's last
            total_steps = max(total_steps, 2)
            pct_start = (1.0 - 1e-6) / total_steps
        super().__init__(optimizer, total_steps=total_steps, pct_start=pct_start, **cycle)


def one_job(config: DictConfig) -> Result:
    """Make the run of a job.

    Lightning starts the other processes of a run by the command of this one, which in a sweep would
    be the whole sweep once more: there a run of several processes gets a command of its own.
    """
    single_run = HydraConfig.initialized() and HydraConfig.get().mode == RunMode.RUN
    if single_run or config.trainer.devices == 1:
        return train(config)
    folder = Path(config.output_dir).absolute()
    with TemporaryDirectory(prefix="as_lightning_") as job:
        OmegaConf.save(config, Path(job, "job.yaml"), resolve=True)
        options = ["--config-path", job, "--config-name", "job", "hydra.output_subdir=null"]
        subprocess.run([*ONE_RUN, *options, f"hydra.run.dir='{folder}'"], check=True)
    return Result.read(folder / RESULT_FILE)


def train(config: DictConfig) -> Result:
    """Train, test, and write `result.json` into `config.output_dir`.

    A finished run of the same configuration and inputs is read, an interrupted one goes on, any
    other is replaced. A `SettingError` names a setting that is refused.
    """
    check_run(config)
    config, foreign = checked_settings(config)
    for knob in foreign:
        log.info("method.%s is no setting of %s: it goes without", knob, config.method.name)
    directory = Path(config.output_dir)
    about: dict[str, Any] = {
        "name": str(config.name),  # YAML reads a name like 2024 as a number
        "seed": config.seed,
        "config": comparable_config(config),
        "inputs": run_inputs(config),
        "candidate": config.method.name,
        "epochs": config.trainer.max_epochs,
    }
    identity = RunIdentity.of(about["config"], about["inputs"])
    return finished_or_made(directory, identity, lambda: _run(config, directory, identity, about))


def comparable_config(config: DictConfig) -> dict[str, Any]:
    """Return the resolved configuration, with names in the place of the paths of a machine."""
    config = config.copy()
    with open_dict(config):
        config.data_dir, config.output_dir = "<data_dir>", "<output_dir>"
        for name in ("search", "baseline"):  # of comparisons
            config.method.pop(name, None)
    return OmegaConf.to_container(config, resolve=True)  # type: ignore[return-value]


def run_inputs(config: DictConfig) -> dict[str, str]:
    inputs: dict[str, str] = {}
    data = instantiate(class_arguments(config.data, "data"))
    with suppress(OSError):  # the run itself reports a missing file
        if data.paths:
            inputs["data"] = checksum(data.files().values())
    folders = {"model": config.model.get("name"), "tokenizer": config.data.get("tokenizer")}
    for name, folder in folders.items():
        if folder and Path(folder).is_dir():
            inputs[name] = checksum([Path(folder)])
    modules = set()
    for target in TARGET.findall(OmegaConf.to_yaml(config)):
        modules.add(getattr(located(target), "__module__", ""))
    code = code_files()  # after the user's code has been imported
    if any(getattr(sys.modules.get(name), "__file__", None) in code for name in modules):
        inputs["code"] = digest(*code.values())
    return inputs


def _run(
    config: DictConfig, directory: Path, identity: RunIdentity, about: dict[str, Any]
) -> RunOutput:
    loggers = configured(config.logger)
    datamodule = read_data(config)
    module = made_module(config, datamodule)
    score = config.data.score
    own = [RunRecorder(f"val/{score}", identity), ResumedState(directory / "checkpoints")]
    place = {"logger": loggers, "default_root_dir": str(directory)}
    callbacks = run_callbacks(config, datamodule, *own)
    trainer = instantiate(config.trainer, callbacks=callbacks, **place)
    if config.test:
        check_processes_of_test(trainer, len(datamodule.splits["test"]))
    checkpoint = checkpoint_to_resume(directory / "checkpoints", identity)
    assert isinstance(module.encoder, torch.nn.Module)
    # not every data module has a data_dir
    cache_features(datamodule, module.encoder, Path(config.data_dir).expanduser())
    class_rows = {}
    if datamodule.task == "multiclass" and datamodule.num_classes <= CLASSES_KEPT:
        class_rows = dict(
            zip(datamodule.class_names, datamodule.class_counts.tolist(), strict=True)
        )
    output = trained(
        trainer,
        module,
        datamodule,
        checkpoint,
        test_metric=f"test/{score}" if config.test else None,
        score=score,
        resumed=checkpoint is not None,
        class_rows=class_rows,
        reading=[dict(vars(reading)) for reading in getattr(datamodule, "readings", ())],
        **about,
    )
    log_settings(loggers, config, output[0])
    return output


def run_callbacks(
    config: DictConfig, datamodule: BenchmarkDataModule, *recorders: pl.Callback
) -> list[pl.Callback]:
    """Return the callbacks of a run; those of the app see what the method's have decided."""
    examples = datamodule.example_names("test") if config.test else None
    callbacks = [*configured(config.method.callbacks), *recorders]
    callbacks.append(PredictionRecorder(examples, datamodule.class_names))
    return callbacks + configured(config.callbacks)


@rank_zero_only
def log_settings(loggers: Sequence[Logger], config: DictConfig, result: Result) -> None:
    """Log the hyperparameters, four at most, to every logger, and the test score to TensorBoard."""
    hyperparameters = {
        "method": config.method.name,
        "delta": config.method.get("delta", 1.0),  # 1 masks nothing: plain cross-entropy
        "seed": config.seed,
        "lr": config.optimizer.get("lr"),
    }
    for logger in loggers:
        shown = {}
        if isinstance(logger, TensorBoardLogger) and result.metrics:
            shown["metrics"] = {f"hparams/test_{result.score}": result.metrics[result.score]}
        logger.log_hyperparams(hyperparameters, **shown)
        logger.finalize("success")


def configured(parts: DictConfig) -> list[Any]:
    """Return the objects of a group that has a part for each; a part that is null is left out."""
    return [instantiate(part) for part in parts.values() if part is not None]


def read_data(config: DictConfig) -> BenchmarkDataModule:
    """Return the data module, with its splits read; the run's seed also draws ``data.shots``."""
    pl.seed_everything(config.seed, workers=True, verbose=False)
    datamodule = instantiate(class_arguments(config.data, "data"))
    datamodule.prepare_data()
    datamodule.setup("fit")
    return datamodule


def made_module(config: DictConfig, datamodule: BenchmarkDataModule) -> pl.LightningModule:
    """Return the configured method with its model; a `SettingError` if these do not fit data."""
    encoder = instantiate(config.model, _partial_=False, **datamodule.input_spec)
    if config.compile is not None:
        encoder.compile(**instantiate(config.compile))
    make_optimizer = instantiate(config.optimizer)
    make_schedule = instantiate(config.lr_scheduler)
    module = instantiate(class_arguments(config.method, "method"), _partial_=True)(
        encoder=encoder,
        class_names=datamodule.class_names,
        task=datamodule.task,
        optimizer=make_optimizer,
        lr_scheduler=make_schedule,
        class_counts=datamodule.class_counts,
    )
    metrics = module.validation_metrics.items()
    scores = [name.removeprefix("val/") for name, metric in metrics if metric.higher_is_better]
    if config.data.score not in scores:
        raise SettingError(
            "expected a metric of this task of which more is better, got "
            f"data.score={config.data.score}: {nearest(str(config.data.score), scores)}"
        )
    try:  # once here, where an error can only be a setting's
        optimizer = make_optimizer(module.parameters())
        if make_schedule is not None:
            make_schedule(optimizer, total_steps=100)
    except (TypeError, ValueError) as error:
        raise SettingError(
            f"the settings of optimizer or lr_scheduler are refused: {error}"
        ) from error
    return module
