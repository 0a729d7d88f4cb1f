r"""The loss and the gradient of rows of logits, from one softmax.

Class ``i`` is masked iff $p_i < p_t - \delta$, and the softmax over the kept classes is
$q_i = p_i / \sum_{\text{kept}} p$. The target's probability alone settles two kinds of rows:

* *unmasked*, $p_t \le \delta$: ``q`` is ``p``, a row of ordinary cross-entropy;
* *fully masked*, $p_t > (1 + \delta) / 2$: loss and gradient are exactly 0, since $p_i \le 1 -
  p_t$;
* *mixed*: only these need a second look.

The gradient, $q - \operatorname{onehot}(t)$, is finished in forward, while the probabilities are in
the cache: one pass of exponentials where ``F.cross_entropy`` takes two. On the CPU rows are picked
out (`losses_and_softmax_gradient`). On a GPU the host would wait for that: there one kernel does it
all (`triton_kernels_for`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from as_lightning.functional.calling_convention import ClassRows, accumulation_dtype, reduce_batch
from as_lightning.functional.counts import MaskingCounts, counts_of_rows, live_rows
from as_lightning.functional.masking import all_masked_above, masked_by_delta
from as_lightning.functional.tracing import batched

# Elements of a block of rows for each CPU thread: 2 MiB of float32, so that what is written stays
# in the cache until it is read. (From 256 KiB to 4 MiB the speed is the same; larger blocks wait
# less often for all threads to finish.) On other devices a block only bounds the temporary memory.
CPU_BLOCK_PER_THREAD = 1 << 19
DEVICE_BLOCK = 1 << 26


def block_size(rows: int, classes: int, device: torch.device) -> int:
    """Return how many rows fit a block, on the CPU at least one for every thread."""
    threads, numbers = 1, DEVICE_BLOCK
    if device.type == "cpu":
        threads = torch.get_num_threads()
        numbers = CPU_BLOCK_PER_THREAD * threads
    return max(1, min(rows, max(numbers // max(classes, 1), threads)))


def blocks(rows: int, size: int) -> Iterator[tuple[int, int]]:
    """Return the ``(start, stop)`` of consecutive blocks of ``size`` rows."""
    return ((start, min(start + size, rows)) for start in range(0, rows, size))


def gradient_unit(dtype: torch.dtype) -> float:
    """Return the number that stands for 1 in a gradient stored in ``dtype``.

    float16 ends at 6e-8: times 2^15, numbers from 2e-12 on are kept.
    """
    if dtype == torch.float16:
        return 32768.0
    return 1.0


def losses_and_softmax_gradient(
    logits: Tensor, target: Tensor, delta: float, out: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the loss and the masked competitors of each row; write the gradient into ``out``.

    ``out`` may be ``logits`` itself. Over a fully masked row it means nothing.
    """
    column, classes = target.unsqueeze(-1), out.size(-1)
    p, p_target, log_p_target = _softmax(logits, column, out)
    loss = (0.0 - log_p_target).squeeze(-1).clamp_(min=0.0)
    masked = torch.zeros_like(target)
    if delta < 1.0:
        p_target = p_target.squeeze(-1)
        fully_masked = p_target > all_masked_above(delta)
        mixed = ((p_target > delta) & ~fully_masked).nonzero().squeeze(-1)
        masked.masked_fill_(fully_masked, classes - 1)
        for start, stop in blocks(mixed.numel(), block_size(mixed.numel(), classes, p.device)):
            index = mixed[start:stop]
            q = p.index_select(0, index)
            dropped = masked_by_delta(q, p_target.index_select(0, index).unsqueeze(-1), delta)
            total = q.masked_fill_(dropped, 0.0).sum(-1)
            p.index_copy_(0, index, q.div_(total.unsqueeze(-1)))
            mixed_loss = total.log_().add_(loss.index_select(0, index)).clamp_(min=0.0)
            loss.index_copy_(0, index, mixed_loss)
            masked.index_copy_(0, index, dropped.sum(-1))
        loss.masked_fill_(fully_masked, 0.0)
    p.scatter_add_(-1, column, p.new_full((), -1.0).expand_as(column))
    return loss, masked


