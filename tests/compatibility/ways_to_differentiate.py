"""The rows of the table that differentiate otherwise than a training does, on a head that never holds its logits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from compatibility.matrix import section
from torch import Tensor
from torch.nn import functional as F

from as_lightning.functional import as_cross_entropy, as_linear_cross_entropy
from as_lightning.functional.kernels import head_loss

TARGET = torch.tensor([0, 3, 7, 1])
GENERATOR = torch.Generator().manual_seed(0)
HIDDEN, WEIGHT = (torch.randn(rows, 5, generator=GENERATOR, dtype=torch.float64) for rows in (len(TARGET), 9))
supported, refused = (partial(row, where="one process") for row in section("Derivatives"))


def fused(hidden: Tensor, reduction: str = "mean", target: Tensor = TARGET) -> Tensor:
    with patch.object(head_loss, "FEW_LOGITS", 0):  # no head is too small for it
        return as_linear_cross_entropy(hidden, WEIGHT, target, reduction=reduction)


def dense(hidden: Tensor, reduction: str = "mean", target: Tensor = TARGET) -> Tensor:
    return as_cross_entropy(F.linear(hidden, WEIGHT), target, reduction=reduction)


def same_for_both(derivative: Callable[[Callable[..., Tensor]], Tensor]) -> None:
    torch.testing.assert_close(derivative(fused), derivative(dense))


@supported("create_graph=True with as_cross_entropy", "the right second derivative")
def second_derivative(folder: Path) -> None:
    assert torch.autograd.gradgradcheck(dense, HIDDEN.clone().requires_grad_())


@refused(
    "create_graph=True with the head that never holds its logits",
    "use as_cross_entropy of the logits",
)
def second_derivative_of_the_head(folder: Path) -> None:
    hidden = HIDDEN.clone().requires_grad_()
    with pytest.raises(RuntimeError, match=r"create_graph=True: for second derivatives use as_cross_entropy"):
        torch.autograd.grad(fused(hidden), hidden, create_graph=True)


@supported("is_grads_batched", "of a reduced loss")
def batched_gradients(folder: Path) -> None:
    upstream = torch.tensor([1.0, -2.0], dtype=torch.float64)

    def gradients(loss: Callable[..., Tensor]) -> Tensor:
        hidden = HIDDEN.clone().requires_grad_()
        return torch.autograd.grad(loss(hidden), hidden, upstream, is_grads_batched=True)[0]

    same_for_both(gradients)


@refused(
    'jacobian(vectorize=True) of the head with reduction="none"',
    "use vectorize=False, or as_cross_entropy of the logits",
)
def vectorised_jacobian(folder: Path) -> None:
    with pytest.raises(RuntimeError, match=r"use jacobian\(vectorize=False\)"):
        torch.autograd.functional.jacobian(lambda x: fused(x, "none"), HIDDEN, vectorize=True)
    same_for_both(lambda loss: torch.autograd.functional.jacobian(lambda x: loss(x, "none"), HIDDEN))


@supported("forward-mode differentiation", "holds the logits")
def forward_mode(folder: Path) -> None:
    same_for_both(lambda loss: torch.func.jvp(loss, (HIDDEN,), (torch.ones_like(HIDDEN),))[1])


@supported("torch.func: grad, vmap, jacrev", "holds the logits")
def functional_transforms(folder: Path) -> None:
    same_for_both(lambda loss: torch.func.grad(loss)(HIDDEN))
    same_for_both(lambda loss: torch.func.jacrev(lambda x: loss(x, "none"))(HIDDEN))
    same_for_both(lambda loss: torch.func.vmap(lambda x, t: loss(x, target=t))(HIDDEN, TARGET))
    same_for_both(lambda loss: torch.func.vmap(torch.func.grad(lambda x, t: loss(x, target=t)))(HIDDEN, TARGET))
