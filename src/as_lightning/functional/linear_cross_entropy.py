r"""The losses of a wide linear head, from the hidden states, without the logits."""

from __future__ import annotations

from typing import Literal, overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from as_lightning.functional.argument_checks import (
    check_class_weight,
    check_reduction,
    check_tensor,
)
from as_lightning.functional.calling_convention import (
    ClassRows,
    accumulation_dtype,
    autocast_dtype,
    check_index_dtype,
    loss_dtype,
    safe_targets,
)
from as_lightning.functional.counts import MaskingCounts, counts_of_rows
from as_lightning.functional.cross_entropy import fastest_loss
from as_lightning.functional.kernels.head_loss import Head, HeadLoss, HeadSettings, dense_is_faster
from as_lightning.functional.masking import DEFAULT_DELTA, check_delta
from as_lightning.functional.tracing import has_tangent, recorded, transformed

DTYPES = {torch.float32, torch.float64, torch.bfloat16, torch.float16}


@overload
def as_linear_cross_entropy(
    hidden: Tensor,
    head_weight: Tensor,
    target: Tensor,
    delta: float = ...,
    *,
    bias: Tensor | None = ...,
    weight: Tensor | None = ...,
    ignore_index: int = ...,
    reduction: str = ...,
    return_counts: Literal[False] = ...,
) -> Tensor: ...
@overload
def as_linear_cross_entropy(
    hidden: Tensor,
    head_weight: Tensor,
    target: Tensor,
    delta: float = ...,
    *,
    bias: Tensor | None = ...,
    weight: Tensor | None = ...,
    ignore_index: int = ...,
    reduction: str = ...,
    return_counts: Literal[True],
) -> tuple[Tensor, MaskingCounts]: ...
def as_linear_cross_entropy(
    hidden: Tensor,
    head_weight: Tensor,
    target: Tensor,
    delta: float = DEFAULT_DELTA,
    *,
    bias: Tensor | None = None,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    return_counts: bool = False,
) -> Tensor | tuple[Tensor, MaskingCounts]:
    r"""`as_cross_entropy` of ``F.linear(hidden, head_weight, bias)``, without holding the logits.

    The logits of a few rows at a time are computed into one workspace, and their loss and gradient
    while they exist. Backward skips fully masked rows, and uses only the kept classes of rows that
    keep few.

    Args:
        hidden: shape ``(..., d)``: float32, float64, bfloat16 or float16. Half types accumulate in
            float32.
        head_weight: the head, shape ``(C, d)``, of the dtype of ``hidden``.
        target: class indices, shape ``(...)``.
        delta: the margin, in [0, 1].
        bias: shape ``(C)``.
        weight: a weight per class, shape ``(C)``.
        ignore_index: the target of rows that do not count.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``, for which backward computes live rows again.
        return_counts: also return the `MaskingCounts`: ``(loss, counts)``.

    Returns:
        As `as_cross_entropy` of logits of the dtype of ``hidden``.

    Raises:
        ValueError: if ``delta`` or ``reduction`` is out of range, or shapes do not fit.
        TypeError: if an argument is of a wrong type, or the dtypes of ``hidden``, ``head_weight``
            and ``bias`` differ.
        IndexError: if ``target`` is out of range (on the CPU; elsewhere the device asserts).
        RuntimeError: in backward, with ``create_graph=True``, or for several upstream gradients at
            a time with ``reduction="none"``.

    Note:
        The logits are held where they are few, under ``torch.func`` and in forward-mode
        differentiation. Elsewhere the function is a graph break inside ``torch.compile``.

    Source: paper, section III; computing gradients chunk by chunk in forward is Liger-Kernel's idea
        (arXiv 2410.10989).

    Examples:
        >>> import torch
        >>> from torch.nn import functional as F
        >>> from as_lightning.functional import as_cross_entropy
        >>> hidden, weight, target = torch.randn(3, 4), torch.randn(900, 4), torch.tensor([0, 7, 8])
        >>> loss = as_linear_cross_entropy(hidden, weight, target, delta=0.5)
        >>> torch.allclose(loss, as_cross_entropy(F.linear(hidden, weight), target, delta=0.5))
        True
    """
    delta = check_delta(delta)
    check_reduction(reduction)
    dtype = check_head(hidden, head_weight, bias, target, weight)
    shape, classes = target.shape, head_weight.size(0)
    hidden = hidden.reshape(target.numel(), hidden.size(-1))
    target, ignored = safe_targets(target.reshape(-1), classes, ignore_index)
    needs_logits = transformed() or has_tangent(hidden, head_weight, bias) or recorded(hidden)
    if needs_logits or dense_is_faster(target.numel(), head_weight):
        if ignored is not None:  # the weight's gradient is a product with all hidden states
            hidden = hidden.masked_fill(ignored.unsqueeze(-1), 0.0)
        rows = ClassRows(F.linear(hidden, head_weight, bias), target, ignored)
        loss, counts = fastest_loss(rows.logits)(rows, delta, weight, reduction, return_counts)
    else:
        loss, masked = _fused_loss(
            hidden, head_weight, bias, target, ignored, weight, delta, dtype, reduction
        )
        counts = None
        if return_counts:
            counts = counts_of_rows(masked, ignored, classes)
    loss = loss.to(loss_dtype(dtype, hidden.device))
    if reduction == "none":
        loss = loss.reshape(shape)
    if counts is None:
        return loss
    return loss, counts


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Tensor:
    r"""Plain cross-entropy of a wide linear layer, without ever holding its logits.

    $$
    \ell = \log \sum_i e^{o_i} - o_t, \qquad o = W x + b
    $$

    It is `as_linear_cross_entropy` at ``delta=1``, with the argument names of PyTorch's own
    ``torch.nn.functional.linear_cross_entropy`` (2.13 and later): ``weight`` holds class weights,
    and ``label_smoothing`` other than 0 raises ``ValueError``. The page "Wide output layers" lists
    the differences.

    Source: the signature follows PyTorch 2.13.

    Examples:
        >>> import torch
        >>> from torch.nn import functional as F
        >>> hidden, weight, target = torch.randn(3, 4), torch.randn(900, 4), torch.tensor([0, 7, 8])
        >>> loss = linear_cross_entropy(hidden, weight, target)
        >>> torch.allclose(loss, F.cross_entropy(F.linear(hidden, weight), target))
        True
    """
    if label_smoothing:
        raise ValueError(
            f"label_smoothing must be 0, got {label_smoothing!r}: a smoothed target has a share in "
            "every class; use F.cross_entropy(F.linear(input, linear_weight, linear_bias), target, "
            "label_smoothing=...)"
        )
    return as_linear_cross_entropy(
        input,
        linear_weight,
        target,
        1.0,
        bias=linear_bias,
        weight=weight,
        ignore_index=ignore_index,
        reduction=reduction,
    )


