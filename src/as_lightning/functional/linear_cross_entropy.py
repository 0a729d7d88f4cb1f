r"""The AS-Softmax loss of a wide linear head, from the hidden states, without the logits."""

from __future__ import annotations

from typing import Any, Literal, overload

import torch
import torch.nn.functional as F
from torch import Tensor

from as_lightning.functional.argument_checks import check_reduction
from as_lightning.functional.calling_convention import (
    accumulation_dtype,
    loss_dtype,
    row_weights,
    safe_targets,
)
from as_lightning.functional.class_parallel import local_head, refuse_transforms
from as_lightning.functional.counts import MaskingCounts, counts_of_rows
from as_lightning.functional.cross_entropy import as_cross_entropy, has_tangent
from as_lightning.functional.head_operands import HeadNames, HeadOperands, check_head
from as_lightning.functional.kernels.class_parallel import ClassShard
from as_lightning.functional.kernels.head_loss import HeadLoss, dense_is_faster
from as_lightning.functional.masking import check_delta
from as_lightning.functional.tracing import transformed


@overload
def as_linear_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    delta: float = ...,
    *,
    bias: Tensor | None = ...,
    class_weight: Tensor | None = ...,
    ignore_index: int = ...,
    reduction: str = ...,
    return_counts: Literal[False] = ...,
) -> Tensor: ...
@overload
def as_linear_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    delta: float = ...,
    *,
    bias: Tensor | None = ...,
    class_weight: Tensor | None = ...,
    ignore_index: int = ...,
    reduction: str = ...,
    return_counts: Literal[True],
) -> tuple[Tensor, MaskingCounts]: ...
def as_linear_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    delta: float = 0.1,
    *,
    bias: Tensor | None = None,
    class_weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    return_counts: bool = False,
) -> Tensor | tuple[Tensor, MaskingCounts]:
    r""":func:`~as_lightning.functional.as_cross_entropy` of ``F.linear(hidden, weight, bias)``, never held whole.

    The logits of a few rows at a time are computed into one workspace. Their loss and their gradient are computed while
    the logits exist. The rest of the work depends on what the margin keeps:

    * a fully masked row takes no part in the two matrix products of backward;
    * a mixed row takes part with its kept classes alone, if they are few (they nearly always are: at most
      :math:`1 / (p_t - \delta)` classes can be kept);
    * unmasked rows are gathered until they fill the workspace and go through the two products together.

    The chunks are rows, not classes. Chunks of classes would need each logit twice, 4 products for 3 with nothing
    masked, because the softmax of a row is not known until all its classes have been seen.
    With ``reduction="none"`` the upstream gradients are not known in forward, and the rows that have a gradient are
    computed again in backward; with ``"mean"`` and ``"sum"`` the gradients are ready when forward ends, and a
    backward that is scaled (gradient accumulation, a loss scaler) multiplies them.

    Args:
        hidden: shape ``(..., d)``: float32, float64, bfloat16 or float16. Half types accumulate in float32.
        weight: the head, shape ``(C, d)``, of the dtype of ``hidden``.
        target: class indices, shape ``(...)``.
        delta: the margin, in [0, 1].
        bias: shape ``(C)``.
        class_weight: a weight per class, shape ``(C)``.
        ignore_index: target value of rows that count neither in the loss nor in the counts.
        reduction: ``"none"``, ``"mean"`` (weighted, over the rows not ignored) or ``"sum"``.
        return_counts: also return the counts: ``(loss, counts)``.

    Returns:
        The loss in the dtype of ``hidden`` (float32 under autocast): a scalar, or of the shape of ``target`` with
        ``reduction="none"``; with ``return_counts`` also the :class:`~as_lightning.functional.MaskingCounts`.

    Raises:
        ValueError: if ``delta`` lies outside [0, 1], the shapes do not fit, or ``reduction`` is unknown.
        ValueError: if the operands are on several devices, a DTensor has a placement that is not supported, there are
            fewer classes than processes, or the targets of the processes differ.
        TypeError: if ``target`` does not hold integers, the dtypes of ``hidden``, ``weight`` and ``bias`` differ, or
            ``delta`` is no number.
        IndexError: if ``target`` is out of range (on the CPU; elsewhere the device asserts).
        RuntimeError: in backward, with ``create_graph=True``, and with ``reduction="none"`` for several upstream
            gradients at a time (``is_grads_batched=True``, ``jacobian(vectorize=True)``).

    Note:
        The classes may be spread over processes: ``weight`` and ``bias`` are DTensors, ``Shard(0)`` on one mesh of one
        dimension. Then ``hidden`` and ``target`` are plain tensors that are alike on every process, or DTensors on that
        mesh, for example ``Shard(0)`` where each process has its own rows. The loss is over all rows and all
        classes; loss and counts are plain tensors, the same on every process. Each gradient is placed as
        its operand is.

        On an accelerator the number of rows of each kind is read once for each chunk, to skip their work. Inside
        ``torch.compile`` the function is a graph break. The loss can be differentiated once. For so few logits that
        holding them is faster, and under ``torch.func`` and forward-mode differentiation, which need operations that
        they know, the logits are held and :func:`~as_lightning.functional.as_cross_entropy` does the work.

    Source: paper, section III, for the loss; computing gradients chunk by chunk in forward is Liger-Kernel's idea
    (arXiv 2410.10989).

    Example:
        >>> import torch
        >>> from torch.nn import functional as F
        >>> from as_lightning.functional import as_cross_entropy
        >>> hidden, weight = torch.randn(8, 4), torch.randn(1000, 4)
        >>> target = torch.randint(1000, (8,))
        >>> loss = as_linear_cross_entropy(hidden, weight, target, delta=0.1)
        >>> torch.allclose(loss, as_cross_entropy(F.linear(hidden, weight), target, delta=0.1), atol=1e-6)
        True
    """
    return cross_entropy_of_head(
        (hidden, weight, bias, target, class_weight),
        HeadNames(),
        delta,
        ignore_index=ignore_index,
        reduction=reduction,
        return_counts=return_counts,
    )


