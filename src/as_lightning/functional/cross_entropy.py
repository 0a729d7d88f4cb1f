r"""The single-label AS-Softmax loss (paper, section III)."""

from __future__ import annotations

from typing import Literal, overload

import torch
from torch import Tensor

from as_lightning.functional.argument_checks import check_class_weight, check_reduction
from as_lightning.functional.calling_convention import (
    ClassRows,
    RowsLoss,
    class_rows,
    clean_logits,
    cross_entropy_of_rows,
    loss_dtype,
)
from as_lightning.functional.counts import MaskingCounts, counts_of_rows
from as_lightning.functional.kernels.row_loss import loss_by_rows, triton_kernels_for
from as_lightning.functional.masking import DEFAULT_DELTA, check_delta, masked_by_delta
from as_lightning.functional.tracing import certain, in_plain_operations, recorded, traced

# Up to this many logits on the CPU, calling an operation costs more than its work.
FEW_LOGITS = 1 << 16
# Subtracted from the logit of a masked class.
FAR_BELOW = {dtype: torch.finfo(dtype).max / 2 for dtype in (torch.float32, torch.float64)}


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
    delta: float = DEFAULT_DELTA,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    return_counts: bool = False,
) -> Tensor | tuple[Tensor, MaskingCounts]:
    r"""Cross-entropy over the classes that the margin keeps.

    $$
    \ell = \log \sum_{i \text{ kept}} e^{o_i} - o_t, \qquad
    \text{keep}_i = (i = t) \lor (p_t - p_i \le \delta), \qquad p = \operatorname{softmax}(o)
    $$

    The mask is a constant: the gradient is $q_i - [i = t]$ on the kept classes, ``q`` their
    softmax, and 0 on the others. ``delta=1`` is ``F.cross_entropy``, up to rounding.

    Args:
        logits: shape ``(C)``, ``(N, C)`` or ``(N, C, d1, ...)``; float16 and bfloat16 are computed
            in float32.
        target: class indices, shape ``()``, ``(N)`` or ``(N, d1, ...)``.
        delta: the margin, in [0, 1].
        weight: a weight per class, shape ``(C)``.
        ignore_index: target value of rows that count neither in the loss nor in the counts.
        reduction: ``"none"``, ``"mean"`` (weighted, over the rows not ignored) or ``"sum"``.
        return_counts: also return the `MaskingCounts`: ``(loss, counts)``.

    Returns:
        The loss in the dtype of ``logits`` (float32 under autocast): a scalar, or of the shape of
        ``target`` with ``"none"``.

    Raises:
        ValueError: if ``delta`` or ``reduction`` is out of range, or the shapes do not fit.
        TypeError: if an argument is of a wrong type, such as soft targets.
        IndexError: if ``target`` is out of range (on the CPU; elsewhere the device asserts).

    Source: paper, section III; shapes and reductions as in `torch.nn.functional.cross_entropy`.

    Examples:
        >>> import torch
        >>> logits = torch.tensor([[4.0, 0.0, 0.0], [1.0, 0.9, -2.0]])
        >>> as_cross_entropy(logits, torch.tensor([0, 0]), delta=0.1, reduction="none")
        tensor([0.0000, 0.6444])
        >>> loss, counts = as_cross_entropy(logits, torch.tensor([0, 0]), 0.1, return_counts=True)
        >>> int(counts.masked_samples), int(counts.samples)
        (1, 2)
    """
    delta = check_delta(delta)
    check_reduction(reduction)
    rows = class_rows(logits, target, ignore_index)
    check_class_weight(weight, rows.logits.size(-1))
    loss, counts = fastest_loss(rows.logits)(rows, delta, weight, reduction, return_counts)
    if loss.dtype != logits.dtype:
        loss = loss.to(loss_dtype(logits.dtype, logits.device))
    if reduction == "none":
        loss = loss.reshape(target.shape)
    if counts is None:
        return loss
    return loss, counts


def fastest_loss(logits: Tensor) -> RowsLoss:
    """Return the fastest `RowsLoss` with every derivative that the caller may ask for."""
    if (logits.is_cpu and certain(logits.numel() <= FEW_LOGITS)) or recorded(logits):
        return traceable_loss
    by_rows = logits.is_cpu
    if not torch.compiler.is_compiling():
        by_rows = by_rows or triton_kernels_for(logits) is not None
        by_rows = by_rows and not in_plain_operations(logits)
    # on the CPU the operator is faster than what the compiler makes of the formula
    return loss_by_rows if by_rows else traceable_loss


def traceable_loss(
    batch: ClassRows, delta: float, weight: Tensor | None, reduction: str, counting: bool
) -> tuple[Tensor, MaskingCounts | None]:
    """Compute the loss of rows by whole-tensor operations, which every transform understands.

    The masked classes get a logit so low that their exponential is 0, and ``F.cross_entropy`` does
    the rest.
    """
    rows = clean_logits(batch)
    mask = None
    if delta < 1.0:
        probability = rows.detach().softmax(-1)
        target_probability = probability.gather(-1, batch.target.unsqueeze(-1))
        # transforms refuse operations in place, and fake tensors the constant `ONE` that these take
        in_place = not (traced() or recorded(rows))
        mask = masked_by_delta(probability, target_probability, delta, in_place=in_place)
        if in_place:  # the derivative of a difference costs nothing in backward
            rows = torch.sub(rows, mask, alpha=FAR_BELOW[rows.dtype])
        elif torch.compiler.is_compiling():
            rows = torch.sub(rows, mask.to(rows.dtype), alpha=FAR_BELOW[rows.dtype])
        else:
            # forward-mode differentiation under make_fx (torch 2.11) crashes at such a difference
            rows = rows.masked_fill(mask, -FAR_BELOW[rows.dtype])
    loss = cross_entropy_of_rows(rows, batch, weight, reduction)
    if reduction == "none":
        loss = loss + 0.0  # a fully masked row has -0.0
    if not counting:
        return loss, None
    if mask is None:
        masked = torch.zeros_like(batch.target)
    else:
        masked = mask.sum(-1)
        if batch.ignored is not None:
            masked = masked.masked_fill(batch.ignored, 0)
    return loss, counts_of_rows(masked, batch.ignored, batch.logits.size(-1))
