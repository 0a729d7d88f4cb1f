"""A small classifier on AS-Softmax that says which samples are live, and data that tell each sample's number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader, Dataset

from as_lightning.functional import as_cross_entropy, as_softmax_mask
from as_lightning.masking_counter import MaskingCounter

SAMPLES, FEATURES, CLASSES = 61, 6, 3


class NumberedSamples(Dataset[tuple[Tensor, Tensor, int]]):
    """Three noisy clusters in float64; a sample is ``(input, class, number)``."""

    def __init__(self, samples: int = SAMPLES, noise: float = 0.9) -> None:
        generator = torch.Generator().manual_seed(7)
        self.targets = torch.arange(samples) % CLASSES
        centres = torch.eye(CLASSES, FEATURES, dtype=torch.float64) * 2
        random = torch.randn(samples, FEATURES, generator=generator, dtype=torch.float64)
        self.inputs = centres[self.targets] + noise * random

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, int]:
        return self.inputs[index], self.targets[index], index


class SleepingClassifier(pl.LightningModule):
    """Notes for each epoch which samples it was given, in order, and which of them were live."""

    def __init__(
        self,
        delta: float = 0.1,
        *,
        dropout: float = 0.0,
        batch_norm: bool = False,
        lr: float = 0.3,
        scheduler: Callable[[torch.optim.Optimizer, int], LRScheduler] | None = None,
        live_delta: float | None = None,
    ) -> None:
        super().__init__()
        self.delta, self.lr, self.scheduler = delta, lr, scheduler
        self.live_delta = delta if live_delta is None else live_delta
        self.masking_counter = MaskingCounter()
        self.epochs: list[list[list[int]]] = []
        self.live: list[dict[int, bool]] = []
        self.rates: list[float] = []
        self.lengths: list[int] = []
        self.validated: list[tuple[int, int]] = []
        with torch.random.fork_rng():
            torch.manual_seed(0)
            layers: list[nn.Module] = [nn.Linear(FEATURES, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, CLASSES)]
            if batch_norm:
                layers.insert(1, nn.BatchNorm1d(8))
            self.net = nn.Sequential(*layers).double()

    def forward(self, inputs: Tensor) -> Tensor:
        return self.net(inputs)

    def on_train_epoch_start(self) -> None:
        self.epochs.append([])
        self.live.append({})
        self.lengths.append(int(self.trainer.num_training_batches))

    def training_step(self, batch: tuple[Tensor, Tensor, Tensor], batch_idx: int) -> Tensor:
        inputs, target, numbers = batch
        logits = self(inputs)
        loss, counts = as_cross_entropy(logits, target, self.delta, return_counts=True)
        self.masking_counter.update(counts)
        live = as_softmax_mask(logits, target, self.live_delta).sum(1) > 1
        if self.masking_counter.wants_live:
            self.masking_counter.record_live(live)
        if not self.epochs:  # resumed inside an epoch
            self.on_train_epoch_start()
        self.epochs[-1].append(numbers.tolist())
        self.live[-1] |= dict(zip(numbers.tolist(), live.tolist(), strict=True))
        self.rates.append(self.trainer.optimizers[0].param_groups[0]["lr"])
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor, Tensor], batch_idx: int) -> None:
        if batch_idx == 0:
            self.validated.append((self.trainer.current_epoch, self.trainer.global_step))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=self.lr, momentum=0.9)
        if self.scheduler is None:
            return optimizer
        scheduler = self.scheduler(optimizer, int(self.trainer.estimated_stepping_batches))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def visited(self, epoch: int) -> list[int]:
        return sorted(number for batch in self.epochs[epoch] for number in batch)

    def weights(self) -> dict[str, Tensor]:
        return {name: weight.clone() for name, weight in self.state_dict().items()}


def numbered_loader(dataset: Dataset[Any] | None = None, **settings: Any) -> DataLoader[Any]:
    defaults = {} if "batch_sampler" in settings else {"batch_size": 8, "shuffle": "sampler" not in settings}
    return DataLoader(NumberedSamples() if dataset is None else dataset, **(defaults | settings))
