"""The first look at a user's module and data: what would fail every run, or spoil it silently, is said at once."""

from __future__ import annotations

import hashlib
import inspect
import re
from tempfile import TemporaryDirectory
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.utilities.model_helpers import is_overridden
from lightning.pytorch.utilities.parsing import lightning_getattr
from torch import Tensor
from torch.utils._pytree import tree_leaves

from as_lightning.benchmark.compare.own_module import (
    OwnModule,
    SeenLogits,
    checked,
    described,
    rate_argument,
    rate_attribute,
)
from as_lightning.benchmark.compare.plan import Run
from as_lightning.benchmark.run.runner import metrics_of_test

LOOK = {
    "limit_train_batches": 1,
    "limit_val_batches": 1,
    "limit_test_batches": 1,
    "max_epochs": 2,  # some metrics are logged in every second epoch
    "val_check_interval": 1.0,  # Lightning refuses an interval that is longer than the epoch
    "check_val_every_n_epoch": 1,
}
LIBRARIES = ("builtins", "torch", "lightning", "torchmetrics", "as_lightning")
EXAMPLES = 64  # of a split that its fingerprint reads


def inspect_module(own: OwnModule) -> None:
    """Look at the module and the data in one batch per method; raise for all that would fail the comparison.

    What is found is written into ``own``: its learning rate, test metric, the place of the target, digests, notes.
    """
    module, data = _fresh_module(own), own.data()
    kind = type(module).__name__
    for part, needed, base in (
        (data, "val_dataloader", pl.LightningDataModule),
        (module, "validation_step", pl.LightningModule),
    ):
        if not is_overridden(needed, part, base):
            raise ValueError(f"{type(part).__name__} has no {needed}: settings are chosen by validation data")
    own.learning_rate = rate = _default_rate(own, module)
    own.data_set = _same_splits(own)
    arguments = described([getattr(own.factory, "keywords", {}), dict(module.hparams)])
    own.inputs = {
        "module": digest(_source(*(type(part) for part in module.modules())), arguments),
        "data": digest(_source(type(data)), described(dict(data.hparams)), own.data_set),
    }
    baseline, *others = own.losses.names
    trace = _look(own, baseline, first=True)
    for method in others:
        _look(own, method)
    reason = f"{kind} has no argument or hyperparameter lr"
    if rate is not None and _look(own, baseline, lr=2 * rate) == trace:
        own.learning_rate = None
        reason = f"{kind} trains the same whatever its lr is (configure_optimizers must read the lr that is tuned)"
    if own.learning_rate is None:
        own.notes.append(f"The learning rate was not tuned: {reason}, so all methods ran at its own.")


def digest(*texts: str) -> str:
    """A short digest of texts."""
    return hashlib.sha256(" ".join(texts).encode()).hexdigest()[:16]


def _fresh_module(own: OwnModule) -> pl.LightningModule:
    try:
        inspect.signature(own.factory).bind()
    except TypeError as error:
        raise TypeError(
            f"the factory must work without arguments ({error}): give them defaults, as in lambda lr=1e-3: LitModel(lr)"
        ) from None
    module = checked(own.factory(), pl.LightningModule, "the factory must return a module at each call")
    if module is own.factory():
        raise ValueError(
            "the factory returned the same object twice: it must make a new module at each call, as "
            "lambda: LitModel(...) does, or the second run would go on from the first one's weights"
        )
    return module


def _default_rate(own: OwnModule, module: pl.LightningModule) -> float | None:
    """The learning rate of a module that the factory has made without arguments; None if it cannot be set."""
    argument, attribute = rate_argument(own.factory), rate_attribute(module)
    rate = inspect.signature(own.factory).parameters[argument].default if argument else None
    if not isinstance(rate, (int, float)) and attribute:
        rate = lightning_getattr(module, attribute)
    if not isinstance(rate, (int, float)) or isinstance(rate, bool):
        return None
    if not rate > 0:
        raise ValueError(f"the learning rate of {type(module).__name__} is {rate:g}: a comparison needs a positive one")
    return float(rate)


def _same_splits(own: OwnModule) -> str:
    """A digest of the validation and test data, which must not depend on when they are set up."""
    digests = []
    for seed in (0, 1):
        pl.seed_everything(seed, workers=True, verbose=False)
        data = own.data()
        data.prepare_data()
        for stage in ("fit", "test"):
            data.setup(stage)
        digests.append({name: _examples(data, f"{name}_dataloader") for name in ("val", "test")})
    for name, examples in digests[0].items():
        if examples != digests[1][name]:
            raise ValueError(
                f"{type(data).__name__} makes another {name.replace('val', 'validation')} split each time it is set "
                "up, so that runs would be tested on examples that others were trained on: split by a generator with a "
                "seed of its own, as in random_split(dataset, lengths, torch.Generator().manual_seed(0))"
            )
    return " ".join(digests[0].values())


