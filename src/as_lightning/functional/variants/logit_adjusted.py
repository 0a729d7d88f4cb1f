r"""Logit adjustment for a long tail (Menon et al.: arXiv 2007.07314)."""

from __future__ import annotations

from torch import Tensor

from as_lightning.functional.argument_checks import check_number
from as_lightning.functional.calling_convention import cross_entropy_of
from as_lightning.functional.variants.class_counts import log_prior


def logit_adjusted_loss(
    logits: Tensor,
    target: Tensor,
    *,
    class_counts: Tensor,
    tau: float = 1.0,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    r"""Cross-entropy of logits to which the log of each class's share of the training data is
    added.

    $$
    \ell = \log \sum_j \pi_j^\tau e^{o_j} - \log \bigl( \pi_t^\tau e^{o_t} \bigr), \qquad
    \pi_j = n_j / \sum_i n_i
    $$

    The logits themselves then rank the classes as if each were equally frequent: predict with them,
    unadjusted. ``class_counts`` $n$ has shape ``(C)``; a class without an example counts as 1, and
    a warning names it. ``tau`` is 0 or more, and 0 is `torch.nn.functional.cross_entropy`, whose
    arguments the others are. ValueError is raised for counts of another shape, negative counts, and
    a negative ``tau``.

    Source: Menon et al. 2021 (arXiv 2007.07314), equation 10.

    Examples:
        >>> import torch
        >>> counts, logits = torch.tensor([90, 9, 1]), torch.tensor([[1.0, 2.0, 3.0]])
        >>> logit_adjusted_loss(logits, torch.tensor([2]), class_counts=counts)
        tensor(2.8028)
    """
    tau = check_number("tau", tau, lambda value: value >= 0, "a number of 0 or more")
    adjustment = tau * log_prior(class_counts, logits)

    def adjusted(rows: Tensor, _: Tensor) -> Tensor:
        # a sum with a logit of 1e4 would round it
        return rows - rows.detach().amax(-1, keepdim=True) + adjustment

    return cross_entropy_of(
        adjusted, logits, target, weight=weight, ignore_index=ignore_index, reduction=reduction
    )
