"""Where a user's module takes its learning rate: an argument of its factory, or an attribute or hyperparameter."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.utilities.parsing import lightning_getattr, lightning_hasattr, lightning_setattr

NAMES = ("lr", "learning_rate")


def rate_argument(factory: Callable[..., Any]) -> str | None:
    """The argument of a factory that is the learning rate; None if it has none.

    >>> rate_argument(lambda hidden=8, lr=0.1: None)
    'lr'
    """
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return None
    return next((name for name in NAMES if name in parameters), None)


def default_rate(factory: Callable[..., Any], module: pl.LightningModule) -> float | None:
    """The learning rate of a module that ``factory`` has made without arguments; None if it cannot be set."""
    argument, attribute = rate_argument(factory), _rate_attribute(module)
    rate: Any = None
    if argument is not None:
        rate = inspect.signature(factory).parameters[argument].default
    if not isinstance(rate, (int, float)) and attribute is not None:
        rate = lightning_getattr(module, attribute)
    if isinstance(rate, (int, float)) and not isinstance(rate, bool) and rate > 0:
        return float(rate)
    return None


def set_rate(module: pl.LightningModule, rate: float) -> None:
    """Set the attribute or hyperparameter of a module that is its learning rate."""
    attribute = _rate_attribute(module)
    assert attribute is not None
    lightning_setattr(module, attribute, rate)


def _rate_attribute(module: pl.LightningModule) -> str | None:
    return next((name for name in NAMES if lightning_hasattr(module, name)), None)
