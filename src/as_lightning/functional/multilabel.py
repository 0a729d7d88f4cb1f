r"""The multi-label AS-Softmax loss (paper, section III: the extension to several positive labels)."""

from __future__ import annotations

import math
from typing import Literal, overload

import torch
from torch import Tensor

from as_lightning.functional.counts import MaskingCounts
from as_lightning.functional.masking import check_delta, keep_threshold
from as_lightning.functional.reduction import check_reduction
from as_lightning.functional.tracing import traced


def check_multilabel_target(logits: Tensor, target: Tensor) -> None:
    """Raise unless ``target`` has the shape of ``logits`` and holds only 0 and 1.

    The values are checked on the CPU only: on an accelerator the check would make the host wait.
    """
    if not logits.is_floating_point():
        raise TypeError(f"logits must be a floating-point tensor, got {logits.dtype}")
    if logits.dim() == 0:
        raise ValueError("logits must have a label dimension: (C), (N, C) or (N, C, d1, ...), got a 0-dim tensor")
    if target.is_complex():
        raise TypeError(f"target must hold 0 and 1 (bool, integer or floating point), got {target.dtype}")
    if target.shape != logits.shape:
        raise ValueError(
            f"target must have the shape of logits, {tuple(logits.shape)}, with 1 at each positive label and 0 "
            f"elsewhere, got {tuple(target.shape)}"
        )
    if target.dtype == torch.bool or target.device.type != "cpu" or traced():
        return
    stray = target[(target != 0) & (target != 1)]
    if stray.numel():
        raise ValueError(
            f"target must hold only 0 and 1, got {stray[0].item()!r} ({stray.numel()} such values): soft labels and "
            "ignored labels are not supported"
        )


def multilabel_keep(logits: Tensor, positive: Tensor, delta: float) -> tuple[Tensor, Tensor]:
    r"""What the margin keeps as a negative, and as a positive; a label is then dropped by its own side only.

    With :math:`p = \operatorname{softmax}(o)` over the labels, :math:`P` the positives and :math:`N` the negatives:

    .. math:: \text{keep}^-_i = \min_{t \in P} p_t - p_i \le \delta, \qquad
              \text{keep}^+_t = p_t - \max_{i \in N} p_i \le \delta

    Both are evaluated on thresholds for the logits, so that nothing overflows and a positive whose probability
    underflows to 0 stays a positive. Without positives (or negatives) no margin has been met: all is kept.

    Args:
        logits: scores, labels in the last dimension, float32 or float64.
        positive: boolean tensor of that shape.
        delta: the margin.
    """
    logits = logits.detach()
    lse = logits.logsumexp(-1, keepdim=True)
    lowest_positive = logits.masked_fill(~positive, torch.inf).amin(-1, keepdim=True)
    highest_negative = logits.masked_fill(positive, -torch.inf).amax(-1, keepdim=True)
    one_sided = ~positive.any(-1, keepdim=True) | positive.all(-1, keepdim=True)
    negative_dropped = logits < keep_threshold(lowest_positive, lowest_positive - lse, delta)
    # p_t <= p_max + delta, as logits; log(0) is written out because math.log refuses it
    positive_threshold = torch.logaddexp(highest_negative, lse + (math.log(delta) if delta > 0 else -math.inf))
    positive_dropped = logits > positive_threshold
    return ~(negative_dropped & ~one_sided), ~(positive_dropped & ~one_sided)


