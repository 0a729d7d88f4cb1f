"""The loss and the gradients of a wide linear head, chunk by chunk, so that its logits never exist as a whole.

The logits of a few rows at a time are computed into one workspace, and the kernel of `row_loss` writes their gradient
over them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from as_lightning.functional.calling_convention import accumulation_dtype
from as_lightning.functional.kernels.class_parallel import ClassShard, shard_unit_gradient
from as_lightning.functional.kernels.head_gradients import Head, HeadGradients
from as_lightning.functional.kernels.row_loss import block_size, blocks, graph_is_kept, pick_rows, store_gradient
from as_lightning.functional.tracing import batched, certain, recorded

# The logits held at a time: at most so many bytes, on the CPU at most so many rows too, since a chunk in the cache is
# faster (table "Rows per chunk" in results/performance/linear_cross_entropy.md). Or half as many bytes as the head's
# weight, where that is more: the weight's gradient is of that size anyway, and a product over few rows is slow.
CPU_WORKSPACE, CPU_ROWS = 64 << 20, 512
DEVICE_WORKSPACE = 512 << 20
FEWEST_ROWS = 16
# Up to so many logits on the CPU, and up to four times as many of a half type, holding them costs less than the
# bookkeeping that avoids it: see "The rule" in results/performance/linear_cross_entropy_peers.md.
FEW_LOGITS, HALF_FACTOR = 1 << 20, 4


def dense_is_faster(rows: int, weight: Tensor) -> bool:
    """Whether holding the logits of ``rows`` hidden states is faster than chunks; always where there are no values."""
    few = FEW_LOGITS * (HALF_FACTOR if weight.element_size() == 2 else 1)
    if weight.is_meta or recorded(weight):
        return True
    return weight.device.type == "cpu" and certain(rows * weight.size(0) <= few)


def workspace_rows(rows: int, weight: Tensor, classes: int) -> int:
    """How many rows of logits of so many classes the workspace holds."""
    row_bytes = max(classes * weight.element_size(), 1)
    on_cpu = weight.device.type == "cpu"
    size = min(CPU_WORKSPACE, CPU_ROWS * row_bytes) if on_cpu else DEVICE_WORKSPACE
    size = max(size, row_bytes * weight.size(1) // 2) // row_bytes
    return max(1, min(rows, max(size, FEWEST_ROWS)))


def workspace_of(head: Head, shard: ClassShard | None) -> Tensor:
    """Memory for the logits of a chunk of rows; with a ``shard`` of as many rows on every process."""
    classes = head.weight.size(0)
    rows = workspace_rows(head.hidden.size(0), head.weight, classes if shard is None else shard.widest)
    return head.weight.new_empty(rows, classes)


class HeadLoss(torch.autograd.Function):
    """The weighted loss of each row, or their sum, and the masked competitors of each row.

    Hidden states, weight and bias are converted to ``dtype`` in here, so that their gradients never pass through it.
    With a ``shard`` every process takes the same chunks, and the gradient of the hidden states is summed over the
    processes.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        row_weight: Tensor,
        delta: float,
        dtype: torch.dtype,
        each_row: bool,
        differentiated: bool,
        shard: ClassShard | None,
    ) -> tuple[Tensor, Tensor]:
        head = Head(hidden, weight, bias).to(dtype)
        count = hidden.size(0)
        loss, masked = torch.empty_like(row_weight), torch.empty_like(target)
        workspace = workspace_of(head, shard)
        needs_gradient = ctx.needs_input_grad[:3] if differentiated else (False, False, False)
        collects = any(needs_gradient) and not each_row
        gradients = HeadGradients(head, workspace, needs_gradient, row_weight, shard) if collects else None
        start = 0
        while start < count:
            stop = min(count, start + (gradients.room() if gradients else workspace.size(0)))
            logits = workspace[workspace.size(0) - (stop - start) :]
            head.logits(head.hidden[start:stop], out=logits)
            piece = slice(start, stop)
            loss[piece], masked[piece] = _in_place_gradient(logits, target[piece], delta, shard)
            if gradients:
                gradients.add(logits, torch.arange(start, stop, device=target.device), masked[piece])
            start = stop
        ctx.mark_non_differentiable(masked)
        ctx.each_row, ctx.delta, ctx.dtype, ctx.shard = each_row, delta, dtype, shard
        ctx.needs_gradient = needs_gradient
        if each_row and any(needs_gradient):
            ctx.save_for_backward(hidden, weight, bias, target, row_weight, masked)
        elif gradients:
            ctx.save_for_backward(*gradients.finish())
        loss = loss * row_weight
        return (loss if each_row else loss.sum()), masked

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "the fused head can be differentiated once, and this backward was called with create_graph=True: for "
                "second derivatives use as_cross_entropy(F.linear(hidden, weight, bias), target)"
            )
        if not ctx.each_row:
            operand_gradients = tuple(None if x is None else _scaled(x, grad_loss) for x in ctx.saved_tensors)
        elif batched(grad_loss):
            raise RuntimeError(
                "the fused head with reduction='none' takes one upstream gradient at a time, and this backward was "
                "called with is_grads_batched=True or jacobian(vectorize=True): use jacobian(vectorize=False), or "
                "as_cross_entropy(F.linear(hidden, weight, bias), target)"
            )
        else:
            operand_gradients = _gradients_of_rows(ctx, grad_loss)
        return (*operand_gradients, None, None, None, None, None, None, None)


