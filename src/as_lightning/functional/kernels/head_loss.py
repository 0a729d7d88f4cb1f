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

from typing import Any, NamedTuple

import torch
from torch import Tensor

from as_lightning.functional.calling_convention import accumulation_dtype
from as_lightning.functional.class_parallel import ClassShard, shard_unit_gradient
from as_lightning.functional.kernels.row_loss import (
    block_size,
    blocks,
    gradient_unit,
    graph_is_kept,
    losses_and_gradient,
    one_kernel,
)
from as_lightning.functional.tracing import batched, certain, recorded

# A mixed row that keeps at most this share of the classes is cheaper as a list of its kept classes.
LISTED_SHARE = 1 / 16


class Head(NamedTuple):
    """Hidden states, shape ``(N, d)``, and a linear layer: weight ``(C, d)`` and bias ``(C,)`` or
    None.
    """

    hidden: Tensor
    weight: Tensor
    bias: Tensor | None

    def to(self, dtype: torch.dtype) -> Head:
        return Head(*(None if x is None else x.to(dtype) for x in self))  # type: ignore[arg-type]

    def logits(self, hidden: Tensor, out: Tensor) -> None:
        """Write the logits of some hidden states into ``out``."""
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
        self,
        head: Head,
        workspace: Tensor,
        needs_gradient: tuple[bool, ...],
        scale: Tensor,
        shard: ClassShard | None,
    ) -> None:
        self.head, self.workspace, self.shard = head, workspace, shard
        # masked competitors among all classes decide what waits, so that every process takes the
        # same chunks
        self.classes = workspace.size(1) if shard is None else shard.classes
        self.dtype = accumulation_dtype(workspace.dtype)
        self.product_dtype = self.dtype if workspace.dtype == torch.float16 else workspace.dtype
        self.waiting = 0
        self._waiting_rows: list[Tensor] = []
        unit = gradient_unit(workspace.dtype)
        self._scale, self._weight_scale = (
            scale / unit,
            scale,
        )  # for products with the weight, and with hidden states
        self._weight_factor: Tensor | None = None  # restores the weight's gradient
        if (
            unit != 1.0 and scale.numel()
        ):  # the largest scaled hidden state is `unit`, which float16 holds
            largest = (torch.linalg.vector_norm(head.hidden, torch.inf, -1) * scale.abs()).amax()
            largest = largest.where(largest > 0, 1.0)
            self._weight_scale, self._weight_factor = scale * (unit / largest), largest / unit**2
        self._needs_hidden, self._needs_weight, needs_bias = needs_gradient
        self._grad_hidden: Tensor | None = None  # until there is something to add up
        self._grad_weight: Tensor | None = None
        self._grad_bias = (
            torch.zeros_like(head.bias, dtype=self.dtype)
            if head.bias is not None and needs_bias
            else None
        )

    def room(self) -> Tensor:
        """The free part of the workspace, at least half of it, for a chunk of logits."""
        if 2 * self.waiting >= self.workspace.size(0):
            self._multiply()
        return self.workspace[self.waiting :]

    def add(self, gradient: Tensor, index: Tensor, masked: Tensor) -> None:
        """Add a chunk of logit gradients, at the start of the room; ``index``, on the CPU, has
        their rows.
        """
        masked = (
            masked.cpu()
        )  # the host waits for a device once, and once more where rows are listed
        live = masked < self.classes - 1
        listed = live & (self.classes - masked <= int(LISTED_SHARE * self.classes))
        self._add_listed(gradient, index, listed.nonzero().squeeze(-1))
        self._add_dense(gradient, index, (live & ~listed).nonzero().squeeze(-1))

    def finish(self) -> tuple[Tensor | None, ...]:
        """The gradients, in the accumulation dtype; that of the weight may be in the dtype of a
        product.
        """
        self._multiply(last=True)
        if self._needs_weight and self._grad_weight is None:
            self._grad_weight = torch.zeros_like(self.head.weight, dtype=self.product_dtype)
        elif self._grad_weight is not None and self._weight_factor is not None:
            self._grad_weight.mul_(self._weight_factor)
        grad_hidden = self._hidden_sum() if self._needs_hidden else None
        if self.shard is not None and grad_hidden is not None:
            self.shard.all_reduce(grad_hidden, "SUM")
        return grad_hidden, self._grad_weight, self._grad_bias

    def _add_dense(self, gradient: Tensor, index: Tensor, dense: Tensor) -> None:
        count = dense.numel()
        if count < gradient.size(0):
            rows = dense.to(gradient.device)
            for start, stop in blocks(count, block_size(count, gradient.size(1), gradient.device)):
                gradient[start:stop] = gradient.index_select(
                    0, rows[start:stop]
                )  # overwrites only rows already read
        self.waiting += count
        self._waiting_rows.append(index[dense])

    def _add_listed(self, gradient: Tensor, index: Tensor, listed: Tensor) -> None:
        for start, stop in blocks(
            listed.numel(), block_size(listed.numel(), gradient.size(1), gradient.device)
        ):
            block = listed[start:stop]
            rows = gradient.index_select(0, block.to(gradient.device))
            entry_row, entry_class = rows.nonzero().unbind(-1)
            hidden_row = index[block].to(gradient.device)[entry_row]
            self._add_entries(hidden_row, entry_class, rows[entry_row, entry_class].to(self.dtype))

    def _add_entries(self, rows: Tensor, classes: Tensor, values: Tensor) -> None:
        """Add single entries of the logit gradient, given by row, class and value."""
        features = self.head.hidden.size(1)
        for start, stop in blocks(rows.numel(), block_size(rows.numel(), features, rows.device)):
            row, column, value = (
                rows[start:stop],
                classes[start:stop],
                values[start:stop].unsqueeze(-1),
            )
            if self._needs_weight:
                entries = value * self._weight_scale.index_select(0, row).unsqueeze(-1)
                self._weight_sum().index_add_(
                    0, column, entries * self.head.hidden.index_select(0, row).to(self.dtype)
                )
            value = value * self._scale.index_select(0, row).unsqueeze(-1)
            if self._needs_hidden:
                self._hidden_sum().index_add_(
                    0, row, value * self.head.weight.index_select(0, column).to(self.dtype)
                )
            if self._grad_bias is not None:
                self._grad_bias.index_add_(0, column, value.squeeze(-1))

    def _multiply(self, last: bool = False) -> None:
        if not self.waiting:
            return
        gradient, rows = (
            self.workspace[: self.waiting],
            torch.cat(self._waiting_rows).to(self.workspace.device),
        )
        all_rows = self.waiting == self.head.hidden.size(0)
        scale = self._scale.index_select(0, rows).unsqueeze(-1)
        if self._needs_weight:
            hidden = self.head.hidden if all_rows else self.head.hidden.index_select(0, rows)
            scaled_hidden = hidden * self._weight_scale.index_select(0, rows).unsqueeze(-1)
            self._add_to_weight(gradient.t(), scaled_hidden.to(hidden.dtype), last)
        if self._needs_hidden:
            product = self._product(gradient, self.head.weight).to(self.dtype).mul_(scale)
            self._grad_hidden = (
                product if all_rows else self._hidden_sum().index_copy_(0, rows, product)
            )
        if self._grad_bias is not None:
            for start, stop in blocks(
                self.waiting, block_size(self.waiting, gradient.size(1), gradient.device)
            ):
                self._grad_bias += (gradient[start:stop] * scale[start:stop]).sum(0)
        self.waiting = 0
        self._waiting_rows.clear()

    def _add_to_weight(self, gradient: Tensor, hidden: Tensor, last: bool) -> None:
        """Add the product of a transposed logit gradient, shape ``(C, n)``, and the hidden states
        of its rows.
        """
        if self._grad_weight is None and (last or self.product_dtype == self.dtype):
            self._grad_weight = self._product(gradient, hidden)  # nothing to add it to
        elif self.dtype == hidden.dtype:
            self._weight_sum().addmm_(gradient, hidden)
        else:  # piece by piece, so that the product beside its sum stays small
            total, classes = self._weight_sum(), gradient.size(0)
            for start, stop in blocks(classes, block_size(classes, hidden.size(1), hidden.device)):
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
        """A matrix product; that of float16, which could overflow, is in the accumulation dtype."""
        if left.dtype != torch.float16:
            return left @ right
        if left.device.type == "cuda" and HAS_OUT_DTYPE:
            return torch.mm(left, right, out_dtype=self.dtype)
        inner = left.size(1)
        product = left.new_zeros(left.size(0), right.size(1), dtype=self.dtype)
        for start, stop in blocks(
            inner, block_size(inner, max(left.size(0), right.size(1)), left.device)
        ):
            product.addmm_(left[:, start:stop].to(self.dtype), right[start:stop].to(self.dtype))
        return product


