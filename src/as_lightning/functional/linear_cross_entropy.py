r"""The AS-Softmax loss of a wide linear head, from the hidden states, without the logits."""

from __future__ import annotations

from typing import Any, Literal, overload

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from as_lightning.functional.class_parallel import local_head
from as_lightning.functional.counts import MaskingCounts, counts_of_rows
from as_lightning.functional.kernels.class_parallel import ClassShard, shard_unit_gradient
from as_lightning.functional.masking import check_class_range, check_delta
from as_lightning.functional.reduction import check_class_weight, check_reduction, loss_dtype
from as_lightning.functional.rows import accumulation_dtype, block_size, blocks, graph_is_kept, unit_gradient

# The logits held at a time take at most this many bytes, or half as many as the head's weight where that is more: the
# weight's gradient is of that size anyway, and a matrix product over fewer rows than that is slow.
CPU_WORKSPACE = 64 << 20
DEVICE_WORKSPACE = 512 << 20
FEWEST_ROWS = 16
# A mixed row that keeps at most this share of the classes is cheaper as a list of its kept classes.
LISTED_SHARE = 1 / 16


@overload
def as_linear_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    delta: float = ...,
    *,
    bias: Tensor | None = ...,
    class_weight: Tensor | None = ...,
    ignore_index: int = ...,
    reduction: str = ...,
    return_counts: Literal[False] = ...,
) -> Tensor: ...
@overload
def as_linear_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    delta: float = ...,
    *,
    bias: Tensor | None = ...,
    class_weight: Tensor | None = ...,
    ignore_index: int = ...,
    reduction: str = ...,
    return_counts: Literal[True],
) -> tuple[Tensor, MaskingCounts]: ...
def as_linear_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    delta: float = 0.1,
    *,
    bias: Tensor | None = None,
    class_weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    return_counts: bool = False,
) -> Tensor | tuple[Tensor, MaskingCounts]:
    r""":func:`~as_lightning.functional.as_cross_entropy` of ``F.linear(hidden, weight, bias)``, never held whole.

    The logits of a few rows at a time are computed into one workspace; their loss and, while they are there, their
    gradient. What the margin leaves decides the rest of the work:

    * a fully masked row takes no part in the two matrix products of backward;
    * a mixed row takes part with its kept classes alone, where they are few (they nearly always are: at most
      :math:`1 / (p_t - \delta)` classes can be kept);
    * unmasked rows are gathered until they fill the workspace and go through the two products together.

    The chunks are rows, not classes: a chunk of classes knows no row's softmax until all classes have been seen, so
    that its logits have to be computed twice, 4 products for 3 with nothing masked.
    With ``reduction="none"`` the upstream gradients are not known in forward, and the rows that have a gradient are
    computed again in backward; with ``"mean"`` and ``"sum"`` the gradients are ready when forward ends, and a
    backward that is scaled (gradient accumulation, a loss scaler) multiplies them.

    Args:
        hidden: shape ``(..., d)``: float32, float64, bfloat16 or float16. Half types accumulate in float32.
        weight: the head, shape ``(C, d)``, of the dtype of ``hidden``.
        target: class indices, shape ``(...)``.
        delta: the margin, in [0, 1].
        bias: shape ``(C)``.
        class_weight: a weight per class, shape ``(C)``.
        ignore_index: target value of rows that count neither in the loss nor in the counts.
        reduction: ``"none"``, ``"mean"`` (weighted, over the rows not ignored) or ``"sum"``.
        return_counts: return ``(loss, counts)``.

    Returns:
        The loss in the dtype of ``hidden`` (float32 under autocast): a scalar, or of the shape of ``target`` with
        ``reduction="none"``; with ``return_counts`` also the :class:`~as_lightning.functional.MaskingCounts`.

    Raises:
        ValueError: if ``delta`` lies outside [0, 1], the shapes do not fit, or ``reduction`` is unknown.
        TypeError: if ``target`` does not hold integers, or the dtypes of ``hidden``, ``weight`` and ``bias`` differ.
        IndexError: if ``target`` is out of range (on the CPU; elsewhere the device asserts).

    Note:
        On an accelerator the number of rows of each kind is read once a chunk, to skip their work. Inside
        ``torch.compile`` it is a graph break. It can be differentiated once.

    Source: paper, section III, for the loss; computing gradients chunk by chunk in forward is Liger-Kernel's idea
    (arXiv 2410.10989).

    Example:
        >>> import torch
        >>> from torch.nn import functional as F
        >>> from as_lightning.functional import as_cross_entropy
        >>> hidden, weight = torch.randn(8, 4), torch.randn(1000, 4)
        >>> target = torch.randint(1000, (8,))
        >>> loss = as_linear_cross_entropy(hidden, weight, target, delta=0.1)
        >>> torch.allclose(loss, as_cross_entropy(F.linear(hidden, weight), target, delta=0.1), atol=1e-6)
        True
    """
    delta = check_delta(delta)
    _check_head(hidden, weight, bias, target)
    classes = weight.size(0)
    check_class_weight(class_weight, classes)
    check_reduction(reduction)
    _check_devices(hidden=hidden, weight=weight, bias=bias, target=target, class_weight=class_weight)
    hidden, weight, bias, target, class_weight, shard = local_head(hidden, weight, bias, target, class_weight)
    if torch.is_autocast_enabled(hidden.device.type):
        dtype = torch.get_autocast_dtype(hidden.device.type)
        hidden, weight = _autocast(hidden, dtype), _autocast(weight, dtype)
        bias = None if bias is None else _autocast(bias, dtype)
    _check_dtypes(hidden, weight, bias)
    flat_hidden, flat_target = hidden.reshape(-1, hidden.size(-1)), target.reshape(-1)
    active = (flat_target != ignore_index).nonzero().squeeze(-1)
    if active.numel() < flat_target.numel():
        flat_hidden, flat_target = flat_hidden.index_select(0, active), flat_target.index_select(0, active)
    flat_target = flat_target.long()
    check_class_range(flat_target, classes)
    loss_type = accumulation_dtype(hidden.dtype)
    if class_weight is None:
        row_weight = torch.ones(active.numel(), dtype=loss_type, device=hidden.device)
    else:
        row_weight = class_weight.to(loss_type).index_select(0, flat_target)
    if reduction == "mean":
        row_weight = row_weight / row_weight.sum()
    loss, kept = _head_loss(flat_hidden, weight, bias, flat_target, row_weight, delta, reduction == "none", shard)
    if reduction == "none":
        loss = loss.new_zeros(target.numel()).index_copy(0, active, loss).reshape(target.shape)
    elif reduction == "mean" and active.numel() == 0:
        loss = loss + torch.nan  # the mean over no row, as F.cross_entropy has it
    loss = loss.to(loss_dtype(hidden.dtype, hidden.device))
    if not return_counts:
        return loss
    return loss, counts_of_rows(kept, None, classes)


