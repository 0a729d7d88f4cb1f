r"""The losses of a wide linear head, from the hidden states, without the logits: AS-Softmax and plain cross-entropy."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized, type_before_parametrizations

from as_lightning.functional.argument_checks import check_class_weight, check_one_device, check_reduction, check_tensor
from as_lightning.functional.calling_convention import (
    accumulation_dtype,
    autocast_dtype,
    check_index_dtype,
    loss_dtype,
    safe_targets,
)
from as_lightning.functional.class_parallel import HeadNames, local_head, refuse_transforms
from as_lightning.functional.counts import MaskingCounts, counts_of_rows
from as_lightning.functional.cross_entropy import as_cross_entropy
from as_lightning.functional.kernels.head_loss import HeadLoss, dense_is_faster
from as_lightning.functional.masking import DEFAULT_DELTA, check_delta
from as_lightning.functional.tracing import has_tangent, transformed

# hidden states, weight, bias, target and class weights
HeadOperands = tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor | None]
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
AS_NAMES = HeadNames("hidden", "weight", "bias", "target", "class_weight")
PLAIN_NAMES = HeadNames("input", "linear_weight", "linear_bias", "target", "weight")


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
    delta: float = DEFAULT_DELTA,
    *,
    bias: Tensor | None = None,
    class_weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    return_counts: bool = False,
) -> Tensor | tuple[Tensor, MaskingCounts]:
    r"""`as_cross_entropy` of ``F.linear(hidden, weight, bias)``, never held whole.

    The logits of a few rows at a time are computed into one workspace, and their loss and gradient while they exist. A
    fully masked row takes no part in the two products of backward, a mixed row of few kept classes with these alone.

    Args:
        hidden: shape ``(..., d)``: float32, float64, bfloat16 or float16. Half types accumulate in float32.
        weight: the head, shape ``(C, d)``, of the dtype of ``hidden``.
        target: class indices, shape ``(...)``.
        delta: the margin, in [0, 1]; the default is 0.1.
        bias: shape ``(C)``.
        class_weight: a weight per class, shape ``(C)``.
        ignore_index: target value of rows that count neither in the loss nor in the counts.
        reduction: ``"none"`` (backward computes live rows again), ``"mean"`` (weighted, over the rows not ignored) or
            ``"sum"``.
        return_counts: also return the `MaskingCounts`: ``(loss, counts)``.

    Returns:
        The loss in the dtype of ``hidden`` (float32 under autocast): a scalar, or of the shape of ``target`` with
        ``"none"``.

    Raises:
        ValueError: if ``delta`` or ``reduction`` is out of range, the shapes or devices do not fit, or DTensors are not
            placed as below.
        TypeError: if an argument is of a wrong type, or the dtypes of ``hidden``, ``weight`` and ``bias`` differ.
        IndexError: if ``target`` is out of range (on the CPU; elsewhere the device asserts).
        RuntimeError: in backward, with ``create_graph=True``, or for several upstream gradients at a time with
            ``reduction="none"``.

    Note:
        The classes may be spread over processes: ``weight`` and ``bias`` are DTensors, ``Shard(0)`` on one mesh of one
        dimension, ``hidden`` and ``target`` plain tensors alike on every process or DTensors on that mesh. Loss and
        counts are plain tensors, the same on every process; each gradient is placed as its operand is.

        Inside ``torch.compile`` the function is a graph break. `as_cross_entropy` does the work for so few logits that
        holding them is faster, under ``torch.func`` and in forward-mode differentiation.

    Source: paper, section III; computing gradients chunk by chunk in forward is Liger-Kernel's idea (arXiv 2410.10989).

    Examples:
        >>> import torch
        >>> from torch.nn import functional as F
        >>> from as_lightning.functional import as_cross_entropy
        >>> hidden, weight, target = torch.randn(8, 4), torch.randn(1000, 4), torch.randint(1000, (8,))
        >>> loss = as_linear_cross_entropy(hidden, weight, target, delta=0.1)
        >>> torch.allclose(loss, as_cross_entropy(F.linear(hidden, weight), target, delta=0.1), atol=1e-6)
        True
    """
    operands = hidden, weight, bias, target, class_weight
    loss, counts = cross_entropy_of_head(operands, AS_NAMES, delta, ignore_index, reduction, return_counts)
    return loss if counts is None else (loss, counts)


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
    ``torch.nn.functional.linear_cross_entropy`` (2.13 and later): ``weight`` holds class weights, and
    ``label_smoothing`` other than 0 raises ``ValueError``. The page "Wide output layers" lists the differences.

    Source: the signature follows PyTorch 2.13.

    Examples:
        >>> import torch
        >>> from torch.nn import functional as F
        >>> hidden, weight, target = torch.randn(8, 4), torch.randn(50_000, 4), torch.randint(50_000, (8,))
        >>> loss = linear_cross_entropy(hidden, weight, target)
        >>> torch.allclose(loss, F.cross_entropy(F.linear(hidden, weight), target))
        True
    """
    check_label_smoothing(label_smoothing)
    operands = input, linear_weight, linear_bias, target, weight
    return cross_entropy_of_head(operands, PLAIN_NAMES, 1.0, ignore_index, reduction, counting=False)[0]


def check_label_smoothing(label_smoothing: float) -> None:
    """Raise ``ValueError`` unless ``label_smoothing`` is 0."""
    if label_smoothing:
        raise ValueError(
            f"label_smoothing must be 0, got {label_smoothing!r}: a smoothed target has a share in every class, and "
            "this head keeps one target class per row; use F.cross_entropy(F.linear(input, linear_weight, "
            "linear_bias), target, label_smoothing=...)"
        )


