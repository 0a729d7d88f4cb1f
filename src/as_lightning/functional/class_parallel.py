r"""Heads and logits whose classes are spread over processes: which DTensors the losses take, and
what they become.

Weight and bias of a head are ``Shard(0)``, logits are sharded along their classes. The losses
compute with this process's part and a `ClassShard`, its place in the range of the classes.

Three all-reduces of one or two numbers per row join the processes: the largest logit $M$, the sum
$S$ of the exponentials $e_i = e^{o_i - M}$ with the target's own, and what the margin keeps: with
$p_i = e_i / S$, $p_i < p_t - \delta$ is $e_i < e_t - \delta S$. Size and order of the all-reduces
follow from the shapes and from what the margin masks. Both are the same on every process, so all
processes wait in the same all-reduce.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.distributed
from torch import Tensor

from as_lightning.functional.argument_checks import check_class_weight, check_one_device
from as_lightning.functional.calling_convention import (
    ClassRows,
    HeadOperands,
    accumulation_dtype,
    check_class_indices,
    class_dimension,
    reduce_batch,
)
from as_lightning.functional.counts import MaskingCounts, counts_of_rows, live_rows
from as_lightning.functional.kernels.row_loss import (
    block_size,
    blocks,
    gradient_unit,
    graph_is_kept,
)
from as_lightning.functional.masking import all_masked_above, masked_by_delta
from as_lightning.functional.tracing import transformed

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Replicate, Shard
elif not torch.distributed.is_available():
    DTensor = ()  # nothing is an instance of it: this build of PyTorch has no DTensor
else:
    from torch.distributed.tensor import DTensor, Replicate, Shard


def refuse_transforms(**operands: Tensor | None) -> None:
    """Raise ``RuntimeError`` if an operand is a DTensor, for a call in a transform or forward-mode
    differentiation.
    """
    functorch = torch._C._functorch  # torch has no public test for this
    for name, x in operands.items():
        while x is not None and functorch.is_functorch_wrapped_tensor(x):
            x = functorch.get_unwrapped(x)
        if isinstance(x, DTensor):
            raise RuntimeError(
                "torch.func transforms and forward-mode differentiation do not take DTensors, and "
                f"{name} is one: use "
                f"{name}.full_tensor() there, for the loss of one process"
            )


def local_head(operands: HeadOperands) -> tuple[HeadOperands, ClassShard | None]:
    """The operands as plain tensors, with all rows and this process's classes; the shard is None
    without a DTensor.

    DTensors of hidden states, targets and class weights become whole on every process; plain
    tensors are alike on all.
    """
    hidden, head_weight, bias, target, weight = operands
    if not isinstance(head_weight, DTensor):
        _refuse_dtensors("the head's weight", operands._asdict())
        return operands, None
    shard = _class_shard("the head's weight", head_weight, 0)
    mesh = head_weight.device_mesh
    if bias is not None:
        if not isinstance(bias, DTensor):
            raise TypeError(
                "the head's weight is a DTensor and its bias is not: shard it too, Shard(0) on the "
                "mesh of the weight"
            )
        _class_shard("the head's bias", bias, 0)
        _check_mesh("the head's bias", bias, mesh)
    local = HeadOperands(
        _whole("the hidden states", hidden, mesh),
        head_weight.to_local(),
        None if bias is None else bias.to_local(),
        _whole_target(target, mesh, shard),
        None if weight is None else _whole("weight", weight, mesh),
    )
    return local, shard


def local_logits(
    logits: Tensor, target: Tensor, weight: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None, ClassShard | None]:
    """This process's logits, the whole target and class weights, and the shard; that is None
    without a DTensor.
    """
    if transformed():
        refuse_transforms(logits=logits, target=target)
    if not isinstance(logits, DTensor):
        if isinstance(target, DTensor) or isinstance(weight, DTensor):
            _refuse_dtensors("logits", {"target": target, "weight": weight})
        return logits, target, weight, None
    check_one_device(logits=logits, target=target, weight=weight)
    check_class_indices(logits, target)
    check_class_weight(weight, logits.size(class_dimension(logits)))
    shard = _class_shard("logits", logits, class_dimension(logits))
    target = _whole_target(target, logits.device_mesh, shard)
    weight = None if weight is None else _whole("weight", weight, logits.device_mesh)
    return _LocalLogits.apply(logits), target, weight, shard


class _LocalLogits(torch.autograd.Function):
    """``to_local()`` whose gradient has the strides of the logits: with others, as where the shards
    are uneven, PyTorch (2.11) accumulates it in a replica of all logits on every process.
    """

    @staticmethod
    def forward(ctx: Any, logits: DTensor) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.layout = logits.device_mesh, logits.placements, logits.shape, logits.stride()
        return logits.to_local()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None) -> DTensor | None:
        mesh, placements, shape, stride = ctx.layout
        if gradient is None:
            return None
        return DTensor.from_local(
            gradient, mesh, placements, run_check=False, shape=shape, stride=stride
        )


def _class_shard(name: str, x: DTensor, dimension: int) -> ClassShard:
    mesh, classes = x.device_mesh, x.size(dimension)
    placement = f"Shard({dimension})"
    if mesh.ndim != 1:
        raise ValueError(
            f"{name} must lie on a mesh of one dimension, got {mesh.ndim} ({mesh.mesh_dim_names}): "
            "shard the classes "
            'over one of them, as in mesh["tensor_parallel"], and leave the others to the strategy'
        )
    if x.placements != (Shard(dimension),):
        raise ValueError(
            f"{name} must be sharded along the classes, placement {placement}, got "
            f"{x.placements[0]!r}: call "
            f"{name}.redistribute(placements=[{placement}]), or full_tensor() for the loss of one "
            "process"
        )
    widest = -(-classes // mesh.size())
    first = min(mesh.get_local_rank() * widest, classes)
    held, expected = x.to_local().size(dimension), min(widest, classes - first)
    if held != expected:
        raise ValueError(
            f"{name} must be sharded as torch.distributed.tensor.distribute_tensor does, "
            f"{expected} of {classes} "
            f"classes on process {mesh.get_local_rank()} of {mesh.size()}, got {held}"
        )
    return ClassShard(mesh.get_group(), first, classes, widest)


def _refuse_dtensors(name: str, others: dict[str, Tensor | None]) -> None:
    for other, x in others.items():
        if isinstance(x, DTensor):
            raise TypeError(
                f"{other} is a DTensor and {name} is not: shard {name} along its classes too, or "
                "pass "
                f"{other}.full_tensor() or {other}.to_local()"
            )


def _check_mesh(name: str, x: DTensor, mesh: DeviceMesh) -> None:
    if x.device_mesh != mesh:
        raise ValueError(f"{name} must lie on the mesh of the classes, {mesh}, got {x.device_mesh}")


def _whole(name: str, x: Tensor, mesh: DeviceMesh) -> Tensor:
    """All of ``x`` on every process. Its gradient has to be whole on every process too."""
    if not isinstance(x, DTensor):
        return x
    _check_mesh(name, x, mesh)
    return x.redistribute(placements=[Replicate()]).to_local(grad_placements=[Replicate()])


def _whole_target(target: Tensor, mesh: DeviceMesh, shard: ClassShard) -> Tensor:
    if isinstance(target, DTensor):
        return _whole("target", target, mesh)
    # every process must have the same rows, or the processes would wait in different all-reduces
    indices = target.reshape(-1).long()
    for values in (
        indices.new_tensor([indices.numel()]),
        indices,
    ):  # the number first: an all-reduce needs one length
        largest, negated_smallest = shard.all_reduce(torch.stack([values, -values]), "MAX")
        if not torch.equal(largest, -negated_smallest):
            raise ValueError(
                "target differs between the processes that share the classes: each needs the same "
                "rows in the same "
                "order; if each process has rows of its own, pass hidden states and target as "
                "DTensors, Shard(0)"
            )
    return target


@dataclass(frozen=True)
class ClassShard:
    """Which classes this process holds: from ``first``, of ``classes`` in all, at most ``widest``
    on any process.
    """

    group: torch.distributed.ProcessGroup
    first: int
    classes: int
    widest: int

    def all_reduce(self, x: Tensor, op: Literal["SUM", "MAX"]) -> Tensor:
        """Reduce over the processes, in place."""
        torch.distributed.all_reduce(x, getattr(torch.distributed.ReduceOp, op), self.group)
        return x


def shard_unit_gradient(
    logits: Tensor, target: Tensor, delta: float, shard: ClassShard
) -> tuple[Tensor, Tensor]:
    """The loss of each row and its masked competitors among all classes; the gradient overwrites
    ``logits``.

    Both are ``(N, C_local)``. The gradient is stored times `gradient_unit`, and means nothing in a
    fully masked row.
    """
    dtype = accumulation_dtype(logits.dtype)
    eps = torch.finfo(dtype).eps
    peak = logits.amax(-1) if logits.size(1) else logits.new_full(logits.shape[:1], -torch.inf)
    peak = shard.all_reduce(peak.to(dtype), "MAX")
    rows = _ShardRows(logits, target - shard.first, peak)
    sums = torch.stack([torch.zeros_like(peak), rows.target_score()])
    total, target_score = sums
    rows.sum_exponentials(out=total)
    shard.all_reduce(sums, "SUM")

    e_target = target_score.exp()
    fully_masked = (e_target > total * all_masked_above(delta)) & (delta < 1.0)
    mixed = (e_target > total * delta) & ~fully_masked & (delta < 1.0)
    # equal logits can have exponentials that differ in the last digits, on another process or in
    # another place
    bound = (e_target * (1.0 - 4 * eps) - delta * total).where(mixed, 0.0)
    kept_sums = torch.zeros(
        2, peak.numel(), dtype=torch.float64, device=logits.device
    )  # float64 counts exactly
    kept_total, masked = kept_sums
    for index in _index_blocks(mixed, logits):
        e, dropped = rows.kept_exponentials(index, bound)
        kept_total[index] = e.sum(-1, dtype=torch.float64)
        masked[index] = dropped.sum(-1).double()
    shard.all_reduce(kept_sums, "SUM")

    masked.masked_fill_(fully_masked, shard.classes - 1)
    live = masked < shard.classes - 1
    kept_total = kept_total.to(dtype).where(mixed, total)
    rows.write_gradient(live, kept_total, bound)
    loss = (kept_total.log() - target_score).clamp_(min=0.0).masked_fill_(~live, 0.0)
    return loss, masked.long()


class _ShardRows:
    """The exponentials of this process's logits, less the row's ``peak``, and the gradient computed
    from them.

    The exponentials overwrite the logits. Half types have too few digits for the margin: there the
    exponentials are computed again, block by block. ``target`` counts from this process's first
    class.
    """

    def __init__(self, logits: Tensor, target: Tensor, peak: Tensor) -> None:
        self.logits, self.target, self.peak = logits, target, peak
        self.owned = (target >= 0) & (target < logits.size(1))
        self.in_place = logits.dtype == peak.dtype

    def target_score(self) -> Tensor:
        """The target's logit less the maximum; 0 where another process holds it."""
        rows, classes = self._targets(self.owned, self.target)
        score = torch.zeros_like(self.peak)
        return score.index_copy(
            0, rows, self.logits[rows, classes].to(score.dtype) - self.peak.index_select(0, rows)
        )

    def sum_exponentials(self, out: Tensor) -> None:
        """Sum the exponentials over the classes; in place, this computes them."""
        for piece in self._pieces():
            block = self.logits[piece].to(self.peak.dtype)
            peak = self.peak[piece].unsqueeze(-1)
            e = (block.sub_(peak) if self.in_place else block - peak).exp_()
            torch.sum(e, -1, out=out[piece])

    def kept_exponentials(self, index: Tensor, bound: Tensor) -> tuple[Tensor, Tensor]:
        """The exponentials of the rows ``index``, 0 for classes below the row's bound; and the mask
        of these.
        """
        e = self.logits.index_select(0, index)
        if not self.in_place:
            e = (e.to(self.peak.dtype) - self.peak.index_select(0, index).unsqueeze(-1)).exp_()
        dropped = masked_by_delta(e, bound.index_select(0, index).unsqueeze(-1), 0.0)
        e.masked_fill_(dropped, 0.0)
        if self.in_place:
            self.logits.index_copy_(0, index, e)
        return e, dropped

    def write_gradient(self, live: Tensor, kept_total: Tensor, bound: Tensor) -> None:
        """Turn the live rows into their gradient, the softmax over the kept classes less 1 at the
        target.
        """
        if self.in_place:
            for piece in self._pieces():
                if bool(live[piece].any()):
                    self.logits[piece].div_(kept_total[piece].unsqueeze(-1))
            self.logits[self._targets(self.owned, self.target)] -= 1.0
            return
        for index in _index_blocks(live, self.logits):
            e, _ = self.kept_exponentials(index, bound)
            q = e.div_(kept_total.index_select(0, index).unsqueeze(-1))
            q[
                self._targets(self.owned.index_select(0, index), self.target.index_select(0, index))
            ] -= 1.0
            self.logits.index_copy_(
                0, index, q.mul_(gradient_unit(self.logits.dtype)).to(self.logits.dtype)
            )

    @staticmethod
    def _targets(owned: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """The places of the targets that this process holds, as row and class."""
        rows = owned.nonzero().squeeze(-1)
        return rows, target.index_select(0, rows)

    def _pieces(self) -> Iterator[slice]:
        count, classes = self.logits.shape
        return (
            slice(*bounds)
            for bounds in blocks(count, block_size(count, classes, self.logits.device))
        )


def _index_blocks(chosen: Tensor, logits: Tensor) -> list[Tensor]:
    """The indices of the chosen rows, a block at a time."""
    index = chosen.nonzero().squeeze(-1)
    return (
        list(index.split(block_size(index.numel(), logits.size(1), logits.device)))
        if index.numel()
        else []
    )


class ShardRowLoss(torch.autograd.Function):
    """The unweighted loss of each row and its masked competitors; differentiable once.

    The upstream gradient has to be the same on every process, as that of a replicated loss is.
    """

    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        target: Tensor,
        ignored: Tensor | None,
        delta: float,
        shard: ClassShard,
    ) -> tuple[Tensor, Tensor]:
        gradient = rows.clone(memory_format=torch.contiguous_format)
        loss, masked = shard_unit_gradient(gradient, target, delta, shard)
        if ignored is not None:
            loss.masked_fill_(ignored, 0.0)
            masked.masked_fill_(ignored, 0)
        gradient.index_fill_(
            0, (~live_rows(masked, ignored, shard.classes)).nonzero().squeeze(-1), 0.0
        )
        ctx.save_for_backward(gradient)
        ctx.mark_non_differentiable(masked)
        return loss, masked

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor, None, None, None, None]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "the loss of sharded logits can be differentiated once, and this backward was "
                "called with "
                "create_graph=True: for second derivatives gather the logits, "
                "as_cross_entropy(logits.full_tensor(), "
                "target)"
            )
        (gradient,) = ctx.saved_tensors
        scale = (grad_loss / gradient_unit(gradient.dtype)).unsqueeze(-1)
        if not graph_is_kept():
            return gradient.mul_(scale), None, None, None, None
        return (gradient * scale).to(gradient.dtype), None, None, None, None


def sharded_loss(
    batch: ClassRows,
    delta: float,
    weight: Tensor | None,
    reduction: str,
    counting: bool,
    *,
    shard: ClassShard,
) -> tuple[Tensor, MaskingCounts | None]:
    """A `RowsLoss` of this process's classes."""
    loss, masked = ShardRowLoss.apply(batch.logits, batch.target, batch.ignored, delta, shard)
    counts = counts_of_rows(masked, batch.ignored, batch.classes) if counting else None
    return reduce_batch(loss, batch, weight, reduction), counts
