"""One run of any module: a finished one is read, another trains, is tested and leaves one result in its folder."""

from __future__ import annotations

import logging
import math
import multiprocessing
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch.distributed
from filelock import FileLock, Timeout
from lightning.pytorch.callbacks import LambdaCallback
from lightning.pytorch.utilities import rank_zero_only
from torch.nn.parameter import is_lazy

from as_lightning.benchmark.run.identity import RunIdentity
from as_lightning.benchmark.run.predictions import PREDICTIONS_FILE, PredictionRecorder, Predictions
from as_lightning.benchmark.run.recorder import RunRecorder, over_ranks
from as_lightning.benchmark.run.result import RESULT_FILE, Result
from as_lightning.benchmark.run.resume import BestWeights, readable_result
from as_lightning.callbacks import MaskingMonitor

log = logging.getLogger(__name__)
LOCK_FILE = "run.lock"
Made = tuple[Result, Predictions | None]


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
    directory: Path, config: dict[str, Any], inputs: dict[str, str], make: Callable[[], Made], processes: int = 1
) -> Result:
    """The result of the same run that is in `directory`, else one that is made there and takes its place when whole.

    Of `processes` that an earlier run has joined the first one decides for all: digests of others may be of other files
    and variables.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with run_lock(directory):
        before = readable_result(directory)
        if before is not None:
            changed = RunIdentity.of(before.config, before.inputs).changed(RunIdentity.of(config, inputs))
            if changed:
                log.warning("%s: finished with another %s, running again", directory, changed[0])
                before = None
        if processes > 1 and torch.distributed.is_available() and torch.distributed.is_initialized():
            found = [before]
            torch.distributed.broadcast_object_list(found)
            (before,) = found
        if before is not None:
            log.info("%s: already finished (delete it to run again)", directory)
            return before
        result, predictions = make()
        if getattr(rank_zero_only, "rank", 0) == 0:
            if predictions is None:
                (directory / PREDICTIONS_FILE).unlink(missing_ok=True)
            else:
                predictions.write(directory)
            result.write(directory)
            score = f"test {result.score} {result.metrics[result.score]:.4f}; " if result.metrics else ""
            log.info("%swrote %s", score, directory / RESULT_FILE)
    return result


def trained(
    trainer: pl.Trainer,
    module: pl.LightningModule,
    data: pl.LightningDataModule,
    checkpoint: Path | None = None,
    *,
    test_metric: str | None,
    score: str,
    **about: Any,
) -> Made:
    """Train, from a checkpoint if there is one, test the weights of the best validation, take what callbacks measured.

    ``test_metric`` is the metric of the test that is the score; None leaves the test unread. A test that has diverged
    (see `RunRecorder`), or that no finite score of a validation has chosen the weights of, has the score NaN.
    ``about`` are fields of the result, which is the first process's in all processes.
    """
    if multiprocessing.get_start_method(allow_none=True) == "loky":  # in joblib's processes a loader's could not start
        multiprocessing.set_start_method(multiprocessing.get_all_start_methods()[0], force=True)  # the system's default
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
        masking=[epoch._asdict() for c in callbacks if isinstance(c, MaskingMonitor) for epoch in c.history],
        optimizer_steps=trainer.global_step,
        parameters=sum(p.numel() for p in module.parameters() if p.requires_grad and not is_lazy(p)),
        **about,
    )
    predictions = None
    if test_metric is not None:
        metrics = metrics_of_test(trainer, module, data, best_weights(trainer))
        result.metrics = {name.removeprefix("test/"): value for name, value in metrics.items()}
        if result.metrics:  # trainer.limit_test_batches=0 tests nothing
            result.metrics[score] = metrics[test_metric]
        scores = [evaluation["score"] for evaluation in recorder.evaluations]
        # without a finite score of a validation no weights are the best
        finite = not recorder.diverged and (not scores or any(map(math.isfinite, scores)))
        predictions = next((each.predictions for each in callbacks if isinstance(each, PredictionRecorder)), None)
        if result.metrics and not finite:
            result.metrics[score] = math.nan
    return (result if trainer.world_size == 1 else trainer.strategy.broadcast(result)), predictions


def best_weights(trainer: pl.Trainer) -> str:
    """The checkpoint of the best validation; empty where none is kept, and the last weights are tested."""
    kept = sorted(trainer.checkpoint_callbacks, key=lambda callback: not isinstance(callback, BestWeights))
    return next((getattr(callback, "best_model_path", "") for callback in kept), "")


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
        # this run has written it: whatever a user's hyperparameters are, as a path, may be read back
        tested = trainer.test(module, datamodule=data, ckpt_path=checkpoint or None, verbose=False, weights_only=False)
    finally:
        trainer.callbacks.remove(weights)  # type: ignore[attr-defined]
    # a metric of steps and of the epoch has its own name here alone
    found = {name: float(value) for name, value in trainer.callback_metrics.items()}
    found |= {name: value for metrics in tested for name, value in metrics.items()}
    return {name: over_ranks(trainer, value) for name, value in found.items()}


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
