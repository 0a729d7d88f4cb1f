"""The first look at a user's module and data: what would fail every run, or spoil it silently, is said at once."""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Mapping, Sequence
from operator import attrgetter
from tempfile import TemporaryDirectory
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch import Tensor
from torch.utils._pytree import tree_leaves

from as_lightning.benchmark.compare.own_loss import is_huggingface_classifier
from as_lightning.benchmark.compare.own_module import (
    QUIET,
    Fit,
    OwnModule,
    check_module,
    default_rate,
    described,
    source_digest,
)
from as_lightning.benchmark.compare.plan import Run
from as_lightning.benchmark.run.evaluation import metrics_of_test

LOOK = {
    "limit_train_batches": 1,
    "limit_val_batches": 1,
    "limit_test_batches": 1,
    "max_epochs": 2,  # some metrics are logged in every second epoch
    "val_check_interval": 1.0,  # Lightning refuses an interval that is longer than the epoch
    "check_val_every_n_epoch": 1,
}
SOME_EPOCHS = "{} is not logged in every epoch: the weights of the best epoch that logs it are scored."
EXAMPLES = 64  # of a split that its fingerprint reads


def inspect_module(own: OwnModule) -> None:
    """Look at the module and the data in one batch per method; raise for all that would fail the comparison.

    What is found is written into ``own``: its learning rate, test metric, the place of the target, digests, notes.

    Raises:
        ValueError: if the factory returns one object twice, there are no training or validation data, ``monitor`` is
            never logged, a loss is no scalar, or the splits of two set-ups of the data differ.
        TypeError: if the factory needs arguments or returns no LightningModule, or the data are no LightningDataModule.
        MisconfigurationException: if the replaced loss is never called.
    """
    module, data = _fresh_module(own), own.data()
    own.learning_rate = default_rate(own.factory, module)
    if not is_overridden("val_dataloader", data, pl.LightningDataModule):
        raise ValueError(f"{type(data).__name__} has no val_dataloader: settings are chosen by validation data")
    if not is_overridden("validation_step", module, pl.LightningModule):
        raise ValueError(f"{type(module).__name__} has no validation_step: settings are chosen by validation data")
    own.data_set = _same_splits(own)
    kinds = [type(part) for part in module.modules()]
    made = own.datamodule if isinstance(own.datamodule, pl.LightningDataModule) else data
    own.inputs = {
        "module": source_digest(*kinds),
        "data": hashlib.sha256(
            f"{source_digest(type(made))} {described(dict(made.hparams))} {own.data_set}".encode()
        ).hexdigest()[:16],
    }
    if own.learning_rate is None:
        own.notes.append(
            f"The learning rate was not tuned: {type(module).__name__} has no argument or hyperparameter lr, so all "
            "methods ran at its own."
        )
    own.target = _place_of_target(own)
    traces = {method: _try_one_batch(own, method) for method in own.losses.names}
    rate, method = own.learning_rate, own.losses.names[0]
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
    check_module(first)
    if first is second:
        raise ValueError(
            "the factory returned the same object twice: it must make a new module at each call, as "
            "lambda: LitModel(...) does, or the second run would go on from the first one's weights"
        )
    return first


def _same_splits(own: OwnModule) -> str:
    """A digest of the validation and test data, which must not depend on when they are set up."""
    digests = []
    for seed in (0, 1):
        pl.seed_everything(seed, workers=True, verbose=False)
        data = own.data()
        data.prepare_data()
        for stage in ("fit", "test"):
            data.setup(stage)
        digests.append({name: _digest(data, name) for name in ("val_dataloader", "test_dataloader")})
    for name, digest in digests[0].items():
        if digest != digests[1][name]:
            split = name.removesuffix("_dataloader").replace("val", "validation")
            raise ValueError(
                f"{type(own.data()).__name__} makes another {split} split each time it is set up, so that runs would "
                "be tested on examples that others were trained on: split by a generator with a seed of its own, as in "
                "random_split(dataset, lengths, torch.Generator().manual_seed(0))"
            )
    return " ".join(digests[0].values())