HAS_OUT_DTYPE = "out_dtype" in (torch.mm.__doc__ or "")  # of torch.mm, since 2.8


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
    """Whether holding the logits of ``rows`` hidden states is faster than chunks; always where
    there are no values.
    """
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
    """Memory for the logits of a chunk; its number of rows is the same on every process."""
    classes = head.weight.size(0)
    rows = workspace_rows(
        head.hidden.size(0), head.weight, classes if shard is None else shard.widest
    )
    return head.weight.new_empty(rows, classes)


class HeadSettings(NamedTuple):
    """The arguments of `HeadLoss` beside the head: each row's target and weight, and
    the settings.
    """

    target: Tensor
    row_weight: Tensor
    delta: float
    dtype: torch.dtype
    each_row: bool
    shard: ClassShard | None
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
        target, row_weight, delta, dtype, each_row, shard, differentiated = settings
        head = Head(hidden, weight, bias).to(dtype)
        count = hidden.size(0)
        loss, masked = torch.empty_like(row_weight), torch.empty_like(target)
        workspace = workspace_of(head, shard)
        needs_gradient = ctx.needs_input_grad[:3] if differentiated else (False, False, False)
        collects = any(needs_gradient) and not each_row
        gradients = (
            HeadGradients(head, workspace, needs_gradient, row_weight, shard) if collects else None
        )
        start = 0
        while start < count:
            logits = (gradients.room() if gradients else workspace)[: count - start]
            piece = slice(start, start + logits.size(0))
            head.logits(head.hidden[piece], out=logits)
            loss[piece], masked[piece] = _in_place_gradient(logits, target[piece], delta, shard)
            if gradients:
                gradients.add(logits, torch.arange(piece.start, piece.stop), masked[piece])
            start = piece.stop
        ctx.mark_non_differentiable(masked)
        ctx.settings, ctx.needs_gradient = settings, needs_gradient
        if each_row and any(needs_gradient):
            ctx.save_for_backward(hidden, weight, bias, masked)
        elif gradients:
            ctx.save_for_backward(*gradients.finish())
        loss = loss * row_weight
        return (loss if each_row else loss.sum()), masked

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "the fused head can be differentiated once, and this backward was called with "
                "create_graph=True: for "
                "second derivatives use as_cross_entropy(F.linear(hidden, weight, bias), target)"
            )
        if not ctx.settings.each_row:
            operand_gradients = tuple(
                None if x is None else _scaled(x, grad_loss) for x in ctx.saved_tensors
            )
        elif batched(grad_loss):
            raise RuntimeError(
                "the fused head with reduction='none' takes one upstream gradient at a time, and "
                "this backward was "
                "called with is_grads_batched=True or jacobian(vectorize=True): use "
                "jacobian(vectorize=False), or "
                "as_cross_entropy(F.linear(hidden, weight, bias), target)"
            )
        else:
            operand_gradients = _gradients_of_rows(ctx, grad_loss)
        return (*operand_gradients, None)


