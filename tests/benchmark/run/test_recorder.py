"""The time of a run: what counts as training, on a clock that only the run itself moves."""

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from as_lightning.benchmark.run.recorder import RunRecorder
from as_lightning.benchmark.run.resume import WholeFileCheckpointIO

EPOCHS, BATCHES, VALIDATION_BATCHES = 3, 4, 2
BATCH, LOADER, REFRESH, PLAN, VALIDATION, SAVE = 1.0, 0.1, 0.01, 0.001, 100.0, 10_000.0


class Clock:
    """Moves where a piece of the run says how long it takes."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class TimedModule(pl.LightningModule):
    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock, self.head = clock, torch.nn.Linear(2, 1)

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        self.clock.now += BATCH
        return self.head(batch[0]).sum()  # type: ignore[no-any-return]

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        self.clock.now += VALIDATION
        self.log("val/accuracy", 0.5)

    def train_dataloader(self) -> Any:
        self.clock.now += LOADER
        return DataLoader(TensorDataset(torch.zeros(BATCHES, 2)), num_workers=0)

    def val_dataloader(self) -> Any:
        return DataLoader(TensorDataset(torch.zeros(VALIDATION_BATCHES, 2)), num_workers=0)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class BetweenEpochs(pl.Callback):
    """What a callback may do between epochs: before each validation, and at the end of each epoch."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def on_validation_start(self, *args: Any) -> None:
        self.clock.now += REFRESH

    def on_train_epoch_end(self, *args: Any) -> None:
        self.clock.now += PLAN


class SlowDisk(WholeFileCheckpointIO):
    """Writes a checkpoint at the speed of the clock."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        super().save_checkpoint(*args, **kwargs)
        self.clock.now += SAVE
        self.seconds = self.clock.now - self.clock.now % SAVE


def fitted(folder: Path, module: type[TimedModule] = TimedModule, **options: Any) -> RunRecorder:
    clock = Clock()
    recorder = RunRecorder("val/accuracy", clock=clock)
    trainer = pl.Trainer(
        max_epochs=EPOCHS,
        reload_dataloaders_every_n_epochs=1,
        callbacks=[BetweenEpochs(clock), recorder, ModelCheckpoint(folder)],
        default_root_dir=folder,
        plugins=[SlowDisk(clock)],
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )
    trainer.fit(module(clock))
    return recorder


def test_the_time_counts_batches_and_what_lies_between_epochs_but_neither_validation_nor_checkpoints(tmp_path):
    recorder = fitted(tmp_path)
    epoch = BATCHES * BATCH + REFRESH + PLAN
    expected = [epoch, *[epoch + LOADER] * (EPOCHS - 1)]  # the first loader comes before the training
    torch.testing.assert_close(recorder.epoch_seconds, expected)
    torch.testing.assert_close(recorder.train_seconds, sum(expected))
    assert (tmp_path / "epoch=2-step=12.ckpt").exists()


def test_the_time_stands_still_in_a_validation_inside_an_epoch(tmp_path: Path) -> None:
    recorder = fitted(tmp_path, val_check_interval=0.5)
    times = [evaluation["train_seconds"] for evaluation in recorder.evaluations]
    half = BATCHES * BATCH / 2 + REFRESH
    expected = [epoch * (LOADER + PLAN) + (2 * epoch + part) * half for epoch in range(EPOCHS) for part in (1, 2)]
    torch.testing.assert_close(times, expected)


def test_the_epoch_of_an_evaluation_is_that_before_it_also_at_the_end_of_training(tmp_path: Path) -> None:
    class ValidatesAtTheEnd(TimedModule):
        def on_train_end(self) -> None:
            self.trainer.validating = True
            self.trainer.fit_loop.epoch_loop.val_loop.run()
            self.trainer.training = True

    recorder = fitted(tmp_path, ValidatesAtTheEnd)
    assert [evaluation["epoch"] for evaluation in recorder.evaluations] == [0, 1, 2, 2]


@pytest.mark.parametrize("name", ["val/loss", "val_loss"])
def test_the_validation_loss_that_decides_ties_is_read_under_either_name(name: str, tmp_path: Path) -> None:
    class WithLoss(TimedModule):
        def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
            super().validation_step(batch, batch_idx)
            self.log(name, 0.25)

    assert [each["loss"] for each in fitted(tmp_path, WithLoss).evaluations] == [0.25] * EPOCHS
    assert "loss" not in fitted(tmp_path).evaluations[0]
