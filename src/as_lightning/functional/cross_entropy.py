r"""The single-label AS-Softmax loss (paper, section III)."""

from __future__ import annotations

from functools import partial
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
from as_lightning.functional.class_parallel import ClassShard, local_logits, sharded_loss
from as_lightning.functional.counts import MaskingCounts, counts_of_rows
from as_lightning.functional.kernels.row_loss import loss_by_rows, one_kernel
from as_lightning.functional.masking import DEFAULT_DELTA, check_delta, masked_by_delta
from as_lightning.functional.tracing import certain, in_plain_operations, recorded, traced

# Up to this many logits on the CPU, calling an operation costs more than its work.
FEW_LOGITS = 1 << 16
# subtracted from the logit of a masked class
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
        delta: the margin, in [0, 1]; the default, 0.1, is the paper's, and tuning mostly chose 0.4
            to 1.
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

    Note:
        Logits that are a DTensor sharded along their classes are never gathered: loss and counts
        are plain tensors, the same on every process, the gradient is sharded as the logits are, and
        it can be taken once.

    Source: paper, section III; shapes and reductions as in `torch.nn.functional.cross_entropy`.

    Examples:
        >>> import torch
        >>> logits = torch.tensor([[4.0, 0.0, 0.0], [1.0, 0.9, -2.0]])
        >>> loss, counts = as_cross_entropy(logits, torch.tensor([0, 0]), 0.1, reduction="none", return_counts=True)
        >>> loss, int(counts.masked_samples), int(counts.samples), int(counts.masked_classes), int(counts.classes)
        (tensor([0.0000, 0.6444]), 1, 2, 3, 4)
    """
    delta = check_delta(delta)
    check_reduction(reduction)
    logits, target, weight, shard = local_logits(logits, target, weight)
    rows = class_rows(logits, target, ignore_index, None if shard is None else shard.classes)
    check_class_weight(weight, rows.classes)
    loss, counts = kernel(rows.logits, shard)(rows, delta, weight, reduction, return_counts)
    if loss.dtype != logits.dtype:
        loss = loss.to(loss_dtype(logits.dtype, logits.device))
    if reduction == "none":
        loss = loss.reshape(target.shape)
    return loss if counts is None else (loss, counts)


def kernel(logits: Tensor, shard: ClassShard | None) -> RowsLoss:
    """The fastest `RowsLoss` for such logits that has every derivative the caller may ask for."""
    if shard is not None:
        return partial(sharded_loss, shard=shard)
    if (logits.is_cpu and certain(logits.numel() <= FEW_LOGITS)) or recorded(logits):
        return traceable_loss
    if (
        torch.compiler.is_compiling()
    ):  # on the CPU the operator is faster than what the compiler makes of the formula
        return loss_by_rows if logits.is_cpu else traceable_loss
    by_rows = logits.is_cpu or one_kernel(logits) is not None
    return loss_by_rows if by_rows and not in_plain_operations(logits) else traceable_loss


def traceable_loss(
    batch: ClassRows, delta: float, weight: Tensor | None, reduction: str, counting: bool
) -> tuple[Tensor, MaskingCounts | None]:
    """A `RowsLoss` of whole-tensor operations, which every transform of PyTorch understands.

    The masked classes get a logit so low that their exponential is 0, and ``F.cross_entropy`` does
    the rest.
    """
    rows, mask = clean_logits(batch), None
    if delta < 1.0:
        probability = rows.detach().softmax(-1)
        target_probability = probability.gather(-1, batch.target.unsqueeze(-1))
        # transforms refuse operations in place, and fake tensors the constant `ONE` that these take
        in_place = not (traced() or recorded(rows))
        mask = masked_by_delta(probability, target_probability, delta, in_place=in_place)
        if (
            in_place or torch.compiler.is_compiling()
        ):  # the derivative of a difference costs nothing in backward
            penalty = mask if mask.dtype == rows.dtype else mask.to(rows.dtype)
            rows = torch.sub(rows, penalty, alpha=FAR_BELOW[rows.dtype])
        else:  # forward-mode differentiation under make_fx (torch 2.11) crashes at a difference with alpha
            rows = rows.masked_fill(mask, -FAR_BELOW[rows.dtype])
    loss = cross_entropy_of_rows(rows, batch, weight, reduction)
    loss = loss + 0.0 if reduction == "none" else loss  # a fully masked row has -0.0
    if not counting:
        return loss, None
    masked = torch.zeros_like(batch.target) if mask is None else mask.sum(-1)
    if mask is not None and batch.ignored is not None:
        masked = masked.masked_fill(batch.ignored, 0)
    return loss, counts_of_rows(masked, batch.ignored, batch.classes)
