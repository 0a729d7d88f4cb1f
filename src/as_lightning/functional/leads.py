"""How far the target leads its strongest competitor."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from as_lightning.functional.calling_convention import equals, widened
from as_lightning.functional.label_convention import LabelRows
from as_lightning.functional.temperature import is_multilabel, known_entries


def target_leads(logits: Tensor, target: Tensor, ignore_index: int = -100) -> Tensor:
    r"""The target's probability less the largest other one, for each sample.

    .. math:: p_t - \max_{i \ne t} p_i, \qquad p = \operatorname{softmax}(o)

    With several labels per sample it is the lead of the weakest positive over the strongest negative,
    :math:`\min_{t \in P} p_t - \max_{i \in N} p_i`, with :math:`p` over the known labels. AS-Softmax masks a sample
    whose lead is above the margin.

    Args:
        logits: shape ``(N, C)`` with ``C`` at least 2; half types are widened to float32.
        target: class indices of shape ``(N)``, or {0, 1} of shape ``(N, C)``.
        ignore_index: target value of rows, or of single labels, that take no part.

    Returns:
        Shape ``(N)``, in [-1, 1]. An ignored sample, and one without positives or without negatives, is left out.

    Raises:
        ValueError: if the shapes fit neither.

    Example:
        >>> target_leads(torch.tensor([[0.0, 0.0], [0.0, 100.0]]), torch.tensor([0, 1]))
        tensor([0., 1.])

    Source: paper, section III.
    """
    logits = widened(logits.detach())
    if is_multilabel(logits, target):
        positive, negative = target.bool(), ~target.bool()
        ignored = equals(target, ignore_index)
        if ignored is not None:
            positive, negative = positive & ~ignored, negative & ~ignored
        sides = label_sides(LabelRows(logits, positive, negative, ignored))
        return (sides.weakest_positive - sides.strongest_negative)[sides.two_sided]
    logits, target = known_entries(logits, target, ignore_index)
    own, strongest = target_and_strongest(logits.softmax(-1), target)
    return (own - strongest).squeeze(-1)


def target_and_strongest(probability: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The target's probability and the largest other one, both of shape ``(..., 1)``; overwrites ``probability``.

    Args:
        probability: shape ``(..., C)`` with ``C`` at least 2.
        target: class indices in range, shape ``(...)``.
    """
    column = target.unsqueeze(-1)
    own = probability.gather(-1, column)
    return own, probability.scatter_(-1, column, -1.0).amax(-1, keepdim=True)


class LabelSides(NamedTuple):
    """What a sample's positive and negative labels reach.

    Attributes:
        probability: the softmax over the known labels, shape ``(..., C)``.
        weakest_positive: the least probability of a positive label, shape ``(..., 1)``; infinite without any.
        strongest_negative: the largest probability of a negative label, shape ``(..., 1)``; -infinite without any.
        two_sided: samples with positive and with negative labels, boolean, shape ``(..., 1)``.
    """

    probability: Tensor
    weakest_positive: Tensor
    strongest_negative: Tensor
    two_sided: Tensor


def label_sides(labels: LabelRows) -> LabelSides:
    """The probabilities that the lead of several labels compares; no gradient flows."""
    positive, negative = labels.positive, labels.negative
    scores = labels.scores.detach()
    if labels.ignored is not None:
        scores = scores.masked_fill(labels.ignored, -torch.inf)
    probability = scores.softmax(-1)
    return LabelSides(
        probability=probability,
        weakest_positive=probability.masked_fill(~positive, torch.inf).amin(-1, keepdim=True),
        strongest_negative=probability.masked_fill(~negative, -torch.inf).amax(-1, keepdim=True),
        two_sided=positive.any(-1, keepdim=True) & negative.any(-1, keepdim=True),
    )
