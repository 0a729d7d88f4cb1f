r"""The loss and the gradient of rows of logits, from one softmax.

Class ``i`` is masked iff $p_i < p_t - \delta$, and the softmax over the kept classes is
$q_i = p_i / \sum_{\text{kept}} p$. The target's probability alone settles two kinds of rows:

* *unmasked*, $p_t \le \delta$: ``q`` is ``p``, a row of ordinary cross-entropy;
* *fully masked*, $p_t > (1 + \delta) / 2$: loss and gradient are exactly 0, since $p_i \le 1 -
  p_t$;
* *mixed*: only these need a second look.

The gradient, $q - \operatorname{onehot}(t)$, is finished in forward, while the probabilities are in
the cache: one pass of exponentials where ``F.cross_entropy`` takes two. On the CPU rows are picked
out (`pick_rows`). On a GPU the host would wait for that: there one kernel does it all
(`one_kernel`).
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
    """How many rows to take at a time: what fits the block, but at least a row for every thread."""
    if device.type != "cpu":
        return max(1, min(rows, DEVICE_BLOCK // max(classes, 1)))
    threads = torch.get_num_threads()
    return max(1, min(rows, max(CPU_BLOCK_PER_THREAD * threads // max(classes, 1), threads)))


def blocks(rows: int, size: int) -> Iterator[tuple[int, int]]:
    """The ``(start, stop)`` of consecutive blocks of ``size`` rows."""
    return ((start, min(start + size, rows)) for start in range(0, rows, size))


def gradient_unit(dtype: torch.dtype) -> float:
    """The number that stands for 1 in a gradient stored in ``dtype``; it keeps the digits of small
    float16 ones.
    """
    return (
        32768.0 if dtype == torch.float16 else 1.0
    )  # float16 ends at 6e-8: times 2^15 numbers from 2e-12 on are kept


def pick_rows(logits: Tensor, target: Tensor, delta: float, out: Tensor) -> tuple[Tensor, Tensor]:
    """The loss of each row and its masked competitors; picks out the rows that need a second look.

    Writes the gradient into ``out``, which may be ``logits`` itself and means nothing over a fully
    masked row.
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
            loss.index_copy_(
                0, index, total.log_().add_(loss.index_select(0, index)).clamp_(min=0.0)
            )
            masked.index_copy_(0, index, dropped.sum(-1))
        loss.masked_fill_(fully_masked, 0.0)
    p.scatter_add_(-1, column, p.new_full((), -1.0).expand_as(column))
    return loss, masked


