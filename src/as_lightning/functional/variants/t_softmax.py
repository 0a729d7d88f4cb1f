r"""Softmax at a temperature (Hinton, Vinyals, Dean: arXiv 1503.02531, equation 1)."""

from __future__ import annotations

from torch import Tensor

from as_lightning.functional.argument_checks import check_temperature
from as_lightning.functional.calling_convention import cross_entropy_of, over_rows


def t_softmax(logits: Tensor, *, tau: float = 0.5, dim: int = -1) -> Tensor:
    r"""Softmax along ``dim`` at the positive temperature ``tau``: $p_i = e^{o_i / \tau} / \sum_j
    e^{o_j / \tau}$.

    Source: Hinton, Vinyals, Dean 2015 (arXiv 1503.02531), equation 1.

    Examples:
        >>> import torch
        >>> t_softmax(torch.tensor([1.0, 2.0, 3.0]), tau=0.5)
        tensor([0.0159, 0.1173, 0.8668])
    """
    tau = check_temperature(tau)
    return over_rows(lambda rows: (rows / tau).softmax(-1), logits, dim)


def t_softmax_loss(
    logits: Tensor,
    target: Tensor,
    *,
    tau: float = 0.5,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    r"""Cross-entropy at temperature ``tau``: $\ell = \log \sum_j e^{o_j / \tau} - o_t / \tau$.

    It is not multiplied by $\tau^2$: a small temperature also means a large gradient. The other
    arguments are those of `torch.nn.functional.cross_entropy`.

    Source: Hinton, Vinyals, Dean 2015 (arXiv 1503.02531), equation 1.

    Examples:
        >>> import torch
        >>> t_softmax_loss(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([2]), tau=0.5)
        tensor(0.1429)
    """
    tau = check_temperature(tau)
    return cross_entropy_of(
        lambda rows, _: rows / tau,
        logits,
        target,
        weight=weight,
        ignore_index=ignore_index,
        reduction=reduction,
    )