def _softmax(logits: Tensor, column: Tensor, out: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Write the probabilities into ``out``; return them, the target's, and the target's log."""
    target_logit, peak = logits.gather(-1, column), None
    if out is logits:
        peak = logits.amax(-1, keepdim=True)
    same_dtype = logits.dtype == out.dtype
    p = torch.softmax(logits if same_dtype else out.copy_(logits), -1, out=out)
    p_target = p.gather(-1, column)
    # where a probability is right to the last digits, so is its logarithm: no second exponential is
    # needed
    log_p_target = p_target.log()
    small = p_target < _SMALL[p.dtype]
    if bool(small.any()):  # digits were lost to underflow; the largest probability has lost none
        if peak is None:
            peak = logits.amax(-1, keepdim=True)
        exact = target_logit.to(p.dtype) - peak.to(p.dtype) + p.amax(-1, keepdim=True).log()
        log_p_target = torch.where(small, exact, log_p_target)
    return p, p_target, log_p_target


# A smaller probability has lost digits to underflow.
_SMALL = {
    dtype: torch.finfo(dtype).tiny / torch.finfo(dtype).eps
    for dtype in (torch.float32, torch.float64)
}


def triton_kernels_for(rows: Tensor) -> ModuleType | None:
    """Return the module `row_loss_cuda` if it takes such rows and Triton is installed."""
    if rows.is_cuda and rows.dtype != torch.float64:
        return _row_loss_cuda()
    return None


@functools.cache
def _row_loss_cuda() -> ModuleType | None:
    try:
        from as_lightning.functional.kernels import row_loss_cuda
    except ImportError:
        return None
    return row_loss_cuda


def losses_and_gradient(
    rows: Tensor,
    target: Tensor,
    ignored: Tensor | None,
    delta: float,
    out: Tensor | None,
    *,
    zeroes: bool = True,
) -> tuple[Tensor, Tensor]:
    """Return the loss and the masked competitors of each row, block by block.

    Both are 0 in an ignored row. The gradient, times `gradient_unit`, is written into ``out``,
    which may be ``rows``. It is 0 in ignored and fully masked rows; without ``zeroes`` it means
    nothing there.
    """
    count, classes = rows.shape
    dtype = accumulation_dtype(rows.dtype)
    loss, masked = rows.new_empty(count, dtype=dtype), torch.empty_like(target)
    # The probabilities of all rows can lie where their gradient will, unless that is of another
    # dtype or not wanted.
    direct = out is not None and out.dtype == dtype
    size = block_size(count, classes, rows.device)
    if direct and out is not rows:
        size = max(count, 1)
    buffer: Any = out
    if not direct:
        buffer = rows.new_empty((size, classes), dtype=dtype)
    for start, stop in blocks(count, size):
        piece = slice(start, stop)
        logits = rows[piece]
        if out is rows and direct:
            block = logits
        elif direct:
            block = buffer[piece]
        else:
            block = buffer[: stop - start]
        loss[piece], masked[piece] = losses_and_softmax_gradient(
            logits, target[piece], delta, block
        )
        if out is None:
            continue
        if zeroes:
            ignored_here = None if ignored is None else ignored[piece]
            _zero_rows(block, ~live_rows(masked[piece], ignored_here, classes))
        if not direct:
            # copied, not written by a product into out: that would allocate the product in the
            # wider dtype first
            unit = gradient_unit(rows.dtype)
            if unit != 1.0:
                block.mul_(unit)
            out[piece] = block
    if ignored is not None:
        loss.masked_fill_(ignored, 0.0)
        masked.masked_fill_(ignored, 0)
    return loss, masked


def _zero_rows(gradient: Tensor, dead: Tensor) -> None:
    index = dead.nonzero().squeeze(-1)
    if index.numel() == dead.numel():
        gradient.zero_()
    elif index.numel():
        gradient.index_fill_(0, index, 0.0)


class RowLoss(torch.autograd.Function):
    """Loss, masked competitors and gradient of each row; backward may overwrite the gradient.

    A kernel of `triton_kernels_for` gives all four numbers of `MaskingCounts`, ``(N, 4)``, instead
    of the masked competitors.
    """

    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        target: Tensor,
        ignored: Tensor | None,
        delta: float,
        differentiated: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        gradient, out = _gradient_of(rows, differentiated)
        kernels, live = triton_kernels_for(rows), None
        if kernels is None:
            loss, masked = losses_and_gradient(rows, target, ignored, delta, out)
            live = live_rows(masked, ignored, rows.size(1))
        else:  # picking out the live rows would make the host wait
            unit = gradient_unit(rows.dtype)
            loss, masked = kernels.losses_and_gradient(rows, target, ignored, delta, out, unit)
        ctx.save_for_backward(gradient, target, ignored, live)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(masked)
        return loss, masked, gradient

    @staticmethod
    def backward(
        ctx: Any, grad_loss: Tensor | None, _: Tensor | None, grad_gradient: Tensor | None
    ) -> tuple[Tensor | None, None, None, None, None]:
        gradient, target, ignored, live = ctx.saved_tensors
        # the stored gradient is needed after this backward
        reused = torch.is_grad_enabled() or graph_is_kept()
        if reused or grad_loss is None or grad_gradient is not None or batched(grad_loss):
            grad_rows = differentiable_backward(gradient, target, ignored, grad_loss, grad_gradient)
            return grad_rows, None, None, None, None
        gradient = gradient.detach()  # it has a graph, as an output of forward
        kernels = triton_kernels_for(gradient)
        if kernels is None:
            _scale_in_place(gradient, _zero_where_ignored(grad_loss, ignored), live)
        else:
            kernels.scale_rows(gradient, grad_loss, ignored, gradient_unit(gradient.dtype))
        return gradient, None, None, None, None


def _gradient_of(rows: Tensor, differentiated: bool) -> tuple[Tensor, Tensor | None]:
    """Return memory for the gradient, and the part of it to be written: none of no rows."""
    if differentiated:
        gradient = torch.empty_like(rows, memory_format=torch.contiguous_format)
        return gradient, gradient
    return rows.new_empty((0, rows.size(1))), None


def _zero_where_ignored(grad_loss: Tensor, ignored: Tensor | None) -> Tensor:
    """Return the upstream gradient, 0 in ignored rows: the mean of no row has an infinite one."""
    if ignored is None:
        return grad_loss
    return grad_loss.masked_fill(ignored, 0.0)


def _scale_in_place(gradient: Tensor, grad_loss: Tensor, live: Tensor) -> None:
    """Multiply a stored gradient by the upstream gradient, whose dtype is the wider one."""
    unit, rows = gradient_unit(gradient.dtype), gradient.size(0)
    if unit != 1.0:
        grad_loss = grad_loss / unit
    scale = grad_loss.unsqueeze(-1)
    live_index = live.nonzero().squeeze(-1)
    if 8 * live_index.numel() <= rows:  # most rows are 0 and stay 0
        if live_index.numel():
            product = gradient.index_select(0, live_index) * scale.index_select(0, live_index)
            gradient.index_copy_(0, live_index, product.to(gradient.dtype))
        return
    size = max(rows, 1)
    if gradient.dtype != scale.dtype:
        lowest, highest = (x.item() for x in scale.index_select(0, live_index).aminmax())
        if lowest == highest and math.isfinite(lowest):
            gradient.mul_(lowest)  # a product with a number does not widen a half type first
            return
        size = block_size(rows, gradient.size(1), gradient.device)
    for start, stop in blocks(rows, size):
        gradient[start:stop].mul_(scale[start:stop])


def differentiable_backward(
    gradient: Tensor,
    target: Tensor,
    ignored: Tensor | None,
    grad_loss: Tensor | None,
    grad_gradient: Tensor | None,
) -> Tensor | None:
    """Return the rows' gradient, differentiable: the stored one is a softmax less a constant."""
    unit, terms = gradient_unit(gradient.dtype), []
    if grad_loss is not None:
        scale = (_zero_where_ignored(grad_loss, ignored) / unit).unsqueeze(-1)
        terms.append((gradient * scale).to(gradient.dtype))
    if grad_gradient is not None:
        stored = gradient.to(accumulation_dtype(gradient.dtype)) / unit
        upstream = grad_gradient.to(stored.dtype) * unit
        q = stored + torch.zeros_like(stored).scatter_(-1, target.unsqueeze(-1), 1.0)
        second_order = q * (upstream - (q * upstream).sum(-1, keepdim=True))
        terms.append(second_order.to(gradient.dtype))
    return functools.reduce(torch.add, terms) if terms else None


def graph_is_kept() -> bool:
    """Return whether this backward has ``retain_graph=True``; True where torch cannot tell."""
    keep_graph = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)
    return keep_graph()


