"""AS-Softmax written plainly from its formulas in float64: the oracle, which shares nothing with
the library.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def as_rows(scores: Tensor) -> Tensor:
    """Class dimension last, one row a sample."""
    class_dim = 0 if scores.dim() == 1 else 1
    return scores.movedim(class_dim, -1).reshape(-1, scores.size(class_dim))


def reduced(losses: Tensor, weights: Tensor, reduction: str, shape: Sequence[int]) -> Tensor:
    """Of losses that are weighted already."""
    if reduction == "none":
        return losses.reshape(shape)
    return losses.sum() / (weights.sum() if reduction == "mean" else 1)


def as_softmax_reference(
    logits: Tensor,
    target: Tensor,
    delta: float,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> tuple[Tensor, Tensor, tuple[int, ...]]:
    """The loss ``log(sum of exp(o_i) over the kept i) - o_t``, differentiable, the classes that are
    kept in each row, ``i == t or p_t - p_i <= delta``, and ``(masked samples, samples, masked
    classes, classes)``.

    Shapes and reductions are those of ``F.cross_entropy``; an ignored row is one of zeros.
    """
    rows, flat = as_rows(logits.double()), target.long().reshape(-1)
    counted = flat != ignore_index
    rows = rows.masked_fill(~counted.unsqueeze(-1), 0.0)
    column = flat.masked_fill(~counted, 0).unsqueeze(-1)
    p = rows.detach().softmax(-1)
    keep = (p.gather(-1, column) - p <= delta).scatter(-1, column, True)
    losses = (rows - rows.gather(-1, column)).masked_fill(~keep, -torch.inf).logsumexp(-1)
    weights = (
        torch.ones(len(flat), dtype=torch.float64)
        if weight is None
        else weight.double()[column.squeeze(-1)]
    )
    losses, weights = losses.where(counted, 0.0), weights.where(counted, 0.0)
    kept = keep.sum(-1)[counted]
    counts = (
        int((kept == 1).sum()),
        len(kept),
        int((rows.size(-1) - kept).sum()),
        len(kept) * (rows.size(-1) - 1),
    )
    return reduced(losses * weights, weights, reduction, target.shape), keep, counts


def as_cross_entropy_reference(
    logits: Tensor, target: Tensor, delta: float, **options: Any
) -> Tensor:
    return as_softmax_reference(logits, target, delta, **options)[0]


def multilabel_keep_of_row(logits: Tensor, positive: list[bool], delta: float) -> list[bool]:
    """Whether each label survives the margin of its own side; all do where one side is empty."""
    p = torch.softmax(logits.detach().double(), dim=0).tolist()
    if all(positive) or not any(positive):
        return [True] * len(p)
    lowest_positive = min(p_i for p_i, is_positive in zip(p, positive, strict=True) if is_positive)
    highest_negative = max(
        p_i for p_i, is_positive in zip(p, positive, strict=True) if not is_positive
    )
    return [
        p_i - highest_negative <= delta if is_positive else lowest_positive - p_i <= delta
        for p_i, is_positive in zip(p, positive, strict=True)
    ]


def multilabel_reference(
    logits: Tensor,
    target: Tensor,
    delta: float,
    ignore_index: int | None = None,
    reduction: str = "none",
) -> tuple[Tensor, tuple[int, ...]]:
    """The loss in float64, class dimension 1 (or 0), and the counts; unknown labels are left out of
    their row.
    """
    class_dim = 0 if logits.dim() == 1 else 1
    rows, labels = as_rows(logits), as_rows(target).tolist()
    losses, dropped, known = [], [], []
    for row, values in zip(rows, labels, strict=True):
        places = [
            i for i, value in enumerate(values) if ignore_index is None or value != ignore_index
        ]
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
