r"""Softmax with exp replaced by its Taylor polynomial (de Brebisson, Vincent: arXiv 1511.05042)."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from as_lightning.functional.calling_convention import cross_entropy_of, over_rows

ORDERS = (2, 4, 6)


def check_order(order: int) -> int:
    """Return the order of the polynomial, or raise where it is none of 2, 4 and 6."""
    if isinstance(order, bool) or not isinstance(order, int):
        raise TypeError(f"order must be an int: 2, 4 or 6, got {order!r} of type {type(order).__name__}")
    if order not in ORDERS:
        why = "; an odd Taylor polynomial of exp is negative for small logits, which gives no probabilities"
        raise ValueError(f"order must be 2, 4 or 6, got {order}{why if order % 2 else ''}")
    return order


class _LogTaylor(torch.autograd.Function):
    r""":math:`\log f_k(x)`, :math:`f_k(x) = \sum_{i \le k} x^i / i!`, elementwise.

    The derivative is :math:`f_{k-1} / f_k`: one tensor to keep for the backward pass, beside the logits themselves,
    where autograd would keep a dozen. Second derivatives take the same fraction as plain operations.
    The polynomial is positive and has no cancellation worth speaking of (its minimum is 1/2, 0.27 and 0.15 for orders
    2, 4, 6), and overflows float32 past a logit of 2e6 at order 6, later at the lower orders.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: int) -> Tensor:
        lower, polynomial = _last_two_polynomials(x, order)
        ctx.order = order
        ctx.save_for_backward(x, lower / polynomial)
        return polynomial.log_()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        x, derivative = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: what was kept is a constant
            lower, polynomial = _last_two_polynomials(x, ctx.order)
            derivative = lower / polynomial
        return grad * derivative, None


def _last_two_polynomials(x: Tensor, order: int) -> tuple[Tensor, Tensor]:
    """The polynomials of the order before and of ``order``."""
    power, lower, polynomial = x, x, x + 1.0
    for i in range(2, order + 1):
        power = power * x
        lower = polynomial
        polynomial = torch.add(lower, power, alpha=1.0 / math.factorial(i))
    return lower, polynomial


def taylor_softmax(logits: Tensor, *, order: int = 2, dim: int = -1) -> Tensor:
    r"""Softmax with the exponential replaced by its even-order Taylor polynomial.

    .. math:: p_i = \frac{f_k(o_i)}{\sum_j f_k(o_j)}, \qquad
              f_k(x) = \sum_{i=0}^{k} \frac{x^i}{i!}, \quad k \text{ even}

    Strictly positive. *Not* invariant to a shift of the logits (:math:`f_k(x + c) \ne f_k(x) f_k(c)`), and
    order-preserving only above the minimum of :math:`f_k` (-1 for order 2, about -1.60 for 4 and -2.18 for 6): below
    it a smaller logit has a larger probability. Its tails are polynomial, so no logit of size 10 makes it one-hot.

    Args:
        logits: any shape, floating point (the half types are computed in float32).
        order: the order ``k`` of the polynomial: 2, 4 or 6.
        dim: the class dimension.

    Returns:
        Probabilities, of the shape and dtype of ``logits``.

    Raises:
        ValueError: if ``order`` is none of 2, 4 and 6.
        TypeError: if ``order`` is no int or ``logits`` no floating-point tensor.

    Source: de Brebisson, Vincent 2016 (arXiv 1511.05042), section 3; higher orders: Banerjee et al. 2020
    (arXiv 2011.11538).

    Example:
        >>> import torch
        >>> taylor_softmax(torch.tensor([0.0, 1.0, 2.0]))
        tensor([0.1176, 0.2941, 0.5882])
    """
    check_order(order)
    return over_rows(lambda rows: _LogTaylor.apply(rows, order).softmax(-1), logits, dim)


def taylor_softmax_loss(
    logits: Tensor,
    target: Tensor,
    *,
    order: int = 2,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    r"""The negative log-likelihood under the Taylor softmax.

    .. math:: \ell = \log \sum_j f_k(o_j) - \log f_k(o_t), \qquad f_k(x) = \sum_{i=0}^{k} \frac{x^i}{i!}

    Finite up to logits of 2e6 at order 6 (4e9 and 1e19 at orders 4 and 2).

    Args:
        logits: shape ``(C)``, ``(N, C)`` or ``(N, C, d1, ...)``, floating point (the half types are computed in
            float32).
        target: class indices, shape ``()``, ``(N)`` or ``(N, d1, ...)``.
        order: the order ``k`` of the polynomial: 2, 4 or 6.
        weight: a weight per class, shape ``(C)``.
        ignore_index: target value of rows that do not count.
        reduction: ``"none"``, ``"mean"`` or ``"sum"``.

    Returns:
        The loss in the dtype of ``logits`` (float32 under autocast): a scalar, or of the shape of ``target`` with
        ``reduction="none"``.

    Raises:
        ValueError: if ``order`` is none of 2, 4 and 6, the shapes do not fit, or ``reduction`` is unknown.
        TypeError: if ``order`` is no int or ``target`` holds no class indices.

    Source: de Brebisson, Vincent 2016 (arXiv 1511.05042), section 3.

    Example:
        >>> import torch
        >>> taylor_softmax_loss(torch.tensor([[0.0, 1.0, 2.0]]), torch.tensor([2]))
        tensor(0.5306)
    """
    check_order(order)
    return cross_entropy_of(
        lambda values: _LogTaylor.apply(values, order),
        logits,
        target,
        weight=weight,
        ignore_index=ignore_index,
        reduction=reduction,
    )