@overload
def multilabel_as_cross_entropy(
    logits: Tensor,
    target: Tensor,
    delta: float = ...,
    *,
    reduction: str = ...,
    return_counts: Literal[False] = ...,
) -> Tensor: ...
@overload
def multilabel_as_cross_entropy(
    logits: Tensor,
    target: Tensor,
    delta: float = ...,
    *,
    reduction: str = ...,
    return_counts: Literal[True],
) -> tuple[Tensor, MaskingCounts]: ...
def multilabel_as_cross_entropy(
    logits: Tensor,
    target: Tensor,
    delta: float = 0.1,
    *,
    reduction: str = "mean",
    return_counts: bool = False,
) -> Tensor | tuple[Tensor, MaskingCounts]:
    r"""Multi-label cross-entropy over the labels that the margin keeps.

    .. math:: \ell = \log\Bigl(1 + \sum_{i \in N \text{ kept}} e^{o_i}\Bigr)
                   + \log\Bigl(1 + \sum_{t \in P \text{ kept}} e^{-o_t}\Bigr)

    with :math:`p = \operatorname{softmax}(o)` over the labels, negative :math:`i` kept iff
    :math:`\min_{t \in P} p_t - p_i \le \delta` and positive :math:`t` kept iff
    :math:`p_t - \max_{i \in N} p_i \le \delta`. The mask is a constant. A sample without positives (or without
    negatives) has met no margin and keeps every label. ``delta=1`` is the loss without a mask.

    A label's prediction is positive where its logit is above 0: that is where either sum's terms fall below 1.

    In the counts, ``classes`` is every label of every sample (``C`` a sample, positives and negatives alike, since
    the margin can drop both) and a masked sample is one with all of them dropped: loss and gradient exactly zero.

    Args:
        logits: scores, shape ``(C)``, ``(N, C)`` or ``(N, C, d1, ...)``: float32, float64, bfloat16 or float16 (the
            half types are computed in float32).
        target: 1 at each positive label and 0 elsewhere, of the shape of ``logits``; bool, integer or floating point.
        delta: the margin, in [0, 1].
        reduction: ``"none"``, ``"mean"`` (over the samples) or ``"sum"``.
        return_counts: return ``(loss, counts)``.

    Returns:
        The loss in the dtype of ``logits``: a scalar, or of the shape of ``logits`` without the label dimension with
        ``reduction="none"``; with ``return_counts`` also the :class:`~as_lightning.functional.MaskingCounts`.

    Raises:
        ValueError: if ``delta`` lies outside [0, 1], the shapes differ, ``reduction`` is unknown, or (on the CPU,
            where looking costs no wait) ``target`` holds anything but 0 and 1.
        TypeError: if ``logits`` is not floating point, or ``target`` is complex.

    Source: paper, section III; authors' code for the masks; summed with logsumexp, so any finite logit is safe.

    Example:
        >>> import torch
        >>> logits = torch.tensor([[1.2, 1.5, 1.0, -0.35], [2.5, 3.5, 0.4, 0.3], [2.5, 3.5, 0.4, 0.3]])
        >>> target = torch.tensor([[1, 1, 0, 0], [0, 1, 1, 0], [1, 1, 0, 1]])
        >>> multilabel_as_cross_entropy(logits, target, delta=0.1)
        tensor(2.0778)
    """
    delta = check_delta(delta)
    check_multilabel_target(logits, target)
    check_reduction(reduction)
    class_dim = 0 if logits.dim() == 1 else 1
    scores = logits.movedim(class_dim, -1)
    if scores.dtype in (torch.float16, torch.bfloat16):
        scores = scores.float()
    positive = target.movedim(class_dim, -1) != 0
    if scores.size(-1) == 0:
        raise ValueError(f"logits must have at least one label, got shape {tuple(logits.shape)}")
    keep_as_negative, keep_as_positive = multilabel_keep(scores, positive, delta)
    loss = log_one_plus_sum_exp(scores, keep_as_negative & ~positive)
    loss = loss + log_one_plus_sum_exp(-scores, keep_as_positive & positive)
    if reduction == "mean":
        loss = loss.mean()
    elif reduction == "sum":
        loss = loss.sum()
    loss = loss.to(logits.dtype)
    if not return_counts:
        return loss
    dropped = ~torch.where(positive, keep_as_positive, keep_as_negative)
    row_dropped = dropped.sum(-1)
    counts = MaskingCounts(
        masked_samples=(row_dropped == scores.size(-1)).sum(),
        samples=torch.full((), row_dropped.numel(), dtype=torch.int64, device=logits.device),
        masked_classes=row_dropped.sum(),
        classes=torch.full((), scores.numel(), dtype=torch.int64, device=logits.device),
    )
    return loss, counts


def log_one_plus_sum_exp(scores: Tensor, kept: Tensor) -> Tensor:
    r"""Stable :math:`\log(1 + \sum_{i \text{ kept}} e^{o_i})` over the last dimension; 0 where nothing is kept."""
    # the 1 goes in as a score of 0, so that a row with nothing kept has a finite maximum and a gradient of 0, not NaN
    one = scores.new_zeros(()).expand(*scores.shape[:-1], 1)
    return torch.cat((one, scores.masked_fill(~kept, -torch.inf)), dim=-1).logsumexp(-1)