# One node of a compiled graph, on the CPU faster than what the compiler makes of the formula. The
# schema is written out: not every version of torch can read it from annotations that are strings.
@torch.library.custom_op(
    "as_lightning::row_loss",
    mutates_args=(),
    schema="(Tensor rows, Tensor target, Tensor? ignored, float delta, bool differentiated)"
    " -> (Tensor, Tensor, Tensor)",
)
def compiled_row_loss(
    rows: Tensor, target: Tensor, ignored: Tensor | None, delta: float, differentiated: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the losses, the masked competitors and the gradient, as `RowLoss`."""
    gradient, out = _gradient_of(rows, differentiated)
    return *losses_and_gradient(rows, target, ignored, delta, out), gradient


@compiled_row_loss.register_fake
def _(
    rows: Tensor, target: Tensor, ignored: Tensor | None, delta: float, differentiated: bool
) -> tuple[Tensor, Tensor, Tensor]:
    loss = rows.new_empty(rows.shape[:1], dtype=accumulation_dtype(rows.dtype))
    return loss, torch.empty_like(target), _gradient_of(rows, differentiated)[0]


def _save_gradient(
    ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]
) -> None:
    ctx.save_for_backward(output[2], *inputs[1:3])
    ctx.set_materialize_grads(False)


def _compiled_backward(
    ctx: Any, grad_loss: Tensor | None, _: Tensor | None, grad_gradient: Tensor | None
) -> tuple[Tensor | None, None, None, None, None]:
    gradient, target, ignored = ctx.saved_tensors
    grad_rows = differentiable_backward(gradient, target, ignored, grad_loss, grad_gradient)
    return grad_rows, None, None, None, None


compiled_row_loss.register_autograd(_compiled_backward, setup_context=_save_gradient)


def loss_by_rows(
    batch: ClassRows, delta: float, weight: Tensor | None, reduction: str, counting: bool
) -> tuple[Tensor, MaskingCounts | None]:
    """Compute the loss of rows by `RowLoss`, or in a compiled graph by its operator."""
    logits, target, ignored = batch
    differentiated = torch.is_grad_enabled() and logits.requires_grad
    function = compiled_row_loss if torch.compiler.is_compiling() else RowLoss.apply
    loss, masked, _ = function(logits, target, ignored, delta, differentiated)
    samples, counts = None, None
    if masked.dim() == 2:
        counts = MaskingCounts(*masked.sum(0).unbind())
        samples = counts.samples
    elif counting:
        counts = counts_of_rows(masked, ignored, logits.size(-1))
    reduced = reduce_batch(loss, batch, weight, reduction, zeroed=True, samples=samples)
    return reduced, counts if counting else None
