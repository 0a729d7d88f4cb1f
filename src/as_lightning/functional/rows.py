r"""The three kinds of rows, and no more work on each than its kind needs.

A row's kind follows from its target's probability :math:`p_t` alone:

* *unmasked*, :math:`p_t \le \delta`: every class is kept, so it is a row of ordinary cross-entropy;
* *fully masked*, :math:`p_t > (1 + \delta) / 2`: no competitor can be kept (:math:`p_i \le 1 - p_t`), so loss and
  gradient are exactly 0;
* *mixed*: only these need a second look at their logits.

One number a row holds all of it: the smallest logit that the row keeps (``keep_threshold``), :math:`-\infty` for an
unmasked row and :math:`+\infty` for a fully masked one. Forward and backward compare the same logits with the same
numbers, so they cannot disagree about a class on the edge.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from as_lightning.functional.masking import keep_threshold

# Elements of a block of rows for each CPU thread: 2 MiB of float32, so that what is written stays in the cache until it
# is read. (From 256 KiB to 4 MiB the speed is the same; larger blocks wait less often for all threads to finish.) On
# other devices a block only bounds the temporary memory.
CPU_BLOCK_PER_THREAD = 1 << 19
DEVICE_BLOCK = 1 << 26


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which a loss of logits of ``dtype`` is computed."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def block_size(rows: int, classes: int, device: torch.device) -> int:
    """How many rows to take at a time: what fits the block, and a row for every thread."""
    if device.type != "cpu":
        return max(1, min(rows, DEVICE_BLOCK // max(classes, 1)))
    threads = torch.get_num_threads()
    return max(1, min(rows, max(CPU_BLOCK_PER_THREAD * threads // max(classes, 1), threads)))


def blocks(rows: int, size: int) -> Iterator[tuple[int, int]]:
    """The ``(start, stop)`` of consecutive blocks of ``size`` rows."""
    return ((start, min(start + size, rows)) for start in range(0, rows, size))


def target_log_probability(rows: Tensor, target: Tensor) -> Tensor:
    r""":math:`\log p_t` of each row, without holding the log-probabilities of more than a block.

    Args:
        rows: logits, shape ``(N, C)``.
        target: class indices in range, shape ``(N)``.
    """
    count, classes = rows.shape
    dtype = accumulation_dtype(rows.dtype)
    result = rows.new_empty((count, 1), dtype=dtype)
    index = target.unsqueeze(-1)
    size = block_size(count, classes, rows.device)
    buffer = rows.new_empty((size, classes), dtype=dtype)
    for start, stop in blocks(count, size):
        out = torch.log_softmax(rows[start:stop].to(dtype), -1, out=buffer[: stop - start])
        torch.gather(out, -1, index[start:stop], out=result[start:stop])
    return result.squeeze(-1)


def kept_log_softmax(block: Tensor, threshold: Tensor) -> tuple[Tensor, Tensor]:
    """Log-softmax over the kept classes of a block of mixed rows, ``-inf`` on the others, and the mask of those.

    Args:
        block: logits in the accumulation dtype, shape ``(N, C)``; overwritten.
        threshold: finite thresholds, shape ``(N)``.
    """
    dropped = block < threshold.unsqueeze(-1)
    return torch.log_softmax(block.masked_fill_(dropped, -torch.inf), -1), dropped


def margin_of_rows(
    rows: Tensor, target: Tensor, ignored: Tensor | None, delta: float, *, pick: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The loss of each row, the threshold that tells its kind, and the number of classes it keeps.

    An ignored row has the threshold of a fully masked one and keeps every class.

    Args:
        rows: logits, shape ``(N, C)``.
        target: class indices in range, shape ``(N)``.
        ignored: rows that take no part, boolean, shape ``(N)``.
        delta: the margin.
        pick: pick the mixed rows out, which reads their number from the device, instead of masking the others.
    """
    log_probability = target_log_probability(rows, target)
    target_logit = rows.gather(-1, target.unsqueeze(-1)).squeeze(-1).to(log_probability.dtype)
    threshold = keep_threshold(target_logit, log_probability, delta)
    masked = threshold == torch.inf
    kept = torch.where(masked, 1, rows.size(-1))
    if ignored is not None:
        kept.masked_fill_(ignored, rows.size(-1))
        threshold.masked_fill_(ignored, torch.inf)
        masked |= ignored
    loss = (0.0 - log_probability).masked_fill_(masked, 0.0)
    second_look = _pick_mixed if pick else _mask_mixed
    second_look(rows, target, threshold, loss, kept)
    threshold.masked_fill_(kept == 1, torch.inf)  # a mixed row may turn out to keep its target alone
    return loss, threshold, kept


