r"""The single-label AS-Softmax loss (paper, section III)."""

from __future__ import annotations

from typing import Literal, overload

import torch
from torch import Tensor

from as_lightning.functional.argument_checks import check_class_weight, check_reduction
from as_lightning.functional.calling_convention import class_rows, loss_dtype, reduce_rows, row_weights
from as_lightning.functional.class_parallel import is_dtensor, local_logits, refuse_transforms
from as_lightning.functional.counts import MaskingCounts, counts_of_rows
from as_lightning.functional.kernels.class_parallel import ShardRowLoss
from as_lightning.functional.kernels.compiled_row_loss import compiled_row_loss
from as_lightning.functional.kernels.row_loss import RowLoss
from as_lightning.functional.kernels.traceable import few_logits, masked_of_mask, traceable_loss
from as_lightning.functional.masking import check_delta
from as_lightning.functional.tracing import traced, transformed


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
        return_counts: also return the counts: ``(loss, counts)``.

    Returns:
        The loss in the dtype of ``logits`` (float32 under autocast): a scalar, or of the shape of ``target`` with
        ``reduction="none"``; with ``return_counts`` also the :class:`~as_lightning.functional.MaskingCounts`.

    Raises:
        ValueError: if ``delta`` lies outside [0, 1], the shapes do not fit, or ``reduction`` is unknown.
        TypeError: if ``target`` does not hold integers (soft targets are not supported), or ``delta`` is no number.
        IndexError: if ``target`` is out of range (on the CPU; elsewhere the device asserts).

    Note:
        Logits that are a DTensor sharded along their classes (``Shard(1)``, or ``Shard(0)`` of shape ``(C)``) are never
        gathered: loss and counts are plain tensors, the same on every process, and the gradient is
        sharded as the logits are. Class weights and targets are DTensors or alike on every process. These logits can be
        differentiated once.

        Plain tensors can be differentiated twice, in forward mode and by ``torch.func``. Above 65,536 logits
        ``torch.compile`` on the CPU makes one operator of the loss.

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
    check_reduction(reduction)
    shard = None
    if transformed():
        refuse_transforms(logits=logits, target=target)
    if is_dtensor(logits) or is_dtensor(target):
        logits, target, weight, shard = local_logits(logits, target, weight)
    batch = class_rows(logits, target, ignore_index, None if shard is None else shard.classes)
    classes = batch.logits.shape[1] if shard is None else shard.classes
    check_class_weight(weight, classes)
    if shard is None and (few_logits(batch.logits) or needs_plain_operations(logits)):
        loss, mask = traceable_loss(batch, delta, weight=weight, reduction=reduction)
        masked = masked_of_mask(mask, batch) if return_counts else None
    else:
        differentiated = torch.is_grad_enabled() and logits.requires_grad
        if shard is not None:
            loss, masked = ShardRowLoss.apply(*batch, delta, shard)
        else:
            row_loss = compiled_row_loss if torch.compiler.is_compiling() else RowLoss.apply
            loss, masked, _ = row_loss(*batch, delta, differentiated)
        row_weight = row_weights(weight, batch.target, loss.dtype)
        loss = reduce_rows(loss, batch.ignored, row_weight=row_weight, reduction=reduction)
    if logits.dtype != loss.dtype:
        loss = loss.to(loss_dtype(logits.dtype, logits.device))
    if reduction == "none":
        loss = loss.reshape(target.shape)
    if not return_counts:
        return loss
    assert masked is not None
    return loss, counts_of_rows(masked, batch.ignored, classes)


def needs_plain_operations(logits: Tensor) -> bool:
    """Whether a transform is at work that neither the rows' autograd function nor their operator can serve."""
    if torch.compiler.is_compiling():
        return not logits.is_cpu  # on the CPU the operator is faster than what the compiler makes of the formula
    return traced() or has_tangent(logits)


def has_tangent(*tensors: Tensor | None) -> bool:
    """Whether a tensor carries a tangent of forward-mode differentiation."""
    return any(x is not None and torch.autograd.forward_ad.unpack_dual(x).tangent is not None for x in tensors)