def _check_head(hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor) -> None:
    if not hidden.is_floating_point():
        raise TypeError(f"hidden must be a floating-point tensor, got {hidden.dtype}")
    if weight.dim() != 2 or hidden.dim() == 0 or hidden.size(-1) != weight.size(1):
        raise ValueError(
            f"hidden must have shape (..., d) and weight (C, d), got {tuple(hidden.shape)} and {tuple(weight.shape)}"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"bias must have shape ({weight.size(0)},), one number per class, got {tuple(bias.shape)}")
    if target.is_floating_point() or target.is_complex() or target.dtype == torch.bool:
        raise TypeError(
            f"target must hold class indices (torch.int64) of shape {tuple(hidden.shape[:-1])}, got {target.dtype} of "
            f"shape {tuple(target.shape)}: soft targets and class probabilities have no single target class"
        )
    if target.shape != hidden.shape[:-1]:
        raise ValueError(
            f"target must have shape {tuple(hidden.shape[:-1])}, that of hidden without its last dimension, got "
            f"{tuple(target.shape)}"
        )


def _check_devices(**operands: Tensor | None) -> None:
    devices = {name: x.device for name, x in operands.items() if x is not None}
    if len(set(devices.values())) > 1:
        found = ", ".join(f"{name} on {device}" for name, device in devices.items())
        raise ValueError(f"hidden, weight, bias, target and class_weight must be on one device, got {found}")


