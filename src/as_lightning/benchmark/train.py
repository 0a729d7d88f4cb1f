"""The app: one run of one method on one data set, configured by Hydra."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from lightning.pytorch.callbacks import LearningRateMonitor
from omegaconf import DictConfig, OmegaConf, open_dict

from as_lightning.benchmark.memorisation import memorisation
from as_lightning.benchmark.results import RESULT_FILE, Result
from as_lightning.benchmark.run_recorder import RunRecorder
from as_lightning.benchmark.settings import SettingError, checked_settings, class_arguments
from as_lightning.callbacks import MaskingMonitor
from as_lightning.metrics import LossAccuracyCorrelation

log = logging.getLogger(__name__)
CONFIG_FILE = "run_config.yaml"


def comparable_config(config: DictConfig) -> dict[str, Any]:
    """The resolved configuration without what differs between machines: paths are left as their names."""
    config = config.copy()
    with open_dict(config):
        config.data_dir, config.output_dir = "<data_dir>", "<output_dir>"
    resolved = OmegaConf.to_container(config, resolve=True)
    assert isinstance(resolved, dict)
    return {str(key): value for key, value in resolved.items()}


def train(config: DictConfig) -> Result:
    """Train, test, and write ``result.json`` into ``config.output_dir``.

    A run that has finished there with the same configuration is not run again; one that was interrupted goes on from
    its last checkpoint. What lies there of another configuration is replaced.
    """
    config, foreign = checked_settings(config)
    for setting in foreign:
        log.info("method.%s is no setting of %s: it goes without", setting, config.method.name)
    directory = Path(config.output_dir)
    directory.mkdir(parents=True, exist_ok=True)
    settings = comparable_config(config)
    if (directory / RESULT_FILE).exists():
        finished = Result.read(directory / RESULT_FILE)
        if finished.config == settings:
            log.info("%s: already finished, skipped (delete it to run again)", directory)
            return finished
        log.warning("%s: was made with another configuration, running again", directory)
        (directory / RESULT_FILE).unlink()

    pl.seed_everything(config.seed, workers=True, verbose=False)
    datamodule = instantiate(class_arguments(config.data, "data"))
    datamodule.prepare_data()
    datamodule.setup("fit")
    encoder = instantiate(config.model)(**datamodule.input_spec)
    if config.compile is not None:
        encoder.compile(**instantiate(config.compile))
    module = instantiate(class_arguments(config.method, "method"), _partial_=True)(
        encoder=encoder,
        class_names=datamodule.class_names,
        task=datamodule.task,
        optimizer=instantiate(config.optimizer),
        lr_scheduler=instantiate(config.lr_scheduler),
    )
    score = config.data.score
    recorder = RunRecorder(score)
    method_callbacks = [instantiate(callback) for callback in config.method.callbacks.values()]
    app_callbacks = [instantiate(callback) for callback in config.callbacks.values()]
    loggers = [_logger(name, logger) for name, logger in config.logger.items()]
    if not loggers:  # a LearningRateMonitor refuses a trainer that could not log its rates
        app_callbacks = [callback for callback in app_callbacks if not isinstance(callback, LearningRateMonitor)]
    # the app's callbacks come last: they see what the method's have logged and decided
    callbacks = [*method_callbacks, recorder, *app_callbacks]
    trainer: pl.Trainer = instantiate(
        config.trainer,
        callbacks=callbacks,
        logger=loggers,
        default_root_dir=str(directory),
    )

    trainer.fit(module, datamodule=datamodule, ckpt_path=_checkpoint_to_resume(directory, settings))
    correlation = LossAccuracyCorrelation()
    for evaluation in recorder.evaluations:
        correlation.update(evaluation["loss"], evaluation["score"])
    pearson = float(correlation.compute())
    monitors = [callback for callback in callbacks if isinstance(callback, MaskingMonitor)]
    # all that the callbacks hold is taken before the test: it puts them back to where the best checkpoint was written
    result = Result(
        name=config.name,
        method=config.method.name,
        score=score,
        seed=config.seed,
        metrics={},
        train_seconds=recorder.train_seconds,
        epoch_seconds=recorder.epoch_seconds,
        evaluations=recorder.evaluations,
        loss_accuracy_correlation=None if math.isnan(pearson) else pearson,
        masking=[epoch._asdict() for monitor in monitors for epoch in monitor.history],
        accumulation=[list(window) for window in recorder.accumulation],
        optimizer_steps=trainer.global_step,
        config=settings,
    )
    remembered = memorisation(trainer, module, datamodule) if datamodule.true_targets is not None else {}
    best = getattr(trainer.checkpoint_callback, "best_model_path", "")
    (metrics,) = trainer.test(module, datamodule=datamodule, ckpt_path=best or None, verbose=False)
    result.metrics = {key.removeprefix("test/"): float(value) for key, value in metrics.items()} | remembered
    if trainer.is_global_zero:
        result.write(directory)
        log.info("test %s %.4f; wrote %s", score, result.metrics[score], directory / RESULT_FILE)
    return result


def _logger(name: str, config: DictConfig) -> Any:
    try:
        return instantiate(config)
    except InstantiationException as error:
        if not isinstance(error.__cause__, ModuleNotFoundError):
            raise
        raise SettingError(f"logger={name} needs the package {name}: pip install {name} ({error.__cause__})") from error


def _checkpoint_to_resume(directory: Path, settings: dict[str, Any]) -> str | None:
    """The last checkpoint of an interrupted run of these settings; whatever is there of others is set aside."""
    checkpoint, written = directory / "checkpoints" / "last.ckpt", directory / CONFIG_FILE
    if checkpoint.exists():
        if written.exists() and OmegaConf.to_container(OmegaConf.load(written)) == settings:
            log.info("%s: goes on from its last checkpoint", directory)
            return str(checkpoint)
        log.warning("%s: the checkpoint is of another configuration, starting anew", directory)
        checkpoint.unlink()
    OmegaConf.save(OmegaConf.create(settings), written)
    return None


if __name__ == "__main__":
    from as_lightning.benchmark.command import main

    main()
