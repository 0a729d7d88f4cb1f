"""The tasks by their kinds of targets: how each calls the loss, and its metrics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from seqeval.metrics.sequence_labeling import get_entities
from torch import Tensor
from torchmetrics import Metric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MultilabelExactMatch

from as_lightning.functional.calling_convention import IGNORED


def macro_f1(right: Tensor, predicted: Tensor, annotated: Tensor) -> Tensor:
    """Return the mean of 2 right / (predicted + annotated) over the classes that are predicted or
    annotated, from how often each is ``(C)``; 0 where nothing counts.
    """
    counts = predicted + annotated
    return (2.0 * right / counts.clamp(min=1)).sum() / (counts > 0).sum().clamp(min=1)


def micro_f1(*counts: Tensor) -> Tensor:
    return macro_f1(*torch.stack(counts).sum(1, keepdim=True))


def balanced_accuracy(right: Tensor, predicted: Tensor, annotated: Tensor) -> Tensor:
    """Return the mean of right / annotated over the annotated classes."""
    return (right / annotated.clamp(min=1)).sum() / (annotated > 0).sum().clamp(min=1)


class CountedScore(Metric):
    """A ``score`` of how often each of ``size`` classes is right, predicted and annotated, over all
    updates and ranks.

    torchmetrics counts in a matrix of classes by classes: gigabytes for large vocabularies. Targets
    of -100 are ignored; of several labels the predicted ones are booleans ``(N, C)``.
    """

    full_state_update = False
    higher_is_better = True
    right: Tensor
    predicted: Tensor
    annotated: Tensor

    def __init__(self, score: Callable[..., Tensor], size: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.score = score
        for name in ("right", "predicted", "annotated"):
            self.add_state(name, torch.zeros(size, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, preds: Tensor, target: Tensor) -> None:
        if preds.dtype == torch.bool:
            annotated = target > 0
            self.right = self.right + (preds & annotated).sum(0)
            self.predicted = self.predicted + preds.sum(0)
            self.annotated = self.annotated + annotated.sum(0)
            return
        counted = target != IGNORED
        predicted, annotated = preds[counted], target[counted]
        one = torch.ones_like(annotated)
        # index_add, and not bincount, which some devices do not have in deterministic runs
        self.right = self.right.index_add(0, annotated, (predicted == annotated).long())
        self.predicted = self.predicted.index_add(0, predicted, one)
        self.annotated = self.annotated.index_add(0, annotated, one)

    def compute(self) -> Tensor:
        return self.score(self.right, self.predicted, self.annotated)


class SpanF1(CountedScore):
    r"""The F1 score of whole entities, as CoNLL's ``conlleval`` counts them.

    A predicted entity is right if its type, first and last word are the annotation's (seqeval's
    ``get_entities``); 0 where there is no entity at all.
    """

    def __init__(self, tag_names: Sequence[str], **kwargs: Any) -> None:
        super().__init__(micro_f1, 1, **kwargs)
        self.tag_names = np.array(tag_names)

    def update(self, preds: Tensor, target: Tensor) -> None:
        for tags, truth in zip(preds.cpu().numpy(), target.cpu().numpy(), strict=True):
            words = truth != IGNORED
            predicted = set(get_entities(self.tag_names[tags[words]].tolist()))
            annotated = set(get_entities(self.tag_names[truth[words]].tolist()))
            self.right += len(predicted & annotated)
            self.predicted += len(predicted)
            self.annotated += len(annotated)


class TaskForm:
    """How a loss that takes ``targets``, ``"class_index"`` or ``"multi_hot"`` ({0, 1} for each
    class), is called, and what is measured. Each task has ``accuracy`` and ``f1_macro``.

    * ``"multiclass"``: one class per sample, logits ``(N, C)``, targets ``(N)``;
      ``balanced_accuracy``.
    * ``"multilabel"``: any number of classes, targets ``(N, C)`` in {0, 1}; a label is predicted
      where its logit is above 0, and accurate is a sample whose labels are all right; ``f1_micro``.
    * ``"token"``: one class per token, logits ``(N, L, C)``, targets ``(N, L)`` with -100 on what
      is no first piece of a word; ``span_f1``.
    """

    def __init__(self, task: str, class_names: Sequence[str], targets: str = "class_index") -> None:
        self.task, self.class_names = task, list(class_names)
        self.class_index = targets == "class_index"
        if task == "multilabel" and self.class_index:
            raise ValueError(
                "this method's loss takes one class per sample, and the data have several: use "
                "multilabel_softmax, multilabel_sparse, bce, asymmetric, multilabel_as_softmax or "
                "multilabel_as_speed"
            )
        if task == "token" and not self.class_index:
            raise ValueError(
                "this method's loss is for several labels per sample; tokens have one class each"
            )

    def metrics(self) -> MetricCollection:
        count = len(self.class_names)
        metrics: dict[str, Metric] = {
            "accuracy": MulticlassAccuracy(count, average="micro", ignore_index=IGNORED)
        }
        if self.task == "multilabel":
            metrics["accuracy"] = MultilabelExactMatch(count)
            metrics["f1_micro"] = CountedScore(micro_f1, count)
        if self.task == "multiclass":
            metrics["balanced_accuracy"] = CountedScore(balanced_accuracy, count)
        if self.task == "token":
            metrics["span_f1"] = SpanF1(self.class_names)
        metrics["f1_macro"] = CountedScore(macro_f1, count)
        return MetricCollection(dict(metrics), compute_groups=False)

    def loss_arguments(self, logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits and target as the loss takes them."""
        if self.task == "token":
            logits = logits.transpose(1, 2)
        if self.class_index:
            return logits, target
        if self.task == "multiclass":
            target = F.one_hot(target, len(self.class_names))
        return logits, target.to(logits.dtype)

    def predicted(self, logits: Tensor) -> Tensor:
        """Return the classes, ``(N)`` or ``(N, L)``; of several labels which are, ``(N, C)``."""
        if self.task == "multilabel":
            return logits > 0
        return logits.argmax(-1)
