"""One small training with the mixin, the monitor and adaptive accumulation, and what must hold after any of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import lightning.pytorch as pl
import torch
from harness.scripted_masking import loader_of
from oracles.accumulation_loop import train_by_hand
from torch import Tensor, nn

from as_lightning import AdaptiveGradientAccumulation, ASSoftmaxMixin, MaskingMonitor

CLASSES, BATCHES, SIZE, EPOCHS = 8, 12, 8, 2


class Theirs(pl.LightningModule):
    """Somebody's classifier on an easy task, so that masking sets in at once."""

    def __init__(self, lr: float = 0.5) -> None:
        super().__init__()
        self.save_hyperparameters()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.net = nn.Sequential(nn.Linear(CLASSES, 16), nn.Tanh(), nn.Linear(16, CLASSES))
        self.criterion = nn.CrossEntropyLoss()

    def forward(self, inputs: Tensor) -> Tensor:
        return self.net(inputs)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        loss = self.criterion(self(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        self.log("val_loss", self.criterion(self(batch[0]), batch[1]))

    test_step = validation_step

    def predict_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        return self(batch[0]).argmax(-1)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=self.hparams.lr)


class WithAS(ASSoftmaxMixin, Theirs):
    """The classifier with the masked loss, its code untouched."""

    as_softmax_replaces = "criterion"


def batches(count: int = BATCHES, dtype: torch.dtype = torch.float32) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    targets = [torch.randint(CLASSES, (SIZE,), generator=generator) for _ in range(count)]
    return [(4 * torch.eye(CLASSES, dtype=dtype)[target], target) for target in targets]


class Run:
    """A training and its callbacks; ``arguments`` go to the trainer.

    Attributes:
        processes: how many train together. Several take the same batches: then their weights are those of one.
    """

    processes: ClassVar[int] = 1

    def __init__(
        self,
        folder: Path,
        *,
        module: pl.LightningModule | None = None,
        callbacks: Sequence[pl.Callback] = (),
        data: Any = None,
        validation: bool = False,
        adaptive: bool = True,
        fit: bool = True,
        **arguments: Any,
    ) -> None:
        self.module = WithAS(delta=0.1) if module is None else module
        self.monitor, self.speed = MaskingMonitor(), AdaptiveGradientAccumulation(max_steps=4)
        quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
        settings = {"max_epochs": EPOCHS, "accelerator": "cpu", "devices": self.processes, "logger": False} | quiet
        if self.processes > 1:
            settings |= {"strategy": "ddp", "use_distributed_sampler": False}
        if arguments.get("barebones"):  # these it sets itself, and refuses to be told
            settings = {key: value for key, value in settings.items() if key not in {"logger", *quiet}}
        ours = [self.monitor, self.speed] if adaptive else [self.monitor]
        self.trainer = pl.Trainer(default_root_dir=folder, callbacks=[*callbacks, *ours], **(settings | arguments))
        self.data = loader_of(batches()) if data is None else data
        self.validation = loader_of(batches(2)) if validation else None
        if fit:
            self.fit()

    def fit(self) -> None:
        self.trainer.fit(self.module, self.data, self.validation)

    @property
    def samples(self) -> list[int]:
        """The samples of each epoch that a process has trained on, as the monitor has counted those of all."""
        counted = [divmod(epoch.samples, self.processes) for epoch in self.monitor.history]
        assert not any(rest for _, rest in counted)
        return [samples for samples, _ in counted]

    def trained(self, *, samples: Sequence[int] = (BATCHES * SIZE,) * EPOCHS) -> Run:
        """All samples of each epoch were counted once, some were masked, and the windows cover the batches."""
        assert self.samples == list(samples)
        assert any(epoch.masked_samples for epoch in self.monitor.history)
        assert all(torch.isfinite(weight).all() for weight in self.module.parameters())
        assert self.trainer.accumulate_grad_batches == 1
        if self.speed.history:
            assert sum(window.samples for window in self.speed.history) == self.processes * sum(samples)
            assert max(window.length for window in self.speed.history) > 1
            for window, following in itertools.pairwise(self.speed.history):
                if window.epoch == following.epoch:
                    assert following.batch == window.batch + window.length
        return self

    def equals_by_hand(self, data: list[Any] | None = None, *, exactly: bool = True, **options: Any) -> None:
        """The weights are those of a hand-written loop over the windows that were taken."""
        data = batches() if data is None else data
        reference = WithAS(delta=0.1).to(next(self.module.parameters()).dtype)
        train_by_hand(
            reference,
            reference.configure_optimizers(),
            [data] * (1 + self.speed.history[-1].epoch),
            [(window.epoch, window.batch, window.length, window.length) for window in self.speed.history],
            loss_of=lambda batch: reference.criterion(reference(batch[0]), batch[1]),
            **options,
        )
        for trained, expected in zip(self.module.parameters(), reference.parameters(), strict=True):
            if exactly:
                assert torch.equal(trained, expected)
            else:
                torch.testing.assert_close(trained, expected)
