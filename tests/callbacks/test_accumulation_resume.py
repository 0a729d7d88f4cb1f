"""A run that is killed and resumed takes the windows, and ends with the weights, of one that never stopped."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from harness.scripted_masking import (
    OPTIMIZERS,
    SavesEveryBatch,
    ScriptedMasking,
    batches_of,
    loader_of,
    one_cycle,
    quiet_trainer,
    same_weights,
)
from harness.searches import FindsInTheSecondEpoch
from harness.stateful_loader import StatefulLoader
from lightning.pytorch.callbacks import ModelCheckpoint, OnExceptionCheckpoint
from oracles.accumulation_loop import WantedSteps, train_by_hand, windows_of_training

from as_lightning.callbacks import AdaptiveGradientAccumulation, MaskingMonitor
from as_lightning.callbacks.adaptive_gradient_accumulation import GRADIENTS
from as_lightning.callbacks.window import COUNTS

BATCHES, EPOCHS = 13, 3
RESTLESS = (1, 3, 2, 8, 5, 2, 1, 4, 4, 4, 3)


class Run:
    """One training of the tiny module, from the start or from a checkpoint.

    Two runs are equal if they end with the same weights and rate, the monitor's history is the same, and the shorter
    history of windows ends the longer one: a resumed run's begins where it was resumed.
    """

    def __init__(
        self,
        *,
        resume_from: Path | None = None,
        callbacks: Sequence[pl.Callback] = (),
        first: bool = False,
        datamodule: pl.LightningDataModule | None = None,
        **arguments: Any,
    ) -> None:
        self.module = ScriptedMasking(
            RESTLESS,
            optimizer="adamw",
            scheduler=one_cycle,
            # Lightning does not restore a loader that trainer.estimated_stepping_batches has already made it load.
            schedule_length=None if datamodule else BATCHES * EPOCHS,
        )
        self.speed = AdaptiveGradientAccumulation(max_steps=5, monotone=False, update_every=2, warmup_windows=3)
        self.monitor = MaskingMonitor()
        others = [self.monitor, *callbacks]
        self.trainer = quiet_trainer(
            max_epochs=EPOCHS,
            gradient_clip_val=0.5,
            callbacks=[self.speed, *others] if first else [*others, self.speed],
            **arguments,
        )
        data = {"datamodule": datamodule} if datamodule else {"train_dataloaders": StatefulLoader(batches_of(BATCHES))}
        if "val_check_interval" in arguments:
            data["val_dataloaders"] = loader_of(batches_of(1))
        self.trainer.fit(self.module, ckpt_path=resume_from, weights_only=True if resume_from else None, **data)

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, Run)
        rate, other_rate = (run.trainer.optimizers[0].param_groups[0]["lr"] for run in (self, other))
        ends = zip(reversed(self.speed.history), reversed(other.speed.history), strict=False)
        same_counts = self.monitor.history == other.monitor.history
        return (
            same_weights(self.module, other.module)
            and rate == other_rate
            and same_counts
            and all(a == b for a, b in ends)
        )

    __hash__ = None  # type: ignore[assignment]


@pytest.fixture(scope="module")
def uninterrupted() -> Run:
    return Run()


def test_the_kill_points_lie_inside_windows_and_between_them(uninterrupted: Run) -> None:
    lengths = [window.length for window in uninterrupted.speed.history]
    assert sum(lengths) == BATCHES * EPOCHS
    assert {1, 2, 3} <= set(lengths)


class Killed(Exception):
    pass


class KillsAt(pl.Callback):
    """Stops training where a batch starts, or in the validation after one."""

    def __init__(self, epoch: int, batch: int, *, in_validation: bool = False) -> None:
        self.place, self.in_validation = (epoch, batch), in_validation

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if not self.in_validation and (trainer.current_epoch, batch_idx) == self.place:
            raise Killed

    def on_validation_batch_end(self, trainer: pl.Trainer, *args: Any) -> None:
        place = trainer.current_epoch, trainer.fit_loop.batch_idx
        if self.in_validation and not trainer.sanity_checking and place == self.place:
            raise Killed


@pytest.mark.parametrize("every", [{"every_n_train_steps": 1}, {"every_n_train_steps": 3}, {"every_n_epochs": 1}])
@pytest.mark.parametrize("batches", [14, 20, 26, 31, 38])
def test_a_killed_run_resumes_from_its_last_checkpoint(
    batches: int, every: dict[str, int], uninterrupted: Run, tmp_path: Path
) -> None:
    keeps_last = ModelCheckpoint(tmp_path, save_last=True, save_top_k=1, save_on_train_epoch_end=True, **every)
    with pytest.raises(Killed):
        Run(callbacks=[keeps_last, KillsAt(*divmod(batches, BATCHES))], enable_checkpointing=True)
    assert Run(resume_from=tmp_path / "last.ckpt") == uninterrupted


@pytest.mark.parametrize("first", [True, False])
def test_a_checkpoint_of_a_validation_inside_a_window_resumes_exactly(
    first: bool, uninterrupted: Run, tmp_path: Path
) -> None:
    class SavesOnValidation(pl.Callback):
        def on_validation_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
            if not trainer.sanity_checking:
                trainer.save_checkpoint(tmp_path / f"{trainer.current_epoch}-{trainer.fit_loop.batch_idx:02d}.ckpt")

    Run(callbacks=[SavesOnValidation()], first=first, val_check_interval=4)
    saved = sorted(tmp_path.glob("*.ckpt"))
    assert len(saved) == 3 * EPOCHS
    assert all(Run(resume_from=path, val_check_interval=4) == uninterrupted for path in saved)


@pytest.mark.parametrize(("batch", "inside_a_window"), [(7, True), (11, False)])
def test_a_checkpoint_of_an_exception_in_a_validation_resumes_exactly_also_inside_a_window(
    batch: int, inside_a_window: bool, uninterrupted: Run, tmp_path: Path
) -> None:
    saves = OnExceptionCheckpoint(tmp_path)
    with pytest.raises(Killed):
        Run(callbacks=[saves, KillsAt(1, batch, in_validation=True)], val_check_interval=4, enable_checkpointing=True)
    saved = torch.load(saves.ckpt_path, weights_only=True)
    assert (GRADIENTS in saved) == (COUNTS in saved) == inside_a_window
    assert Run(resume_from=Path(saves.ckpt_path), val_check_interval=4) == uninterrupted


class KeepsItsPlace(pl.LightningDataModule):
    """The data order is the data module's state: restored before anything loads the training data."""

    def __init__(self) -> None:
        super().__init__()
        self.loader = StatefulLoader(batches_of(BATCHES))

    def train_dataloader(self) -> StatefulLoader:
        return self.loader

    def state_dict(self) -> dict[str, int]:
        return self.loader.state_dict()

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self.loader.load_state_dict(state_dict)


