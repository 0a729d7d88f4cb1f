"""The loss and the gradients of a wide linear head, chunk by chunk, so that its logits never exist
as a whole.

The logits of a few rows are computed into one workspace, and `row_loss` writes their gradient over
them. What the margin leaves of them goes through the two products of backward: a mixed row of few
kept classes as a list of these, the others gathered until they fill the workspace. The upstream
gradient of a row is multiplied into its hidden state and into its product, both smaller than its
logits.

Gradients of half types stay in float32 until the upstream gradient has been multiplied in; that of
a bfloat16 weight stays in bfloat16 where one product is all of it. A float16 logit gradient is
stored times `gradient_unit`, so that none is lost, and so are the hidden states that it meets; its
products are taken in float32, so that none overflows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from as_lightning.functional.calling_convention import accumulation_dtype
from as_lightning.functional.kernels.row_loss import (
    block_size,
    blocks,
    gradient_unit,
    graph_is_kept,
    losses_and_gradient,
    triton_kernels_for,
)
from as_lightning.functional.tracing import batched, certain, recorded

# A mixed row that keeps at most this share of the classes is cheaper as a list of its kept classes.
LISTED_SHARE = 1 / 16
HAS_OUT_DTYPE = "out_dtype" in (torch.mm.__doc__ or "")  # of torch.mm, since 2.8


class Head(NamedTuple):
    """Hidden states, ``(N, d)``, and a linear layer: weight ``(C, d)``, bias ``(C,)`` or None."""

    hidden: Tensor
    weight: Tensor
    bias: Tensor | None

    def to(self, dtype: torch.dtype) -> Head:
        bias = None if self.bias is None else self.bias.to(dtype)
        return Head(self.hidden.to(dtype), self.weight.to(dtype), bias)

    def logits(self, hidden: Tensor, out: Tensor) -> None:
        if self.bias is None:
            torch.mm(hidden, self.weight.t(), out=out)
        else:
            torch.addmm(self.bias, hidden, self.weight.t(), out=out)


class HeadGradients:
    """Collects the gradients of hidden states, weight and bias from chunks of logits.

    The front of the workspace ``(R, C)`` holds the logit gradients of rows that wait for their
    products, which run once half of it is full; a chunk of logits lies behind them. ``scale`` is
    the upstream gradient of each row.
    """

    def __init__(
        self, head: Head, workspace: Tensor, needs_gradient: tuple[bool, ...], scale: Tensor
    ) -> None:
        self.head, self.workspace = head, workspace
        self.dtype = accumulation_dtype(workspace.dtype)
        self.product_dtype = workspace.dtype
        if workspace.dtype == torch.float16:
            self.product_dtype = self.dtype
        self.waiting = 0
        self._waiting_rows: list[Tensor] = []
        unit = gradient_unit(workspace.dtype)
        self._scale = scale / unit  # for products with the weight
        self._weight_scale = scale  # for products with hidden states
        self._weight_factor: Tensor | None = None  # restores the weight's gradient
        if unit != 1.0 and scale.numel():
            # the largest scaled hidden state is `unit`, which float16 holds
            largest = (torch.linalg.vector_norm(head.hidden, torch.inf, -1) * scale.abs()).amax()
            largest = largest.where(largest > 0, 1.0)
            self._weight_scale = scale * (unit / largest)
            self._weight_factor = largest / unit**2
        self._needs_hidden, self._needs_weight, needs_bias = needs_gradient
        self._grad_hidden: Tensor | None = None  # until there is something to add up
        self._grad_weight: Tensor | None = None
        self._grad_bias: Tensor | None = None
        if head.bias is not None and needs_bias:
            self._grad_bias = torch.zeros_like(head.bias, dtype=self.dtype)

    def room(self) -> Tensor:
        """Return the free part of the workspace, at least half of it, for a chunk of logits."""
        if 2 * self.waiting >= self.workspace.size(0):
            self._multiply()
        return self.workspace[self.waiting :]

    def add(self, gradient: Tensor, index: Tensor, masked: Tensor) -> None:
        """Add a chunk of logit gradients, at the start of the room, of the rows ``index``."""
        # the host waits for a device once, and once more where rows are listed
        masked, classes = masked.cpu(), gradient.size(1)
        live = masked < classes - 1
        listed = live & (classes - masked <= int(LISTED_SHARE * classes))
        self._add_listed(gradient, index, listed.nonzero().squeeze(-1))
        self._add_dense(gradient, index, (live & ~listed).nonzero().squeeze(-1))

    def finish(self) -> tuple[Tensor | None, ...]:
        """Return the gradients, in the accumulation dtype; the weight's may be a product's."""
        self._multiply(last=True)
        if self._needs_weight and self._grad_weight is None:
            self._grad_weight = torch.zeros_like(self.head.weight, dtype=self.product_dtype)
        elif self._grad_weight is not None and self._weight_factor is not None:
            self._grad_weight.mul_(self._weight_factor)
        grad_hidden = self._hidden_sum() if self._needs_hidden else None
        return grad_hidden, self._grad_weight, self._grad_bias

    def _add_dense(self, gradient: Tensor, index: Tensor, dense: Tensor) -> None:
        count = dense.numel()
        if count < gradient.size(0):
            rows = dense.to(gradient.device)
            for start, stop in _blocks_of(count, gradient):
                # overwrites only rows already read
                gradient[start:stop] = gradient.index_select(0, rows[start:stop])
        self.waiting += count
        self._waiting_rows.append(index[dense])

    def _add_listed(self, gradient: Tensor, index: Tensor, listed: Tensor) -> None:
        for start, stop in _blocks_of(listed.numel(), gradient):
            block = listed[start:stop]
            rows = gradient.index_select(0, block.to(gradient.device))
            entry_row, entry_class = rows.nonzero().unbind(-1)
            hidden_row = index[block].to(gradient.device)[entry_row]
            self._add_entries(hidden_row, entry_class, rows[entry_row, entry_class].to(self.dtype))

    def _add_entries(self, rows: Tensor, classes: Tensor, values: Tensor) -> None:
        """Add single entries of the logit gradient, given by row, class and value."""
        hidden, weight, _ = self.head
        for start, stop in _blocks_of(rows.numel(), hidden):
            row, column = rows[start:stop], classes[start:stop]
            value = values[start:stop].unsqueeze(-1)
            if self._needs_weight:
                entries = value * self._weight_scale.index_select(0, row).unsqueeze(-1)
                entries = entries * hidden.index_select(0, row).to(self.dtype)
                self._weight_sum().index_add_(0, column, entries)
            value = value * self._scale.index_select(0, row).unsqueeze(-1)
            if self._needs_hidden:
                entries = value * weight.index_select(0, column).to(self.dtype)
                self._hidden_sum().index_add_(0, row, entries)
            if self._grad_bias is not None:
                self._grad_bias.index_add_(0, column, value.squeeze(-1))

    def _multiply(self, last: bool = False) -> None:
        if not self.waiting:
            return
        gradient, hidden = self.workspace[: self.waiting], self.head.hidden
        rows = torch.cat(self._waiting_rows).to(gradient.device)
        all_rows = self.waiting == hidden.size(0)
        scale = self._scale.index_select(0, rows).unsqueeze(-1)
        if self._needs_weight:
            if not all_rows:
                hidden = hidden.index_select(0, rows)
            scaled_hidden = hidden * self._weight_scale.index_select(0, rows).unsqueeze(-1)
            self._add_to_weight(gradient.t(), scaled_hidden.to(hidden.dtype), last)
        if self._needs_hidden:
            product = self._product(gradient, self.head.weight).to(self.dtype).mul_(scale)
            if all_rows:
                self._grad_hidden = product
            else:
                self._hidden_sum().index_copy_(0, rows, product)
        if self._grad_bias is not None:
            for start, stop in _blocks_of(self.waiting, gradient):
                self._grad_bias += (gradient[start:stop] * scale[start:stop]).sum(0)
        self.waiting = 0
        self._waiting_rows.clear()

    def _add_to_weight(self, gradient: Tensor, hidden: Tensor, last: bool) -> None:
        """Add the product of a logit gradient ``(C, n)`` and the hidden states of its rows."""
        if self._grad_weight is None and (last or self.product_dtype == self.dtype):
            self._grad_weight = self._product(gradient, hidden)  # nothing to add it to
        elif self.dtype == hidden.dtype:
            self._weight_sum().addmm_(gradient, hidden)
        else:  # piece by piece, so that the product beside its sum stays small
            total = self._weight_sum()
            for start, stop in _blocks_of(gradient.size(0), hidden):
                total[start:stop] += self._product(gradient[start:stop], hidden)

    def _hidden_sum(self) -> Tensor:
        if self._grad_hidden is None:
            self._grad_hidden = torch.zeros_like(self.head.hidden, dtype=self.dtype)
        return self._grad_hidden

    def _weight_sum(self) -> Tensor:
        if self._grad_weight is None:
            self._grad_weight = torch.zeros_like(self.head.weight, dtype=self.dtype)
        return self._grad_weight

    def _product(self, left: Tensor, right: Tensor) -> Tensor:
        """Return a matrix product; that of float16 could overflow, and is taken in float32."""
        if left.dtype != torch.float16:
            return left @ right
        if left.is_cuda and HAS_OUT_DTYPE:
            return torch.mm(left, right, out_dtype=self.dtype)
        product = left.new_zeros(left.size(0), right.size(1), dtype=self.dtype)
        size = block_size(left.size(1), max(product.shape), left.device)
        for start, stop in blocks(left.size(1), size):
            product.addmm_(left[:, start:stop].to(self.dtype), right[start:stop].to(self.dtype))
        return product


def _blocks_of(count: int, like: Tensor) -> Iterator[tuple[int, int]]:
    """Return the blocks of ``count`` rows that are as wide as those of a matrix."""
    return blocks(count, block_size(count, like.size(1), like.device))


# The logits held at a time: at most so many bytes, on the CPU at most so many rows too, since a
# chunk in the cache is faster (table "Rows per chunk" in
# results/performance/linear_cross_entropy.md). Or half as many bytes as the head's weight, where
# that is more: the weight's gradient is of that size anyway, and a product over few rows is slow.
CPU_WORKSPACE, CPU_ROWS = 64 << 20, 512
DEVICE_WORKSPACE = 512 << 20
FEWEST_ROWS = 16
# Up to so many logits on the CPU, and up to four times as many of a half type, holding them costs
# less than the bookkeeping that avoids it: see "The rule" in
# results/performance/linear_cross_entropy_peers.md.
FEW_LOGITS, HALF_FACTOR = 1 << 20, 4


def dense_is_faster(rows: int, weight: Tensor) -> bool:
    """Return whether to hold the logits of ``rows`` hidden states; always without values."""
    few = FEW_LOGITS
    if weight.element_size() == 2:
        few *= HALF_FACTOR
    if weight.is_meta or recorded(weight):
        return True
    return weight.is_cpu and certain(rows * weight.size(0) <= few)


def workspace_rows(rows: int, weight: Tensor) -> int:
    """Return how many rows of logits the workspace holds."""
    row_bytes = max(weight.size(0) * weight.element_size(), 1)
    size = DEVICE_WORKSPACE
    if weight.is_cpu:
        size = min(CPU_WORKSPACE, CPU_ROWS * row_bytes)
    size = max(size, row_bytes * weight.size(1) // 2) // row_bytes
    return max(1, min(rows, max(size, FEWEST_ROWS)))


class HeadSettings(NamedTuple):
    """The arguments of `HeadLoss` beside the head: each row's target and weight, and settings."""

    target: Tensor
    row_weight: Tensor
    delta: float
    dtype: torch.dtype
    each_row: bool
    differentiated: bool


