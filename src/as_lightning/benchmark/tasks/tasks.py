"""What a target is, and hence how a loss is called and what is measured."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from seqeval.metrics.sequence_labeling import get_entities
from torch import Tensor
from torchmetrics import Metric, MetricCollection
from torchmetrics.classification import (
    BinaryCalibrationError,
    MulticlassAccuracy,
    MulticlassCalibrationError,
    MultilabelExactMatch,
    MultilabelF1Score,
)
from torchmetrics.text import Perplexity as TokenPerplexity


class MacroF1(Metric):
    r"""The mean over the classes of their F1 scores, counted class by class.

    $$
    F_1 = \frac{1}{|C'|} \sum_{c \in C'}
    \frac{2 \cdot \text{right}_c}{\text{predicted}_c + \text{annotated}_c}
    $$

    over the classes $C'$ that are predicted or annotated; 0 where nothing counts. torchmetrics' score has the same
    value and counts in a matrix of classes by classes: gigabytes for large vocabularies.

    Shape:
        - update: scores ``(N, C)`` or ``(N, C, L)``, class indices ``(N)`` or ``(N, L)``.
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


class Perplexity(TokenPerplexity):
    r"""torchmetrics' perplexity, $\exp(-\frac{1}{N} \sum_n \log p_{n, t_n})$, of probabilities and in float64.

    A probability below the smallest normal number of its dtype counts as that number.

    Shape:
        - update: probabilities ``(N, C)``, class indices ``(N)``.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.set_dtype(torch.float64)

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Add a batch; torchmetrics takes logits, of which the softmax of a logarithm gives the probabilities back."""
        logits = preds.clamp(min=torch.finfo(preds.dtype).tiny).double().log()
        super().update(logits.unsqueeze(0), target.unsqueeze(0))


class SpanF1(Metric):
    r"""The F1 score of whole entities, as CoNLL's ``conlleval`` counts them; 0 where there is no entity at all.

    $$
    F_1 = \frac{2 \cdot \text{right}}{\text{predicted} + \text{annotated}}
    $$

    A predicted entity is right if its type, first and last word are the annotation's (seqeval's ``get_entities``).

    Shape:
        - update: scores ``(N, C, L)``, the tags' indices ``(N, L)``.
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


Probabilities = Callable[[Tensor], Tensor]
IGNORED = -100


class TaskForm(ABC):
    """One kind of target; ``class_index`` says whether the loss takes one class index a row."""

    class_index = True

    def __init__(self, class_names: Sequence[str]) -> None:
        self.class_names = list(class_names)

    @abstractmethod
    def metrics(self) -> MetricCollection:
        """What is measured of `scored`."""

    @abstractmethod
    def loss_arguments(self, logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and target as the loss takes them."""

    @abstractmethod
    def scored(self, logits: Tensor, target: Tensor, probabilities: Probabilities) -> tuple[Tensor, Tensor]:
        """Probabilities and target as the metrics take them."""