def _examples(data: pl.LightningDataModule, loader: str) -> str:
    """A digest of some examples of a split, read under the same random state; empty without the split."""
    loaders = getattr(data, loader)() if is_overridden(loader, data, pl.LightningDataModule) else ()
    dataset: Any = getattr(next(iter(tree_leaves(loaders)), None), "dataset", None)
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        return ""
    size = len(dataset)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        chosen = [dataset[number] for number in sorted({step * size // EXAMPLES for step in range(EXAMPLES)}) if size]
    parts = (
        part.detach().cpu().numpy().tobytes().hex() if isinstance(part, Tensor) else described(part)
        for part in tree_leaves(chosen)
    )
    return digest(str(size), *parts)


def _source(*kinds: type) -> str:
    """The source of classes and of those that they inherit from, libraries left out."""
    texts = []
    for kind in dict.fromkeys(base for made in kinds for base in made.__mro__):
        if kind.__module__.partition(".")[0] not in LIBRARIES:
            try:
                texts.append(inspect.getsource(kind))
            except (OSError, TypeError):  # typed into an interpreter
                texts.append(kind.__qualname__)
    return "\n".join(texts)


def _look(own: OwnModule, method: str, *, first: bool = False, **settings: float) -> list[Any]:
    """Train and validate on one batch; return what tells this training from one at another learning rate.

    The first look also finds the target in the batch, and the test metric.
    """
    with TemporaryDirectory() as folder:
        result, trainer = own.fit(Run("tuning", method, settings, 1.0, 0), folder, LOOK, {})
        module, data = trainer.lightning_module, trainer.datamodule  # type: ignore[attr-defined]
        if not result.evaluations:
            kind = "training" if not trainer.num_training_batches else "validation"
            raise ValueError(f"the {kind} data of {type(data).__name__} hold no batch: settings are chosen by it")
        groups = [group for optimizer in trainer.optimizers for group in optimizer.param_groups]
        trained: list[Any] = [{k: v for k, v in group.items() if isinstance(v, (int, float))} for group in groups]
        trained += [float(part.detach().double().sum()) for part in module.parameters()]
        if first:
            callbacks: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]
            (seen,) = (callback for callback in callbacks if isinstance(callback, SeenLogits))
            own.target = seen.find_target()
            missing = _find_test_metric(own, trainer)
            notes = {
                "Calibration was not measured, and predictions were not stored: the target of the training loss is no "
                "part of the batch by itself, or validation_step does not call self(x).": own.target is None,
                f"{own.monitor} is not logged in every epoch: the weights of the best epoch that logs it are "
                "scored.": len(result.evaluations) < len(result.epoch_seconds),
                f"The scores are of the validation split: {missing}. They are too high, because the same split has "
                "chosen the settings and the epoch.": bool(missing),
            }
            own.notes += [note for note, holds in notes.items() if holds]
        return trained


def _find_test_metric(own: OwnModule, trainer: pl.Trainer) -> str:
    """Find the metric of the test split; why there is none."""
    module, data = trainer.lightning_module, trainer.datamodule  # type: ignore[attr-defined]
    if not is_overridden("test_step", module, pl.LightningModule):
        return f"{type(module).__name__} has no test_step"
    if not is_overridden("test_dataloader", data, pl.LightningDataModule):
        return f"{type(data).__name__} has no test_dataloader"
    metrics, name = metrics_of_test(trainer, module, data), name_in_test(own.monitor)
    own.test_metric = name if name in metrics else None
    if not metrics:
        return f"the test data of {type(data).__name__} hold no batch"
    return "" if own.test_metric else f"no {name} is logged"


def name_in_test(metric: str) -> str:
    """The test metric's name: that of a validation metric with ``test`` for the first word ``val`` (or alike).

    >>> [name_in_test(name) for name in ("val/acc", "valid_acc", "acc/validation", "val/eval_f1", "interval")]
    ['test/acc', 'test_acc', 'acc/test', 'test/eval_f1', 'interval']
    """
    return re.sub(r"(?<![A-Za-z0-9])(validation|valid|val)(?![a-z])", "test", metric, count=1)