def _scaled(gradient: Tensor, grad_loss: Tensor) -> Tensor:
    """A gradient times the upstream gradient: in place, unless the graph is kept and may be asked again."""
    if batched(grad_loss) or graph_is_kept():
        return gradient * grad_loss
    if grad_loss.device.type == "cpu" and grad_loss == 1:  # as in loss.backward(): a pass over the weight less
        return gradient
    return gradient.mul_(grad_loss)


def _gradients_of_rows(ctx: Any, grad_loss: Tensor) -> tuple[Tensor | None, ...]:
    """The gradients from the upstream gradient of each row: the live rows' logits are computed again."""
    hidden, weight, bias, target, row_weight, masked = ctx.saved_tensors
    head = Head(hidden, weight, bias).to(ctx.dtype)
    workspace = workspace_of(head, ctx.shard)
    gradients = HeadGradients(head, workspace, ctx.needs_gradient, grad_loss * row_weight, ctx.shard)
    live = (masked < gradients.classes - 1).nonzero().squeeze(-1)
    start = 0
    while start < live.numel():
        stop = min(live.numel(), start + gradients.room())
        index = live[start:stop]
        logits = workspace[workspace.size(0) - index.numel() :]
        head.logits(head.hidden.index_select(0, index), out=logits)
        # among other rows a product may round differently: which classes are kept is asked again, not remembered
        _, row_masked = _in_place_gradient(logits, target.index_select(0, index), ctx.delta, ctx.shard)
        gradients.add(logits, index, row_masked)
        start = stop
    return gradients.finish()


def _in_place_gradient(logits: Tensor, target: Tensor, delta: float, shard: ClassShard | None) -> tuple[Tensor, Tensor]:
    """Loss and masked competitors of a chunk's rows; their gradient, times `gradient_unit`, overwrites the logits."""
    if shard is not None:
        return shard_unit_gradient(logits, target, delta, shard)
    dtype = accumulation_dtype(logits.dtype)
    loss, masked = logits.new_empty(target.shape, dtype=dtype), torch.empty_like(target)
    size = block_size(logits.size(0), logits.size(1), logits.device)
    wider = None if logits.dtype == dtype else logits.new_empty((size, logits.size(1)), dtype=dtype)
    for start, stop in blocks(logits.size(0), size):
        piece = slice(start, stop)
        block = logits[piece]
        out = block if wider is None else wider[: stop - start]
        loss[piece], masked[piece] = pick_rows(block, target[piece], delta, out)
        if wider is not None:
            store_gradient(out, block)
    return loss, masked
