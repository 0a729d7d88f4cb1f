"""Reliability: how often predictions of a given confidence are right."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from as_lightning.functional.argument_checks import check_count
from as_lightning.functional.calling_convention import in_float64
from as_lightning.functional.temperature import is_multilabel, known_entries


class Reliability(NamedTuple):
    """The bins of a reliability diagram, as sums that may be added over batches and ranks.

    Each is ``float64`` of shape ``(bins,)``. Bin ``b`` holds confidences in ``(b / bins, (b + 1) / bins]``.
    """

    predictions: Tensor
    confidence: Tensor
    correct: Tensor

    @property
    def calibration_error(self) -> Tensor:
        r"""The expected calibration error, $\sum_b |correct_b - confidence_b| / N$; 0 without predictions."""
        return (self.correct - self.confidence).abs().sum() / self.predictions.sum().clamp(min=1)

    def points(self) -> list[dict[str, float]]:
        """Per bin that is not empty its mean ``confidence``, its ``accuracy`` and its ``count``."""
        return [
            {"confidence": confidence / count, "accuracy": correct / count, "count": count}
            for count, confidence, correct in torch.stack(self).T.tolist()
            if count
        ]


def reliability(logits: Tensor, target: Tensor, *, ignore_index: int = -100, bins: int = 15) -> Reliability:
    """Sort predictions by their confidence, and count how many are right.

    One class per row: the confidence is the largest probability of ``softmax(logits)``. Several labels: each label is a
    prediction, with the confidence ``sigmoid(logits)`` of being present.

    Args:
        logits: shape ``(..., C)``, classes last.
        target: class indices of shape ``(...)``, or {0, 1} of the logits' shape for several labels.
        ignore_index: target value of rows, or of single labels, that take no part.
        bins: the number of bins, of equal width.

    Raises:
        ValueError: if the shapes do not fit, or ``bins`` is less than 1.
        IndexError: if a class index is out of range.

    Examples:
        >>> bins = reliability(torch.tensor([[0.0, 3.0], [3.0, 0.0]]), torch.tensor([1, 1]), bins=10)
        >>> round(float(bins.calibration_error), 2)
        0.45

    Source: Guo et al., ICML 2017, section 2; torchmetrics' calibration error with ``norm="l1"``.
    """
    check_count("bins", bins, least=1)
    multilabel = is_multilabel(logits, target)
    logits, target = known_entries(logits, target, ignore_index)
    logits = in_float64(logits)
    target = target.to(logits.device)
    if multilabel:
        confidence, correct = logits.sigmoid(), target.double()
    else:
        _refuse_no_class(target, logits.size(-1))
        confidence, predicted = logits.softmax(dim=-1).max(dim=-1)
        correct = (predicted == target).double()
    index = (confidence * bins).ceil().long().clamp(1, bins) - 1
    chosen = F.one_hot(index, bins).double()
    return Reliability(chosen.sum(0), chosen.T @ confidence, chosen.T @ correct)


def _refuse_no_class(target: Tensor, classes: int) -> None:
    if target.numel() and not 0 <= int(target.min()) <= int(target.max()) < classes:
        raise IndexError(
            f"target must hold class indices from 0 to {classes - 1} or ignore_index, got {int(target.min())} to "
            f"{int(target.max())}"
        )