def _softmax(logits: Tensor, column: Tensor, out: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The probabilities in ``out`` (which may be ``logits``), the target's, and the logarithm of
    the target's.
    """
    target_logit, peak = (
        logits.gather(-1, column),
        logits.amax(-1, keepdim=True) if out is logits else None,
    )
    p = torch.softmax(logits if logits.dtype == out.dtype else out.copy_(logits), -1, out=out)
    p_target = p.gather(-1, column)
    # where a probability is right to the last digits, so is its logarithm: no second exponential is
    # needed
    log_p_target = p_target.log()
    small = p_target < _SMALL[p.dtype]
    if bool(small.any()):  # digits were lost to underflow; the largest probability has lost none
        peak = logits.amax(-1, keepdim=True) if peak is None else peak
        exact = target_logit.to(p.dtype) - peak.to(p.dtype) + p.amax(-1, keepdim=True).log()
        log_p_target = torch.where(small, exact, log_p_target)
    return p, p_target, log_p_target


# a smaller probability has lost digits to underflow
_SMALL = {
    dtype: torch.finfo(dtype).tiny / torch.finfo(dtype).eps
    for dtype in (torch.float32, torch.float64)
}


def one_kernel(rows: Tensor) -> ModuleType | None:
    """The module `row_loss_cuda`, if it takes such rows and Triton is installed; else None."""
    return _row_loss_cuda() if rows.is_cuda and rows.dtype != torch.float64 else None


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
    """The loss of each row and its masked competitors, both 0 in an ignored row, the loss also in a
    fully masked one.

    The gradient, times `gradient_unit`, is written into ``out``, which may be ``rows``. It is 0 in
    these rows; without ``zeroes`` it means nothing there.
    """
    count, classes = rows.shape
    dtype, unit = accumulation_dtype(rows.dtype), gradient_unit(rows.dtype)
    loss, masked = rows.new_empty(count, dtype=dtype), torch.empty_like(target)
    # the probabilities of all rows can lie where their gradient will, unless that is of another
    # dtype or not wanted
    direct = out is not None and out.dtype == dtype
    size = max(count, 1) if direct and out is not rows else block_size(count, classes, rows.device)
    buffer: Any = out if direct else rows.new_empty((size, classes), dtype=dtype)
    for start, stop in blocks(count, size):
        piece = slice(start, stop)
        logits = rows[piece]
        block = logits if buffer is rows else buffer[piece] if direct else buffer[: stop - start]
        loss[piece], masked[piece] = pick_rows(logits, target[piece], delta, block)
        if out is not None and zeroes:
            _zero_rows(
                block,
                ~live_rows(masked[piece], None if ignored is None else ignored[piece], classes),
            )
        if out is not None and not direct:
            # copied, not written by a product into out: that would allocate the product in the
            # wider dtype first
            out[piece] = block if unit == 1.0 else block.mul_(unit)
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
    """Loss, masked competitors and gradient of each row; backward may overwrite the gradient with
    its result.

    The kernel of `one_kernel` gives all four numbers of `MaskingCounts`, ``(N, 4)``, instead of the
    masked competitors.
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
        gradient = rows.new_empty((rows.size(0) if differentiated else 0, rows.size(1)))
        out = gradient if differentiated else None
        if (kernel := one_kernel(rows)) is None:
            loss, masked = losses_and_gradient(rows, target, ignored, delta, out)
            live = live_rows(masked, ignored, rows.size(1))
        else:
            loss, masked = kernel.losses_and_gradient(
                rows, target, ignored, delta, out, gradient_unit(rows.dtype)
            )
            live = None  # picking out the live rows would make the host wait
        ctx.save_for_backward(gradient, target, ignored, live)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(masked)
        return loss, masked, gradient

    @staticmethod
    def backward(
        ctx: Any, grad_loss: Tensor | None, _: Tensor | None, grad_gradient: Tensor | None
    ) -> tuple[Tensor | None, None, None, None, None]:
        gradient, target, ignored, live = ctx.saved_tensors
        if grad_loss is None and grad_gradient is None:
            return None, None, None, None, None
        reused = (
            torch.is_grad_enabled() or graph_is_kept()
        )  # the stored gradient is needed after this backward
        if reused or grad_loss is None or grad_gradient is not None or batched(grad_loss):
            grad_rows = differentiable_backward(gradient, target, ignored, grad_loss, grad_gradient)
            return grad_rows, None, None, None, None
        gradient = (
            gradient.detach()
        )  # as an output of forward it has a graph, which a gradient must not have
        if (kernel := one_kernel(gradient)) is not None:
            kernel.scale_rows(gradient, grad_loss, ignored, gradient_unit(gradient.dtype))
        else:
            _scale_in_place(gradient, _zero_where_ignored(grad_loss, ignored), live)
        return gradient, None, None, None, None


def _zero_where_ignored(grad_loss: Tensor, ignored: Tensor | None) -> Tensor:
    """The upstream gradient, 0 in ignored rows: the mean of no row has an infinite one."""
    return grad_loss if ignored is None else grad_loss.masked_fill(ignored, 0.0)


def _scale_in_place(gradient: Tensor, grad_loss: Tensor, live: Tensor) -> None:
    """Multiply a stored gradient by the upstream gradient, in place; the scale stays in its
    accumulation dtype.
    """
    unit = gradient_unit(gradient.dtype)
    scale = (grad_loss if unit == 1.0 else grad_loss / unit).unsqueeze(-1)
    same_dtype, live_index = gradient.dtype == scale.dtype, live.nonzero().squeeze(-1)
    if 8 * live_index.numel() <= gradient.size(0):  # most rows are 0 and stay 0
        if live_index.numel():
            product = gradient.index_select(0, live_index) * scale.index_select(0, live_index)
            gradient.index_copy_(0, live_index, product.to(gradient.dtype))
        return
    common_scale = None if same_dtype else _common_value(scale.index_select(0, live_index))
    if common_scale is not None:
        gradient.mul_(common_scale)
        return
    # a product of two dtypes makes a copy in the wider one
    size = (
        max(gradient.size(0), 1)
        if same_dtype
        else block_size(gradient.size(0), gradient.size(1), gradient.device)
    )
    for start, stop in blocks(gradient.size(0), size):
        gradient[start:stop].mul_(scale[start:stop])


def _common_value(scale: Tensor) -> float | None:
    """The finite number that all elements are, or None: a product with a number does not widen a
    half type first.
    """
    lowest, highest = (x.item() for x in scale.aminmax())
    return lowest if lowest == highest and math.isfinite(lowest) else None


def differentiable_backward(
    gradient: Tensor,
    target: Tensor,
    ignored: Tensor | None,
    grad_loss: Tensor | None,
    grad_gradient: Tensor | None,
) -> Tensor | None:
    """The gradient of the rows by differentiable operations: the stored one is a softmax less a
    constant.
    """
    unit, grad_logits = gradient_unit(gradient.dtype), None
    if grad_loss is not None:
        grad_logits = (
            gradient * (_zero_where_ignored(grad_loss, ignored) / unit).unsqueeze(-1)
        ).to(gradient.dtype)
    if grad_gradient is not None:
        stored = gradient.to(accumulation_dtype(gradient.dtype)) / unit
        upstream = grad_gradient.to(stored.dtype) * unit
        q = stored + torch.zeros_like(stored).scatter_(-1, target.unsqueeze(-1), 1.0)
        second_order = (q * (upstream - (q * upstream).sum(-1, keepdim=True))).to(gradient.dtype)
        grad_logits = second_order if grad_logits is None else grad_logits + second_order
    return grad_logits


def graph_is_kept() -> bool:
    """Whether the backward that runs now was called with ``retain_graph=True``; True where torch
    has no test for it.
    """
    keep_graph = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", None)
    return keep_graph is None or keep_graph()


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
    """The losses, the masked competitors and the gradient, as those of `RowLoss`."""
    gradient = rows.new_empty((rows.size(0) if differentiated else 0, rows.size(1)))
    return *losses_and_gradient(
        rows, target, ignored, delta, gradient if differentiated else None
    ), gradient


@compiled_row_loss.register_fake
def _(
    rows: Tensor, target: Tensor, ignored: Tensor | None, delta: float, differentiated: bool
) -> tuple[Tensor, Tensor, Tensor]:
    loss = rows.new_empty(rows.shape[:1], dtype=accumulation_dtype(rows.dtype))
    return (
        loss,
        torch.empty_like(target),
        rows.new_empty(rows.shape if differentiated else (0, rows.size(1))),
    )


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
    """A `RowsLoss` by `RowLoss`, or in a compiled graph by its operator."""
    differentiated = torch.is_grad_enabled() and batch.logits.requires_grad
    function = compiled_row_loss if torch.compiler.is_compiling() else RowLoss.apply
    loss, masked, _ = function(batch.logits, batch.target, batch.ignored, delta, differentiated)
    samples, counts = None, None
    if masked.dim() == 2:
        samples = (counts := MaskingCounts(*masked.sum(0).unbind())).samples
    elif counting:
        counts = counts_of_rows(masked, batch.ignored, batch.classes)
    reduced = reduce_batch(loss, batch, weight, reduction, zeroed=True, samples=samples)
    return reduced, counts if counting else None