def cross_entropy_of_head(
    operands: HeadOperands,
    names: HeadNames,
    delta: float,
    *,
    ignore_index: int,
    reduction: str,
    return_counts: bool = False,
) -> Any:
    """:func:`as_linear_cross_entropy` for functions that call its operands by names of their own.

    Args:
        operands: hidden states, weight and bias of the head, target and class weights.
        names: what the caller calls them, for the messages.
        delta: the margin.
        ignore_index: target value of rows that take no part.
        reduction: ``"none"``, ``"mean"`` or ``"sum"``.
        return_counts: also return the counts.
    """
    delta = check_delta(delta)
    check_reduction(reduction)
    dtype = check_head(*operands, names)
    classes = operands[1].size(0)
    plain = transformed() or has_tangent(*operands[:3])
    if plain:
        refuse_transforms(**dict(zip(names, operands, strict=True)))
    hidden, weight, bias, target, class_weight, shard = local_head(*operands, names)
    if shard is None and (plain or dense_is_faster(target.numel(), weight)):
        logits = F.linear(hidden, weight, bias)
        logits = logits if logits.dim() < 3 else logits.movedim(-1, 1)
        kwargs = {
            "weight": class_weight,
            "ignore_index": ignore_index,
            "reduction": reduction,
            "return_counts": return_counts,
        }
        return as_cross_entropy(logits, target, delta, **kwargs)  # type: ignore[call-overload]
    flat_hidden, flat_target = hidden.reshape(target.numel(), hidden.size(-1)), target.reshape(-1)
    safe_target, ignored = safe_targets(flat_target, classes, ignore_index)
    row_weight, active = _row_weights(safe_target, ignored, class_weight, accumulation_dtype(dtype))
    if active is not None:
        flat_hidden, safe_target = flat_hidden.index_select(0, active), safe_target.index_select(0, active)
    if reduction == "mean":
        row_weight = row_weight / row_weight.sum()
    head = flat_hidden, weight, bias
    loss, masked = _head_loss(*head, safe_target, row_weight, delta, dtype, reduction == "none", shard)
    if active is not None:
        masked = masked.new_zeros(flat_target.numel()).index_copy(0, active, masked)
    if reduction == "none":
        if active is not None:
            loss = loss.new_zeros(flat_target.numel()).index_copy(0, active, loss)
        loss = loss.reshape(target.shape)
    elif reduction == "mean" and safe_target.numel() == 0:
        loss = loss + torch.nan  # the mean over no row, as F.cross_entropy has it
    loss = loss.to(loss_dtype(dtype, hidden.device))
    return (loss, counts_of_rows(masked, ignored, classes)) if return_counts else loss


def _row_weights(
    target: Tensor, ignored: Tensor | None, class_weight: Tensor | None, dtype: torch.dtype
) -> tuple[Tensor, Tensor | None]:
    """The weight of each row that is not ignored, and these rows' places; None where they are all."""
    active = None if ignored is None else (~ignored).nonzero().squeeze(-1)
    if active is not None:
        target = target.index_select(0, active)
    weights = row_weights(class_weight, target, dtype)
    return torch.ones(target.numel(), dtype=dtype, device=target.device) if weights is None else weights, active


@torch.compiler.disable
def _head_loss(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    row_weight: Tensor,
    delta: float,
    dtype: torch.dtype,
    each_row: bool,
    shard: ClassShard | None,
) -> tuple[Tensor, Tensor]:
    differentiated = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (hidden, weight, bias))
    with torch.autocast(hidden.device.type, enabled=False):
        return HeadLoss.apply(hidden, weight, bias, target, row_weight, delta, dtype, each_row, differentiated, shard)
