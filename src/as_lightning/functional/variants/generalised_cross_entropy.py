r"""Between cross-entropy and the absolute error (Zhang, Sabuncu: arXiv 1805.07836)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from as_lightning.functional.argument_checks import check_number
from as_lightning.functional.calling_convention import loss_of_rows


def generalised_cross_entropy_loss(
    logits: Tensor,
    target: Tensor,
    *,
    q: float = 0.7,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    r"""A loss of at most $1 / q$, so that a wrong label costs little: $\ell = (1 - p_t^q) / q$.

    Its gradient is that of cross-entropy times $p_t^q$. ``q`` lies in [0, 1]: 1 is the absolute
    error $1 - p_t$, and 0 the limit, `torch.nn.functional.cross_entropy`, whose arguments the
    others are.

    Source: Zhang, Sabuncu 2018 (arXiv 1805.07836), equation 6.

    Examples:
        >>> generalised_cross_entropy_loss(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([0]))
        tensor(1.1637)
    """
    q = check_number("q", q, lambda value: 0 <= value <= 1, "a number in [0, 1]")

    def row_loss(rows: Tensor, row_target: Tensor) -> Tensor:
        loss = F.cross_entropy(rows, row_target, reduction="none")
        if q == 0:
            return loss
        return -torch.expm1(-q * loss) / q

    return loss_of_rows(
        row_loss, logits, target, weight=weight, ignore_index=ignore_index, reduction=reduction
    )