def gradient_of_block(
    block: Tensor, target: Tensor, scale: Tensor, threshold: Tensor | None, out: Tensor | None = None
) -> Tensor:
    """``scale * (q - one_hot(target))`` of rows that keep more than their target.

    Args:
        block: logits in the accumulation dtype, shape ``(N, C)``.
        target: shape ``(N)``.
        scale: upstream gradient of each row's loss, shape ``(N)``.
        threshold: shape ``(N)``, or None where no row is mixed.
        out: written to, where given.
    """
    if threshold is not None:
        block = block.masked_fill(block < threshold.unsqueeze(-1), -torch.inf)
    q = torch.softmax(block, -1, out=out)
    scale = scale.unsqueeze(-1)
    return q.mul_(scale).scatter_add_(-1, target.unsqueeze(-1), -scale)


class RowLoss(torch.autograd.Function):
    """The unweighted loss of each row and the number of classes that it keeps.

    Only the logits themselves and one number a row are saved for backward. Blocks of rows keep temporaries small: the
    only new memory of the logits' size is the gradient.

    On the CPU the rows of each kind are picked out, so that a mixed row costs a second look and a fully masked one no
    backward at all. On other devices picking would make the host wait for the device, so the same is done with masks.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, target: Tensor, ignored: Tensor, delta: float) -> tuple[Tensor, Tensor]:
        loss, threshold, kept = margin_of_rows(rows, target, ignored, delta, pick=rows.device.type == "cpu")
        ctx.save_for_backward(rows, target, threshold)
        ctx.mark_non_differentiable(kept)
        return loss, kept

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor | None, None, None, None]:
        rows, target, threshold = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: the gradient must be differentiable itself
            return plain_gradient(rows, target, threshold, grad_loss), None, None, None
        gradient = _pick_gradient if rows.device.type == "cpu" else _mask_gradient
        return gradient(rows, target, threshold, grad_loss), None, None, None


def _pick_mixed(rows: Tensor, target: Tensor, threshold: Tensor, loss: Tensor, kept: Tensor) -> None:
    mixed = (threshold.abs() < torch.inf).nonzero().squeeze(-1)
    for start, stop in blocks(mixed.numel(), block_size(mixed.numel(), rows.size(-1), rows.device)):
        index = mixed[start:stop]
        block = rows.index_select(0, index).to(loss.dtype)
        log_q, dropped = kept_log_softmax(block, threshold.index_select(0, index))
        target_log_q = log_q.gather(-1, target.index_select(0, index).unsqueeze(-1)).squeeze(-1)
        loss.index_copy_(0, index, 0.0 - target_log_q)
        kept.index_copy_(0, index, rows.size(-1) - dropped.sum(-1))


def _mask_mixed(rows: Tensor, target: Tensor, threshold: Tensor, loss: Tensor, kept: Tensor) -> None:
    mixed = threshold.abs() < torch.inf
    threshold = threshold.masked_fill(~mixed, -torch.inf)
    for start, stop in blocks(rows.size(0), block_size(rows.size(0), rows.size(1), rows.device)):
        block = rows[start:stop].to(loss.dtype, copy=True)
        log_q, dropped = kept_log_softmax(block, threshold[start:stop])
        target_log_q = log_q.gather(-1, target[start:stop].unsqueeze(-1)).squeeze(-1)
        loss[start:stop] = torch.where(mixed[start:stop], 0.0 - target_log_q, loss[start:stop])
        kept[start:stop] = torch.where(mixed[start:stop], rows.size(-1) - dropped.sum(-1), kept[start:stop])


def _pick_gradient(rows: Tensor, target: Tensor, threshold: Tensor, grad_loss: Tensor) -> Tensor:
    count, classes = rows.shape
    live = (threshold != torch.inf).nonzero().squeeze(-1)
    all_live, any_mixed = live.numel() == count, bool((threshold.abs() < torch.inf).any())
    gradient = torch.empty_like(rows) if all_live else torch.zeros_like(rows)
    size = block_size(live.numel(), classes, rows.device)
    buffer = rows.new_empty((size, classes), dtype=threshold.dtype)
    for start, stop in blocks(live.numel(), size):
        index = live[start:stop]
        block = (rows[start:stop] if all_live else rows.index_select(0, index)).to(threshold.dtype)
        row_threshold = threshold.index_select(0, index) if any_mixed else None
        scale, row_target = grad_loss.index_select(0, index), target.index_select(0, index)
        block_gradient = gradient_of_block(block, row_target, scale, row_threshold, out=buffer[: stop - start])
        if all_live:
            gradient[start:stop] = block_gradient
        else:
            gradient.index_copy_(0, index, block_gradient.to(gradient.dtype))
    return gradient


def _mask_gradient(rows: Tensor, target: Tensor, threshold: Tensor, grad_loss: Tensor) -> Tensor:
    masked = threshold == torch.inf
    threshold, scale = threshold.masked_fill(masked, -torch.inf), grad_loss.masked_fill(masked, 0.0)
    gradient = torch.empty_like(rows)
    for start, stop in blocks(rows.size(0), block_size(rows.size(0), rows.size(1), rows.device)):
        piece = slice(start, stop)
        block = gradient_of_block(rows[piece].to(threshold.dtype), target[piece], scale[piece], threshold[piece])
        # an ignored row of NaN is 0, not NaN
        gradient[piece] = block.masked_fill_(masked[piece].unsqueeze(-1), 0.0)
    return gradient


def plain_row_loss(rows: Tensor, target: Tensor, ignored: Tensor, delta: float) -> tuple[Tensor, Tensor]:
    """What :class:`RowLoss` computes, as a few whole-tensor operations that any transform can trace.

    It is the path of ``torch.compile``, which fuses them, and of ``torch.func``.
    """
    rows = rows.to(accumulation_dtype(rows.dtype)).masked_fill(ignored.unsqueeze(-1), 0.0)
    # relative to the largest logit, which is always kept, one pass of exponentials serves both sums
    scores = rows - rows.detach().amax(-1, keepdim=True)
    target_score = scores.gather(-1, target.unsqueeze(-1))
    with torch.no_grad():
        threshold = keep_threshold(target_score, target_score - scores.exp().sum(-1, keepdim=True).log(), delta)
        masked = (threshold == torch.inf) | ignored.unsqueeze(-1)
        dropped = scores < threshold.masked_fill(masked, -torch.inf)
        kept = torch.where(masked, 1, rows.size(-1) - dropped.sum(-1, keepdim=True)).squeeze(-1)
    loss = scores.exp().masked_fill(dropped, 0.0).sum(-1, keepdim=True).log() - target_score
    return loss.masked_fill(masked, 0.0).squeeze(-1), kept.masked_fill(ignored, rows.size(-1))


def plain_gradient(rows: Tensor, target: Tensor, threshold: Tensor, grad_loss: Tensor) -> Tensor:
    """The gradient of the row losses by operations that can be differentiated again."""
    masked = (threshold == torch.inf).unsqueeze(-1)
    scores = rows.to(threshold.dtype).masked_fill(masked, 0.0)
    dropped = (scores < threshold.unsqueeze(-1)) & ~masked
    q = scores.masked_fill(dropped, -torch.inf).softmax(-1)
    one_hot = torch.zeros_like(q).scatter_(-1, target.unsqueeze(-1), 1.0)
    return ((q - one_hot) * grad_loss.unsqueeze(-1)).masked_fill(masked, 0.0).to(rows.dtype)
