"""What the losses of a linear head refuse before they compute. Each message uses the caller's names of the operands."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from as_lightning.functional.argument_checks import check_class_weight, check_one_device, check_tensors
from as_lightning.functional.calling_convention import autocast_dtype, check_index_dtype

# hidden states, weight, bias, target and class weights
HeadOperands = tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor | None]
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


class HeadNames(NamedTuple):
    """What a function calls hidden states, weight and bias of a head, target and class weights."""

    hidden: str = "hidden"
    weight: str = "weight"
    bias: str = "bias"
    target: str = "target"
    class_weight: str = "class_weight"


def check_head(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    class_weight: Tensor | None = None,
    names: HeadNames | None = None,
) -> torch.dtype:
    """The dtype of a head's logits, after a check of all of its operands.

    Args:
        hidden: shape ``(..., d)``.
        weight: shape ``(C, d)``.
        bias: shape ``(C)``.
        target: class indices, shape ``(...)``.
        class_weight: a weight per class, shape ``(C)``.
        names: those of the caller's arguments, for the messages.

    Raises:
        TypeError: if an operand is no tensor, or of a dtype that is not supported beside the others.
        ValueError: if the shapes do not fit, or the operands are on several devices.
        RuntimeError: if a gradient of the class weights is asked for, which ``F.cross_entropy`` has not either.
    """
    names = names or HeadNames()
    operands = dict(zip(names, (hidden, weight, bias, target, class_weight), strict=True))
    check_tensors(**{name: x for name, x in operands.items() if x is not None or name in _required(names)})
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
    if class_weight is not None and class_weight.requires_grad and torch.is_grad_enabled():
        raise RuntimeError(
            f"{names.class_weight} must not require a gradient: class weights are constants, as in F.cross_entropy; "
            f"pass {names.class_weight}.detach()"
        )
    check_one_device(**operands)
    return _logits_dtype(hidden, weight, bias, names)


def _required(names: HeadNames) -> tuple[str, ...]:
    return names.hidden, names.weight, names.target


def _logits_dtype(hidden: Tensor, weight: Tensor, bias: Tensor | None, names: HeadNames) -> torch.dtype:
    floating = {names.hidden: hidden, names.weight: weight, names.bias: bias}
    dtypes = {name: x.dtype for name, x in floating.items() if x is not None}
    for name, dtype in dtypes.items():
        if not dtype.is_floating_point:
            raise TypeError(f"{name} must be a floating-point tensor, got {dtype}")
        if dtype not in DTYPES:
            raise TypeError(
                f"{name} must be float32, float64, bfloat16 or float16, got {dtype}: convert it, as in "
                f"{name}.to(torch.bfloat16)"
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
