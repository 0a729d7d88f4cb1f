"""The macro F1 score, counted class by class."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric


class MacroF1(Metric):
    r"""The mean over the classes of their F1 scores.

    .. math:: F_1 = \frac{1}{|C'|} \sum_{c \in C'}
              \frac{2 \cdot \text{right}_c}{\text{predicted}_c + \text{annotated}_c}

    over the classes :math:`C'` that are predicted or annotated at least once. torchmetrics' score has the same value;
    it counts in a matrix of classes by classes, in deterministic runs one for every sample: gigabytes from some hundred
    classes on.

    Args:
        num_classes: how many classes.
        ignore_index: target value of what does not count.
        **kwargs: arguments of :class:`torchmetrics.Metric`.

    Shape:
        - update: scores ``(N, C)`` or ``(N, C, L)``, class indices ``(N)`` or ``(N, L)``.
        - compute: 0-dim ``float32`` tensor in [0, 1]; 0 where nothing counts.

    Source: :func:`sklearn.metrics.f1_score` with ``average="macro"``.

    Example:
        >>> score = MacroF1(3)
        >>> score.update(torch.eye(3)[[0, 0, 1]], torch.tensor([0, 1, 1]))
        >>> score.compute()
        tensor(0.6667)
    """

    full_state_update = False
    higher_is_better = True
    right: Tensor
    predicted: Tensor
    annotated: Tensor

    def __init__(self, num_classes: int, ignore_index: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.ignore_index = ignore_index
        for name in ("right", "predicted", "annotated"):
            self.add_state(name, torch.zeros(num_classes, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Count the classes of a batch."""
        said = preds.argmax(1)
        if self.ignore_index is not None:
            counted = target != self.ignore_index
            said, target = said[counted], target[counted]
        else:
            said, target = said.flatten(), target.flatten()
        hit = (said == target).long()
        # index_add, and not bincount, which some devices do not have in deterministic runs
        self.right = self.right.index_add(0, target, hit)
        self.predicted = self.predicted.index_add(0, said, torch.ones_like(said))
        self.annotated = self.annotated.index_add(0, target, torch.ones_like(target))

    def compute(self) -> Tensor:
        """The score over all updates and ranks."""
        counts = self.predicted + self.annotated
        scores = 2.0 * self.right / counts.clamp(min=1)
        return scores.sum() / (counts > 0).sum().clamp(min=1)
