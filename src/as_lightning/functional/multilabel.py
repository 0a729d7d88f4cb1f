r"""The AS-Softmax loss of several labels a sample (paper, section III)."""

from __future__ import annotations

from typing import Literal, overload

import torch
from torch import Tensor

from as_lightning.functional.argument_checks import check_reduction
from as_lightning.functional.calling_convention import label_rows, reduce_samples
from as_lightning.functional.counts import MaskingCounts
from as_lightning.functional.leads import multilabel_keep
from as_lightning.functional.masking import DEFAULT_DELTA, check_delta


@overload
def multilabel_as_cross_entropy(
    logits: Tensor,
    target: Tensor,
    delta: float = ...,
    *,
    ignore_index: int = ...,
    reduction: str = ...,
    return_counts: Literal[False] = ...,
) -> Tensor: ...
@overload
def multilabel_as_cross_entropy(
    logits: Tensor,
    target: Tensor,
    delta: float = ...,
    *,
    ignore_index: int = ...,
    reduction: str = ...,
    return_counts: Literal[True],
) -> tuple[Tensor, MaskingCounts]: ...
def multilabel_as_cross_entropy(
    logits: Tensor,
    target: Tensor,
    delta: float = DEFAULT_DELTA,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    return_counts: bool = False,
) -> Tensor | tuple[Tensor, MaskingCounts]:
    r"""Multi-label cross-entropy over the labels that the margin keeps.

    $$
    \ell = \log\Bigl(1 + \sum_{i \in N \text{ kept}} e^{o_i}\Bigr)
    + \log\Bigl(1 + \sum_{t \in P \text{ kept}} e^{-o_t}\Bigr)
    $$

    with $p = \operatorname{softmax}(o)$ over the known labels, negative $i$ kept iff $\min_{t \in
    P} p_t - p_i \le \delta$ and positive $t$ kept iff $p_t - \max_{i \in N} p_i \le \delta$. The
    mask is a constant. A sample without positives (or without negatives) keeps every label.
    ``delta=1`` is the loss without a mask.

    In the counts, ``classes`` is every known label of every sample, positives and negatives, and a
    masked sample is one with all of them masked. A label that is not known has no share in ``p``,
    no gradient, and no place in the counts.

    Args:
        logits: shape ``(C)``, ``(N, C)`` or ``(N, C, d1, ...)``; float16 and bfloat16 are computed
            in float32.
        target: of that shape: 1 at each positive label, 0 at each negative one, ``ignore_index``
            where it is not known.
        delta: the margin, in [0, 1].
        ignore_index: target value of the labels that are not known.
        reduction: ``"none"``, ``"mean"`` (over the samples with a known label) or ``"sum"``.
        return_counts: also return the `MaskingCounts`: ``(loss, counts)``.

    Returns:
        The loss in the dtype of ``logits`` (float32 under autocast): a scalar, or without the label
        dimension with ``"none"``.

    Raises:
        ValueError: if ``delta`` or ``reduction`` is out of range, the shapes differ, or (on the
            CPU) ``target`` holds anything but 0, 1 and ``ignore_index``.
        TypeError: if an argument is of a wrong type.

    Source: paper, section III; authors' code for the masks.

    Examples:
        The example of the authors' code, at the paper's margin.

        >>> import torch
        >>> rows = [1.2, 1.5, 1.0, -0.35], [2.5, 3.5, 0.4, 0.3], [2.5, 3.5, 0.4, 0.3]
        >>> logits = torch.tensor(rows)
        >>> target = torch.tensor([[1, 1, 0, 0], [0, 1, 1, 0], [1, 1, 0, 1]])
        >>> multilabel_as_cross_entropy(logits, target, delta=0.1)
        tensor(2.0778)
    """
    delta = check_delta(delta)
    check_reduction(reduction)
    labels = label_rows(logits, target, ignore_index)
    if labels.scores.size(-1) == 0:
        raise ValueError(f"logits must have at least one label, got shape {tuple(logits.shape)}")
    keep_as_negative, keep_as_positive = multilabel_keep(labels, delta)
    kept_negative = labels.negative & keep_as_negative
    kept_positive = labels.positive & keep_as_positive
    loss_of_negatives = log_one_plus_sum_exp(labels.scores, kept_negative)
    loss_of_positives = log_one_plus_sum_exp(-labels.scores, kept_positive)
    loss = reduce_samples(loss_of_negatives + loss_of_positives, labels, logits, reduction)
    if not return_counts:
        return loss
    known = labels.positive | labels.negative
    kept = kept_negative | kept_positive
    samples, live = known.any(-1), kept.any(-1)
    counts = (samples & ~live).sum(), samples.sum(), (known & ~kept).sum(), known.sum()
    return loss, MaskingCounts(*counts)


def log_one_plus_sum_exp(scores: Tensor, kept: Tensor) -> Tensor:
    r"""Return $\log(1 + \sum_{i \text{ kept}} e^{o_i})$ over the last dimension, stabilised.

    The 1 enters as a score of 0, so that a row with nothing kept has a finite maximum and a
    gradient of 0, not NaN. The result is minus that score's log-probability. The gradient is
    exp(score - result): ``log_softmax`` subtracts the largest score before it rounds, where
    ``logsumexp`` rounds a result near 1e4 to 1e-3.
    """
    zero_score = scores.new_zeros(()).expand(*scores.shape[:-1], 1)
    kept_scores = scores.masked_fill(~kept, -torch.inf)
    log_probability = torch.cat((zero_score, kept_scores), dim=-1).log_softmax(-1)
    return 0.0 - log_probability[..., 0]