def test_a_schedule_from_estimated_stepping_batches_resumes_exactly(uninterrupted: Run, tmp_path: Path) -> None:
    assert Run(datamodule=KeepsItsPlace(), callbacks=[SavesEveryBatch(tmp_path)]) == uninterrupted
    for path in sorted(tmp_path.glob("*.ckpt"))[::5]:
        assert Run(datamodule=KeepsItsPlace(), resume_from=path) == uninterrupted


class SavesInsideABatch(pl.Callback):
    def __init__(self, path: Path, batch: int) -> None:
        self.path, self.batch = path, batch

    def on_after_backward(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if trainer.fit_loop.total_batch_idx == self.batch:
            trainer.save_checkpoint(self.path)


def test_a_checkpoint_from_inside_a_batch_says_what_is_lost_and_keeps_the_scale(tmp_path: Path) -> None:
    data = batches_of(12, dtype=torch.float64)
    path = tmp_path / "inside.ckpt"

    def train(callbacks: list[pl.Callback], resume_from: Path | None = None) -> tuple[Any, Any]:
        module, speed = ScriptedMasking((4,), dtype=torch.float64), AdaptiveGradientAccumulation(max_steps=4)
        trainer = quiet_trainer(max_epochs=2, callbacks=[speed, *callbacks])
        trainer.fit(module, loader_of(data), ckpt_path=resume_from)
        return module, speed

    _, speed = train([SavesInsideABatch(path, 12 + 6)])  # the third batch of the window (1, 4, 4)
    saved = torch.load(path, weights_only=True)
    with pytest.warns(UserWarning, match="after 2 of its 4 batches"):
        resumed, speed_resumed = train([], path)
    windows = windows_of_training([12] * 2, WantedSteps((4,), 4))
    assert [window[:3] for window in speed.history] == [window[:3] for window in windows]
    assert [window[:3] for window in speed_resumed.history] == [window[:3] for window in windows[-2:]]

    reference = ScriptedMasking((4,), dtype=torch.float64)
    reference.load_state_dict(saved["state_dict"])
    optimizer = OPTIMIZERS["sgd"](reference)
    optimizer.load_state_dict(saved["optimizer_states"][0])
    # Lightning runs the batch again; its loader starts over, as it is not stateful.
    assert windows[-2:] == [(1, 4, 4, 4), (1, 8, 4, 4)]
    rest = [(0, 0, 2, 2), (0, 2, 4, 4)]
    train_by_hand(reference, optimizer, [data], rest, loss_of=reference.loss_of, rate_scale=math.sqrt)
    for trained, expected in zip(resumed.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(trained, expected, rtol=1e-12, atol=1e-14)


def test_testing_the_best_checkpoint_does_not_rewind_the_history(tmp_path: Path) -> None:
    class Tests(ScriptedMasking):
        def test_step(self, batch: Any, batch_idx: int) -> None:
            self.loss_of(batch)

    callbacks = speed, monitor = AdaptiveGradientAccumulation(max_steps=4), MaskingMonitor()
    trainer = quiet_trainer(max_epochs=2, callbacks=[*callbacks, SavesEveryBatch(tmp_path)])
    trainer.fit(Tests((4,)), loader_of(batches_of(8)))
    histories = [list(callback.history) for callback in callbacks]
    trainer.test(ckpt_path=tmp_path / "0-03.ckpt", dataloaders=loader_of(batches_of(1)), verbose=False)
    assert [callback.history for callback in callbacks] == histories
    assert len(speed.history) > 4
    assert len(monitor.history) == 2


def test_a_search_of_the_learning_rate_in_the_midst_of_a_training_leaves_the_history_and_the_windows(
    tmp_path: Path,
) -> None:
    histories, modules = [], []
    for search in ([], [FindsInTheSecondEpoch()]):
        speed, module = AdaptiveGradientAccumulation(max_steps=4), ScriptedMasking((1, 4))
        trainer = quiet_trainer(max_epochs=3, callbacks=[speed, *search], default_root_dir=tmp_path)
        trainer.fit(module, loader_of(batches_of(8)))
        histories.append(speed.history)
        modules.append(module)
    assert histories[0] == histories[1]
    assert {window.epoch for window in histories[1]} == {0, 1, 2}
    assert same_weights(*modules)


def test_state_is_plain_data_of_a_size_that_does_not_grow() -> None:
    def state_after(epochs: int) -> dict[str, Any]:
        speed = AdaptiveGradientAccumulation(max_steps=4)
        quiet_trainer(max_epochs=epochs, callbacks=[speed]).fit(ScriptedMasking((4,)), loader_of(batches_of(9)))
        assert len(speed.history) >= 3 * epochs
        return speed.state_dict()

    short, long = state_after(1), state_after(20)
    other = AdaptiveGradientAccumulation(max_steps=4)
    other.load_state_dict(long)
    assert other.state_dict() == long
    assert len(json.dumps(long)) <= len(json.dumps(short)) + 4  # digits of a count
