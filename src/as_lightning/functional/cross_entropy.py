r"""The single-label AS-Softmax loss (paper, section III)."""

from __future__ import annotations

from typing import Literal, overload

import torch
from torch import Tensor

from as_lightning.functional.class_parallel import local_logits
from as_lightning.functional.counts import MaskingCounts, counts_of_rows
from as_lightning.functional.kernels.class_parallel import ShardRowLoss
from as_lightning.functional.masking import (
    check_class_indices,
    check_class_range,
    check_delta,
    rows_of,
)
from as_lightning.functional.reduction import check_class_weight, check_reduction, loss_dtype, reduce_rows
from as_lightning.functional.rows import RowLoss, compiled_row_loss, few_logits, plain_row_loss
from as_lightning.functional.tracing import traced


@overload
def as_cross_entropy(
    logits: Tensor,
    target: Tensor,
    delta: float = ...,
    *,
    weight: Tensor | None = ...,
    ignore_index: int = ...,
    reduction: str = ...,
    return_counts: Literal[False] = ...,
) -> Tensor: ...
@overload
def as_cross_entropy(
    logits: Tensor,
    target: Tensor,
    delta: float = ...,
    *,
    weight: Tensor | None = ...,
    ignore_index: int = ...,
    reduction: str = ...,
    return_counts: Literal[True],
) -> tuple[Tensor, MaskingCounts]: ...
def as_cross_entropy(
    logits: Tensor,
    target: Tensor,
    delta: float = 0.1,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    return_counts: bool = False,
) -> Tensor | tuple[Tensor, MaskingCounts]:
    r"""Cross-entropy over the classes that the margin keeps.

    .. math:: \ell = \log \sum_{i \text{ kept}} e^{o_i} - o_t, \qquad
              \text{keep}_i = (i = t) \lor (p_t - p_i \le \delta), \qquad p = \operatorname{softmax}(o)

    The mask is a constant: the gradient is :math:`q_i - [i = t]` on the kept classes, ``q`` their softmax, and 0 on
    the others. ``delta=1`` is ``F.cross_entropy``, up to rounding.

    Args:
        logits: unnormalised scores, shape ``(C)``, ``(N, C)`` or ``(N, C, d1, ...)``: float32, float64, bfloat16 or
            float16 (the half types are computed in float32).
        target: class indices, shape ``()``, ``(N)`` or ``(N, d1, ...)``.
        delta: the margin, in [0, 1].
        weight: a weight per class, shape ``(C)``.
        ignore_index: target value of rows that count neither in the loss nor in the counts.
        reduction: ``"none"``, ``"mean"`` (weighted, over the rows not ignored) or ``"sum"``.
        return_counts: return ``(loss, counts)``.

    Returns:
        The loss in the dtype of ``logits``: a scalar, or of the shape of ``target`` with ``reduction="none"``; with
        ``return_counts`` also the :class:`~as_lightning.functional.MaskingCounts`.

    Raises:
        ValueError: if ``delta`` lies outside [0, 1], the shapes do not fit, or ``reduction`` is unknown.
        TypeError: if ``target`` does not hold integers (soft targets are not supported).

    Source: paper, section III; shapes and reductions as in :func:`torch.nn.functional.cross_entropy`.

    Example:
        >>> import torch
        >>> logits = torch.tensor([[4.0, 0.0, 0.0], [1.0, 0.9, -2.0]])
        >>> as_cross_entropy(logits, torch.tensor([0, 0]), delta=0.1, reduction="none")
        tensor([0.0000, 0.6444])
        >>> loss, counts = as_cross_entropy(logits, torch.tensor([0, 0]), delta=0.1, return_counts=True)
        >>> int(counts.masked_samples), int(counts.samples), int(counts.masked_classes), int(counts.classes)
        (1, 2, 3, 4)
    """
    delta = check_delta(delta)
    check_class_indices(logits, target)
    classes = logits.size(0 if logits.dim() == 1 else 1)
    check_class_weight(weight, classes)
    check_reduction(reduction)
    logits, target, weight, shard = local_logits(logits, target, weight)
    rows, row_target = rows_of(logits, target)
    ignored = row_target == ignore_index
    safe_target = row_target.masked_fill(ignored, 0).long()
    check_class_range(safe_target, classes)
    # the host may look where it costs no waiting
    some_ignored = ignored if traced() or rows.device.type != "cpu" or bool(ignored.any()) else None
    differentiated = torch.is_grad_enabled() and logits.requires_grad
    # of few logits the compiler's kernels for the formula cost less than the call of an operator, of many more
    if shard is not None:
        loss, kept = ShardRowLoss.apply(rows, safe_target, ignored, delta, shard)
    elif torch.compiler.is_compiling() and rows.device.type == "cpu" and not few_logits(rows):
        loss, kept, _ = compiled_row_loss(rows, safe_target, ignored, delta, differentiated)
    elif traced():
        loss, kept = plain_row_loss(rows, safe_target, ignored, delta)
    else:
        loss, kept, _ = RowLoss.apply(rows, safe_target, some_ignored, delta, differentiated)
    loss = reduce_rows(loss, safe_target, some_ignored, weight=weight, reduction=reduction)
    loss = loss.to(loss_dtype(logits.dtype, logits.device))
    if reduction == "none":
        loss = loss.reshape(target.shape)
    return (loss, counts_of_rows(kept, some_ignored, classes)) if return_counts else loss
