"""Whether a call computes numbers, or PyTorch traces or transforms it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor  # torch has no public test for one
from torch.fx.experimental.symbolic_shapes import statically_known_true

# torch has no public tests for these
_functorch_active = getattr(torch._C, "_are_functorch_transforms_active", lambda: False)
_PROXY = torch._C._TorchDispatchModeKey.PROXY
_TORCH_2_7 = hasattr(torch.compiler, "is_exporting")


def traced() -> bool:
    """Return whether the call is inside ``torch.compile`` or a transform of ``torch.func``."""
    return torch.compiler.is_compiling() or _functorch_active()


def transformed() -> bool:
    """Return whether the call is inside a transform of ``torch.func``."""
    return _functorch_active() and not torch.compiler.is_compiling()


def recorded(x: Tensor) -> bool:
    """Return whether export, ``make_fx`` or ``torch.jit.trace`` records, or ``x`` has no values."""
    # torch.compiler.is_exporting() is True in a graph of torch.compile too
    if isinstance(x, FakeTensor) or getattr(torch.compiler, "_is_exporting_flag", False):
        return True
    if torch.compiler.is_compiling():
        return False
    if torch._C._get_tracing_state() is not None:  # torch.jit.is_tracing, in less time
        return True
    if torch._C._len_torch_dispatch_stack() == 0:
        return False
    # the test of proxy_tensor.get_proxy_mode, in less time
    return torch._C._get_dispatch_mode(_PROXY) is not None


def in_plain_operations(x: Tensor) -> bool:
    """Return whether a call must be made of PyTorch's own operations.

    It must in a graph, in a transform of ``torch.func`` and in forward-mode differentiation, none
    of which takes an ``autograd.Function``.
    """
    return traced() or recorded(x) or has_tangent(x)


def certain(condition: bool) -> bool:
    """Return whether a condition on sizes holds, in a graph for every size that it is for.

    The compiler of torch 2.6 has no such test: there the condition guards the graph.
    """
    if not torch.compiler.is_compiling():
        return condition
    if torch.compiler.is_dynamo_compiling() and not _TORCH_2_7:
        return condition
    return statically_known_true(condition)


def can_read_values(tensor: Tensor) -> bool:
    """Return whether the host may read the values, without a wait and outside of any trace."""
    return tensor.is_cpu and not traced() and not recorded(tensor)


def batched(gradient: Tensor) -> bool:
    """Return whether an upstream gradient stands for several, as with ``is_grads_batched``."""
    functorch = torch._C._functorch  # torch has no public test for this
    return functorch.is_batchedtensor(gradient) or functorch.is_legacy_batchedtensor(gradient)


def has_tangent(*tensors: Tensor | None) -> bool:
    """Return whether a tensor carries a tangent of forward-mode differentiation."""
    unpack = torch.autograd.forward_ad.unpack_dual
    return any(x is not None and unpack(x).tangent is not None for x in tensors)
