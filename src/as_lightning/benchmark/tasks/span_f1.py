"""The score of named-entity recognition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from seqeval.metrics.sequence_labeling import get_entities
from torch import Tensor
from torchmetrics import Metric


class SpanF1(Metric):
    r"""The F1 score of whole entities, as CoNLL's ``conlleval`` counts them.

    .. math:: F_1 = \frac{2 \cdot \text{right}}{\text{predicted} + \text{annotated}}

    A predicted entity is right if its type, first and last word are the annotation's. All types count together.

    Args:
        tag_names: the name of each tag index, in the BIO scheme: ``O``, ``B-type``, ``I-type``.
        ignore_index: target value of the positions that are no word's first piece.
        **kwargs: arguments of :class:`torchmetrics.Metric`.

    Shape:
        - update: scores ``(N, C, L)``, the tags' indices ``(N, L)``.
        - compute: 0-dim ``float32`` tensor in [0, 1]; 0 where there is no entity at all.

    Source: Tjong Kim Sang and De Meulder, "Introduction to the CoNLL-2003 Shared Task"; the entities of a tag sequence
    are those of seqeval's ``get_entities``.

    Example:
        >>> score = SpanF1(["B-a", "I-a", "O"])
        >>> predicted = torch.tensor([[0, 1, 2, 0]])
        >>> score.update(torch.nn.functional.one_hot(predicted, 3).transpose(1, 2), torch.tensor([[0, 1, 2, 2]]))
        >>> round(float(score.compute()), 4)
        0.6667
    """

    full_state_update = False
    higher_is_better = True
    right: Tensor
    predicted: Tensor
    annotated: Tensor

    def __init__(self, tag_names: Sequence[str], ignore_index: int = -100, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tag_names, self.ignore_index = list(tag_names), ignore_index
        for name in ("right", "predicted", "annotated"):
            self.add_state(name, torch.tensor(0), dist_reduce_fx="sum")

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Count the entities of a batch."""
        for tags, truth in zip(preds.argmax(1).tolist(), target.tolist(), strict=True):
            words = [place for place, tag in enumerate(truth) if tag != self.ignore_index]
            found = set(get_entities([self.tag_names[tags[place]] for place in words]))
            annotated = set(get_entities([self.tag_names[truth[place]] for place in words]))
            self.right += len(found & annotated)
            self.predicted += len(found)
            self.annotated += len(annotated)

    def compute(self) -> Tensor:
        """The score over all updates and ranks."""
        entities = self.predicted + self.annotated
        return torch.where(entities > 0, 2.0 * self.right / entities.clamp(min=1), 0.0)
