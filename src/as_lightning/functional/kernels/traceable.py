r"""The masked loss as a few whole-tensor operations, which every transform of PyTorch understands.

The masked classes get a logit so low that their exponential is 0, and ``F.cross_entropy`` does the rest. Few logits on
the CPU take this path too: the number of operations is their cost.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from as_lightning.functional.calling_convention import ClassRows, widened
from as_lightning.functional.counts import MaskingCounts, counts_of_rows
from as_lightning.functional.masking import masked_by_delta
from as_lightning.functional.tracing import certain, recorded, traced

# Up to so many logits, on the CPU, an operation costs more than what it does.
FEW_LOGITS = 1 << 16


def few_logits(rows: Tensor) -> bool:
    """Whether there are so few logits that the number of operations is their cost."""
    return rows.is_cpu and certain(rows.numel() <= FEW_LOGITS)


def traceable_loss(
    batch: ClassRows, delta: float, weight: Tensor | None, reduction: str, counting: bool
) -> tuple[Tensor, MaskingCounts | None]:
    """A `RowsLoss`."""
    rows, target, mask = widened(batch.logits), batch.target, None
    if batch.ignored is not None:  # a NaN there must not reach the gradient
        rows = rows.masked_fill(batch.ignored.unsqueeze(-1), 0.0)
        target = target.masked_fill(batch.ignored, IGNORED)
    if delta < 1.0:
        probability = rows.detach().softmax(-1)
        target_probability = probability.gather(-1, batch.target.unsqueeze(-1))
        # transforms refuse to write in place, fake tensors the constant that it takes
        in_place = not (traced() or recorded(rows))
        mask = masked_by_delta(probability, target_probability, delta, in_place=in_place)
        # A logit of -inf in effect: its exponential is exactly 0. The derivative of a difference is no work in
        # backward, where that of masked_fill is another pass.
        penalised = mask if mask.dtype == rows.dtype else mask.to(rows.dtype)
        rows = torch.sub(rows, penalised, alpha=FAR_BELOW[rows.dtype])
    if weight is not None:
        weight = weight.to(rows.dtype)
    loss = F.cross_entropy(rows, target, weight=weight, ignore_index=IGNORED, reduction=reduction)
    loss = loss + 0.0 if reduction == "none" else loss  # of a fully masked row it is -0.0
    counts = counts_of_rows(_masked(mask, batch), batch.ignored, batch.classes) if counting else None
    return loss, counts


# what is taken from the logit of a masked class
FAR_BELOW = {dtype: torch.finfo(dtype).max / 2 for dtype in (torch.float32, torch.float64)}
# what ignored rows hold when they reach F.cross_entropy: no class index, whatever the caller's ignore_index is
IGNORED = -100


def _masked(mask: Tensor | None, batch: ClassRows) -> Tensor:
    """The number of masked competitors of each row, shape ``(R,)``, 0 where it is ignored."""
    if mask is None:
        return torch.zeros_like(batch.target)
    masked = mask.sum(-1)
    return masked if batch.ignored is None else masked.masked_fill(batch.ignored, 0)
