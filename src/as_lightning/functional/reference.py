r"""AS-Softmax as its formulas say it: start to read here.

Nothing is fast, and nothing is checked. `as_cross_entropy` and `multilabel_as_cross_entropy`
compute the same numbers, and the tests compare them with these functions in float64.
"""

import torch
from torch import Tensor


def kept_classes(logits: Tensor, target: Tensor, delta: float) -> Tensor:
    r"""Return the classes that the margin keeps: $i = t$, or $p_t - p_i \le \delta$.

    Logits are ``(N, C)``, targets class indices ``(N,)``, and the result is boolean, ``(N, C)``.

    Source: paper, section III; the authors' code for the tie.

    Examples:
        >>> kept_classes(torch.tensor([[1.2, 1.5, 1.0, -0.35]]), torch.tensor([1]), delta=0.1)
        tensor([[False,  True, False, False]])
    """
    target_column = target.unsqueeze(1)
    probability = logits.detach().softmax(dim=1)  # the mask is a constant
    target_probability = probability.gather(1, target_column)
    kept = target_probability - probability <= delta
    return kept.scatter(1, target_column, True)


def as_softmax_losses(logits: Tensor, target: Tensor, delta: float) -> Tensor:
    r"""Return the loss of each sample, $\ell = \log \sum_{i \text{ kept}} e^{o_i} - o_t$.

    Logits are ``(N, C)``, targets class indices ``(N,)``.

    Source: paper, section III.

    Examples:
        >>> logits = torch.tensor([[4.0, 0.0, 0.0], [1.0, 0.9, -2.0]])
        >>> as_softmax_losses(logits, torch.tensor([0, 0]), delta=0.1)
        tensor([0.0000, 0.6444])
    """
    kept = kept_classes(logits, target, delta)
    lead = logits - logits.gather(1, target.unsqueeze(1))
    return lead.masked_fill(~kept, -torch.inf).logsumexp(dim=1)


def kept_labels(logits: Tensor, positive: Tensor, delta: float) -> Tensor:
    r"""Return the labels of one sample that the margin keeps.

    A negative $i$ is kept iff $\min_{t \in P} p_t - p_i \le \delta$, a positive $t$ iff $p_t -
    \max_{i \in N} p_i \le \delta$. Without positives, or without negatives, all are. Both arguments
    and the result have shape ``(C,)``.

    Source: paper, section III; the authors' code for the masks.

    Examples:
        >>> positive = torch.tensor([False, True, True, False])
        >>> kept_labels(torch.tensor([-9.0, 3.0, 3.5, 0.4]), positive, delta=0.4)
        tensor([ True,  True, False,  True])
    """
    if positive.all() or not positive.any():
        return torch.ones_like(positive)
    probability = logits.detach().softmax(dim=0)
    lead_of_positive = probability - probability[~positive].max()
    lead_over_negative = probability[positive].min() - probability
    return torch.where(positive, lead_of_positive, lead_over_negative) <= delta


def multilabel_as_softmax_loss(logits: Tensor, positive: Tensor, delta: float) -> Tensor:
    r"""Return the loss of one sample with several labels.

    $$
    \ell = \log\Bigl(1 + \sum_{i \in N \text{ kept}} e^{o_i}\Bigr)
    + \log\Bigl(1 + \sum_{t \in P \text{ kept}} e^{-o_t}\Bigr)
    $$

    Logits ``(C,)``; ``positive`` is boolean, ``(C,)``.

    Source: paper, section III.

    Examples:
        >>> multilabel_as_softmax_loss(torch.zeros(3), torch.tensor([True, False, False]), 0.1)
        tensor(1.7918)
    """
    kept = kept_labels(logits, positive, delta)
    threshold = torch.zeros(1, dtype=logits.dtype)  # the 1 in each sum is its exponential
    negatives = torch.cat([threshold, logits[kept & ~positive]])
    positives = torch.cat([threshold, -logits[kept & positive]])
    return negatives.logsumexp(dim=0) + positives.logsumexp(dim=0)
