r"""Cross-entropy with weights from the class frequencies (Cui et al.: arXiv 1901.05555)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from as_lightning.functional.argument_checks import check_class_weight, check_number
from as_lightning.functional.calling_convention import cross_entropy_of
from as_lightning.functional.variants.class_counts import checked_counts


def class_weighted_loss(
    logits: Tensor,
    target: Tensor,
    *,
    class_counts: Tensor,
    power: float = 1.0,
    beta: float = 1.0,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    r"""``F.cross_entropy`` with a weight per class that falls with its number of training examples
    $n$.

    $$
    w_i \propto E_i^{-\text{power}}, \qquad \sum_i w_i = C, \qquad E_i = \frac{1 - \beta^{n_i}}{1 - \beta}
    $$

    ``beta=1`` is the limit $E_i = n_i$: the inverse frequency to a power. Below 1 it is the
    effective number of examples. ``power`` is 0 or more, and 0 is plain cross-entropy; ``beta``
    lies in (0, 1]. ``class_counts`` has shape ``(C)``; a class without an example counts as 1, and
    a warning names it. A ``weight`` multiplies these weights; it and the other arguments are those
    of `torch.nn.functional.cross_entropy`, whose mean divides by the sum of the samples' weights.
    ValueError is raised for counts of another shape, and for what is out of range.

    Source: Cui, Jia, Lin, Song, Belongie 2019 (arXiv 1901.05555), equations 2 and 5.

    Examples:
        >>> logits, target = torch.tensor([[1.0, 2.0], [1.0, 2.0]]), torch.tensor([0, 1])
        >>> class_weighted_loss(logits, target, class_counts=torch.tensor([90, 10]))
        tensor(0.4133)
    """
    counts = checked_counts(class_counts, logits)
    check_class_weight(weight, counts.numel())
    class_weight = _weights_of(counts, beta, power)
    weight = class_weight if weight is None else class_weight * weight
    return cross_entropy_of(
        lambda rows, _: rows,
        logits,
        target,
        weight=weight,
        ignore_index=ignore_index,
        reduction=reduction,
    )


def class_weights(class_counts: Tensor, beta: float = 1.0, power: float = 1.0) -> Tensor:
    """Return the weights of `class_weighted_loss`, for the ``weight`` of any loss: shape ``(C)``.

    Source: Cui et al. 2019 (arXiv 1901.05555), equations 2 and 5.

    Examples:
        >>> class_weights(torch.tensor([90, 10]))
        tensor([0.2000, 1.8000])
        >>> class_weights(torch.tensor([90, 10]), beta=0.9)
        tensor([0.7889, 1.2111])
    """
    one_row = torch.empty(class_counts.shape, device=class_counts.device)
    return _weights_of(checked_counts(class_counts, one_row), beta, power)


def _weights_of(counts: Tensor, beta: float, power: float) -> Tensor:
    """Return one weight per class, of mean 1, from checked counts."""
    power = check_number("power", power, lambda value: value >= 0, "a number of 0 or more")
    beta = check_number("beta", beta, lambda value: 0 < value <= 1, "a number in (0, 1]")
    effective_counts = counts
    if beta < 1:
        effective_counts = -torch.expm1(counts * math.log(beta))  # the 1 - beta cancels
    weight = effective_counts**-power
    return weight / weight.mean()
