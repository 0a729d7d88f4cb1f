r"""The losses of a wide linear head, from the hidden states, without the logits: AS-Softmax and
plain cross-entropy.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, Literal, TypeVar, overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized, type_before_parametrizations

from as_lightning.functional.argument_checks import (
    check_class_weight,
    check_one_device,
    check_reduction,
    check_tensor,
)
from as_lightning.functional.calling_convention import (
    ClassRows,
    HeadOperands,
    accumulation_dtype,
    autocast_dtype,
    check_index_dtype,
    loss_dtype,
    safe_targets,
)
from as_lightning.functional.class_parallel import (
    ClassShard,
    DTensor,
    local_head,
    refuse_transforms,
)
from as_lightning.functional.counts import MaskingCounts, counts_of_rows
from as_lightning.functional.cross_entropy import kernel
from as_lightning.functional.kernels.head_loss import Head, HeadLoss, HeadSettings, dense_is_faster
from as_lightning.functional.masking import DEFAULT_DELTA, check_delta
from as_lightning.functional.tracing import has_tangent, recorded, transformed

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
Function = TypeVar("Function", bound=Callable[..., Any])


def _accepts_names_of_0_3(function: Function) -> Function:
    """Until 0.5 the head may be named ``weight``, and the class weights beside it
    ``class_weight``.
    """

    @functools.wraps(function)
    def with_new_names(*args: Any, **kwargs: Any) -> Any:
        new_names = (
            {"weight": "head_weight"} if len(args) < 2 and "head_weight" not in kwargs else {}
        )
        new_names = {
            name: new
            for name, new in (new_names | {"class_weight": "weight"}).items()
            if name in kwargs
        }
        if new_names:
            names = ", ".join(f"{name} is now {new}" for name, new in new_names.items())
            warnings.warn(f"{function.__name__}: {names}", DeprecationWarning, stacklevel=2)
            kwargs = {new_names.get(name, name): value for name, value in kwargs.items()}
        return function(*args, **kwargs)

    return with_new_names  # type: ignore[return-value]


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
@_accepts_names_of_0_3
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
    r"""`as_cross_entropy` of ``F.linear(hidden, head_weight, bias)``, whose logits are never held
    whole.

    The logits of a few rows at a time are computed into one workspace, and their loss and gradient
    while they exist. A fully masked row takes no part in the two products of backward, a mixed row
    of few kept classes only with these.

    Args:
        hidden: shape ``(..., d)``: float32, float64, bfloat16 or float16. Half types accumulate in
            float32.
        head_weight: the head, shape ``(C, d)``, of the dtype of ``hidden``.
        target: class indices, shape ``(...)``.
        bias: shape ``(C)``.
        delta: the margin, in [0, 1]; the default, 0.1, is the paper's.
        weight: a weight per class, shape ``(C)``.
        ignore_index: the target of rows that do not count.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``, for which backward computes live rows again.
        return_counts: also return the `MaskingCounts`: ``(loss, counts)``.

    Returns:
        As `as_cross_entropy` of logits of the dtype of ``hidden``.

    Raises:
        ValueError: if ``delta`` or ``reduction`` is out of range, the shapes or devices do not fit,
            or DTensors are not placed as below.
        TypeError: if an argument is of a wrong type, or the dtypes of ``hidden``, ``head_weight``
            and ``bias`` differ.
        IndexError: if ``target`` is out of range (on the CPU; elsewhere the device asserts).
        RuntimeError: in backward, with ``create_graph=True``, or for several upstream gradients at
            a time with ``reduction="none"``.

    Note:
        The classes may be spread over processes: ``head_weight`` and ``bias`` are DTensors,
        ``Shard(0)`` on one mesh of one dimension, ``hidden`` and ``target`` plain tensors alike on
        every process or DTensors on that mesh. Loss and counts are plain tensors, the same on every
        process; each gradient is placed as its operand is.

        The logits are held, and `as_cross_entropy` computes the loss, where they are few, under
        ``torch.func`` and in forward-mode differentiation. Elsewhere the function is a graph break
        inside ``torch.compile``.

    Source: paper, section III; computing gradients chunk by chunk in forward is Liger-Kernel's idea
        (arXiv 2410.10989).

    Examples:
        >>> import torch
        >>> from torch.nn import functional as F
        >>> from as_lightning.functional import as_cross_entropy
        >>> hidden, weight, target = torch.randn(8, 4), torch.randn(1000, 4), torch.randint(1000, (8,))
        >>> loss = as_linear_cross_entropy(hidden, weight, target, delta=0.5)
        >>> torch.allclose(loss, as_cross_entropy(F.linear(hidden, weight), target, delta=0.5), atol=1e-6)
        True
    """
    delta = check_delta(delta)
    check_reduction(reduction)
    operands = HeadOperands(hidden, head_weight, bias, target, weight)
    dtype = check_head(operands)
    holds_logits = transformed() or has_tangent(hidden, head_weight, bias) or recorded(hidden)
    if holds_logits:
        refuse_transforms(**operands._asdict())
    (hidden, head_weight, bias, target, weight), shard = local_head(operands)
    shape, classes = target.shape, operands.head_weight.size(0)
    hidden = hidden.reshape(target.numel(), hidden.size(-1))
    target, ignored = safe_targets(target.reshape(-1), classes, ignore_index)
    if shard is None and (holds_logits or dense_is_faster(target.numel(), head_weight)):
        if ignored is not None:  # the weight's gradient is a product with all hidden states
            hidden = hidden.masked_fill(ignored.unsqueeze(-1), 0.0)
        rows = ClassRows(F.linear(hidden, head_weight, bias), target, ignored, classes)
        loss, counts = kernel(rows.logits, None)(rows, delta, weight, reduction, return_counts)
    else:
        loss, masked = _fused_loss(
            hidden, head_weight, bias, target, ignored, weight, delta, dtype, reduction, shard
        )
        counts = counts_of_rows(masked, ignored, classes) if return_counts else None
    loss = loss.to(loss_dtype(dtype, hidden.device))
    loss = loss.reshape(shape) if reduction == "none" else loss
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
    ``torch.nn.functional.linear_cross_entropy`` (2.13 and later): ``weight`` holds class weights,
    and ``label_smoothing`` other than 0 raises ``ValueError``. The page "Wide output layers" lists
    the differences.

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
    settings: dict[str, Any] = {
        "weight": weight,
        "ignore_index": ignore_index,
        "reduction": reduction,
    }
    return as_linear_cross_entropy(input, linear_weight, target, 1.0, bias=linear_bias, **settings)


def check_label_smoothing(label_smoothing: float) -> None:
    """Raise ``ValueError`` unless ``label_smoothing`` is 0."""
    if label_smoothing:
        raise ValueError(
            f"label_smoothing must be 0, got {label_smoothing!r}: a smoothed target has a share in "
            "every class, and "
            "this head keeps one target class per row; use F.cross_entropy(F.linear(input, "
            "linear_weight, "
            "linear_bias), target, label_smoothing=...)"
        )


def why_not_linear(head: nn.Module, *, hooks: bool) -> str | None:
    """Why a module's logits are not ``hidden @ head.weight.T + head.bias``; None if they are.

    Without ``hooks``, the only hooks it may have watch it or place its operands.
    """
    head_type = type_before_parametrizations(head)
    if "forward" in vars(head):
        return f"the forward of this {head_type.__name__} has been replaced"
    if head_type is not nn.Linear:
        return f"it is {head_type.__name__}, whose forward may compute something else"
    if (
        head._forward_pre_hooks
        and "weight" not in head._parameters
        and not is_parametrized(head, "weight")
    ):
        return (
            "a hook makes its weight (pruning, nn.utils.spectral_norm), which would not be called"
        )
    kinds = (
        head._forward_hooks,
        head._forward_pre_hooks,
        head._backward_hooks,
        head._backward_pre_hooks,
    )
    modules = [
        getattr(getattr(hook, "func", hook), "__module__", "")
        for kind in kinds
        for hook in kind.values()
    ]
    if (
        hooks or not modules
    ):  # before the weight is read, which may update a parametrization (spectral_norm)
        return None
    harmless: tuple[str, ...] = ("lightning.pytorch.profilers.",)  # watch every module
    if isinstance(head.weight, DTensor):
        harmless += (
            "torch.distributed.tensor.",
        )  # place input and output, as parallelize_module has it
    return (
        None
        if all(module.startswith(harmless) for module in modules)
        else "it has hooks, which would not be called"
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
    shard: ClassShard | None,
) -> tuple[Tensor, Tensor]:
    """The reduced loss of the rows that are not ignored, and the masked competitors of each row."""
    rows, active = target.size(0), None if ignored is None else (~ignored).nonzero().squeeze(-1)
    if active is not None and active.numel() == rows:
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
    settings = HeadSettings(
        target, row_weight, delta, dtype, reduction == "none", shard, differentiated
    )
    with torch.autocast(hidden.device.type, enabled=False):
        loss, masked = HeadLoss.apply(*head, settings)
    if active is not None:
        masked = masked.new_zeros(rows).index_copy(0, active, masked)
        if reduction == "none":
            loss = loss.new_zeros(rows).index_copy(0, active, loss)
    if reduction == "mean" and target.numel() == 0:
        loss = loss + torch.nan  # the mean over no row, as F.cross_entropy has it
    return loss, masked


def check_head(operands: HeadOperands) -> torch.dtype:
    """The dtype of a head's logits, after a check of its operands."""
    hidden, head_weight, bias, target, weight = operands
    required = {"the hidden states": hidden, "the head's weight": head_weight, "target": target}
    for name, x in (
        required.items() if bias is None else (required | {"the head's bias": bias}).items()
    ):
        check_tensor(name, x)
    if head_weight.dim() != 2 or hidden.dim() == 0 or hidden.size(-1) != head_weight.size(1):
        raise ValueError(
            "the hidden states must have shape (..., d) and the head's weight (C, d), got "
            f"{tuple(hidden.shape)} and "
            f"{tuple(head_weight.shape)}"
        )
    if bias is not None and bias.shape != head_weight.shape[:1]:
        raise ValueError(
            f"the head's bias must have shape ({head_weight.size(0)},), one number per class, got "
            f"{tuple(bias.shape)}"
        )
    check_index_dtype(target, hidden.shape[:-1])
    if target.shape != hidden.shape[:-1]:
        raise ValueError(
            f"target must have shape {tuple(hidden.shape[:-1])}, that of the hidden states without "
            "their last "
            f"dimension, got {tuple(target.shape)}"
        )
    check_class_weight(weight, head_weight.size(0))
    check_one_device(**operands._asdict())
    dtypes = [
        x.dtype for x in (operands.hidden, operands.head_weight, operands.bias) if x is not None
    ]
    for dtype in dtypes:
        if dtype not in DTYPES:
            raise TypeError(
                "the hidden states and the head must be floating-point tensors, float32, float64, "
                "bfloat16 or float16, "
                f"got {dtype}: convert them, as in hidden.to(torch.bfloat16)"
            )
    autocast = autocast_dtype(hidden.device)
    if autocast is not None and hidden.dtype != torch.float64:
        return autocast
    if len(set(dtypes)) > 1:
        raise TypeError(
            f"the hidden states, the head's weight and its bias must have one dtype, got "
            f"{', '.join(map(str, dtypes))}: convert them, or use torch.autocast"
        )
    return hidden.dtype
