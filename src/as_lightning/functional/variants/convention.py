"""What :func:`torch.nn.functional.cross_entropy` does around the loss of one row, for losses that are not its own."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real

import torch
import torch.nn.functional as F
from torch import Tensor

from as_lightning.functional.masking import check_class_indices, rows_of
from as_lightning.functional.reduction import check_class_weight, check_reduction, reduce_rows


def check_number(name: str, value: object, allowed: Callable[[float], bool], expected: str) -> float:
    """Return ``value`` as a float, or raise ``TypeError`` / ``ValueError`` naming the argument and what it must be."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be {expected}, got {value!r} of type {type(value).__name__}")
    number = float(value)
    if not math.isfinite(number) or not allowed(number):
        raise ValueError(f"{name} must be {expected}, got {value!r}")
    return number


def check_temperature(tau: object) -> float:
    """Return the temperature ``tau`` as a float, or raise where it is not a positive number."""
    return check_number("tau", tau, lambda value: value > 0, "a positive temperature")


def check_logits(logits: Tensor) -> None:
    """Raise unless ``logits`` is a floating-point tensor with at least one dimension."""
    if not logits.is_floating_point():
        raise TypeError(f"logits must be a floating-point tensor, got {logits.dtype}")
    if logits.dim() == 0:
        raise ValueError("logits must have a class dimension, got a 0-dim tensor")


def widened(values: Tensor) -> Tensor:
    """The half types as float32, in which every variant is computed; the others as they are."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def over_rows(transform: Callable[[Tensor], Tensor], logits: Tensor, dim: int) -> Tensor:
    """Apply a transform of ``(R, C)`` rows along ``dim``; the result has the shape and the dtype of ``logits``."""
    check_logits(logits)
    moved = widened(logits).movedim(dim, -1)
    rows = moved.reshape(-1, moved.size(-1))
    return transform(rows).reshape(moved.shape).movedim(-1, dim).to(logits.dtype)


def class_dimension(logits: Tensor) -> int:
    """Where the classes are: dimension 1, or 0 in ``(C)``."""
    return 0 if logits.dim() == 1 else 1


def cross_entropy_of(
    scores: Callable[[Tensor], Tensor],
    logits: Tensor,
    target: Tensor,
    *,
    weight: Tensor | None,
    ignore_index: int,
    reduction: str,
    label_smoothing: float = 0.0,
) -> Tensor:
    """``F.cross_entropy`` of ``scores(logits)``, for class indices only; the half types are computed in float32.

    Args:
        scores: from the (widened) logits to scores of the same shape.
        logits: shape ``(C)``, ``(N, C)`` or ``(N, C, d1, ...)``.
        target: class indices, shape ``()``, ``(N)`` or ``(N, d1, ...)``.
        weight: a weight per class.
        ignore_index: target value of the rows that do not count.
        reduction: ``"none"``, ``"mean"`` or ``"sum"``.
        label_smoothing: as in ``F.cross_entropy``.

    Returns:
        The loss in the dtype of ``logits``.
    """
    check_class_indices(logits, target)
    check_reduction(reduction)
    check_class_weight(weight, logits.size(class_dimension(logits)))
    values = scores(widened(logits))
    loss = F.cross_entropy(
        values,
        target.long(),
        weight=None if weight is None else weight.to(values.dtype),
        ignore_index=ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )
    return loss.to(logits.dtype)


def loss_of_rows(
    row_loss: Callable[[Tensor, Tensor], Tensor],
    logits: Tensor,
    target: Tensor,
    *,
    weight: Tensor | None,
    ignore_index: int,
    reduction: str,
) -> Tensor:
    """The shapes, ``ignore_index`` and reductions of ``F.cross_entropy`` around a loss of single rows.

    Args:
        row_loss: from rows ``(R, C)`` and class indices ``(R,)`` to ``(R,)`` losses; an ignored row comes with some
            valid class index, and what it returns for it is dropped.
        logits: shape ``(C)``, ``(N, C)`` or ``(N, C, d1, ...)``.
        target: class indices, shape ``()``, ``(N)`` or ``(N, d1, ...)``.
        weight: a weight per class.
        ignore_index: target value of the rows that do not count.
        reduction: ``"none"``, ``"mean"`` or ``"sum"``.

    Returns:
        The loss in the dtype of ``logits``.
    """
    check_class_indices(logits, target)
    check_reduction(reduction)
    rows, row_target = rows_of(widened(logits), target)
    check_class_weight(weight, rows.size(-1))
    ignored = row_target == ignore_index
    safe_target = row_target.masked_fill(ignored, 0).long()
    loss = reduce_rows(row_loss(rows, safe_target), safe_target, ignored, weight=weight, reduction=reduction)
    return (loss.reshape(target.shape) if reduction == "none" else loss).to(logits.dtype)
