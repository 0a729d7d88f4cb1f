"""What a target is, and hence how a loss is called and what is measured: a class, several, or one for each token."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch.nn.functional as F
from torch import Tensor
from torchmetrics import MetricCollection
from torchmetrics.classification import (
    BinaryCalibrationError,
    MulticlassAccuracy,
    MulticlassCalibrationError,
    MultilabelExactMatch,
    MultilabelF1Score,
)

from as_lightning.benchmark.tasks.macro_f1 import MacroF1
from as_lightning.benchmark.tasks.perplexity import Perplexity
from as_lightning.benchmark.tasks.span_f1 import SpanF1

Probabilities = Callable[[Tensor], Tensor]
IGNORED = -100


class TaskForm(ABC):
    """One kind of target.

    Args:
        class_names: the names of the classes, in the order of their indices.

    Attributes:
        class_index: whether the loss takes one class index a row of logits, as a fused head does.
    """

    class_index = True

    def __init__(self, class_names: Sequence[str]) -> None:
        self.class_names = list(class_names)

    @abstractmethod
    def metrics(self) -> MetricCollection:
        """What is measured of :meth:`scored`."""

    @abstractmethod
    def loss_arguments(self, logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and target as the loss takes them."""

    @abstractmethod
    def scored(self, logits: Tensor, target: Tensor, probabilities: Probabilities) -> tuple[Tensor, Tensor]:
        """Probabilities and target as the metrics take them."""


class Multiclass(TaskForm):
    """One class per sample: logits ``(N, C)``, targets ``(N)``.

    Metrics: ``accuracy`` (the same as ``f1_micro``), ``f1_macro`` and ``calibration_error`` (expected calibration error
    of the top class, 15 bins, in [0, 1]).

    Args:
        class_names: the names of the classes.
        multi_hot: for a loss that takes {0, 1} for each class instead of an index.
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

    Metrics: ``span_f1`` (of whole entities, as CoNLL scores them), and of the words ``accuracy``, ``f1_macro`` and
    ``calibration_error``.
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
    """The class of the token after each: logits ``(N, L, C)``, targets ``(N, L)``, none of them left out.

    A loss takes the tokens of all sequences as rows, ``(N L, C)``. Metrics: ``accuracy`` and ``perplexity``.
    """

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
    """The form of a task for a loss that takes ``targets``.

    Args:
        task: ``"multiclass"``, ``"multilabel"``, ``"token"`` or ``"next_token"``.
        class_names: the names of the classes.
        targets: what the loss takes, ``"class_index"`` or ``"multi_hot"``.

    Raises:
        ValueError: if ``task`` or ``targets`` is none of these, or the loss cannot have the targets of the task.
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
