"""The checks of arguments: each error says what was expected and what came."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from numbers import Integral, Real

import torch
from torch import Tensor

REDUCTIONS = ("none", "mean", "sum")


def check_choice(name: str, value: str, choices: Sequence[str]) -> str:
    """Return ``value``, or raise ``ValueError`` where it is none of the choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return value


def check_reduction(reduction: str) -> str:
    return check_choice("reduction", reduction, REDUCTIONS)


def check_number(
    name: str, value: object, allowed: Callable[[float], bool], expected: str
) -> float:
    """Return ``value`` as a float, or raise ``TypeError`` / ``ValueError`` naming the argument."""
    # float is tested first, so that the compiler need not trace Real
    if isinstance(value, bool) or not (type(value) is float or isinstance(value, Real)):
        raise TypeError(f"{name} must be {expected}, got {value!r} of type {type(value).__name__}")
    number = float(value)
    # math.isfinite of a dynamic number does not compile
    if not (-math.inf < number < math.inf and allowed(number)):
        raise ValueError(f"{name} must be {expected}, got {value!r}")
    return number


def check_count(name: str, value: object, *, least: int) -> int:
    """Return ``value`` where it is an integer of at least ``least``, or raise."""
    expected = f"{name} must be an integer of at least {least}"
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{expected}, got {value!r} of type {type(value).__name__}")
    if value < least:
        raise ValueError(f"{expected}, got {value!r}")
    return int(value)


def check_temperature(tau: object) -> float:
    return check_number("tau", tau, lambda value: value > 0, "a positive temperature")


def check_tensor(name: str, value: object) -> None:
    """Raise ``TypeError`` unless ``value`` is a plain tensor, not a DTensor."""
    if type(value) is Tensor:
        return
    hint = ""
    if hasattr(value, "full_tensor"):
        hint = ": pass its .full_tensor()"
    elif isinstance(value, Tensor):
        return
    elif hasattr(value, "logits"):
        hint = ": pass its .logits"
    raise TypeError(f"{name} must be a tensor, got {type(value).__name__}{hint}")


def check_logits(logits: Tensor, dimension: str = "class") -> None:
    """Raise unless ``logits`` is a floating-point tensor with at least one dimension."""
    check_tensor("logits", logits)
    if not logits.is_floating_point():
        raise TypeError(f"logits must be a floating-point tensor, got {logits.dtype}")
    if logits.dim() == 0:
        raise ValueError(
            f"logits must have a {dimension} dimension: (C), (N, C) or (N, C, d1, ...), got a "
            "0-dim tensor"
        )


def check_class_weight(weight: Tensor | None, num_classes: int) -> None:
    """Raise unless ``weight`` is ``None`` or one floating-point constant per class."""
    if weight is None:
        return
    check_tensor("weight", weight)
    if not weight.is_floating_point():
        raise TypeError(f"weight must be a floating-point tensor, got {weight.dtype}")
    if weight.shape != (num_classes,):
        raise ValueError(
            f"weight must hold one weight per class, shape ({num_classes},), got "
            f"{tuple(weight.shape)}"
        )
    if weight.requires_grad and torch.is_grad_enabled():
        raise RuntimeError(
            "weight must not require a gradient: class weights are constants, as in "
            "F.cross_entropy; pass weight.detach()"
        )