def _check_dtypes(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    dtypes = [x.dtype for x in (hidden, weight, bias) if x is not None]
    if len(set(dtypes)) > 1:
        raise TypeError(
            f"hidden, weight and bias must have one dtype, got {', '.join(map(str, dtypes))}: convert them, or use "
            "torch.autocast"
        )


def _autocast(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x if x.dtype == torch.float64 else x.to(dtype)


@torch.compiler.disable
def _head_loss(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    row_weight: Tensor,
    delta: float,
    each_row: bool,
    shard: ClassShard | None,
) -> tuple[Tensor, Tensor]:
    differentiated = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (hidden, weight, bias))
    with torch.autocast(hidden.device.type, enabled=False):
        return _HeadLoss.apply(hidden, weight, bias, target, row_weight, delta, each_row, differentiated, shard)


def workspace_rows(rows: int, weight: Tensor, shard: ClassShard | None = None) -> int:
    """How many rows of logits the workspace holds, the same on every process that shares the classes."""
    least = CPU_WORKSPACE if weight.device.type == "cpu" else DEVICE_WORKSPACE
    classes = weight.size(0) if shard is None else shard.widest
    row_bytes = max(classes * weight.element_size(), 1)
    size = max(least, row_bytes * weight.size(1) // 2) // row_bytes
    return max(1, min(rows, max(size, FEWEST_ROWS)))


class _HeadLoss(torch.autograd.Function):
    """The weighted loss of each row, or their sum, and the number of classes that each row keeps."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        row_weight: Tensor,
        delta: float,
        each_row: bool,
        differentiated: bool,
        shard: ClassShard | None,
    ) -> tuple[Tensor, Tensor]:
        count = hidden.size(0)
        loss = torch.empty_like(row_weight)
        kept = torch.empty_like(target)
        workspace = weight.new_empty(workspace_rows(count, weight, shard), weight.size(0))
        wanted = ctx.needs_input_grad[:3] if differentiated else (False, False, False)
        gradients = (
            _HeadGradients(hidden, weight, bias, workspace, wanted, shard) if any(wanted) and not each_row else None
        )
        start = 0
        while start < count:
            stop = start + min(count - start, workspace.size(0) - (gradients.waiting if gradients else 0))
            logits = workspace[workspace.size(0) - (stop - start) :]
            _logits(hidden[start:stop], weight, bias, out=logits)
            piece = slice(start, stop)
            loss[piece], kept[piece] = _in_place_gradient(logits, target[piece], delta, shard)
            if gradients:
                index = torch.arange(start, stop, device=target.device)
                gradients.add(logits, index, kept[piece], row_weight[piece])
            start = stop
        ctx.mark_non_differentiable(kept)
        ctx.each_row = each_row
        if each_row and any(wanted):
            ctx.wanted, ctx.delta, ctx.shard = wanted, delta, shard
            ctx.save_for_backward(hidden, weight, bias, target, row_weight, kept)
        elif gradients:
            ctx.save_for_backward(*gradients.finish())
        loss = loss * row_weight
        return (loss if each_row else loss.sum()), kept

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.each_row:
            found = _gradients_of_rows(
                *ctx.saved_tensors, delta=ctx.delta, wanted=ctx.wanted, shard=ctx.shard, grad_loss=grad_loss
            )
        else:
            # a graph that is kept may be asked again, and must not see what became of this answer
            scale = torch.mul if graph_is_kept() else Tensor.mul_
            found = tuple(None if x is None else scale(x, grad_loss.to(x.dtype)) for x in ctx.saved_tensors)
        return (*found, None, None, None, None, None, None)


def _gradients_of_rows(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    row_weight: Tensor,
    kept: Tensor,
    *,
    delta: float,
    wanted: tuple[bool, ...],
    shard: ClassShard | None,
    grad_loss: Tensor,
) -> tuple[Tensor | None, ...]:
    """The gradients from the upstream gradient of each row: the live rows' logits are computed again."""
    workspace = weight.new_empty(workspace_rows(hidden.size(0), weight, shard), weight.size(0))
    gradients = _HeadGradients(hidden, weight, bias, workspace, wanted, shard)
    live = (kept > 1).nonzero().squeeze(-1)
    scale = grad_loss * row_weight
    start = 0
    while start < live.numel():
        stop = start + min(live.numel() - start, workspace.size(0) - gradients.waiting)
        index = live[start:stop]
        logits = workspace[workspace.size(0) - index.numel() :]
        _logits(hidden.index_select(0, index), weight, bias, out=logits)
        # among other rows a product may round differently: which classes are kept is asked again, not remembered
        _, row_kept = _in_place_gradient(logits, target.index_select(0, index), delta, shard)
        gradients.add(logits, index, row_kept, scale.index_select(0, index))
        start = stop
    return gradients.finish()


def _logits(hidden: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> Tensor:
    if bias is None:
        return torch.mm(hidden, weight.t(), out=out)
    return torch.addmm(bias, hidden, weight.t(), out=out)


def _in_place_gradient(logits: Tensor, target: Tensor, delta: float, shard: ClassShard | None) -> tuple[Tensor, Tensor]:
    """The loss and the kept classes of each row of a chunk of logits, over which its gradient is written."""
    if shard is not None:
        return shard_unit_gradient(logits, target, delta, shard)
    dtype = accumulation_dtype(logits.dtype)
    loss, kept = logits.new_empty(target.shape, dtype=dtype), torch.empty_like(target)
    for start, stop in blocks(logits.size(0), block_size(logits.size(0), logits.size(1), logits.device)):
        piece = slice(start, stop)
        block = logits[piece]
        out = block if block.dtype == dtype else torch.empty_like(block, dtype=dtype)
        loss[piece], kept[piece], _ = unit_gradient(block, target[piece], None, delta, out, pick=True)
        if out is not block:
            block.copy_(out)
    return loss, kept


class _HeadGradients:
    """Collects the gradients of hidden states, weight and bias from chunks of logits.

    The front of the workspace holds the logit gradients of the rows that wait for their matrix products; the chunks
    of logits lie at its back. The products run once half of it is full, so that they never have few rows.
    """

    def __init__(
        self,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        workspace: Tensor,
        wanted: tuple[bool, ...],
        shard: ClassShard | None,
    ) -> None:
        self.hidden, self.weight, self.workspace = hidden, weight, workspace
        self.dtype = accumulation_dtype(hidden.dtype)
        # which rows wait is decided by all classes: every process that shares them takes the same chunks
        self.listed_classes = int(LISTED_SHARE * (weight.size(0) if shard is None else shard.classes))
        self.shard = shard
        self.waiting = 0
        self._waiting_rows: list[Tensor] = []
        of_hidden, of_weight, of_bias = (
            torch.zeros_like(x, dtype=self.dtype) if x is not None and wants else None
            for x, wants in zip((hidden, weight, bias), wanted, strict=True)
        )
        self._of_hidden, self._of_weight, self._of_bias = of_hidden, of_weight, of_bias

    def add(self, gradient: Tensor, index: Tensor, kept: Tensor, scale: Tensor) -> None:
        """Take over a chunk of logit gradients, which lies in the workspace and is overwritten.

        Args:
            gradient: shape ``(n, C)``, before the upstream gradient.
            index: the rows' places among all rows; kept classes and upstream gradient are the rows' own.
        """
        listed = (kept > 1) & (kept <= self.listed_classes)
        self._add_listed(gradient, index, scale, listed.nonzero().squeeze(-1))
        self._add_dense(gradient, index, scale, ((kept > 1) & ~listed).nonzero().squeeze(-1))
        if 2 * self.waiting >= self.workspace.size(0):
            self._multiply()

    def finish(self) -> tuple[Tensor | None, ...]:
        """The gradients, in the dtype of the inputs."""
        self._multiply()
        if self.shard is not None and self._of_hidden is not None:
            self.shard.all_reduce_sum(self._of_hidden)
        found = (self._of_hidden, self._of_weight, self._of_bias)
        return tuple(None if x is None else x.to(self.hidden.dtype) for x in found)

    def _add_dense(self, gradient: Tensor, index: Tensor, scale: Tensor, picked: Tensor) -> None:
        for start, stop in blocks(picked.numel(), block_size(picked.numel(), gradient.size(1), gradient.device)):
            block = picked[start:stop]
            scaled = gradient.index_select(0, block) * scale.index_select(0, block).unsqueeze(-1)
            # rows that wait lie before the chunk, and of the chunk only rows already read are written over
            self.workspace[self.waiting : self.waiting + scaled.size(0)] = scaled
            self.waiting += scaled.size(0)
            self._waiting_rows.append(index.index_select(0, block))

    def _add_listed(self, gradient: Tensor, index: Tensor, scale: Tensor, picked: Tensor) -> None:
        for start, stop in blocks(picked.numel(), block_size(picked.numel(), gradient.size(1), gradient.device)):
            block = picked[start:stop]
            rows = gradient.index_select(0, block)
            entry_row, entry_class = rows.nonzero().unbind(-1)
            values = rows[entry_row, entry_class].to(self.dtype) * scale.index_select(0, block)[entry_row]
            self._add_entries(index.index_select(0, block)[entry_row], entry_class, values)

    def _add_entries(self, rows: Tensor, classes: Tensor, values: Tensor) -> None:
        """Add single entries of the logit gradient, given by row, class and value."""
        features = self.hidden.size(1)
        for start, stop in blocks(rows.numel(), block_size(rows.numel(), features, rows.device)):
            row, column, value = rows[start:stop], classes[start:stop], values[start:stop].unsqueeze(-1)
            if self._of_hidden is not None:
                self._of_hidden.index_add_(0, row, value * self.weight.index_select(0, column).to(self.dtype))
            if self._of_weight is not None:
                self._of_weight.index_add_(0, column, value * self.hidden.index_select(0, row).to(self.dtype))
            if self._of_bias is not None:
                self._of_bias.index_add_(0, column, value.squeeze(-1))

    def _multiply(self) -> None:
        if not self.waiting:
            return
        gradient, rows = self.workspace[: self.waiting], torch.cat(self._waiting_rows)
        if self._of_hidden is not None:
            self._of_hidden.index_copy_(0, rows, (gradient @ self.weight).to(self.dtype))
        if self._of_weight is not None:
            hidden = self.hidden.index_select(0, rows)
            if self.dtype == hidden.dtype:
                self._of_weight.addmm_(gradient.t(), hidden)
            else:  # piece by piece, so that the product's copy in half precision stays small
                classes = self.weight.size(0)
                for start, stop in blocks(classes, block_size(classes, hidden.size(1), hidden.device)):
                    self._of_weight[start:stop] += gradient[:, start:stop].t() @ hidden
        if self._of_bias is not None:
            self._of_bias += gradient.sum(0, dtype=self.dtype)
        self.waiting = 0
        self._waiting_rows.clear()
