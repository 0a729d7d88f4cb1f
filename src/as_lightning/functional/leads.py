"""How far the target leads its strongest competitor."""

from __future__ import annotations

import torch
from torch import Tensor

from as_lightning.functional.calling_convention import equals
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
    widened = torch.promote_types(logits.dtype, torch.float32)
    logits = logits.detach().to(widened)
    if is_multilabel(logits, target):
        positive, negative = target.bool(), ~target.bool()
        ignored = equals(target, ignore_index)
        if ignored is not None:
            positive, negative = positive & ~ignored, negative & ~ignored
            logits = logits.masked_fill(ignored, -torch.inf)
        probabilities = logits.softmax(dim=-1)
        weakest = probabilities.masked_fill(~positive, torch.inf).amin(-1)
        strongest = probabilities.masked_fill(~negative, -torch.inf).amax(-1)
        return (weakest - strongest)[positive.any(-1) & negative.any(-1)]
    logits, target = known_entries(logits, target, ignore_index)
    probabilities = logits.softmax(dim=-1)
    index = target.unsqueeze(-1)
    own = probabilities.gather(-1, index).squeeze(-1)
    return own - probabilities.scatter(-1, index, -torch.inf).amax(-1)
