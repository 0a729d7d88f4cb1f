r"""A bonus for samples that are classified well (Zhao et al.: arXiv 2110.06537)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from as_lightning.functional.argument_checks import check_number
from as_lightning.functional.calling_convention import loss_of_rows


def encouraging_loss(
    logits: Tensor,
    target: Tensor,
    *,
    log_end: float = 0.75,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    r"""Cross-entropy and a bonus that keeps the gradient large where the target is probable: $\ell
    = -\log p_t + b$.

    $$
    b = \log(1 - p_t) \text{ up to } p_t = e, \qquad
    b = \log(1 - e) - \frac{p_t - e}{1 - e} \text{ above, the tangent there}
    $$

    ``log_end`` $e$ lies in [0, 1); at 0 the bonus is $-p_t$. The loss is negative where the target
    is probable, and at least $\log(1 - e) - 1$. The other arguments are those of
    `torch.nn.functional.cross_entropy`.

    Source: Zhao, Yang, Lin, Sun 2022 (arXiv 2110.06537), section 4: the conservative bonus.

    Examples:
        >>> encouraging_loss(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([2]))
        tensor(-0.6867)
    """
    log_end = check_number("log_end", log_end, lambda value: 0 <= value < 1, "a number in [0, 1)")

    def row_loss(rows: Tensor, row_target: Tensor) -> Tensor:
        loss = F.cross_entropy(rows, row_target, reduction="none")
        complement, end = -torch.expm1(-loss), torch.full_like(loss, 1 - log_end)
        tangent = torch.minimum(complement, end) / end - 1
        return loss + torch.maximum(complement, end).log() + tangent

    return loss_of_rows(
        row_loss, logits, target, weight=weight, ignore_index=ignore_index, reduction=reduction
    )
