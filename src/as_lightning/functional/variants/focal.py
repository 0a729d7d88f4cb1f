r"""The focal loss (Lin et al.: arXiv 1708.02002)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from as_lightning.functional.argument_checks import check_number
from as_lightning.functional.calling_convention import loss_of_rows


def focal_loss(
    logits: Tensor,
    target: Tensor,
    *,
    gamma: float = 2.0,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    r"""Cross-entropy that counts less for a sample whose target is probable: $\ell = -(1 -
    p_t)^\gamma \log p_t$.

    ``gamma`` is 0 or more, and 0 is `torch.nn.functional.cross_entropy`, whose arguments the others
    are. The paper's $\alpha$ is ``weight``.

    Source: Lin, Goyal, Girshick, He, Dollár 2017 (arXiv 1708.02002), equation 4, with softmax for
        the sigmoid.

    Examples:
        >>> focal_loss(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([2]), gamma=2.0)
        tensor(0.0457)
    """
    gamma = check_number("gamma", gamma, lambda value: value >= 0, "a number of 0 or more")

    def row_loss(rows: Tensor, row_target: Tensor) -> Tensor:
        loss = F.cross_entropy(rows, row_target, reduction="none")
        # a power below 1 has no derivative at 0
        complement = (-torch.expm1(-loss)).clamp(min=torch.finfo(loss.dtype).tiny)
        return complement**gamma * loss

    return loss_of_rows(
        row_loss, logits, target, weight=weight, ignore_index=ignore_index, reduction=reduction
    )