def _digest(data: pl.LightningDataModule, loader: str) -> str:
    """A digest of some examples of a split, read under the same random state; empty without the split."""
    if not is_overridden(loader, data, pl.LightningDataModule):
        return ""
    loaders = getattr(data, loader)()
    dataset = getattr(next(iter(tree_leaves(loaders)), None), "dataset", None)
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        return ""
    assert dataset is not None
    digest, size = hashlib.sha256(str(len(dataset)).encode()), len(dataset)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for number in sorted({step * size // EXAMPLES for step in range(min(EXAMPLES, size))}):
            for part in tree_leaves(dataset[number]):
                is_tensor = isinstance(part, Tensor)
                digest.update(part.detach().cpu().numpy().tobytes() if is_tensor else described(part).encode())
    return digest.hexdigest()[:16]


class _FirstBatch(pl.Callback):
    """Keeps the batch of the first training step."""

    batch: Any = None

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self.batch = batch if self.batch is None else self.batch


def _place_of_target(own: OwnModule) -> str | int | None:
    """The key or position in a batch of the target that the training loss is called with; None if it is no part."""
    module, data, first = own.factory(), own.data(), _FirstBatch()
    name = own.replaces or "as_softmax_loss"
    parent_name, _, attribute = name.rpartition(".")
    try:
        parent = attrgetter(parent_name)(module) if parent_name else module
        loss = getattr(parent, attribute)
    except AttributeError:
        return None  # which the first method's batch refuses
    seen: list[Any] = []
    if is_huggingface_classifier(loss):
        loss.register_forward_pre_hook(
            lambda part, arguments, named: seen.append(named.get("labels")), with_kwargs=True
        )
    elif isinstance(loss, torch.nn.Module):
        loss.register_forward_pre_hook(
            lambda part, arguments: seen.append(arguments[1] if len(arguments) > 1 else None)
        )
    else:

        def watched(logits: Any, target: Any, *arguments: Any, **named: Any) -> Any:
            seen.append(target)
            return loss(logits, target, *arguments, **named)

        parent.__dict__[attribute] = watched
    with TemporaryDirectory() as folder:
        pl.seed_everything(0, workers=True, verbose=False)
        settings = {**QUIET, **own.trainer, **LOOK, "limit_val_batches": 0, "enable_checkpointing": False}
        trainer = pl.Trainer(**{**settings, "callbacks": [first], "default_root_dir": folder})
        trainer.fit(module, datamodule=data)
    batch = first.batch
    parts = list(
        batch.items() if isinstance(batch, Mapping) else enumerate(batch) if isinstance(batch, Sequence) else ()
    )
    places = [place for place, part in parts if seen and part is seen[0]]
    if not places and seen and isinstance(seen[0], Tensor):
        places = [place for place, part in parts if isinstance(part, Tensor) and torch.equal(part, seen[0])]
    if len(places) != 1:
        own.notes.append(
            "Calibration was not measured, and predictions were not stored: the target of the training loss is no part "
            "of the batch by itself."
        )
        return None
    return places[0]


def _try_one_batch(own: OwnModule, method: str, **settings: float) -> list[Any]:
    """Train, validate and test on one batch; return what tells this training from one at another learning rate."""
    run = Run("tuning", method, settings, 1.0, 0)
    with TemporaryDirectory() as folder:
        try:
            fit = own.fit(run, folder, LOOK)
        except MisconfigurationException as error:
            if own.target is None or "TemperatureScaling" not in str(error):
                raise
            own.target = None
            own.notes.append(
                "Calibration was not measured, and predictions were not stored: the module's steps do not call self(x) "
                "and it has no validation_logits(batch)."
            )
            fit = own.fit(run, folder, LOOK)
        if fit.recorder.passed_over and (note := SOME_EPOCHS.format(own.monitor)) not in own.notes:
            own.notes.append(note)
        if not fit.recorder.evaluations:
            kind = "training" if not fit.trainer.num_training_batches else "validation"
            raise ValueError(f"the {kind} data of {type(fit.data).__name__} hold no batch: settings are chosen by it")
        groups = [group for optimizer in fit.trainer.optimizers for group in optimizer.param_groups]
        numbers = [{k: v for k, v in group.items() if isinstance(v, (int, float))} for group in groups]
        trained = [*numbers, *(float(part.detach().double().sum()) for part in fit.module.parameters())]
        _find_test_metric(own, fit)
    return trained


def _find_test_metric(own: OwnModule, fit: Fit) -> None:
    own.test_metric = None
    missing = f"no test version of {own.monitor} is logged"
    if not is_overridden("test_step", fit.module, pl.LightningModule):
        missing = f"{type(fit.module).__name__} has no test_step"
    elif not is_overridden("test_dataloader", fit.data, pl.LightningDataModule):
        missing = f"{type(fit.data).__name__} has no test_dataloader"
    else:
        metrics = metrics_of_test(fit.trainer, fit.module, fit.data)
        name = name_in_test(own.monitor)
        own.test_metric = name if name in metrics else None
        if not metrics:
            missing = f"the test data of {type(fit.data).__name__} hold no batch"
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
