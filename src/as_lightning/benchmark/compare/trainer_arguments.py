"""What the arguments of ``lightning.Trainer`` that a user gives are in the runs of a comparison."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import ModelCheckpoint

QUIET = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "num_sanity_val_steps": 0}
ONE_BATCH = {
    "limit_train_batches": 1,
    "limit_val_batches": 1,
    "limit_test_batches": 1,
    "max_epochs": 1,
    "val_check_interval": 1.0,  # Lightning refuses an interval that is longer than the epoch
    "check_val_every_n_epoch": 1,
}

# what a run that keeps its best weights needs
NEEDED = {"enable_checkpointing": True, "fast_dev_run": False, "barebones": False}


class BestWeights(ModelCheckpoint):
    """Keeps the weights of the best validation, which are scored.

    Lightning refuses two callbacks of one class with the same settings. As a class of its own it may stand beside a
    ``ModelCheckpoint`` of the user.
    """


def copied_callbacks(trainer: Mapping[str, Any]) -> list[pl.Callback]:
    """Copies of the user's callbacks, for one run. As in Lightning one callback needs no list."""
    callbacks = copy.deepcopy(trainer.get("callbacks") or [])
    return [callbacks] if isinstance(callbacks, pl.Callback) else list(callbacks)


def shortened(trainer: Mapping[str, Any], epochs: int) -> dict[str, Any]:
    """The arguments of a run of so many epochs; it is validated at least once where epochs count.

    >>> shortened({"max_epochs": 8, "check_val_every_n_epoch": 4}, 2)
    {'max_epochs': 2, 'check_val_every_n_epoch': 2}
    """
    every = trainer.get("check_val_every_n_epoch", 1)
    return {"max_epochs": epochs, "check_val_every_n_epoch": None if every is None else min(every, epochs)}


def described(value: Any, *, inside: bool = False) -> str:
    """A value as text that is the same in every process: objects by class and settings, without addresses in memory.

    Args:
        value: an argument of ``lightning.Trainer``.
        inside: whether it belongs to an object; objects inside an object are named by their class alone.

    >>> described({"max_epochs": 3, "callbacks": [pl.Callback()]})
    "{'max_epochs': 3, 'callbacks': [lightning.pytorch.callbacks.callback.Callback()]}"
    """
    kind = type(value)
    if isinstance(value, Mapping):
        pairs = (f"{key!r}: {described(item, inside=inside)}" for key, item in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(described(item, inside=inside) for item in value) + "]"
    if isinstance(value, (set, frozenset)):
        return "{" + ", ".join(sorted(described(item, inside=inside) for item in value)) + "}"
    if kind.__repr__ is not object.__repr__:
        return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))
    settings = {} if inside else getattr(value, "__dict__", {})
    text = ", ".join(f"{name}={described(setting, inside=True)}" for name, setting in settings.items())
    return f"{kind.__module__}.{kind.__qualname__}({text})"