def _scaled(gradient: Tensor, grad_loss: Tensor) -> Tensor:
    """A gradient times the upstream gradient: in place, unless the graph is kept for another
    backward.
    """
    if batched(grad_loss) or graph_is_kept():
        return gradient * grad_loss
    if (
        grad_loss.device.type == "cpu" and grad_loss == 1
    ):  # as in loss.backward(): spares a pass over the weight
        return gradient
    if gradient.dim() == 2 and (kernel := one_kernel(gradient)) is not None:
        return kernel.scale_rows(gradient, grad_loss.expand(gradient.size(0)), None, 1.0)
    return gradient.mul_(grad_loss)


def _gradients_of_rows(ctx: Any, grad_loss: Tensor) -> tuple[Tensor | None, ...]:
    """The gradients from the upstream gradient of each row: the live rows' logits are computed
    again.
    """
    hidden, weight, bias, masked = ctx.saved_tensors
    target, row_weight, delta, dtype, _, shard, _ = ctx.settings
    head = Head(hidden, weight, bias).to(dtype)
    workspace = workspace_of(head, shard)
    classes = workspace.size(1) if shard is None else shard.classes
    # the upstream gradient of a fully masked row may be infinite, as where the square root of its
    # loss is taken
    scale = (grad_loss * row_weight).masked_fill(masked >= classes - 1, 0.0)
    gradients = HeadGradients(head, workspace, ctx.needs_gradient, scale, shard)
    live = (masked.cpu() < classes - 1).nonzero().squeeze(-1)
    start = 0
    while start < live.numel():
        logits = gradients.room()[: live.numel() - start]
        index = live[start : start + logits.size(0)]
        rows = index.to(logits.device)
        head.logits(head.hidden.index_select(0, rows), out=logits)
        # among other rows a product may round differently, so the margin decides again which
        # classes are kept
        _, row_masked = _in_place_gradient(logits, target.index_select(0, rows), delta, shard)
        gradients.add(logits, index, row_masked)
        start += logits.size(0)
    return gradients.finish()


def _in_place_gradient(
    logits: Tensor, target: Tensor, delta: float, shard: ClassShard | None
) -> tuple[Tensor, Tensor]:
    """Loss and masked competitors of a chunk's rows; their gradient, times `gradient_unit`,
    overwrites the logits.
    """
    if shard is not None:
        return shard_unit_gradient(logits, target, delta, shard)
    if (kernel := one_kernel(logits)) is not None:
        loss, counts = kernel.losses_and_gradient(
            logits, target, None, delta, logits, gradient_unit(logits.dtype)
        )
        return loss, counts[:, 2]
    return losses_and_gradient(logits, target, None, delta, logits, zeroes=False)
