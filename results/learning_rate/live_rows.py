"""The recipe of docs/faq.md#can-i-skip-masked-samples on outputs of frozen layers: train the rows
that have a gradient alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from as_lightning.bench.tasks.classifier import Classifier
from as_lightning.functional import as_cross_entropy


class LiveRowsClassifier(Classifier):
    """AS-Softmax that finds the live rows without gradients, and runs forward and backward on
    these.
    """

    def __init__(self, *args: Any, delta: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.delta = delta

    def training_loss(self, inputs: Any, target: Tensor) -> Tensor:
        with torch.no_grad():
            losses = as_cross_entropy(self(inputs), target, delta=self.delta, reduction="none")
        live = losses != 0
        live[0] |= ~live.any()
        loss = as_cross_entropy(self(inputs[live]), target[live], delta=self.delta, reduction="sum")
        return loss / len(target)
