"""The benchmark's LightningModule: an encoder, a linear head, the method's loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchmetrics import MeanMetric, MetricCollection

from as_lightning.bench.tasks.tasks import TaskForm
from as_lightning.functional.calling_convention import IGNORED
from as_lightning.functional.variants.logit_adjustment import adjust_logits, fit_tau
from as_lightning.losses import summed_weights
from as_lightning.mixin import ASSoftmaxMixin


class Classifier(pl.LightningModule):
    """Classify samples or tokens, by any loss of logits and targets.

    Args:
        encoder: maps inputs to features ``(N, out_features)`` or, of tokens, ``(N, L,
            out_features)``.
        class_names: the names of the ``C`` classes.
        criterion: called as ``criterion(logits, target)``; or a ``functools.partial`` of a loss's
            class that lacks its argument ``class_counts``, as `LogitAdjustedLoss`.
        optimizer: called with the parameters.
        lr_scheduler: called as ``lr_scheduler(optimizer, total_steps=...)``; stepped with every
            optimizer step.
        head: called as ``head(in_features, num_classes)``; ``nn.Linear`` by default.
        targets, task: see `TaskForm`.
        class_counts: how many training targets each class has.

    Logs ``train/loss``, and for validation and test ``loss`` and the metrics of the task.
    """

    def __init__(
        self,
        encoder: nn.Module,
        class_names: Sequence[str],
        criterion: Callable[[Tensor, Tensor], Tensor],
        optimizer: Callable[..., torch.optim.Optimizer],
        lr_scheduler: Callable[..., torch.optim.lr_scheduler.LRScheduler] | None = None,
        head: Callable[[int, int], nn.Module] | None = None,
        targets: Literal["class_index", "multi_hot"] = "class_index",
        task: Literal["multiclass", "multilabel", "token"] = "multiclass",
        class_counts: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.task = TaskForm(task, class_names, targets)
        self.encoder = encoder
        self.head = (head or nn.Linear)(int(encoder.out_features), len(class_names))  # type: ignore[arg-type]
        if isinstance(criterion, partial) and isinstance(criterion.func, type):
            criterion = criterion(class_counts=class_counts)
        self.criterion = criterion
        self._make_optimizer, self._make_lr_scheduler = optimizer, lr_scheduler
        self.validation_metrics = self.task.metrics().clone(prefix="val/")
        self.test_metrics = self.task.metrics().clone(prefix="test/")
        # a loss that is NaN must show: torchmetrics leaves NaN out by default
        self.validation_loss = MeanMetric(nan_strategy=math.nan)
        self.test_loss = MeanMetric(nan_strategy=math.nan)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.encoder(inputs))

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        loss = self.training_loss(*batch)
        self.log("train/loss", loss, prog_bar=True)
        return loss

    def training_loss(self, inputs: Tensor, target: Tensor) -> Tensor:
        return self.criterion(*self.task.loss_arguments(self(inputs), target))

    def _score(
        self, logits: Tensor, target: Tensor, metrics: MetricCollection, mean_loss: MeanMetric
    ) -> None:
        loss = self.criterion(*self.task.loss_arguments(logits, target))
        mean_loss.update(loss, self._denominator(target))
        self.log(f"{metrics.prefix}loss", mean_loss, batch_size=len(target))
        metrics.update(self.task.predicted(logits), target)
        for name, metric in metrics.items():
            # a bar of all metrics is too long for a narrow console
            self.log(name, metric, batch_size=len(target), prog_bar=name.endswith("/accuracy"))

    def _denominator(self, target: Tensor) -> Tensor | int:
        """Return what the mean loss of a batch divides by, so that batches add up to the split."""
        weight = getattr(self.criterion, "weight", None)
        if weight is not None and self.task.class_index:
            return summed_weights(target, weight, IGNORED)
        if self.task.task == "token":  # the loss of tagged words is a mean over these
            return (target != IGNORED).sum()
        return len(target)

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        self._score(self(batch[0]), batch[1], self.validation_metrics, self.validation_loss)

    def test_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        self._score(self(batch[0]), batch[1], self.test_metrics, self.test_loss)

    def predict_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        return self(batch[0]).argmax(dim=-1)

    def configure_optimizers(self) -> Any:
        optimizer = self._make_optimizer(self.parameters())
        if self._make_lr_scheduler is None:
            return optimizer
        steps = self.trainer.estimated_stepping_batches
        scheduler = self._make_lr_scheduler(optimizer, total_steps=steps)
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]


class ASSoftmaxClassifier(ASSoftmaxMixin, Classifier):
    """The classifier with AS-Softmax for its criterion: the second way of using the mixin."""

    as_softmax_replaces = "criterion"


class AdjustedAfterClassifier(Classifier):
    r"""The same classifier, whose logits are adjusted after training: `adjust_logits` with the
    ``tau`` that `fit_tau` finds in each validation, $o_i - \tau \log \pi_i$.

    Training is the criterion's. Validation, test and predictions have the adjusted logits. A
    ValueError refuses data of several labels, tokens, and training in several processes.

    Source: Menon et al. 2021 (arXiv 2007.07314), section 4.1.
    """

    class_counts: Tensor
    tau: Tensor

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.task.task != "multiclass":
            raise ValueError(f"adjusted_after is for one class a sample, got {self.task.task} data")
        self.register_buffer("class_counts", kwargs["class_counts"], persistent=False)
        self.register_buffer("tau", torch.zeros((), dtype=torch.float64))
        self._validated: list[tuple[Tensor, Tensor]] = []

    def forward(self, inputs: Tensor) -> Tensor:
        logits = super().forward(inputs)
        if self.training:
            return logits
        return adjust_logits(logits, self.class_counts, self.tau.item())

    def on_fit_start(self) -> None:
        if self.trainer.world_size > 1:
            raise ValueError("adjusted_after fits tau in one process: set trainer.devices=1")

    def on_validation_epoch_start(self) -> None:
        self.tau.zero_()
        self._validated.clear()

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        self._validated.append((self(batch[0]), batch[1]))

    def on_validation_epoch_end(self) -> None:
        logits, target = map(torch.cat, zip(*self._validated, strict=True))
        tau = fit_tau(logits, target, self.class_counts)
        self.tau.fill_(tau)
        adjusted = adjust_logits(logits, self.class_counts, tau)
        self._score(adjusted, target, self.validation_metrics, self.validation_loss)


class CosineHead(nn.Module):
    r"""The cosine of the angle between the features and a vector per class; 0 for features of
    length 0.

    $$
    \cos\theta_i = \frac{w_i^\top x}{\lVert w_i \rVert \, \lVert x \rVert}
    $$

    It has no bias and no temperature: the loss divides by its own.

    Source: Wang, Cheng, Liu, Liu 2018 (arXiv 1801.05599), section 2.
    """

    def __init__(self, in_features: int, num_classes: int) -> None:
        super().__init__()
        # the direction of a normal vector is uniform on the sphere
        self.weight = nn.Parameter(nn.init.xavier_normal_(torch.empty(num_classes, in_features)))

    def forward(self, features: Tensor) -> Tensor:
        return F.linear(F.normalize(features, dim=-1), F.normalize(self.weight, dim=-1))
