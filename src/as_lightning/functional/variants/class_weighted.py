r"""Weights from the class frequencies, for a long tail (Cui et al.: arXiv 1901.05555)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from as_lightning.functional.argument_checks import check_number
from as_lightning.functional.variants.class_counts import checked_counts


def class_weights(class_counts: Tensor, beta: float = 1.0, power: float = 1.0) -> Tensor:
    r"""Return a weight per class that falls with its number of training examples $n$.

    $$
    w_i \propto E_i^{-\text{power}}, \quad \sum_i w_i = C, \quad
    E_i = \frac{1 - \beta^{n_i}}{1 - \beta}
    $$

    They are for the ``weight`` of any loss. ``beta=1`` is the limit $E_i = n_i$: the inverse
    frequency to a power. Below 1 it is the effective number of examples. ``power`` is 0 or more,
    and 0 is plain cross-entropy; ``beta`` lies in (0, 1]. Counts and weights have shape ``(C)``; a
    class without an example counts as 1, and a warning names it. ValueError is raised for what is
    out of range.

    Source: Cui, Jia, Lin, Song, Belongie 2019 (arXiv 1901.05555), equations 2 and 5.

    Examples:
        >>> class_weights(torch.tensor([90, 10]))
        tensor([0.2000, 1.8000])
        >>> class_weights(torch.tensor([90, 10]), beta=0.9)
        tensor([0.7889, 1.2111])
    """
    power = check_number("power", power, lambda value: value >= 0, "a number of 0 or more")
    beta = check_number("beta", beta, lambda value: 0 < value <= 1, "a number in (0, 1]")
    one_row = torch.empty(class_counts.shape, device=class_counts.device)
    effective_counts = checked_counts(class_counts, one_row)
    if beta < 1:
        effective_counts = -torch.expm1(effective_counts * math.log(beta))  # the 1 - beta cancels
    weight = effective_counts**-power
    return weight / weight.mean()