def check_linear(head: nn.Module, instead: str) -> None:
    """Raise ``TypeError`` unless ``head`` is a plain ``nn.Linear``: it is read and not called."""
    made_by_hook = head._forward_pre_hooks and "weight" not in head._parameters  # as in pruning
    if type(head) is not nn.Linear or made_by_hook or "forward" in vars(head):
        raise TypeError(
            "the head must be an nn.Linear without pruning or another parametrization, since its "
            f"weight and bias are read and its forward is not called, got {head}: {instead}"
        )


@torch.compiler.disable
def _fused_loss(
    hidden: Tensor,
    head_weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    ignored: Tensor | None,
    weight: Tensor | None,
    delta: float,
    dtype: torch.dtype,
    reduction: str,
) -> tuple[Tensor, Tensor]:
    """Return the loss without ignored rows, chunk by chunk, and each row's masked competitors."""
    count, active = target.size(0), None
    if ignored is not None:
        active = (~ignored).nonzero().squeeze(-1)
        if active.numel() == count:
            active = None
    if active is not None:
        hidden, target = hidden.index_select(0, active), target.index_select(0, active)
    sum_dtype = accumulation_dtype(dtype)
    row_weight = target.new_ones(target.shape, dtype=sum_dtype)
    if weight is not None:
        row_weight = weight.to(sum_dtype).index_select(0, target)
    if reduction == "mean":
        row_weight = row_weight / row_weight.sum()
    head = Head(hidden, head_weight, bias)
    differentiated = torch.is_grad_enabled() and any(
        x is not None and x.requires_grad for x in head
    )
    settings = HeadSettings(target, row_weight, delta, dtype, reduction == "none", differentiated)
    with torch.autocast(hidden.device.type, enabled=False):
        loss, masked = HeadLoss.apply(*head, settings)
    if active is not None:
        masked = masked.new_zeros(count).index_copy(0, active, masked)
        if reduction == "none":
            loss = loss.new_zeros(count).index_copy(0, active, loss)
    if reduction == "mean" and target.numel() == 0:
        loss = loss + torch.nan  # the mean over no row, as F.cross_entropy has it
    return loss, masked


def check_head(
    hidden: Tensor, head_weight: Tensor, bias: Tensor | None, target: Tensor, weight: Tensor | None
) -> torch.dtype:
    """Return the dtype of a head's logits, after a check of its operands."""
    operands = {"the hidden states": hidden, "the head's weight": head_weight}
    if bias is not None:
        operands["the head's bias"] = bias
    for name, operand in (operands | {"target": target}).items():
        check_tensor(name, operand)
    hidden_shape, head_shape = tuple(hidden.shape), tuple(head_weight.shape)
    if not hidden_shape or len(head_shape) != 2 or hidden_shape[-1] != head_shape[1]:
        raise ValueError(
            "the hidden states must have shape (..., d) and the head's weight (C, d), got "
            f"{hidden_shape} and {head_shape}"
        )
    if bias is not None and bias.shape != head_shape[:1]:
        raise ValueError(
            f"the head's bias must have shape ({head_shape[0]},), one number per class, got "
            f"{tuple(bias.shape)}"
        )
    check_index_dtype(target, hidden_shape[:-1])
    if target.shape != hidden_shape[:-1]:
        raise ValueError(
            f"target must have shape {hidden_shape[:-1]}, that of the hidden states without their "
            f"last dimension, got {tuple(target.shape)}"
        )
    check_class_weight(weight, head_shape[0])
    dtypes = {operand.dtype for operand in operands.values()}
    autocast = autocast_dtype(hidden.device)
    if hidden.dtype == torch.float64:
        autocast = None
    if not dtypes <= DTYPES or (len(dtypes) > 1 and autocast is None):
        raise TypeError(
            "the hidden states, the head's weight and its bias must have one dtype, float32, "
            f"float64, bfloat16 or float16, got {', '.join(map(str, dtypes))}: convert them, as in "
            "hidden.to(torch.bfloat16), or use torch.autocast"
        )
    return autocast or hidden.dtype
