"""Refuses second derivatives where a loss has none: without this they would be dropped in silence."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def differentiable_once(x: Tensor, name: str) -> Tensor:
    """``x``, whose gradient refuses to be differentiated again.

    For losses that give their gradient as a constant, as those of other packages do. Autograd would take the second
    derivative for 0.

    Args:
        x: what the loss is computed from.
        name: of the loss, for the message.

    Raises:
        RuntimeError: in the backward pass of a gradient that was made with ``create_graph=True``.
    """
    return _Once.apply(x, name)


class _Once(torch.autograd.Function):
    """The identity; its gradient is one that knows where it comes from."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, name: str) -> Tensor:
        ctx.name = name
        ctx.save_for_backward(x)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        if torch.is_grad_enabled():
            gradient = _Refusal.apply(gradient, *ctx.saved_tensors, ctx.name)
        return gradient, None


class _Refusal(torch.autograd.Function):
    """The gradient, to autograd a function of ``x``; its derivative is refused."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, x: Tensor, name: str) -> Tensor:
        ctx.name = name
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor, Tensor, None]:
        raise RuntimeError(
            f"{ctx.name} can be differentiated once, and this is the backward pass of a gradient that was made with "
            "create_graph=True: leave the gradient out of the loss, or use a loss with second derivatives, such as "
            "as_cross_entropy"
        )
