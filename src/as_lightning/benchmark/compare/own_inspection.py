"""The first look at a user's module and data: a batch per method, so that what would fail every run fails at once."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from tempfile import TemporaryDirectory
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities.model_helpers import is_overridden

from as_lightning.benchmark.compare.own_learning_rate import default_rate
from as_lightning.benchmark.compare.own_module import METHODS, OwnModule
from as_lightning.benchmark.compare.plan import Run
from as_lightning.benchmark.compare.scored_split import metrics_of_test
from as_lightning.benchmark.compare.trainer_arguments import ONE_BATCH


def inspect_module(own: OwnModule, methods: Sequence[str]) -> None:
    """Look at the module and the data in one batch per method; raise for all that would fail the comparison.

    What is found is written into ``own``: its learning rate, test metric and notes.

    Raises:
        ValueError: if a method is unknown, the factory returns one object twice, there are no training or validation
            data, or ``monitor`` is never logged.
        TypeError: if the factory needs arguments or returns no LightningModule, or the data are no LightningDataModule.
        MisconfigurationException: if the replaced loss is never called.
    """
    unknown = [method for method in methods if method not in METHODS]
    if unknown:
        raise ValueError(f"unknown method {unknown[0]!r}: for a module of your own there are {', '.join(METHODS)}")
    module, data = _fresh_module(own), own.data()
    own.learning_rate = default_rate(own.factory, module)
    if not is_overridden("val_dataloader", data, pl.LightningDataModule):
        raise ValueError(f"{type(data).__name__} has no val_dataloader: settings are chosen by validation data")
    if not is_overridden("validation_step", module, pl.LightningModule):
        raise ValueError(f"{type(module).__name__} has no validation_step: settings are chosen by validation data")
    if own.learning_rate is None:
        own.notes.append(
            f"The learning rate was not tuned: {type(module).__name__} has no argument or hyperparameter lr, so all "
            "methods ran at its own."
        )
    traces = {method: _try_one_batch(own, method) for method in methods}
    rate, method = own.learning_rate, methods[0]
    if rate is not None and _try_one_batch(own, method, lr=2 * rate) == traces[method]:
        own.learning_rate = None
        own.notes.append(
            f"The learning rate was not tuned: {type(module).__name__} trains the same whatever its lr is, so all "
            "methods ran at its own. configure_optimizers must read the lr that is tuned."
        )


def _fresh_module(own: OwnModule) -> pl.LightningModule:
    try:
        inspect.signature(own.factory).bind()
    except TypeError as error:
        raise TypeError(
            f"the factory must work without arguments ({error}): give them defaults, as in lambda lr=1e-3: LitModel(lr)"
        ) from None
    first, second = own.factory(), own.factory()
    if not isinstance(first, pl.LightningModule):
        raise TypeError(f"the factory must return a lightning LightningModule, got {type(first).__name__}")
    if first is second:
        raise ValueError(
            "the factory returned the same object twice: it must make a new module at each call, as "
            "lambda: LitModel(...) does, or the second run would go on from the first one's weights"
        )
    return first


def _try_one_batch(own: OwnModule, method: str, **settings: float) -> list[Any]:
    """Train, validate and test on one batch; return what tells this training from one at another learning rate."""
    run = Run("tuning", method, settings, 1.0, 0)
    with TemporaryDirectory() as folder:
        try:
            trainer, module, recorder = own.fit(run, folder, ONE_BATCH)
        except MisconfigurationException as error:
            if not own.calibrated or "TemperatureScaling" not in str(error):
                raise
            own.calibrated = False
            own.notes.append(
                "Calibration was not measured: the module's steps do not call self(x), and it has no "
                "validation_logits(batch)."
            )
            trainer, module, recorder = own.fit(run, folder, ONE_BATCH)
        if not recorder.evaluations:
            kind = "training" if not trainer.num_training_batches else "validation"
            raise ValueError(f"the {kind} data of {type(own.data()).__name__} hold no batch: settings are chosen by it")
        trained = _trace(trainer, module)
        _find_test_metric(own, trainer, module)
    return trained


def _trace(trainer: pl.Trainer, module: pl.LightningModule) -> list[Any]:
    """The numbers of the optimizers' settings, and a sum per parameter."""
    groups = [group for optimizer in trainer.optimizers for group in optimizer.param_groups]
    numbers = [{name: value for name, value in group.items() if isinstance(value, (int, float))} for group in groups]
    return [*numbers, *(float(parameter.detach().double().sum()) for parameter in module.parameters())]


def _find_test_metric(own: OwnModule, trainer: pl.Trainer, module: pl.LightningModule) -> None:
    data, own.test_metric = own.data(), None
    missing = f"no test version of {own.monitor} is logged"
    if not is_overridden("test_step", module, pl.LightningModule):
        missing = f"{type(module).__name__} has no test_step"
    elif not is_overridden("test_dataloader", data, pl.LightningDataModule):
        missing = f"{type(data).__name__} has no test_dataloader"
    else:
        metrics = metrics_of_test(trainer, module, data)
        name = name_in_test(own.monitor)
        own.test_metric = name if name in metrics else None
        if not metrics:
            missing = f"the test data of {type(data).__name__} hold no batch"
    note = (
        f"The scores are of the validation split: {missing}. They are too high, because the same split has chosen the "
        "settings and the epoch."
    )
    if own.test_metric is None and note not in own.notes:
        own.notes.append(note)


_VALIDATION_WORD = re.compile(r"(?<![A-Za-z0-9])(validation|valid|val)(?![a-z])")


def name_in_test(metric: str) -> str:
    """The test metric's name: that of a validation metric with ``test`` for the first word ``val`` (or alike).

    >>> [name_in_test(name) for name in ("val/acc", "valid_acc", "acc/validation", "val/eval_f1", "interval")]
    ['test/acc', 'test_acc', 'acc/test', 'test/eval_f1', 'interval']
    """
    return _VALIDATION_WORD.sub("test", metric, count=1)
