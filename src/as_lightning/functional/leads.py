r"""How far the target leads its strongest competitor, and which labels the margin keeps."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from as_lightning.functional.calibration import is_multilabel, known_entries
from as_lightning.functional.calling_convention import LabelRows, label_rows, widened
from as_lightning.functional.masking import masked_by_delta


def target_leads(logits: Tensor, target: Tensor, ignore_index: int = -100) -> Tensor:
    r"""Return the target's probability less the largest other one: $p_t - \max_{i \ne t} p_i$.

    With several labels, ``target`` in {0, 1}, it is $\min_{t \in P} p_t - \max_{i \in N} p_i$, with
    $p$ over the known labels. Logits are ``(N, C)`` with ``C`` at least 2. The result has one
    number for each sample that is not ignored and, with several labels, has positives and
    negatives.
    """
    if is_multilabel(logits, target):
        sides = label_sides(label_rows(logits, target, ignore_index))
        return (sides.weakest_positive - sides.strongest_negative)[sides.two_sided]
    logits, target = known_entries(widened(logits.detach()), target, ignore_index)
    probability, column = logits.softmax(-1), target.unsqueeze(-1)
    target_probability = probability.gather(-1, column)
    strongest = probability.scatter_(-1, column, -1.0).amax(-1, keepdim=True)
    return (target_probability - strongest).squeeze(-1)


class LabelSides(NamedTuple):
    """Where the two sides of samples with several labels meet; no gradient flows.

    ``probability`` is over the known labels, ``(..., C)``. The others are ``(..., 1)``: the
    probabilities of the weakest positive (infinite without one) and of the strongest negative
    (-infinite without one), and whether a sample has both.
    """

    probability: Tensor
    weakest_positive: Tensor
    strongest_negative: Tensor
    two_sided: Tensor


def label_sides(labels: LabelRows) -> LabelSides:
    """Return where the two sides of samples with several labels meet."""
    scores = labels.scores.detach()
    if labels.ignored is not None:
        scores = scores.masked_fill(labels.ignored, -torch.inf)
    probability = scores.softmax(-1)
    return LabelSides(
        probability,
        probability.masked_fill(~labels.positive, torch.inf).amin(-1, keepdim=True),
        probability.masked_fill(~labels.negative, -torch.inf).amax(-1, keepdim=True),
        labels.positive.any(-1, keepdim=True) & labels.negative.any(-1, keepdim=True),
    )


def multilabel_keep(labels: LabelRows, delta: float) -> tuple[Tensor, Tensor]:
    """Return what the margin keeps as negatives, and what as positives.

    Each mask is for its own side only. The positives are those of the target, also where a
    probability underflows.
    """
    probability, weakest_positive, strongest_negative, two_sided = label_sides(labels)
    negative_masked = masked_by_delta(probability, weakest_positive, delta)
    positive_masked = masked_by_delta(strongest_negative, probability, delta)
    return ~(negative_masked & two_sided), ~(positive_masked & two_sided)
