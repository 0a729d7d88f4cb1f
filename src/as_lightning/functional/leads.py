r"""How far the target leads its strongest competitor, and which samples have a gradient (paper,
section III).
"""

from __future__ import annotations

import torch
from torch import Tensor

from as_lightning.functional.argument_checks import check_tensor
from as_lightning.functional.calibration import is_multilabel, known_entries
from as_lightning.functional.calling_convention import LabelRows, class_rows, label_rows, widened
from as_lightning.functional.masking import DEFAULT_DELTA, check_delta, masked_by_delta


def target_leads(logits: Tensor, target: Tensor, ignore_index: int = -100) -> Tensor:
    r"""The target's probability less the largest other one, in [-1, 1]: $p_t - \max_{i \ne t} p_i$.

    With several labels, ``target`` in {0, 1}, it is $\min_{t \in P} p_t - \max_{i \in N} p_i$, with
    $p$ over the known labels. Logits are ``(N, C)`` with ``C`` at least 2. The result has one
    number for each sample that is not ignored and, with several labels, has positives and
    negatives.
    """
    if is_multilabel(logits, target):
        _, weakest_positive, strongest_negative, two_sided = label_sides(
            label_rows(logits, target, ignore_index)
        )
        return (weakest_positive - strongest_negative)[two_sided]
    logits, target = known_entries(widened(logits.detach()), target, ignore_index)
    target_probability, strongest = target_and_strongest(logits.softmax(-1), target)
    return (target_probability - strongest).squeeze(-1)


def live_samples(
    logits: Tensor, target: Tensor, delta: float = DEFAULT_DELTA, ignore_index: int = -100
) -> Tensor:
    r"""The samples that have a gradient: those that keep at least one competitor at the margin
    ``delta``.

    $$
    \text{live} \iff p_t - \max_{i \ne t} p_i \le \delta, \qquad p = \operatorname{softmax}(o)
    $$

    With several labels, a sample is live iff the margin keeps one of its labels. Loss and gradient
    of a sample that is not live are exactly zero. Nothing is read from the device.

    Args:
        logits: shape ``(C)``, ``(N, C)`` or ``(N, C, d1, ...)``.
        target: class indices, shape ``()``, ``(N)`` or ``(N, d1, ...)``; or 0 and 1 for several
            labels, of the logits' shape.
        delta: the margin, in [0, 1]; the default, 0.1, is the paper's. It need not be the margin of
            the loss.
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
    rows, target_of_row, ignored, classes = class_rows(logits, target, ignore_index)
    live = torch.zeros_like(target_of_row, dtype=torch.bool)
    if classes > 1:
        target_probability, strongest = target_and_strongest(
            widened(rows).softmax(-1), target_of_row
        )
        live = ~masked_by_delta(strongest, target_probability, delta).squeeze(-1)
    return (live if ignored is None else live & ~ignored).reshape(target.shape)


def target_and_strongest(probability: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The target's probability and the largest other one, ``(..., 1)``; overwrites ``probability``,
    ``(..., C)``.
    """
    column = target.unsqueeze(-1)
    target_probability = probability.gather(-1, column)
    return target_probability, probability.scatter_(-1, column, -1.0).amax(-1, keepdim=True)


def label_sides(labels: LabelRows) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The probabilities over the known labels ``(..., C)``, those of the weakest positive (infinite
    without one) and of the strongest negative (-infinite without one), and whether a sample has
    both, each ``(..., 1)``; no gradient flows.
    """
    _, positive, negative, ignored = labels
    scores = labels.scores.detach()
    probability = (scores if ignored is None else scores.masked_fill(ignored, -torch.inf)).softmax(
        -1
    )
    weakest_positive = probability.masked_fill(~positive, torch.inf).amin(-1, keepdim=True)
    strongest_negative = probability.masked_fill(~negative, -torch.inf).amax(-1, keepdim=True)
    two_sided = positive.any(-1, keepdim=True) & negative.any(-1, keepdim=True)
    return probability, weakest_positive, strongest_negative, two_sided


def multilabel_keep(labels: LabelRows, delta: float) -> tuple[Tensor, Tensor]:
    """What the margin keeps as negatives, and what as positives, by the formula of
    `multilabel_as_cross_entropy`.

    Each mask is for its own side only. The positives are those of the target, also where a
    probability underflows.
    """
    probability, weakest_positive, strongest_negative, two_sided = label_sides(labels)
    negative_masked = masked_by_delta(probability, weakest_positive, delta)
    positive_masked = masked_by_delta(strongest_negative, probability, delta)
    return ~(negative_masked & two_sided), ~(positive_masked & two_sided)


def live_labels(labels: LabelRows, keep_as_negative: Tensor, keep_as_positive: Tensor) -> Tensor:
    """The samples of which at least one label is kept, shape ``(...)`` without the
    label dimension.
    """
    return ((labels.positive & keep_as_positive) | (labels.negative & keep_as_negative)).any(-1)
