"""AS-Softmax written plainly from its formulas, float64, one row at a time: the oracle of the tests.

Nothing here is shared with the library, and no speed or memory is considered.
"""

from __future__ import annotations

import torch
from torch import Tensor


def keep_of_row(logits: Tensor, target: int, delta: float) -> Tensor:
    """``i == t or p_t - p_i <= delta`` for the logits of one row."""
    p = torch.softmax(logits.detach().double(), dim=0)
    keep = p[target] - p <= delta
    keep[target] = True
    return keep


def loss_of_row(logits: Tensor, target: int, delta: float) -> Tensor:
    """``log(sum of exp(o_i) over the kept i) - o_t`` for the logits of one row, differentiable."""
    kept = logits.double()[keep_of_row(logits, target, delta)]
    return torch.logsumexp(kept - logits.double()[target], dim=0)


def as_rows(logits: Tensor, target: Tensor) -> tuple[Tensor, list[int]]:
    """Class dimension last, one row a target."""
    class_dim = 0 if logits.dim() == 1 else 1
    return logits.movedim(class_dim, -1).reshape(-1, logits.size(class_dim)), target.reshape(-1).tolist()


def as_cross_entropy_reference(
    logits: Tensor,
    target: Tensor,
    delta: float,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """The loss, in float64, shapes and reductions as in ``F.cross_entropy``."""
    rows, targets = as_rows(logits, target)
    losses, weights = [], []
    for row, t in zip(rows, targets, strict=True):
        if t == ignore_index:
            losses.append(row.double().sum() * 0.0)
            weights.append(0.0)
        else:
            weights.append(1.0 if weight is None else float(weight[t]))
            losses.append(weights[-1] * loss_of_row(row, t, delta))
    loss = torch.stack(losses)
    if reduction == "none":
        return loss.reshape(target.shape)
    return loss.sum() if reduction == "sum" else loss.sum() / sum(weights)


def mask_reference(logits: Tensor, target: Tensor, delta: float, ignore_index: int = -100) -> Tensor:
    """The keep-mask, of the shape of ``logits``; ignored rows as if their target were 0."""
    rows, targets = as_rows(logits, target)
    keep = torch.stack(
        [keep_of_row(row, 0 if t == ignore_index else t, delta) for row, t in zip(rows, targets, strict=True)]
    )
    if logits.dim() == 1:
        return keep[0]
    return keep.reshape(target.shape + keep.shape[-1:]).movedim(-1, 1)


def counts_reference(logits: Tensor, target: Tensor, delta: float, ignore_index: int = -100) -> tuple[int, ...]:
    """``(masked samples, samples, masked classes, classes)``."""
    rows, targets = as_rows(logits, target)
    kept = [int(keep_of_row(row, t, delta).sum()) for row, t in zip(rows, targets, strict=True) if t != ignore_index]
    classes = rows.size(1)
    return kept.count(1), len(kept), sum(classes - k for k in kept), len(kept) * (classes - 1)


def multilabel_keep_of_row(logits: Tensor, positive: list[bool], delta: float) -> list[bool]:
    """Whether each label survives the margin of its own side; all do where one side is empty."""
    p = torch.softmax(logits.detach().double(), dim=0).tolist()
    if all(positive) or not any(positive):
        return [True] * len(p)
    lowest_positive = min(p_i for p_i, is_positive in zip(p, positive, strict=True) if is_positive)
    highest_negative = max(p_i for p_i, is_positive in zip(p, positive, strict=True) if not is_positive)
    return [
        p_i - highest_negative <= delta if is_positive else lowest_positive - p_i <= delta
        for p_i, is_positive in zip(p, positive, strict=True)
    ]


def multilabel_reference(
    logits: Tensor, target: Tensor, delta: float, ignore_index: int | None = None, reduction: str = "none"
) -> tuple[Tensor, tuple[int, ...]]:
    """The loss in float64, class dimension 1 (or 0), and the counts; unknown labels are left out of their row."""
    class_dim = 0 if logits.dim() == 1 else 1
    rows = logits.movedim(class_dim, -1).reshape(-1, logits.size(class_dim))
    labels = target.movedim(class_dim, -1).reshape(rows.shape).tolist()
    losses, dropped, known = [], [], []
    for row, values in zip(rows, labels, strict=True):
        places = [i for i, value in enumerate(values) if ignore_index is None or value != ignore_index]
        positive, scores = [values[i] != 0 for i in places], row[places].double()
        keep = multilabel_keep_of_row(scores, positive, delta)
        one = torch.zeros(1, dtype=torch.float64)
        negatives = [i for i, is_positive in enumerate(positive) if keep[i] and not is_positive]
        positives = [i for i, is_positive in enumerate(positive) if keep[i] and is_positive]
        losses.append(
            torch.logsumexp(torch.cat([one, scores[negatives]]), 0)
            + torch.logsumexp(torch.cat([one, -scores[positives]]), 0)
        )
        dropped.append(keep.count(False))
        known.append(len(places))
    samples = sum(count > 0 for count in known)
    masked = sum(lost == count > 0 for lost, count in zip(dropped, known, strict=True))
    counts = (masked, samples, sum(dropped), sum(known))
    of_rows = torch.stack(losses) if losses else rows.double().sum(-1)
    if reduction == "none":
        return of_rows.reshape(logits.movedim(class_dim, -1).shape[:-1]), counts
    return of_rows.sum() / (samples if reduction == "mean" else 1), counts
