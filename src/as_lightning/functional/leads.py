r"""How far the target leads its strongest competitor, and which samples have a gradient."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from as_lightning.functional.argument_checks import check_tensor
from as_lightning.functional.calibration import is_multilabel, known_entries
from as_lightning.functional.calling_convention import LabelRows, class_rows, label_rows, widened
from as_lightning.functional.masking import DEFAULT_DELTA, check_delta, masked_by_delta


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
    target_probability, strongest = target_and_strongest(logits.softmax(-1), target)
    return (target_probability - strongest).squeeze(-1)


def live_samples(
    logits: Tensor, target: Tensor, delta: float = DEFAULT_DELTA, ignore_index: int = -100
) -> Tensor:
    r"""Return the samples that have a gradient: those that keep a competitor at the margin.

    $$
    \text{live} \iff p_t - \max_{i \ne t} p_i \le \delta, \qquad p = \operatorname{softmax}(o)
    $$

    With several labels, a sample is live iff the margin keeps one of its labels. Loss and gradient
    of a sample that is not live are exactly zero. Nothing is read from the device.

    Args:
        logits: shape ``(C)``, ``(N, C)`` or ``(N, C, d1, ...)``.
        target: class indices, shape ``()``, ``(N)`` or ``(N, d1, ...)``; or 0 and 1 for several
            labels, of the logits' shape.
        delta: the margin, in [0, 1]. It need not be the margin of the loss.
        ignore_index: target value of rows, or of labels, that take no part: they are not live.

    Returns:
        Boolean tensor of the shape of ``logits`` without the class dimension. Rows with NaN logits
        are live.

    Raises:
        ValueError, TypeError, IndexError: as `as_cross_entropy` and `multilabel_as_cross_entropy`.

    Source: paper, section III.

    Examples:
        >>> import torch
        >>> logits = torch.tensor([[4.0, 0.0, 0.0], [1.0, 0.9, -2.0], [1.0, 0.9, -2.0]])
        >>> live_samples(logits, torch.tensor([0, 0, -100]), delta=0.5)
        tensor([False,  True, False])
    """
    delta = check_delta(delta)
    check_tensor("logits", logits)
    check_tensor("target", target)
    logits = logits.detach()
    if target.dim() == logits.dim():
        labels = label_rows(logits, target, ignore_index)
        return live_labels(labels, *multilabel_keep(labels, delta))
    rows, target_of_row, ignored = class_rows(logits, target, ignore_index)
    live = torch.zeros_like(target_of_row, dtype=torch.bool)
    if rows.size(-1) > 1:
        probability = widened(rows).softmax(-1)
        target_probability, strongest = target_and_strongest(probability, target_of_row)
        live = ~masked_by_delta(strongest, target_probability, delta).squeeze(-1)
    if ignored is not None:
        live = live & ~ignored
    return live.reshape(target.shape)


def target_and_strongest(probability: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return the target's probability and the largest other one, ``(..., 1)``.

    This overwrites ``probability``, ``(..., C)``.
    """
    column = target.unsqueeze(-1)
    target_probability = probability.gather(-1, column)
    return target_probability, probability.scatter_(-1, column, -1.0).amax(-1, keepdim=True)


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


def live_labels(labels: LabelRows, keep_as_negative: Tensor, keep_as_positive: Tensor) -> Tensor:
    """Return the samples of which at least one label is kept, without the label dimension."""
    kept_positive = labels.positive & keep_as_positive
    kept_negative = labels.negative & keep_as_negative
    return (kept_positive | kept_negative).any(-1)
