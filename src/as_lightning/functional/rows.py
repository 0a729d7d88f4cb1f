r"""The loss and the gradient of rows of logits, from one softmax.

Everything that the margin decides can be read off the probabilities: class ``i`` is kept iff
:math:`p_i \ge p_t - \delta`, and the softmax over the kept classes is :math:`q_i = p_i / \sum_{\text{kept}} p`. The
target's probability alone settles two kinds of rows:

* *unmasked*, :math:`p_t \le \delta`: every class is kept and ``q`` is ``p``: a row of ordinary cross-entropy;
* *fully masked*, :math:`p_t > (1 + \delta) / 2`: no competitor can be kept (:math:`p_i \le 1 - p_t`), so loss and
  gradient are exactly 0;
* *mixed*: only these need a second look at their probabilities; they keep some competitors or none.

The gradient of a row's loss, :math:`q - \operatorname{onehot}(t)`, is finished in forward, while the probabilities are
in the cache; backward multiplies it by the upstream gradient. ``F.cross_entropy`` takes two passes of exponentials
(one in forward, one in backward) where this takes one.
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
# Up to so many logits, on the CPU, an operation costs more than what it does.
FEW_LOGITS = 1 << 15


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


def picks_rows(device: torch.device) -> bool:
    """Whether rows of a kind are picked out: where it costs no waiting for the device."""
    return device.type == "cpu"


def few_logits(rows: Tensor) -> bool:
    """Whether there are so few logits that the number of operations is their cost."""
    return rows.numel() <= FEW_LOGITS


def unit_gradient(
    logits: Tensor, target: Tensor, ignored: Tensor | None, delta: float, out: Tensor, *, pick: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The loss of each row, the number of classes it keeps, and whether it is live; writes its gradient into ``out``.

    A row is live if it has a gradient: it is neither ignored nor fully masked. What ``out`` holds for other rows means
    nothing. An ignored row has loss 0 and keeps every class.

    Args:
        logits: one block, shape ``(N, C)``.
        target: class indices in range, shape ``(N)``.
        ignored: rows that take no part, boolean, shape ``(N)``; None where there is none.
        delta: the margin.
        out: shape ``(N, C)``, of the accumulation dtype; may be ``logits`` itself.
        pick: pick out the rows that need a second look, which reads their number from the device; otherwise all rows
            get it.
    """
    column = target.unsqueeze(-1)
    if pick:
        p, p_target, log_p_target = _softmax(logits, column, out)
    else:
        log_p = torch.log_softmax(logits.to(out.dtype), -1)
        log_p_target = log_p.gather(-1, column)
        p = torch.exp(log_p, out=out)
        p_target = p.gather(-1, column)
    loss = (0.0 - log_p_target).squeeze(-1).clamp_(min=0.0)
    kept = torch.full_like(target, p.size(-1))
    live = torch.ones_like(target, dtype=torch.bool)
    if delta < 1.0:
        second_look = _pick_mixed if pick else _mask_mixed
        live = second_look(p, p_target.squeeze(-1), delta, loss, kept)
    if ignored is not None:
        kept.masked_fill_(ignored, p.size(-1))
        live = live & ~ignored
    p.scatter_add_(-1, column, p.new_full((), -1.0).expand_as(column))
    return loss.mul_(live) if pick else loss.masked_fill_(~live, 0.0), kept, live


