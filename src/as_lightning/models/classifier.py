"""The benchmark's LightningModule: an encoder, a linear head, the method's loss."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassCalibrationError, MulticlassF1Score

from as_lightning.mixin import ASSoftmaxMixin


class Classifier(pl.LightningModule):
    """Classify with one class a sample, by any loss of logits and targets.

    Args:
        encoder: maps a batch of inputs to ``(N, encoder.out_features)``.
        num_classes: the number of classes ``C``.
        criterion: the loss, called as ``criterion(logits, target)``.
        optimizer: called with the parameters, e.g. ``partial(torch.optim.AdamW, lr=1e-3)``.
        lr_scheduler: called as ``lr_scheduler(optimizer, total_steps=...)``; stepped with every optimizer step.
        head: called as ``head(in_features, num_classes)``; ``nn.Linear`` by default.
        probabilities: what the method takes for probabilities of the logits (for the calibration error); softmax by
            default.
        targets: ``"class_index"``, or ``"multi_hot"`` for a loss that takes {0, 1} for each class.

    Logs ``train/loss``, and for validation and test ``loss``, ``accuracy`` (= micro F1), ``f1_macro`` and
    ``calibration_error`` (expected calibration error of the top class, 15 bins, in [0, 1]).

    Raises:
        ValueError: if ``targets`` is neither of the two.
    """

    def __init__(
        self,
        encoder: nn.Module,
        num_classes: int,
        criterion: Callable[[Tensor, Tensor], Tensor],
        optimizer: Callable[..., torch.optim.Optimizer],
        lr_scheduler: Callable[..., torch.optim.lr_scheduler.LRScheduler] | None = None,
        head: Callable[[int, int], nn.Module] | None = None,
        probabilities: Callable[[Tensor], Tensor] | None = None,
        targets: Literal["class_index", "multi_hot"] = "class_index",
    ) -> None:
        super().__init__()
        if targets not in ("class_index", "multi_hot"):
            raise ValueError(f"targets must be 'class_index' or 'multi_hot', got {targets!r}")
        self.encoder = encoder
        self.head = (head or nn.Linear)(int(encoder.out_features), num_classes)  # type: ignore[arg-type]
        self.criterion = criterion
        self.probabilities = probabilities or partial(torch.softmax, dim=-1)
        self.num_classes, self.targets = num_classes, targets
        self._make_optimizer, self._make_lr_scheduler = optimizer, lr_scheduler
        metrics = MetricCollection(
            {
                "accuracy": MulticlassAccuracy(num_classes, average="micro"),
                "f1_macro": MulticlassF1Score(num_classes, average="macro"),
                "calibration_error": MulticlassCalibrationError(num_classes, n_bins=15, norm="l1"),
            }
        )
        self.validation_metrics = metrics.clone(prefix="val/")
        self.test_metrics = metrics.clone(prefix="test/")

    def forward(self, inputs: Tensor) -> Tensor:
        """The logits, of shape ``(N, C)``."""
        return self.head(self.encoder(inputs))

    def _loss(self, logits: Tensor, target: Tensor) -> Tensor:
        if self.targets == "multi_hot":
            target = F.one_hot(target, self.num_classes).to(logits.dtype)
        return self.criterion(logits, target)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        inputs, target = batch
        loss = self._loss(self(inputs), target)
        self.log("train/loss", loss, prog_bar=True)
        return loss

    def _evaluate(self, batch: tuple[Tensor, Tensor], metrics: MetricCollection, loss_name: str) -> None:
        inputs, target = batch
        logits = self(inputs)
        self.log(loss_name, self._loss(logits, target), batch_size=len(target))
        metrics.update(self.probabilities(logits), target)
        self.log_dict(metrics, batch_size=len(target))

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        self._evaluate(batch, self.validation_metrics, "val/loss")

    def test_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        self._evaluate(batch, self.test_metrics, "test/loss")

    def configure_optimizers(self) -> Any:
        optimizer = self._make_optimizer(self.parameters())
        if self._make_lr_scheduler is None:
            return optimizer
        scheduler = self._make_lr_scheduler(optimizer, total_steps=self.trainer.estimated_stepping_batches)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


class ASSoftmaxClassifier(ASSoftmaxMixin, Classifier):
    """The same classifier with AS-Softmax in place of its criterion: the second way of using the mixin."""

    as_softmax_replaces = "criterion"
