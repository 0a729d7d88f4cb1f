r"""Softmax with exp replaced by its Taylor polynomial (de Brebisson, Vincent: arXiv 1511.05042)."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from as_lightning.functional.argument_checks import check_count
from as_lightning.functional.calling_convention import cross_entropy_of, over_rows
from as_lightning.functional.tracing import in_plain_operations


def check_order(order: int) -> None:
    if check_count("order", order, least=2) not in (2, 4, 6):
        raise ValueError(
            f"order must be 2, 4 or 6 (an odd polynomial has negative values), got {order}"
        )


class _LogTaylor(torch.autograd.Function):
    r"""$\log f_k(x)$, elementwise, with the derivative $f_{k-1} / f_k$."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: int) -> Tensor:
        ctx.order = order
        lower, polynomial = _last_two_polynomials(x, order)
        ctx.save_for_backward(x, lower / polynomial)
        return polynomial.log_()  # only eager calls come here

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        x, derivative = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: the saved derivative is a constant
            lower, polynomial = _last_two_polynomials(x, ctx.order)
            derivative = lower / polynomial
        return grad * derivative, None


def _last_two_polynomials(x: Tensor, order: int) -> tuple[Tensor, Tensor]:
    power, lower, polynomial = x, x, x + 1.0
    for i in range(2, order + 1):
        power = power * x
        lower = polynomial
        polynomial = torch.add(lower, power, alpha=1.0 / math.factorial(i))
    return lower, polynomial


def _log_taylor(x: Tensor, order: int) -> Tensor:
    if in_plain_operations(x):
        return _last_two_polynomials(x, order)[1].log()
    return _LogTaylor.apply(x, order)


def taylor_softmax(logits: Tensor, *, order: int = 2, dim: int = -1) -> Tensor:
    r"""Softmax with the exponential replaced by its even-order Taylor polynomial.

    $$
    p_i = \frac{f_k(o_i)}{\sum_j f_k(o_j)}, \qquad f_k(x) = \sum_{i=0}^{k} \frac{x^i}{i!}
    $$

    *Not* invariant to a shift of logits, and order-preserving only above the minimum of $f_k$ (-1
    for order 2, about -1.60 for 4 and -2.18 for 6). The order ``k`` is 2, 4 or 6.

    Source: de Brebisson, Vincent 2016 (arXiv 1511.05042), section 3; Banerjee et al. 2020 (arXiv
        2011.11538).

    Examples:
        >>> taylor_softmax(torch.tensor([0.0, 1.0, 2.0]))
        tensor([0.1176, 0.2941, 0.5882])
    """
    check_order(order)
    return over_rows(lambda rows: _log_taylor(rows, order).softmax(-1), logits, dim)


def taylor_softmax_loss(
    logits: Tensor,
    target: Tensor,
    *,
    order: int = 2,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    r"""The negative log-likelihood under `taylor_softmax`: $\ell = \log \sum_j f_k(o_j) - \log
    f_k(o_t)$.

    The arguments but ``order`` are those of `torch.nn.functional.cross_entropy`.

    Source: de Brebisson, Vincent 2016 (arXiv 1511.05042), section 3.

    Examples:
        >>> taylor_softmax_loss(torch.tensor([[0.0, 1.0, 2.0]]), torch.tensor([2]))
        tensor(0.5306)
    """
    check_order(order)
    return cross_entropy_of(
        lambda rows, _: _log_taylor(rows, order),
        logits,
        target,
        weight=weight,
        ignore_index=ignore_index,
        reduction=reduction,
    )
