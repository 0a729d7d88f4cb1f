r"""Heads and logits whose classes are spread over processes: which DTensors the losses take, and what they become.

Weight and bias of a head are ``Shard(0)``, logits are sharded along their classes. The losses compute with what this
process holds and a `ClassShard`, which says where in the range of the classes it lies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed
from torch import Tensor

from as_lightning.functional.argument_checks import check_class_weight, check_one_device
from as_lightning.functional.calling_convention import check_class_indices, class_dimension
from as_lightning.functional.kernels.class_parallel import ClassShard
from as_lightning.functional.tracing import innermost, transformed

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Replicate, Shard
elif not torch.distributed.is_available():
    DTensor = ()  # nothing is an instance of it: such a build of PyTorch has none
else:
    from torch.distributed.tensor import DTensor, Replicate, Shard


def is_dtensor(x: Tensor | None) -> bool:
    """Whether a tensor is spread over processes."""
    return isinstance(x, DTensor)


def refuse_transforms(**operands: Tensor | None) -> None:
    """Raise ``RuntimeError`` if a transform or forward-mode differentiation, at work now, meets a DTensor."""
    for name, x in operands.items():
        if x is not None and is_dtensor(innermost(x)):
            raise RuntimeError(
                f"torch.func transforms and forward-mode differentiation do not take DTensors, and {name} is one: use "
                f"{name}.full_tensor() there, for the loss of one process"
            )


def is_placement_hook(hook: Callable[..., Any]) -> bool:
    """Whether a module's hook is one that PyTorch's ``parallelize_module`` registers, to place input or output."""
    return getattr(hook, "__module__", "").startswith("torch.distributed.tensor.")


class HeadNames(NamedTuple):
    """What a function calls hidden states, weight and bias of a head, target and class weights."""

    hidden: str
    weight: str
    bias: str
    target: str
    class_weight: str


class LocalHead(NamedTuple):
    """A head's operands as plain tensors: all rows, and this process's classes; ``shard`` is None without a DTensor."""

    hidden: Tensor
    weight: Tensor
    bias: Tensor | None
    target: Tensor
    class_weight: Tensor | None
    shard: ClassShard | None


def local_head(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    class_weight: Tensor | None,
    names: HeadNames,
) -> LocalHead:
    """The operands of a linear head as this process computes with them; ``names`` are the caller's, for the messages.

    Hidden states, targets and class weights (DTensors on the mesh of ``weight``, or plain tensors alike on every
    process) become whole on every process. The gradient of the hidden states goes back to their placement; that of
    weight and bias stays ``Shard(0)``.
    """
    if not isinstance(weight, DTensor):
        others = zip(names, (hidden, None, bias, target, class_weight), strict=True)
        _refuse_dtensors(names.weight, dict(others))
        return LocalHead(hidden, weight, bias, target, class_weight, None)
    shard = _class_shard(names.weight, weight, 0)
    mesh = weight.device_mesh
    if bias is not None:
        if not isinstance(bias, DTensor):
            raise TypeError(
                f"{names.weight} is a DTensor and {names.bias} is not: shard it too, Shard(0) on the mesh of "
                f"{names.weight}"
            )
        _class_shard(names.bias, bias, 0)
        _check_mesh(names.bias, bias, mesh)
    return LocalHead(
        _whole(names.hidden, hidden, mesh),
        weight.to_local(),
        None if bias is None else bias.to_local(),
        _whole_target(target, mesh, shard),
        None if class_weight is None else _whole(names.class_weight, class_weight, mesh),
        shard,
    )


class LocalLogits(NamedTuple):
    """Logits and targets as plain tensors: all rows, this process's classes; ``shard`` is None without a DTensor."""

    logits: Tensor
    target: Tensor
    weight: Tensor | None
    shard: ClassShard | None


def local_logits(logits: Tensor, target: Tensor, weight: Tensor | None) -> LocalLogits:
    """Logits sharded along their class dimension as this process computes with them; see `local_head`."""
    if transformed():
        refuse_transforms(logits=logits, target=target)
    if not isinstance(logits, DTensor):
        if is_dtensor(target) or is_dtensor(weight):
            _refuse_dtensors("logits", {"target": target, "weight": weight})
        return LocalLogits(logits, target, weight, None)
    check_one_device(logits=logits, target=target, weight=weight)
    check_class_indices(logits, target)
    check_class_weight(weight, logits.size(class_dimension(logits)))
    shard = _class_shard("logits", logits, class_dimension(logits))
    return LocalLogits(
        _LocalLogits.apply(logits),
        _whole_target(target, logits.device_mesh, shard),
        None if weight is None else _whole("weight", weight, logits.device_mesh),
        shard,
    )


class _LocalLogits(torch.autograd.Function):
    """``to_local()`` whose gradient has the strides of the logits: with others, as where the shards are uneven, PyTorch
    (2.11) accumulates it in a replica of all logits on every process.
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
        return DTensor.from_local(gradient, mesh, placements, run_check=False, shape=shape, stride=stride)


def _class_shard(name: str, x: DTensor, dimension: int) -> ClassShard:
    mesh, classes = x.device_mesh, x.size(dimension)
    placement = f"Shard({dimension})"
    if mesh.ndim != 1:
        raise ValueError(
            f"{name} must lie on a mesh of one dimension, got {mesh.ndim} ({mesh.mesh_dim_names}): shard the classes "
            'over one of them, as in mesh["tensor_parallel"], and leave the others to the strategy'
        )
    if x.placements != (Shard(dimension),):
        raise ValueError(
            f"{name} must be sharded along the classes, placement {placement}, got {x.placements[0]!r}: call "
            f"{name}.redistribute(placements=[{placement}]), or full_tensor() for the loss of one process"
        )
    if classes < mesh.size():
        raise ValueError(
            f"{name} has {classes} classes for {mesh.size()} processes: each needs at least one class to hold; use a "
            "smaller mesh"
        )
    widest = -(-classes // mesh.size())
    first = min(mesh.get_local_rank() * widest, classes)
    held, expected = x.to_local().size(dimension), min(widest, classes - first)
    if held != expected:
        raise ValueError(
            f"{name} must be sharded as torch.distributed.tensor.distribute_tensor does, {expected} of {classes} "
            f"classes on process {mesh.get_local_rank()} of {mesh.size()}, got {held}"
        )
    return ClassShard(mesh.get_group(), first, classes, widest)


def _refuse_dtensors(name: str, others: dict[str, Tensor | None]) -> None:
    for other, x in others.items():
        if isinstance(x, DTensor):
            raise TypeError(
                f"{other} is a DTensor and {name} is not: shard {name} along its classes too, or pass "
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
    # every process has to see the same rows, or each would wait for the others in another place
    places = torch.arange(1, target.numel() + 1, device=target.device)
    fingerprint = torch.stack([places.new_tensor(target.numel()), (places * target.reshape(-1)).sum()])
    bounds = shard.all_reduce_max(torch.cat([fingerprint, -fingerprint]))
    if not torch.equal(bounds[:2], -bounds[2:]):
        raise ValueError(
            "target differs between the processes that share the classes: each needs the same rows in the same order; "
            "if each process has rows of its own, pass hidden states and target as DTensors, Shard(0)"
        )
    return target