def why_not_linear(head: nn.Module) -> str | None:
    """Why a module's logits are not ``hidden @ head.weight.T + head.bias``; None if they are, but for its hooks."""
    kind = type_before_parametrizations(head)
    if "forward" in vars(head):
        return f"the forward of this {kind.__name__} has been replaced"
    if kind is not nn.Linear:
        return f"it is {kind.__name__}, whose forward may compute something else"
    if head._forward_pre_hooks and "weight" not in head._parameters and not is_parametrized(head, "weight"):
        return "a hook makes its weight (pruning, nn.utils.spectral_norm), which would not be called"
    return None


def cross_entropy_of_head(
    operands: HeadOperands, names: HeadNames, delta: float, ignore_index: int, reduction: str, counting: bool
) -> tuple[Tensor, MaskingCounts | None]:
    """The loss of a head, and the counts if they are asked for; ``names`` are the caller's, for the messages."""
    delta = check_delta(delta)
    check_reduction(reduction)
    dtype = check_head(*operands, names)
    plain = transformed() or has_tangent(*operands[:3])
    if plain:
        refuse_transforms(**dict(zip(names, operands, strict=True)))
    hidden, weight, bias, target, class_weight, shard = local_head(*operands, names)
    if shard is None and (plain or dense_is_faster(target.numel(), weight)):
        logits = F.linear(hidden, weight, bias)
        logits = logits if logits.dim() < 3 else logits.movedim(-1, 1)
        options: dict[str, Any] = {"weight": class_weight, "ignore_index": ignore_index, "reduction": reduction}
        dense: partial[Any] = partial(as_cross_entropy, logits, target, delta, **options)
        return dense(return_counts=True) if counting else (dense(), None)
    rows, classes = target.numel(), operands[1].size(0)
    flat_hidden = hidden.reshape(rows, hidden.size(-1))
    safe_target, ignored = safe_targets(target.reshape(-1), classes, ignore_index)
    active = None if ignored is None else (~ignored).nonzero().squeeze(-1)
    if active is not None:
        flat_hidden, safe_target = flat_hidden.index_select(0, active), safe_target.index_select(0, active)
    summed = accumulation_dtype(dtype)
    if class_weight is None:
        class_weight = torch.ones((), dtype=summed, device=target.device).expand(classes)
    row_weight = class_weight.to(summed).index_select(0, safe_target)
    if reduction == "mean":
        row_weight = row_weight / row_weight.sum()
    settings = delta, dtype, reduction == "none", shard
    loss, masked = _head_loss((flat_hidden, weight, bias), safe_target, row_weight, *settings)
    if active is not None:
        masked = masked.new_zeros(rows).index_copy(0, active, masked)
    if reduction == "none":
        if active is not None:
            loss = loss.new_zeros(rows).index_copy(0, active, loss)
        loss = loss.reshape(target.shape)
    elif reduction == "mean" and safe_target.numel() == 0:
        loss = loss + torch.nan  # the mean over no row, as F.cross_entropy has it
    loss = loss.to(loss_dtype(dtype, hidden.device))
    return loss, counts_of_rows(masked, ignored, classes) if counting else None


@torch.compiler.disable
def _head_loss(head: tuple[Tensor, Tensor, Tensor | None], *others: Any) -> tuple[Tensor, Tensor]:
    differentiated = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in head)
    with torch.autocast(head[0].device.type, enabled=False):
        return HeadLoss.apply(*head, *others, differentiated)


def check_head(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, class_weight: Tensor | None, names: HeadNames
) -> torch.dtype:
    """The dtype of a head's logits, after a check of its operands; the messages use the caller's ``names``."""
    operands = dict(zip(names, (hidden, weight, bias, target, class_weight), strict=True))
    for name, x in operands.items():
        if x is not None or name not in (names.bias, names.class_weight):
            check_tensor(name, x)
    if weight.dim() != 2 or hidden.dim() == 0 or hidden.size(-1) != weight.size(1):
        raise ValueError(
            f"{names.hidden} must have shape (..., d) and {names.weight} (C, d), got {tuple(hidden.shape)} and "
            f"{tuple(weight.shape)}"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(
            f"{names.bias} must have shape ({weight.size(0)},), one number per class, got {tuple(bias.shape)}"
        )
    check_index_dtype(target, hidden.shape[:-1])
    if target.shape != hidden.shape[:-1]:
        raise ValueError(
            f"target must have shape {tuple(hidden.shape[:-1])}, that of {names.hidden} without its last dimension, "
            f"got {tuple(target.shape)}"
        )
    check_class_weight(class_weight, weight.size(0), names.class_weight)
    check_one_device(**operands)
    return _logits_dtype(hidden, weight, bias, names)


def _logits_dtype(hidden: Tensor, weight: Tensor, bias: Tensor | None, names: HeadNames) -> torch.dtype:
    operands = {names.hidden: hidden, names.weight: weight, names.bias: bias}
    dtypes = {name: x.dtype for name, x in operands.items() if x is not None}
    for name, dtype in dtypes.items():
        if dtype not in DTYPES:
            raise TypeError(
                f"{name} must be a floating-point tensor, float32, float64, bfloat16 or float16, got {dtype}: convert "
                f"it, as in {name}.to(torch.bfloat16)"
            )
    reduced = autocast_dtype(hidden.device)
    if reduced is not None and hidden.dtype != torch.float64:
        return reduced
    if len(set(dtypes.values())) > 1:
        *first, last = dtypes
        raise TypeError(
            f"{', '.join(first)} and {last} must have one dtype, got {', '.join(map(str, dtypes.values()))}: convert "
            "them, or use torch.autocast"
        )
    return hidden.dtype
