"""One run of any module: a finished one is read, another is trained and tested."""

from __future__ import annotations

import logging
import math
import multiprocessing
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pandas as pd
import torch.distributed
from filelock import FileLock, Timeout
from lightning.pytorch.callbacks import LambdaCallback
from lightning.pytorch.utilities import rank_zero_only

from as_lightning.bench.run.identity import RunIdentity
from as_lightning.bench.run.predictions import PREDICTIONS_FILE, PredictionRecorder, Predictions
from as_lightning.bench.run.recorder import RunRecorder, over_ranks, trained_weights
from as_lightning.bench.run.result import RESULT_FILE, Result
from as_lightning.bench.run.resume import BestWeights
from as_lightning.callbacks import MaskingMonitor

log = logging.getLogger(__name__)
LOCK_FILE = "run.lock"
RunOutput = tuple[Result, Predictions | None]


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, which ends with the process; the first one holds it for all."""
    if getattr(rank_zero_only, "rank", 0) > 0:
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
    directory: Path, identity: RunIdentity, make: Callable[[], RunOutput]
) -> Result:
    """Return the result in `directory` if it is of this identity, else that of `make`."""
    directory.mkdir(parents=True, exist_ok=True)
    with run_lock(directory):
        if (directory / RESULT_FILE).exists():
            finished = Result.read(directory / RESULT_FILE)
            changed = RunIdentity.of(finished.config, finished.inputs).changed(identity)
            if not changed:
                log.info("%s: already finished (delete it to run again)", directory)
                return finished
            log.warning("%s: finished with another %s, running again", directory, changed[0])
        result, predictions = make()
        _write(directory, result, predictions)
    return result


@rank_zero_only
def _write(directory: Path, result: Result, predictions: Predictions | None) -> None:
    if predictions is None:
        (directory / PREDICTIONS_FILE).unlink(missing_ok=True)
    else:
        predictions.write(directory)
    result.write(directory)
    if result.metrics:
        log.info("test %s %.4f", result.score, result.metrics[result.score])


def trained(
    trainer: pl.Trainer,
    module: pl.LightningModule,
    data: pl.LightningDataModule,
    checkpoint: Path | None = None,
    *,
    test_metric: str | None,
    score: str,
    **about: Any,
) -> RunOutput:
    """Train, from a checkpoint if there is one, and test the weights of the best validation.

    ``test_metric`` is the metric of the test that runs are compared by, and then names the score;
    None leaves the test unread. The score is NaN if the test has diverged (see `RunRecorder`), or
    if the validations have scores of which none is finite. ``about`` are fields of the result. All
    processes return the first one's result.
    """
    if multiprocessing.get_start_method(allow_none=True) == "loky":
        # a loader's processes cannot start in joblib's; the first method is the system's default
        multiprocessing.set_start_method(multiprocessing.get_all_start_methods()[0], force=True)
    trainer.fit(module, datamodule=data, ckpt_path=checkpoint)
    callbacks: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]
    recorder = next(callback for callback in callbacks if isinstance(callback, RunRecorder))
    result = Result(
        score=score,
        metrics={},
        train_seconds=recorder.train_seconds,
        epoch_seconds=recorder.epoch_seconds,
        evaluations=recorder.evaluations,
        loss_accuracy_correlation=correlation(recorder.evaluations),
        optimizer_steps=trainer.global_step,
        parameters=sum(weight.numel() for weight in trained_weights(module)),
        **about,
    )
    best = ""  # the last weights
    for callback in callbacks:
        if isinstance(callback, MaskingMonitor):
            result.masking += [epoch._asdict() for epoch in callback.history]
        if isinstance(callback, BestWeights):
            best = callback.best_model_path
    predictions = None
    if test_metric is not None:
        # a file of another process may hold no code; that of this one is read with all objects
        metrics = metrics_of_test(trainer, module, data, best, weights_only=checkpoint is not None)
        result.score = test_metric.removeprefix("test/")
        for name, value in metrics.items():
            result.metrics[name.removeprefix("test/")] = value
        scores = [evaluation["score"] for evaluation in recorder.evaluations]
        # without a finite score of a validation no weights are the best
        no_best = len(scores) > 0 and not np.isfinite(scores).any()
        if result.metrics and (recorder.diverged or no_best):
            result.metrics[result.score] = math.nan
        for callback in callbacks:
            if isinstance(callback, PredictionRecorder):
                predictions = callback.predictions
    if trainer.world_size > 1:
        result = trainer.strategy.broadcast(result)
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()  # left open, it may abort the process at exit
    return result, predictions


def correlation(evaluations: list[dict[str, float]]) -> float | None:
    """Return Pearson's correlation of loss and score; None where it is not defined."""
    pairs = pd.DataFrame(evaluations, columns=["loss", "score"], dtype=float).to_numpy()
    if len(pairs) < 2 or not np.isfinite(pairs).all() or not np.ptp(pairs, axis=0).all():
        return None
    return float(np.corrcoef(pairs.T)[0, 1])


def metrics_of_test(
    trainer: pl.Trainer,
    module: pl.LightningModule,
    data: pl.LightningDataModule,
    checkpoint: str = "",
    *,
    weights_only: bool = True,
) -> dict[str, float]:
    """Return the metrics of a test of a checkpoint, or of the module's own weights."""

    def load(trainer: pl.Trainer, module: pl.LightningModule, checkpoint: dict[str, Any]) -> None:
        trainer.strategy.load_model_state_dict(checkpoint, strict=module.strict_loading)

    # callbacks of the fit, e.g. EMA, replace weights by their own; the last callback's stay
    load_weights = LambdaCallback(on_load_checkpoint=load)
    trainer.callbacks.append(load_weights)  # type: ignore[attr-defined]
    try:
        logged = trainer.test(
            module,
            datamodule=data,
            ckpt_path=checkpoint or None,
            verbose=False,
            weights_only=weights_only,
        )
    finally:
        trainer.callbacks.remove(load_weights)  # type: ignore[attr-defined]
    # only callback_metrics has the plain name of a metric that is logged per step and per epoch
    metrics: dict[str, Any] = dict(trainer.callback_metrics)
    for logged_metrics in logged:
        metrics |= logged_metrics
    return {name: over_ranks(trainer, value) for name, value in metrics.items()}


@contextmanager
def quiet_training() -> Iterator[None]:
    """Silence what Lightning logs and warns of at each start and end of a run."""
    with ExitStack() as restored:
        for name in ("lightning.pytorch", "lightning.fabric"):
            logger = logging.getLogger(name)
            restored.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.ERROR)
        restored.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        yield
