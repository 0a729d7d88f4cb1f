"""A wide head and its loss: ours, the dense one and the functions of others, on made-up hidden
states.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from as_lightning.functional import as_linear_cross_entropy

DELTA = 0.1
DENSE, COMPILED = "F.linear + F.cross_entropy", "the same, compiled"
OURS, MARGIN = "linear_cross_entropy (delta 1)", f"as_linear_cross_entropy (delta {DELTA})"
CHUNKED = "PyTorch's chunked linear_cross_entropy"
LIGER, CUT = "Liger-Kernel", "cut-cross-entropy"
ON_GPU = (LIGER, CUT)
DTYPES = ("float32", "bfloat16")
Loss = Callable[[Tensor, Tensor, Tensor], Tensor]


def dense(hidden: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(hidden, weight), target)


def loss_of(side: str) -> Loss:
    """The loss of a side, called as ``loss(hidden, weight, target)``.

    Raises:
        ImportError: if this environment lacks what the side needs.
    """
    if side == DENSE:
        return dense
    if side == COMPILED:
        torch.compiler.reset()
        return torch.compile(dense, dynamic=False)
    if side in (OURS, MARGIN):
        return partial(as_linear_cross_entropy, delta=1.0 if side == OURS else DELTA)
    if side == CHUNKED:
        options = getattr(torch.nn, "LinearCrossEntropyOptions", None)
        if options is None:
            raise ImportError(f"{CHUNKED} needs PyTorch 2.13 or later, this is {torch.__version__}")
        return partial(getattr(F, "linear_cross_entropy"), options=options())  # noqa: B009  (unknown to PyTorch 2.11)
    if side == LIGER:
        from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy

        def liger(hidden: Tensor, weight: Tensor, target: Tensor) -> Tensor:
            found = liger_fused_linear_cross_entropy(hidden, weight, target)
            return found[0] if isinstance(found, tuple) else found

        return liger
    if side == CUT:
        from cut_cross_entropy import linear_cross_entropy as cut_cross_entropy

        return cut_cross_entropy
    raise ValueError(f"there is no side {side!r}")


def batch(
    rows: int,
    classes: int,
    features: int,
    masked_share: float,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states of which a share is fully masked, a weight, and targets."""
    torch.manual_seed(0)
    weight = torch.randn(classes, features, device=device) / features**0.5
    target = torch.randint(classes, (rows,), device=device)
    hidden = torch.randn(rows, features, device=device) * 0.5
    masked = torch.randperm(rows, device=device)[: round(masked_share * rows)]
    hidden[masked] = 60.0 * F.normalize(weight[target[masked]], dim=-1)
    return hidden.to(dtype).requires_grad_(), weight.to(dtype).requires_grad_(), target


def forward_backward(loss: Loss, hidden: Tensor, weight: Tensor, target: Tensor) -> None:
    hidden.grad = weight.grad = None
    loss(hidden, weight, target).backward()
