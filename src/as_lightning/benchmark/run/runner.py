"""One run of any module: a finished one is read, another trains, is tested and leaves one result in its folder."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
from filelock import FileLock, Timeout
from lightning.pytorch.callbacks import LambdaCallback
from lightning.pytorch.utilities import rank_zero_only

from as_lightning.benchmark.run.predictions import PREDICTIONS_FILE, PredictionRecorder
from as_lightning.benchmark.run.recorder import PeakMemory, RunRecorder, same_run
from as_lightning.benchmark.run.result import RESULT_FILE, Result
from as_lightning.benchmark.run.resume import readable_result
from as_lightning.callbacks import MaskingMonitor, TemperatureScaling

log = logging.getLogger(__name__)
LOCK_FILE = "run.lock"


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, which ends with the process; of a run in several processes the first holds it for all."""
    if getattr(rank_zero_only, "rank", 0) != 0:
        yield
        return
    lock = FileLock(folder / LOCK_FILE)
    try:
        held = lock.acquire(timeout=0)
    except Timeout:
        log.info("%s: another process runs here, waiting for it to end", folder)
        held = lock.acquire()
    with held:
        yield


def finished_or_made(
    directory: Path, config: dict[str, Any], inputs: dict[str, str], make: Callable[[], Result]
) -> Result:
    """The result of the same configuration and inputs that is in `directory`, else one that is made there."""
    directory.mkdir(parents=True, exist_ok=True)
    with run_lock(directory):
        result = readable_result(directory)
        if result is not None:
            changed = [name for name, value in result.inputs.items() if inputs.get(name, value) != value]
            if same_run(result.config, config) and not changed:
                log.info("%s: already finished (delete it to run again)", directory)
                return result
            before = f"other inputs ({', '.join(changed)})" if changed else "another configuration"
            log.warning("%s: finished with %s, running again", directory, before)
            for file in (RESULT_FILE, PREDICTIONS_FILE):
                (directory / file).unlink(missing_ok=True)
        result = make()
        if getattr(rank_zero_only, "rank", 0) == 0:
            result.write(directory)
            score = f"test {result.score} {result.metrics[result.score]:.4f}; " if result.metrics else ""
            log.info("%swrote %s", score, directory / RESULT_FILE)
    return result


def fitted(
    trainer: pl.Trainer,
    module: pl.LightningModule,
    data: pl.LightningDataModule,
    checkpoint: Path | None = None,
    **about: Any,
) -> Result:
    """Train, from a checkpoint if there is one, and take what the callbacks have measured; `about` says what is run."""
    trainer.fit(module, datamodule=data, ckpt_path=checkpoint)
    callbacks: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]
    recorder = next(callback for callback in callbacks if isinstance(callback, RunRecorder))
    return Result(
        **about,
        metrics={},
        train_seconds=recorder.train_seconds,
        epoch_seconds=recorder.epoch_seconds,
        evaluations=recorder.evaluations,
        loss_accuracy_correlation=correlation(recorder.evaluations),
        masking=[epoch._asdict() for c in callbacks if isinstance(c, MaskingMonitor) for epoch in c.history],
        accumulation=[list(window[:5]) for window in recorder.accumulation],
        optimizer_steps=trainer.global_step,
        peak_memory=next((callback.bytes for callback in callbacks if isinstance(callback, PeakMemory)), None),
    )


def correlation(evaluations: list[dict[str, float]]) -> float | None:
    """Pearson's correlation of loss and score over the evaluations; None where it is not defined."""
    pairs = np.array([(each["loss"], each["score"]) for each in evaluations if "loss" in each])
    if len(pairs) < 2 or not (np.isfinite(pairs).all() and np.ptp(pairs, axis=0).all()):
        return None
    return float(np.corrcoef(pairs.T)[0, 1])


def metrics_of_test(
    trainer: pl.Trainer, module: pl.LightningModule, data: pl.LightningDataModule, checkpoint: str | Path | None = None
) -> dict[str, float]:
    """What the test of a checkpoint (or of the module's own weights) logs, with the callbacks of `trainer`."""

    def load(trainer: pl.Trainer, module: pl.LightningModule, checkpoint: dict[str, Any]) -> None:
        trainer.strategy.load_model_state_dict(checkpoint, strict=module.strict_loading)

    # callbacks of the fit, as of EMA, put weights of their own in the place of the checkpoint's; the last one's hold
    weights = LambdaCallback(on_load_checkpoint=load)
    trainer.callbacks.append(weights)  # type: ignore[attr-defined]
    try:
        tested = trainer.test(module, datamodule=data, ckpt_path=checkpoint or None, verbose=False)
    finally:
        trainer.callbacks.remove(weights)  # type: ignore[attr-defined]
    return {name: float(value) for metrics in tested for name, value in metrics.items()}


def measure_test(
    result: Result,
    trainer: pl.Trainer,
    module: pl.LightningModule,
    data: pl.LightningDataModule,
    checkpoint: str | Path | None,
    directory: Path,
) -> None:
    """Put the test of a checkpoint (or of the module's own weights) into `result`, the predictions into `directory`."""
    metrics = metrics_of_test(trainer, module, data, checkpoint)
    result.metrics = {name.removeprefix("test/"): value for name, value in metrics.items()}
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if isinstance(callback, TemperatureScaling):
            result.reliability = {name: bins.points() for name, bins in callback.diagrams.items()}
        if isinstance(callback, PredictionRecorder) and callback.predictions is not None and trainer.is_global_zero:
            callback.predictions.write(directory)
            result.test_samples = len(callback.predictions.ids)


@contextmanager
def quiet_training() -> Iterator[None]:
    """Of many runs the report is the news, not what Lightning says at each start and end."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
