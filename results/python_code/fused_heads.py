"""Classifiers whose head and loss are computed together in training, without the logits.

The modules of ``method=fused_softmax`` and ``method=fused_as_softmax`` in ``results/conf``.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from as_lightning.bench.tasks.classifier import ASSoftmaxClassifier, Classifier
from as_lightning.functional import linear_cross_entropy
from as_lightning.losses import cross_entropy_settings


def check_head(module: Classifier) -> None:
    """Raise ``ValueError`` unless head and loss of a classifier can be computed together."""
    if type(module.head) is not nn.Linear or not module.task.class_index:
        raise ValueError(
            "a fused head needs a head that is nn.Linear, and data and a method of one class per "
            "sample or token"
        )


class FusedSoftmaxClassifier(Classifier):
    """The app's classifier with plain cross-entropy, which is computed with the head."""

    criterion: nn.CrossEntropyLoss
    head: nn.Linear

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        check_head(self)
        if type(self.criterion) is not nn.CrossEntropyLoss:
            raise ValueError(f"criterion must be nn.CrossEntropyLoss, got {self.criterion!r}")

    def training_loss(self, inputs: Tensor, target: Tensor) -> Tensor:
        settings = cross_entropy_settings(self.criterion)
        hidden, head = self.encoder(inputs), self.head
        return linear_cross_entropy(hidden, head.weight, target, linear_bias=head.bias, **settings)


class FusedASSoftmaxClassifier(ASSoftmaxClassifier):
    """The app's classifier with AS-Softmax, which is computed with the head."""

    criterion: nn.CrossEntropyLoss
    head: nn.Linear

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        check_head(self)

    def training_loss(self, inputs: Tensor, target: Tensor) -> Tensor:
        settings = cross_entropy_settings(self.criterion)
        return self.as_softmax_head_loss(self.encoder(inputs), self.head, target, **settings)
