"""AS-Softmax in float64 with the options of the losses: the oracle, from the plain formulas of
`as_lightning.functional.reference`, and nothing else of the library.
"""

import torch

from as_lightning.functional.reference import (
    as_softmax_losses,
    kept_classes,
    kept_labels,
    multilabel_as_softmax_loss,
)


def as_rows(scores):
    """Class dimension last, one row a sample."""
    class_dim = 0 if scores.dim() == 1 else 1
    return scores.movedim(class_dim, -1).reshape(-1, scores.size(class_dim))


def reduced(losses, weights, reduction, shape):
    """Of losses that are weighted already."""
    if reduction == "none":
        return losses.reshape(shape)
    return losses.sum() / (weights.sum() if reduction == "mean" else 1)


def as_softmax_reference(
    logits, target, delta, *, weight=None, ignore_index=-100, reduction="mean"
):
    """The loss, differentiable; the classes that are kept in each row; and ``(masked samples,
    samples, masked classes, classes)``.

    Shapes and reductions are those of ``F.cross_entropy``; an ignored row is one of zeros.
    """
    rows, flat = as_rows(logits.double()), target.long().reshape(-1)
    counted = flat != ignore_index
    rows = rows.masked_fill(~counted.unsqueeze(-1), 0.0)
    classes = flat.masked_fill(~counted, 0)
    keep = kept_classes(rows, classes, delta)
    losses = as_softmax_losses(rows, classes, delta).where(counted, 0.0)
    weights = torch.ones(len(flat), dtype=torch.float64)
    if weight is not None:
        weights = weight.double()[classes]
    weights = weights.where(counted, 0.0)
    kept = keep.sum(-1)[counted]
    competitors = len(kept) * (rows.size(-1) - 1)
    counts = int((kept == 1).sum()), len(kept), int((rows.size(-1) - kept).sum()), competitors
    return reduced(losses * weights, weights, reduction, target.shape), keep, counts


def as_cross_entropy_reference(logits, target, delta, **options):
    return as_softmax_reference(logits, target, delta, **options)[0]


def multilabel_reference(logits, target, delta, ignore_index=None, reduction="none"):
    """The loss in float64, class dimension 1 (or 0), and the counts; unknown labels are left out of
    their row.
    """
    class_dim = 0 if logits.dim() == 1 else 1
    losses, dropped, known = [], [], []
    for row, labels in zip(as_rows(logits).double(), as_rows(target), strict=True):
        is_known = torch.ones_like(labels, dtype=torch.bool)
        if ignore_index is not None:
            is_known = labels != ignore_index
        scores, positive = row[is_known], labels[is_known] != 0
        losses.append(multilabel_as_softmax_loss(scores, positive, delta))
        dropped.append(int((~kept_labels(scores, positive, delta)).sum()))
        known.append(len(scores))
    samples = sum(count > 0 for count in known)
    masked = sum(lost == count > 0 for lost, count in zip(dropped, known, strict=True))
    counts = (masked, samples, sum(dropped), sum(known))
    of_rows = torch.stack(losses) if losses else as_rows(logits).double().sum(-1)
    if reduction == "none":
        return of_rows.reshape(logits.movedim(class_dim, -1).shape[:-1]), counts
    return of_rows.sum() / (samples if reduction == "mean" else 1), counts
