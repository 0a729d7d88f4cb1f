"""Modules on the mixin for skipping backward passes: each kind of loss, in float64, and a pace that searches always."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
import torch
from harness.scripted_masking import quiet_trainer
from harness.sleeping_samples import CLASSES, FEATURES, NumberedSamples
from torch import Tensor, nn
from torch.utils.data import DataLoader

from as_lightning import ASSoftmaxMixin, MaskedSampleSkipping, MaskingMonitor
from as_lightning.callbacks.backward_pace import BackwardPace
from as_lightning.callbacks.backward_skipping import BackwardSkipping

DELTA, LENGTH = 0.3, 4
NO_GUARDS: dict[str, Any] = {"min_masked": 0.0, "max_woken": 1.0, "class_floor": 0.0}


class Always(BackwardPace):
    """Searches every batch, and notes the shares of live samples."""

    def __init__(self) -> None:
        super().__init__(clock=lambda: 0.0)
        self.shares: list[float] = []

    def start(self) -> bool:
        return True

    def found(self, live_share: float) -> None:
        self.shares.append(live_share)


class OneClass(ASSoftmaxMixin, pl.LightningModule):
    """Notes the size of each batch that its ``training_step`` has trained on, and how often it ran past the loss."""

    def __init__(self, dropout: float = 0.0, adam: bool = True, **margin: Any) -> None:
        super().__init__(**({"delta": DELTA} | margin))
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.body = nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh(), nn.Dropout(dropout)).double()
            self.head = nn.Linear(8, CLASSES).double()
        self.adam, self.sizes, self.losses = adam, [], []

    def loss(self, inputs: Tensor, target: Tensor) -> Tensor:
        return self.as_softmax_loss(self.head(self.body(inputs)), target)

    def training_step(self, batch: tuple[Tensor, Tensor, Tensor], batch_idx: int) -> Tensor:
        inputs, target, _ = batch
        loss = self.loss(inputs, target)
        self.log("train/loss", loss, on_epoch=True)
        self.sizes.append(len(target))
        self.losses.append(loss.detach())
        return loss

    def configure_optimizers(self) -> Any:
        if self.adam:
            optimizer: torch.optim.Optimizer = torch.optim.AdamW(self.parameters(), lr=0.02, weight_decay=0.1)
        else:
            optimizer = torch.optim.SGD(self.parameters(), lr=0.3, momentum=0.9)
        total = int(self.trainer.estimated_stepping_batches)
        scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=total)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def weights(self) -> Tensor:
        return torch.cat([weight.detach().flatten() for weight in self.parameters()])


class ClassWeights(OneClass):
    def loss(self, inputs: Tensor, target: Tensor) -> Tensor:
        weight = torch.tensor([1.0, 0.2, 3.0], dtype=torch.float64)
        return self.as_softmax_loss(self.head(self.body(inputs)), target, weight=weight)


class SomeIgnored(OneClass):
    def loss(self, inputs: Tensor, target: Tensor) -> Tensor:
        ignored = target.masked_fill(inputs[:, 0] > 1.5, -100)
        return self.as_softmax_loss(self.head(self.body(inputs)), ignored)


class Summed(OneClass):
    def loss(self, inputs: Tensor, target: Tensor) -> Tensor:
        return self.as_softmax_loss(self.head(self.body(inputs)), target, reduction="sum") / 20


class FusedHead(OneClass):
    def loss(self, inputs: Tensor, target: Tensor) -> Tensor:
        weight = torch.tensor([1.0, 0.2, 3.0], dtype=torch.float64)
        return self.as_softmax_head_loss(self.body(inputs), self.head, target, weight=weight)


class Tokens(OneClass):
    """Each sample is the same input at several places; the last place of some is no token."""

    def loss(self, inputs: Tensor, target: Tensor) -> Tensor:
        places = target.unsqueeze(1).repeat(1, LENGTH)
        places[target == 0, -1] = -100
        scale = torch.linspace(0.5, 1.5, LENGTH, dtype=inputs.dtype)
        hidden = self.body(inputs.unsqueeze(1) * scale[:, None])
        return self.as_softmax_loss(self.head(hidden).transpose(1, 2), places)


class SeveralLabels(OneClass):
    def loss(self, inputs: Tensor, target: Tensor) -> Tensor:
        labels = nn.functional.one_hot(target, CLASSES) | nn.functional.one_hot((target + 1).clamp(max=2), CLASSES)
        return self.multilabel_as_softmax_loss(2 * self.head(self.body(inputs)), labels.double())


KINDS: dict[str, type[OneClass]] = {
    "one class": OneClass,
    "class weights": ClassWeights,
    "ignore_index": SomeIgnored,
    "sum": Summed,
    "fused head": FusedHead,
    "tokens": Tokens,
    "several labels": SeveralLabels,
}


def backward_skipping(
    pace: BackwardPace | None = None, slack: float = 0.1, max_sleep: int = 0, **settings: Any
) -> MaskedSampleSkipping:
    """The callback, which searches every batch unless it is given a pace."""
    skipping = MaskedSampleSkipping(max_sleep, skip_backward=True, slack=slack, **(NO_GUARDS | settings))
    skipping.backward_skipping = BackwardSkipping(slack, pace or Always())
    return skipping


def fit(
    module: pl.LightningModule,
    callbacks: list[pl.Callback],
    *,
    data: Any = None,
    batch_size: int = 8,
    max_epochs: int = 7,
    collate_fn: Any = None,
    **settings: Any,
) -> MaskingMonitor:
    """Train on batches whose order is the same in every call; returns the monitor."""
    monitor = MaskingMonitor()
    torch.manual_seed(0)
    trainer = quiet_trainer(
        max_epochs=max_epochs,
        callbacks=[monitor, *callbacks],
        **({"reload_dataloaders_every_n_epochs": 1} | settings),
    )
    samples = NumberedSamples(noise=0.4) if data is None else data
    trainer.fit(module, DataLoader(samples, batch_size=batch_size, shuffle=True, collate_fn=collate_fn))
    return monitor
