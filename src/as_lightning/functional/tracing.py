"""Whether a call computes numbers, or PyTorch traces or transforms it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor  # torch has no public test for one
from torch.fx.experimental.symbolic_shapes import statically_known_true

# torch has no public test for this
_functorch_active = getattr(torch._C, "_are_functorch_transforms_active", lambda: False)
_PROXY = torch._C._TorchDispatchModeKey.PROXY
_TORCH_2_7 = hasattr(torch.compiler, "is_exporting")


def traced() -> bool:
    """True inside ``torch.compile`` and the transforms of ``torch.func``, where Python must not
    look at values.
    """
    return torch.compiler.is_compiling() or _functorch_active()


def transformed() -> bool:
    """True inside the transforms of ``torch.func``, which need PyTorch's own operations."""
    return _functorch_active() and not torch.compiler.is_compiling()


def recorded(x: Tensor) -> bool:
    """True while ``torch.export`` or ``make_fx`` records a call, and for a tensor without values
    (`FakeTensor`).
    """
    # in torch 2.7 and later; torch.compiler.is_exporting() is True in a graph of torch.compile too
    exporting = getattr(torch.compiler, "_is_exporting_flag", False)
    # the test of proxy_tensor.get_proxy_mode, in less time
    has_mode = not torch.compiler.is_compiling() and torch._C._len_torch_dispatch_stack() > 0
    return (
        isinstance(x, FakeTensor)
        or exporting
        or (has_mode and torch._C._get_dispatch_mode(_PROXY) is not None)
    )


def in_plain_operations(x: Tensor) -> bool:
    """Whether a call must be made of PyTorch's own operations, without an ``autograd.Function``.

    It must in a graph, in a transform of ``torch.func`` and in forward-mode differentiation.
    """
    return traced() or recorded(x) or has_tangent(x)


def certain(condition: bool) -> bool:
    """Whether a condition on sizes holds; inside the compiler, for every size that the graph is
    for.

    The compiler of torch 2.6 has no such test: there the condition guards the graph.
    """
    if not torch.compiler.is_compiling() or (
        torch.compiler.is_dynamo_compiling() and not _TORCH_2_7
    ):
        return condition
    return statically_known_true(condition)


def looks(tensor: Tensor) -> bool:
    """Whether the host may read the values: it need not wait for a device, and no trace or
    transform is active.
    """
    return tensor.is_cpu and not traced() and not recorded(tensor)


def batched(gradient: Tensor) -> bool:
    """Whether an upstream gradient stands for several at a time: ``is_grads_batched``,
    ``jacobian(vectorize=True)``.
    """
    functorch = torch._C._functorch  # torch has no public test for this
    return functorch.is_batchedtensor(gradient) or functorch.is_legacy_batchedtensor(gradient)


def has_tangent(*tensors: Tensor | None) -> bool:
    """Whether a tensor carries a tangent of forward-mode differentiation."""
    return any(
        x is not None and torch.autograd.forward_ad.unpack_dual(x).tangent is not None
        for x in tensors
    )