def _softmax(logits: Tensor, column: Tensor, out: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The probabilities in ``out`` (which may be ``logits``), the target's, and the target's logarithm."""
    target_logit, peak = logits.gather(-1, column), logits.amax(-1, keepdim=True) if out is logits else None
    p = torch.softmax(logits.to(out.dtype), -1, out=out)
    p_target = p.gather(-1, column)
    # of a probability that is right to the last digits the logarithm is too: no second exponential is needed
    log_p_target = p_target.log()
    small = p_target < _SMALL[p.dtype]
    if bool(small.any()):  # digits were lost to underflow; the largest probability has lost none
        peak = logits.amax(-1, keepdim=True) if peak is None else peak
        exact = (target_logit - peak).to(p.dtype) + p.amax(-1, keepdim=True).log()
        log_p_target = torch.where(small, exact, log_p_target)
    return p, p_target, log_p_target


def _few_logits(
    rows: Tensor, target: Tensor, ignored: Tensor | None, delta: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What :func:`losses_and_gradient` gives, in as few operations as can be: of few logits they cost, not the work.

    The fully masked rows need no care: where the target alone is kept, ``q`` is 1 and the loss ``log(p) - log(p)``.
    """
    column = target.unsqueeze(-1)
    logits = rows.to(accumulation_dtype(rows.dtype))
    p, p_target, log_p_target = _softmax(logits, column, torch.empty_like(logits))
    kept = torch.full_like(target, p.size(-1))
    if delta < 1.0:
        dropped = p < torch.where(p_target > delta, p_target - delta, 0.0)
        total = p.masked_fill_(dropped, 0.0).sum(-1, keepdim=True)
        p.div_(total)
        kept.sub_(dropped.sum(-1))
        log_p_target = log_p_target.where(kept.unsqueeze(-1) == p.size(-1), log_p_target - total.log())
    loss = (0.0 - log_p_target).squeeze(-1).clamp_(min=0.0)
    p.scatter_add_(-1, column, p.new_full((), -1.0).expand_as(column))
    live = kept > 1
    if ignored is not None:
        live = live & ~ignored
        kept.masked_fill_(ignored, p.size(-1))
        loss.masked_fill_(ignored, 0.0)
        p.masked_fill_(ignored.unsqueeze(-1), 0.0)
    return loss, kept, live, p.to(rows.dtype)


# below, a probability has lost digits to underflow
_SMALL = {dtype: torch.finfo(dtype).tiny / torch.finfo(dtype).eps for dtype in (torch.float32, torch.float64)}


def _pick_mixed(p: Tensor, p_target: Tensor, delta: float, loss: Tensor, kept: Tensor) -> Tensor:
    """Turn ``p`` into ``q`` in mixed rows, add to their loss and set their kept classes; the rows that are live."""
    classes = p.size(-1)
    masked = p_target > (1.0 + delta) / 2.0
    mixed = ((p_target > delta) & ~masked).nonzero().squeeze(-1)
    kept.masked_fill_(masked, 1)
    for start, stop in blocks(mixed.numel(), block_size(mixed.numel(), classes, p.device)):
        index = mixed[start:stop]
        q = p.index_select(0, index)
        dropped = q < (p_target.index_select(0, index) - delta).unsqueeze(-1)
        total = q.masked_fill_(dropped, 0.0).sum(-1)
        p.index_copy_(0, index, q.div_(total.unsqueeze(-1)))
        loss.index_copy_(0, index, total.log_().add_(loss.index_select(0, index)).clamp_(min=0.0))
        kept.index_copy_(0, index, classes - dropped.sum(-1))
    return kept != 1


def _mask_mixed(p: Tensor, p_target: Tensor, delta: float, loss: Tensor, kept: Tensor) -> Tensor:
    """The same with masks, so that the host never waits for the device."""
    margin = torch.where(p_target > delta, p_target - delta, -1.0).unsqueeze(-1)
    dropped = p < margin
    kept.sub_(dropped.sum(-1))
    total = p.masked_fill_(dropped, 0.0).sum(-1, keepdim=True).masked_fill_(margin < 0.0, 1.0)
    p.div_(total)
    loss.add_(total.squeeze(-1).log()).clamp_(min=0.0)
    return kept != 1


def losses_and_gradient(
    rows: Tensor, target: Tensor, ignored: Tensor | None, delta: float, differentiated: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The loss of each row, its kept classes, whether it is live, and (where ``differentiated``) its gradient.

    The gradient is of the dtype of ``rows`` and 0 in rows that are not live.
    """
    count, classes = rows.shape
    if picks_rows(rows.device) and few_logits(rows):
        return _few_logits(rows, target, ignored, delta)
    dtype = accumulation_dtype(rows.dtype)
    loss, kept = rows.new_empty(count, dtype=dtype), torch.empty_like(target)
    live = torch.empty_like(target, dtype=torch.bool)
    gradient = rows.new_empty((count, classes) if differentiated else (0, classes))
    pick = picks_rows(rows.device)
    # the probabilities of all rows can lie where their gradient will, unless that is of another dtype or not wanted
    direct = pick and differentiated and rows.dtype == dtype
    size = max(count, 1) if direct else block_size(count, classes, rows.device)
    buffer = gradient if direct else rows.new_empty((size, classes), dtype=dtype)
    for start, stop in blocks(count, size):
        piece, block = slice(start, stop), buffer[: stop - start]
        loss[piece], kept[piece], live[piece] = unit_gradient(
            rows[piece], target[piece], None if ignored is None else ignored[piece], delta, block, pick=pick
        )
        if differentiated:
            _zero_dead(block, live[piece], pick=pick)
            if not direct:
                gradient[piece] = block
    return loss, kept, live, gradient


class RowLoss(torch.autograd.Function):
    """The unweighted loss of each row, the number of classes that it keeps, and its gradient.

    The gradient is the one tensor of the logits' size that is saved, and backward's answer is written into it.

    On the CPU the rows of each kind are picked out, so that only mixed rows cost a second look. On other devices
    picking would make the host wait for the device, so the same is done with masks.
    """

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, target: Tensor, ignored: Tensor | None, delta: float, differentiated: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        loss, kept, live, gradient = losses_and_gradient(rows, target, ignored, delta, differentiated)
        ctx.save_for_backward(gradient, target, live)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(kept)
        return loss, kept, gradient

    @staticmethod
    def backward(
        ctx: Any, grad_loss: Tensor | None, _: Tensor | None, grad_gradient: Tensor | None
    ) -> tuple[Tensor | None, None, None, None, None]:
        gradient, target, live = ctx.saved_tensors
        if torch.is_grad_enabled() or grad_gradient is not None or graph_is_kept():
            found = None if grad_loss is None else gradient * grad_loss.unsqueeze(-1).to(gradient.dtype)
            if grad_gradient is not None:  # the gradient is a softmax over the kept classes, less a constant
                q = gradient + torch.zeros_like(gradient).scatter_(-1, target.unsqueeze(-1), 1.0)
                second = q * (grad_gradient - (q * grad_gradient).sum(-1, keepdim=True))
                second = second * live.unsqueeze(-1)
                found = second if found is None else found + second
            return found, None, None, None, None
        if grad_loss is None:
            return None, None, None, None, None
        gradient = gradient.detach()  # as an output it has a graph, which the answer must not have
        scale = grad_loss.unsqueeze(-1).to(gradient.dtype)
        many = picks_rows(gradient.device) and not few_logits(gradient)
        picked = live.nonzero().squeeze(-1) if many else None
        if picked is None or 8 * picked.numel() > gradient.size(0):
            return gradient.mul_(scale), None, None, None, None
        if picked.numel():  # most rows are 0 and stay it
            gradient.index_copy_(0, picked, gradient.index_select(0, picked).mul_(scale.index_select(0, picked)))
        return gradient, None, None, None, None


def _zero_dead(gradient: Tensor, live: Tensor, *, pick: bool) -> None:
    """Set the rows that are not live to 0."""
    if not pick:
        gradient.masked_fill_(~live.unsqueeze(-1), 0.0)
        return
    dead = (~live).nonzero().squeeze(-1)
    if dead.numel() == live.numel():
        gradient.zero_()
    elif dead.numel():
        gradient.index_fill_(0, dead, 0.0)


def graph_is_kept() -> bool:
    """Whether the backward that runs now was called with ``retain_graph=True``; True where torch does not tell."""
    tells = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", None)
    return tells is None or tells()


@torch.library.custom_op("as_lightning::row_loss", mutates_args=())
def compiled_row_loss(
    rows: Tensor, target: Tensor, ignored: Tensor, delta: float, differentiated: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """:class:`RowLoss` as one node of a compiled graph: on the CPU faster than what the compiler makes of the formula.

    Returns the losses, the kept classes and the gradient.
    """
    loss, kept, _, gradient = losses_and_gradient(rows, target, ignored, delta, differentiated)
    return loss, kept, gradient


@compiled_row_loss.register_fake
def _(
    rows: Tensor, target: Tensor, ignored: Tensor, delta: float, differentiated: bool
) -> tuple[Tensor, Tensor, Tensor]:
    loss = rows.new_empty(rows.shape[:1], dtype=accumulation_dtype(rows.dtype))
    return loss, torch.empty_like(target), rows.new_empty(rows.shape if differentiated else (0, rows.size(1)))


def _save_gradient(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[2])


def _scaled_gradient(ctx: Any, grad_loss: Tensor, *_: Any) -> tuple[Tensor, None, None, None, None]:
    (gradient,) = ctx.saved_tensors
    return gradient * grad_loss.unsqueeze(-1).to(gradient.dtype), None, None, None, None


compiled_row_loss.register_autograd(_scaled_gradient, setup_context=_save_gradient)


def plain_row_loss(rows: Tensor, target: Tensor, ignored: Tensor, delta: float) -> tuple[Tensor, Tensor]:
    """What :class:`RowLoss` computes, as a few whole-tensor operations that any transform can trace.

    It is the path of ``torch.func``, and of ``torch.compile`` where that makes kernels of its own (not on the CPU).
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
