"""The reductions of the losses, named as in :mod:`torch.nn.functional`."""

from __future__ import annotations

import torch
from torch import Tensor

REDUCTIONS = ("none", "mean", "sum")


def check_reduction(reduction: str) -> str:
    """Return ``reduction``, or raise ``ValueError`` where it is not one of the three."""
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction must be one of {', '.join(map(repr, REDUCTIONS))}, got {reduction!r}")
    return reduction


def check_class_weight(weight: Tensor | None, num_classes: int) -> None:
    """Raise unless ``weight`` is ``None`` or holds one floating-point weight per class."""
    if weight is None:
        return
    if not weight.is_floating_point():
        raise TypeError(f"weight must be a floating-point tensor, got {weight.dtype}")
    if weight.shape != (num_classes,):
        raise ValueError(f"weight must hold one weight per class, shape ({num_classes},), got {tuple(weight.shape)}")


def reduce_rows(
    loss: Tensor,
    target: Tensor,
    ignored: Tensor | None,
    *,
    weight: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Weigh, drop and reduce one loss a row exactly as :func:`torch.nn.functional.cross_entropy` does.

    Args:
        loss: the loss of each row, shape ``(R,)``.
        target: class indices in range, also on ignored rows, shape ``(R,)``.
        ignored: rows that do not count, boolean, shape ``(R,)``: their loss and their gradient are 0, and the mean is
            over the others (over their weights). None where there is none.
        weight: a weight per class.
        reduction: ``"none"``, ``"mean"`` or ``"sum"``.

    Returns:
        Shape ``(R,)`` with ``"none"``, else a scalar. The mean over no row at all is NaN.
    """
    if ignored is not None:
        loss = loss.masked_fill(ignored, 0.0)
    if weight is None and ignored is None:
        return loss if reduction == "none" else loss.sum() if reduction == "sum" else loss.mean()
    row_weight = torch.ones_like(loss) if weight is None else weight.to(loss.dtype)[target]
    if ignored is not None:
        row_weight = row_weight.masked_fill(ignored, 0.0)
    if weight is not None:
        loss = loss * row_weight
    if reduction == "none":
        return loss
    return loss.sum() if reduction == "sum" else loss.sum() / row_weight.sum()


def loss_dtype(dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """The dtype of the loss of logits of ``dtype``: theirs, or under autocast float32, as ``F.cross_entropy``'s is."""
    half = dtype in (torch.float16, torch.bfloat16)
    return torch.float32 if half and torch.is_autocast_enabled(device.type) else dtype
