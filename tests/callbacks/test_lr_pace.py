"""A schedule by step ends where it would have ended on all data, whatever an epoch leaves out."""

from __future__ import annotations

import math
from typing import Any

import lightning.pytorch as pl
import pytest
from harness.scripted_masking import ScriptedMasking, batches_of, loader_of, quiet_trainer
from torch.optim.lr_scheduler import OneCycleLR

from as_lightning.callbacks import AdaptiveGradientAccumulation
from as_lightning.callbacks.lr_pace import follow_data
from as_lightning.callbacks.window import window_ends

FULL, EPOCHS = 23, 3


class LeavesOut(pl.Callback):
    """Tells the schedule that each epoch of so many batches stands for one of ``FULL``."""

    def __init__(self, batches: int, accumulated: int) -> None:
        self.batches, self.accumulated = batches, accumulated
        self.last_step: int | None = None
        self.positions: list[int] = []
        self.before = 0

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.before = 0

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if window_ends(trainer, batch_idx):
            follow_data(
                trainer,
                pl_module,
                last_batch=batch_idx,
                batches=batch_idx + 1 - self.before,
                epoch_batches=self.batches,
                full_epoch_batches=FULL,
                accumulated=self.accumulated,
            )
            self.before = batch_idx + 1
        self.positions.append(trainer.lr_scheduler_configs[0].scheduler.last_epoch)


def train(batches: int, frequency: int, steps: int, accumulated: int = 1, adaptive: bool = False) -> LeavesOut:
    records = LeavesOut(batches, accumulated)
    module = ScriptedMasking(
        (3,),
        scheduler=lambda optimizer, total: {
            "scheduler": OneCycleLR(optimizer, max_lr=0.1, total_steps=total),
            "interval": "step",
            "frequency": frequency,
        },
        schedule_length=EPOCHS * steps,
    )
    speed = [AdaptiveGradientAccumulation(4)] if adaptive else []
    trainer = quiet_trainer(max_epochs=EPOCHS, callbacks=[*speed, records], accumulate_grad_batches=accumulated)
    trainer.fit(module, loader_of(batches_of(batches)))
    return records


def steps_of_a_full_epoch(frequency: int, accumulated: int) -> int:
    """Counted batch by batch: Lightning's stepping batches that ``frequency`` divides."""
    ends = range(1, FULL + 1)
    return sum(end % frequency == 0 and (end % accumulated == 0 or end == FULL) for end in ends)


@pytest.mark.parametrize("batches", [1, 7, 12, 22, 23])
@pytest.mark.parametrize(("frequency", "accumulated"), [(1, 1), (2, 1), (1, 3), (1, 4)])
def test_a_shortened_epoch_ends_the_schedule_where_a_full_one_would(
    batches: int, frequency: int, accumulated: int
) -> None:
    steps = steps_of_a_full_epoch(frequency, accumulated)
    records = train(batches, frequency, steps, accumulated)
    assert [records.positions[(epoch + 1) * batches - 1] for epoch in range(EPOCHS)] == [steps, 2 * steps, 3 * steps]


@pytest.mark.parametrize("batches", [7, 12, 22])
def test_adaptive_accumulation_and_shortened_epochs_add_up(batches: int) -> None:
    records = train(batches, 1, FULL, adaptive=True)
    assert records.positions[-1] == EPOCHS * FULL


def test_what_is_left_out_is_spread_evenly_over_the_epoch() -> None:
    records = train(12, 1, FULL)
    assert records.positions[:12] == [math.floor((batch + 1) * FULL / 12) for batch in range(12)]
