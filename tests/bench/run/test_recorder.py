"""The time of a run: what counts as training, on a clock that only the run itself moves."""

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from harness.scripted_masking import quiet_trainer
from lightning.pytorch.callbacks import LambdaCallback, ModelCheckpoint
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from as_lightning.bench.run.recorder import RunRecorder

EPOCHS, BATCHES, VALIDATION_BATCHES = 3, 4, 2
BATCH, LOADER, REFRESH, PLAN, VALIDATION = 1.0, 0.1, 0.01, 0.001, 100.0


class Clock:
    """Moves where a piece of the run says how long it takes."""

    now = 0.0

    def __call__(self) -> float:
        return self.now

    def move(self, seconds: float) -> None:
        self.now += seconds


class TimedModule(pl.LightningModule):
    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock, self.head = clock, torch.nn.Linear(2, 1)

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        self.clock.move(BATCH)
        return self.head(batch[0]).sum()

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        self.clock.move(VALIDATION)
        self.log("val/accuracy", 0.5)

    def train_dataloader(self) -> Any:
        self.clock.move(LOADER)
        return DataLoader(TensorDataset(torch.zeros(BATCHES, 2)))

    def val_dataloader(self) -> Any:
        return DataLoader(TensorDataset(torch.zeros(VALIDATION_BATCHES, 2)))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fitted(folder: Path, module: type[TimedModule] = TimedModule, **options: Any) -> RunRecorder:
    clock = Clock()
    recorder = RunRecorder("val/accuracy", clock=clock)
    between_epochs = LambdaCallback(
        on_validation_start=lambda *_: clock.move(REFRESH),
        on_train_epoch_end=lambda *_: clock.move(PLAN),
    )
    trainer = quiet_trainer(
        max_epochs=EPOCHS,
        reload_dataloaders_every_n_epochs=1,
        enable_checkpointing=True,
        callbacks=[between_epochs, recorder, ModelCheckpoint(folder)],
        **options,
    )
    trainer.fit(module(clock))
    return recorder


def test_the_time_counts_batches_and_what_lies_between_epochs_but_no_validation(tmp_path):
    recorder = fitted(tmp_path)
    epoch = BATCHES * BATCH + REFRESH + PLAN
    # the first loader comes before the training
    expected = [epoch, *[epoch + LOADER] * (EPOCHS - 1)]
    assert recorder.epoch_seconds == pytest.approx(expected)
    assert recorder.train_seconds == pytest.approx(sum(expected))
    assert (tmp_path / "epoch=2-step=12.ckpt").exists()
    assert "loss" not in recorder.evaluations[0]


def test_the_time_stands_still_in_a_validation_inside_an_epoch(tmp_path):
    recorder = fitted(tmp_path, val_check_interval=0.5)
    half = BATCHES * BATCH / 2 + REFRESH
    expected = []
    for epoch in range(EPOCHS):
        before = epoch * (LOADER + PLAN) + 2 * epoch * half
        expected += [before + half, before + 2 * half]
    found = [evaluation["train_seconds"] for evaluation in recorder.evaluations]
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("name", ["val/loss", "val_loss"])
def test_an_evaluation_has_the_epoch_before_it_also_at_the_end_and_the_loss_under_either_name(
    tmp_path, name
):
    class ValidatesAtTheEnd(TimedModule):
        def on_train_end(self) -> None:
            self.trainer.validating = True
            self.trainer.fit_loop.epoch_loop.val_loop.run()
            self.trainer.training = True

        def validation_step(self, *arguments: Any) -> None:
            super().validation_step(*arguments)
            self.log(name, 0.25)

    evaluations = fitted(tmp_path, ValidatesAtTheEnd).evaluations
    assert [evaluation["epoch"] for evaluation in evaluations] == [0, 1, 2, 2]
    assert [evaluation["loss"] for evaluation in evaluations] == [0.25] * 4