class Multiclass(TaskForm):
    """One class per sample: logits ``(N, C)``, targets ``(N)``; with ``multi_hot`` the loss takes {0, 1}.

    Metrics: ``accuracy``, ``f1_macro`` and ``calibration_error`` (of the top class, 15 bins).
    """

    def __init__(self, class_names: Sequence[str], multi_hot: bool = False) -> None:
        super().__init__(class_names)
        self.multi_hot = multi_hot
        self.class_index = not multi_hot

    def metrics(self) -> MetricCollection:
        return _class_metrics(len(self.class_names), ignore_index=None)

    def loss_arguments(self, logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        if self.multi_hot:
            target = F.one_hot(target, len(self.class_names)).to(logits.dtype)
        return logits, target

    def scored(self, logits: Tensor, target: Tensor, probabilities: Probabilities) -> tuple[Tensor, Tensor]:
        return probabilities(logits), target


class Multilabel(TaskForm):
    """Any number of classes for each sample: logits ``(N, C)``, targets ``(N, C)`` in {0, 1}.

    A label is predicted where its logit is above 0. Metrics: ``accuracy`` (all labels of a sample right), ``f1_micro``,
    ``f1_macro`` and ``calibration_error`` (of the sigmoids of all labels, 15 bins).
    """

    class_index = False

    def metrics(self) -> MetricCollection:
        count = len(self.class_names)
        return MetricCollection(
            {
                "accuracy": MultilabelExactMatch(count),
                "f1_micro": MultilabelF1Score(count, average="micro"),
                "f1_macro": MultilabelF1Score(count, average="macro"),
                "calibration_error": BinaryCalibrationError(n_bins=15, norm="l1"),
            },
            compute_groups=False,
        )

    def loss_arguments(self, logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        return logits, target.to(logits.dtype)

    def scored(self, logits: Tensor, target: Tensor, probabilities: Probabilities) -> tuple[Tensor, Tensor]:
        return logits.sigmoid(), target


class TokenTags(TaskForm):
    """One class per token: logits ``(N, L, C)``, targets ``(N, L)`` with -100 on what is no first piece of a word.

    Metrics: ``span_f1``, and of the words ``accuracy``, ``f1_macro`` and ``calibration_error``.
    """

    def metrics(self) -> MetricCollection:
        metrics = _class_metrics(len(self.class_names), ignore_index=IGNORED)
        metrics.add_metrics({"span_f1": SpanF1(self.class_names, ignore_index=IGNORED)})
        return metrics

    def loss_arguments(self, logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        return logits.transpose(1, 2), target

    def scored(self, logits: Tensor, target: Tensor, probabilities: Probabilities) -> tuple[Tensor, Tensor]:
        return probabilities(logits).transpose(1, 2), target


class NextToken(TaskForm):
    """The class of the token after each: ``(N, L, C)`` and ``(N, L)``. Metrics: ``accuracy`` and ``perplexity``."""

    def metrics(self) -> MetricCollection:
        return MetricCollection(
            {"accuracy": MulticlassAccuracy(len(self.class_names), average="micro"), "perplexity": Perplexity()},
            compute_groups=False,
        )

    def loss_arguments(self, logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        return logits.flatten(0, 1), target.flatten()

    def scored(self, logits: Tensor, target: Tensor, probabilities: Probabilities) -> tuple[Tensor, Tensor]:
        return probabilities(logits).flatten(0, 1), target.flatten()


def _class_metrics(count: int, ignore_index: int | None) -> MetricCollection:
    return MetricCollection(
        {
            "accuracy": MulticlassAccuracy(count, average="micro", ignore_index=ignore_index),
            "f1_macro": MacroF1(count, ignore_index=ignore_index),
            "calibration_error": MulticlassCalibrationError(count, n_bins=15, norm="l1", ignore_index=ignore_index),
        },
        compute_groups=False,
    )


def task_form(task: str, class_names: Sequence[str], targets: str = "class_index") -> TaskForm:
    """The form of a task for a loss that takes ``targets``, ``"class_index"`` or ``"multi_hot"``.

    Raises:
        ValueError: if ``task`` or ``targets`` is unknown, or the loss cannot have the targets of the task.
    """
    if targets not in ("class_index", "multi_hot"):
        raise ValueError(f"targets must be 'class_index' or 'multi_hot', got {targets!r}")
    if task == "multiclass":
        return Multiclass(class_names, multi_hot=targets == "multi_hot")
    if task == "multilabel":
        if targets != "multi_hot":
            raise ValueError(
                "this method's loss takes one class per sample, and the data have several: use a multi-label method "
                "(multilabel_softmax, multilabel_sparse, bce, multilabel_as_softmax or multilabel_as_speed)"
            )
        return Multilabel(class_names)
    if task in ("token", "next_token"):
        if targets != "class_index":
            raise ValueError("this method's loss is for several labels per sample; tokens have one class each")
        return (TokenTags if task == "token" else NextToken)(class_names)
    raise ValueError(f"task must be 'multiclass', 'multilabel', 'token' or 'next_token', got {task!r}")
