r"""The row pass of logits whose classes are spread over processes.

Each process holds the logits of its own classes for all rows. Three small all-reduces a chunk of rows join them: the
largest logit; the sum of the exponentials and the target's logit; what the margin keeps. Each has one or two numbers a
row, and none has a size or an order that depends on the values of the logits, so that the processes cannot part ways.

.. math:: M = \max_r \max_i o_i, \quad S = \sum_r \sum_i e^{o_i - M}, \quad p_t = e^{o_t - M} / S

With these every process masks its own classes by the threshold :math:`o_i \ge o_t + \log(1 - \delta / p_t)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed
from torch import Tensor
from torch.autograd.function import once_differentiable

from as_lightning.functional.masking import keep_threshold
from as_lightning.functional.rows import accumulation_dtype, block_size, blocks, graph_is_kept


@dataclass(frozen=True)
class ClassShard:
    """Which classes this process holds, and the processes that hold the others.

    Attributes:
        group: the processes that share the classes.
        first: the first class of this process.
        classes: the number of classes of all processes.
        widest: the largest number of classes of one process: every process sizes its chunks of rows by it.
    """

    group: torch.distributed.ProcessGroup
    first: int
    classes: int
    widest: int

    def all_reduce_sum(self, x: Tensor) -> Tensor:
        """Sum over the processes, in place."""
        torch.distributed.all_reduce(x, op=torch.distributed.ReduceOp.SUM, group=self.group)
        return x

    def all_reduce_max(self, x: Tensor) -> Tensor:
        """Maximum over the processes, in place."""
        torch.distributed.all_reduce(x, op=torch.distributed.ReduceOp.MAX, group=self.group)
        return x


def shard_unit_gradient(logits: Tensor, target: Tensor, delta: float, shard: ClassShard) -> tuple[Tensor, Tensor]:
    """The loss of each row and the number of classes it keeps; the gradient of this process's logits overwrites them.

    Loss and kept classes are those of all classes and are the same on every process. What is written over a fully
    masked row (it keeps one class) means nothing.

    Args:
        logits: those of this process's classes, shape ``(N, C_local)``; ``C_local`` may be 0.
        target: class indices among all classes, in range, shape ``(N)``, the same on every process.
        delta: the margin.
        shard: which classes these are.
    """
    dtype = accumulation_dtype(logits.dtype)
    local_target = target - shard.first
    owned = ((local_target >= 0) & (local_target < logits.size(1))).nonzero().squeeze(-1)
    owned_class = local_target.index_select(0, owned)

    peak = shard.all_reduce_max(_row_maximum(logits).to(dtype))
    sums = peak.new_zeros(2, peak.numel())
    total, target_score = sums
    for piece in _pieces(logits):
        torch.sum((logits[piece].to(dtype) - peak[piece].unsqueeze(-1)).exp_(), -1, out=total[piece])
    target_score[owned] = logits[owned, owned_class].to(dtype) - peak[owned]
    shard.all_reduce_sum(sums)

    log_p_target = target_score - total.log()
    threshold = keep_threshold(target_score, log_p_target, delta)
    masked = threshold == torch.inf
    unmasked = ~(threshold > -torch.inf)  # NaN too: it must reach the loss
    # float64 counts classes exactly
    kept_sums = torch.zeros(2, peak.numel(), dtype=torch.float64, device=logits.device)
    kept_p, kept = kept_sums
    for index in _picked(unmasked, logits):
        p = _probabilities(logits, index, peak, total)
        logits.index_copy_(0, index, p.to(logits.dtype))
    mixed = ~(masked | unmasked)
    for index in _picked(mixed, logits):
        scores = logits.index_select(0, index).to(dtype) - peak.index_select(0, index).unsqueeze(-1)
        dropped = scores < threshold.index_select(0, index).unsqueeze(-1)
        p = scores.exp_().div_(total.index_select(0, index).unsqueeze(-1)).masked_fill_(dropped, 0.0)
        kept_p[index] = p.sum(-1, dtype=torch.float64)
        kept[index] = (logits.size(1) - dropped.sum(-1)).double()
        logits.index_copy_(0, index, p.to(logits.dtype))
    shard.all_reduce_sum(kept_sums)

    kept.masked_fill_(masked, 1.0).masked_fill_(unmasked, float(shard.classes))
    kept_p = kept_p.to(dtype).masked_fill_(~mixed, 1.0)
    for index in _picked(mixed & (kept > 1), logits):
        q = logits.index_select(0, index).to(dtype).div_(kept_p.index_select(0, index).unsqueeze(-1))
        logits.index_copy_(0, index, q.to(logits.dtype))
    logits[owned, owned_class] -= 1.0
    loss = kept_p.log_().sub_(log_p_target).clamp_(min=0.0).masked_fill_(kept == 1, 0.0)
    return loss, kept.long()


def _row_maximum(logits: Tensor) -> Tensor:
    if logits.size(1) == 0:
        return logits.new_full(logits.shape[:1], -torch.inf)
    return logits.amax(-1)


def _pieces(logits: Tensor) -> list[slice]:
    size = block_size(logits.size(0), logits.size(1), logits.device)
    return [slice(start, stop) for start, stop in blocks(logits.size(0), size)]


def _picked(rows: Tensor, logits: Tensor) -> list[Tensor]:
    """The indices of the chosen rows, a block at a time."""
    index = rows.nonzero().squeeze(-1)
    return list(index.split(block_size(index.numel(), logits.size(1), logits.device))) if index.numel() else []


def _probabilities(logits: Tensor, index: Tensor, peak: Tensor, total: Tensor) -> Tensor:
    scores = logits.index_select(0, index).to(peak.dtype).sub_(peak.index_select(0, index).unsqueeze(-1))
    return scores.exp_().div_(total.index_select(0, index).unsqueeze(-1))


class ShardRowLoss(torch.autograd.Function):
    """The unweighted loss of each row and the classes it keeps, from this process's part of the logits.

    The upstream gradient has to be the same on every process, as that of a replicated loss is. It can be
    differentiated once.
    """

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, target: Tensor, ignored: Tensor, delta: float, shard: ClassShard
    ) -> tuple[Tensor, Tensor]:
        gradient = rows.clone(memory_format=torch.contiguous_format)
        loss, kept = shard_unit_gradient(gradient, target, delta, shard)
        kept.masked_fill_(ignored, shard.classes)
        gradient.index_fill_(0, ((kept == 1) | ignored).nonzero().squeeze(-1), 0.0)
        ctx.save_for_backward(gradient)
        ctx.mark_non_differentiable(kept)
        return loss.masked_fill_(ignored, 0.0), kept

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor, None, None, None, None]:
        (gradient,) = ctx.saved_tensors
        scale = grad_loss.unsqueeze(-1).to(gradient.dtype)
        return (gradient * scale if graph_is_kept() else gradient.mul_(scale)), None, None, None, None