class HeadLoss(torch.autograd.Function):
    """The weighted loss of each row, or their sum, and the masked competitors of each row.

    Hidden states, weight and bias are converted to ``dtype`` in here, so that their gradients are
    never rounded to it.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, settings: HeadSettings
    ) -> tuple[Tensor, Tensor]:
        target, row_weight, delta, dtype, each_row, differentiated = settings
        head, count = Head(hidden, weight, bias).to(dtype), hidden.size(0)
        loss, masked = torch.empty_like(row_weight), torch.empty_like(target)
        workspace = head.weight.new_empty(workspace_rows(count, head.weight), weight.size(0))
        needs_gradient = (False, False, False)
        if differentiated:
            needs_gradient = ctx.needs_input_grad[:3]
        gradients = None
        if any(needs_gradient) and not each_row:
            gradients = HeadGradients(head, workspace, needs_gradient, row_weight)
        start = 0
        while start < count:
            room = workspace if gradients is None else gradients.room()
            logits = room[: count - start]
            piece = slice(start, start + logits.size(0))
            head.logits(head.hidden[piece], out=logits)
            loss[piece], masked[piece] = _in_place_gradient(logits, target[piece], delta)
            if gradients is not None:
                gradients.add(logits, torch.arange(piece.start, piece.stop), masked[piece])
            start = piece.stop
        ctx.mark_non_differentiable(masked)
        ctx.settings, ctx.needs_gradient = settings, needs_gradient
        loss = loss * row_weight
        if each_row:
            ctx.save_for_backward(hidden, weight, bias, masked)
            return loss, masked
        if gradients is not None:
            ctx.save_for_backward(*gradients.finish())
        return loss.sum(), masked

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        advice = "as_cross_entropy(F.linear(hidden, weight, bias), target)"
        if torch.is_grad_enabled():
            raise RuntimeError(
                "the fused head can be differentiated once, and this backward was called with "
                f"create_graph=True: for second derivatives use {advice}"
            )
        if not ctx.settings.each_row:
            return (*(_scaled(gradient, grad_loss) for gradient in ctx.saved_tensors), None)
        if batched(grad_loss):
            raise RuntimeError(
                "the fused head with reduction='none' takes one upstream gradient at a time, and "
                "this backward was called with is_grads_batched=True or jacobian(vectorize=True): "
                f"use jacobian(vectorize=False), or {advice}"
            )
        return (*_gradients_of_rows(ctx, grad_loss), None)


def _scaled(gradient: Tensor | None, grad_loss: Tensor) -> Tensor | None:
    """Multiply by the upstream gradient, in place unless the graph is kept for another backward."""
    if gradient is None:
        return None
    if batched(grad_loss) or graph_is_kept():
        return gradient * grad_loss
    # as in loss.backward(): spares a pass over the weight
    if grad_loss.is_cpu and grad_loss == 1:
        return gradient
    kernels = triton_kernels_for(gradient)
    if kernels is None or gradient.dim() != 2:
        return gradient.mul_(grad_loss)
    return kernels.scale_rows(gradient, grad_loss.expand(gradient.size(0)), None, 1.0)


def _gradients_of_rows(ctx: Any, grad_loss: Tensor) -> tuple[Tensor | None, ...]:
    """Return the gradients from those of each row's loss, with the live rows' logits anew."""
    hidden, weight, bias, masked = ctx.saved_tensors
    target, row_weight, delta, dtype, _, _ = ctx.settings
    head, classes = Head(hidden, weight, bias).to(dtype), weight.size(0)
    workspace = head.weight.new_empty(workspace_rows(hidden.size(0), head.weight), classes)
    # the upstream gradient of a fully masked row may be infinite, as where the square root of its
    # loss is taken
    scale = (grad_loss * row_weight).masked_fill(masked >= classes - 1, 0.0)
    gradients = HeadGradients(head, workspace, ctx.needs_gradient, scale)
    live = (masked.cpu() < classes - 1).nonzero().squeeze(-1)
    start = 0
    while start < live.numel():
        logits = gradients.room()[: live.numel() - start]
        index = live[start : start + logits.size(0)]
        rows = index.to(logits.device)
        head.logits(head.hidden.index_select(0, rows), out=logits)
        # among other rows a product may round differently, so the margin decides again which
        # classes are kept
        _, row_masked = _in_place_gradient(logits, target.index_select(0, rows), delta)
        gradients.add(logits, index, row_masked)
        start += logits.size(0)
    return gradients.finish()


def _in_place_gradient(logits: Tensor, target: Tensor, delta: float) -> tuple[Tensor, Tensor]:
    """Return loss and masked competitors of rows; the gradient, in its unit, overwrites them."""
    kernels = triton_kernels_for(logits)
    if kernels is None:
        return losses_and_gradient(logits, target, None, delta, logits, zeroes=False)
    unit = gradient_unit(logits.dtype)
    loss, counts = kernels.losses_and_gradient(logits, target, None, delta, logits, unit)
    return loss, counts[:, 2]
