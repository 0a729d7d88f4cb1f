"""What every callback of windows holds: resumed between any two windows, failed at any place, with
clipping and a scaler.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from harness.scripted_masking import (
    KeepsRows,
    Plain,
    SavesEveryBatch,
    ScriptedMasking,
    batches_of,
    loader_of,
    one_cycle,
    quiet_trainer,
    same_weights,
    with_a_scaler,
)
from harness.stateful_loader import StatefulLoader
from harness.token_batches import MaskedTagger, SkipsBatches, Tagger, token_batches, tokens_in
from lightning.pytorch.callbacks import OnExceptionCheckpoint

from as_lightning import (
    AccumulationSchedule,
    AdaptiveGradientAccumulation,
    MaskingMonitor,
    TokenBudget,
)

pytestmark = pytest.mark.usefixtures("one_thread")

EPOCHS, BATCHES = 2, 9
RESTLESS = (1, 3, 2, 8, 5, 2, 1, 4, 4, 3)


def scripted(kind: type[ScriptedMasking] = ScriptedMasking) -> ScriptedMasking:
    length = BATCHES * EPOCHS
    return kind(
        script=RESTLESS,
        optimizer="adamw",
        dtype=torch.float64,
        scheduler=one_cycle,
        schedule_length=length,
    )


TOKENS = token_batches((3, 0, 17, 1, 24, 8, 2, 24, 5))
PLAIN = batches_of(BATCHES, dtype=torch.float64)


@dataclass
class Row:
    """A module, its callbacks and data; the settings are the trainer's."""

    module: Callable[[], pl.LightningModule]
    callbacks: Callable[[], list[Any]]
    data: list[Any] = field(default_factory=lambda: PLAIN)
    settings: dict[str, Any] = field(default_factory=dict)
    datamodule: bool = False


def by_items(policy: Any, items: Any = tokens_in) -> AdaptiveGradientAccumulation:
    return AdaptiveGradientAccumulation(policy, items=items)


FOUR = AccumulationSchedule({0: 4})
ROWS = {
    "AS-Speed, and the monitor": Row(
        scripted,
        lambda: [MaskingMonitor(), AdaptiveGradientAccumulation(max_steps=5, monotone=False)],
        settings={"val_check_interval": 4},
    ),
    "a schedule, the rate scaled, without a counter": Row(
        lambda: scripted(Plain),
        lambda: [
            AdaptiveGradientAccumulation(
                AccumulationSchedule({0: 1, 2: 3, 5: 4}), lr_scale="linear"
            )
        ],
    ),
    # Lightning does not restore a loader that asking for them has loaded.
    "a schedule of the estimated steps": Row(
        lambda: ScriptedMasking(RESTLESS, dtype=torch.float64, scheduler=one_cycle),
        lambda: [AdaptiveGradientAccumulation(max_steps=5, monotone=False)],
        settings={"val_check_interval": None},
        datamodule=True,
    ),
    "items, and batches without a loss": Row(SkipsBatches, lambda: [by_items(FOUR)], TOKENS),
    "a schedule by items": Row(
        Tagger, lambda: [by_items(AccumulationSchedule({0: 1, 40: 3}, by="items"))], TOKENS
    ),
    "a budget of items": Row(Tagger, lambda: [by_items(TokenBudget(30))], TOKENS),
    "items of the module, and the monitor": Row(
        MaskedTagger, lambda: [by_items(FOUR, "module"), MaskingMonitor()], TOKENS
    ),
    "the monitor": Row(scripted, lambda: [MaskingMonitor()]),
    "the monitor, with Lightning's windows": Row(
        scripted, lambda: [MaskingMonitor()], settings={"accumulate_grad_batches": 4}
    ),
}


WAYS: dict[str, Callable[[], dict[str, Any]]] = {
    "plain": dict,
    "clipped": lambda: {"gradient_clip_val": 0.05},
    "scaled": lambda: {"plugins": [with_a_scaler(init_scale=2.0**8, growth_interval=3)]},
}


class KeepsItsPlace(pl.LightningDataModule):
    """The data order is the data module's state: restored before anything loads the
    training data.
    """

    def __init__(self, batches: list[Any]) -> None:
        super().__init__()
        self.loader = StatefulLoader(batches)
        self.state_dict, self.load_state_dict = self.loader.state_dict, self.loader.load_state_dict  # type: ignore[method-assign]

    def train_dataloader(self) -> StatefulLoader:
        return self.loader


class Run:
    """One training of a row; equal to another if it ends with the same bits, and what it saw ends
    the other's.
    """

    def __init__(self, row, way, *others, resume_from=None, ours=None):
        self.row, self.module, self.ours, self.logger = (
            row,
            row.module(),
            ours or row.callbacks(),
            KeepsRows(),
        )
        settings = {
            "max_epochs": EPOCHS,
            "logger": self.logger,
            "log_every_n_steps": 1,
            "val_check_interval": 3,
        }
        settings |= {
            "enable_checkpointing": any(
                isinstance(other, OnExceptionCheckpoint) for other in others
            )
        }
        callbacks = [*others, *self.ours]
        self.trainer = quiet_trainer(
            **{**settings, **row.settings, **WAYS[way](), "callbacks": callbacks}
        )
        validation = loader_of(row.data[:1])
        self.error: Exception | None = None
        try:
            data = KeepsItsPlace(row.data) if row.datamodule else StatefulLoader(row.data)
            loaders = (None, None, data) if row.datamodule else (data, validation)
            self.trainer.fit(self.module, *loaders, ckpt_path=resume_from)
        except ArithmeticError as error:
            self.error = error

    def seen(self) -> tuple[Any, ...]:
        """Logged rows of steps, and the windows; of a resumed run those from its checkpoint on."""
        rows = [
            {name: value for name, value in row.items() if "/" in name} for row in self.logger.rows
        ]
        histories = [c.history for c in self.ours if isinstance(c, AdaptiveGradientAccumulation)]
        return [row for row in rows if row and not any("epoch" in name for name in row)], *histories

    def assert_ends_as(self, whole: "Run") -> None:
        assert self.error is None
        assert same_weights(self.module, whole.module)
        rates = [
            [group["lr"] for group in run.trainer.optimizers[0].param_groups]
            for run in (self, whole)
        ]
        assert rates[0] == rates[1]
        for rest, of_all in zip(self.seen(), whole.seen(), strict=True):
            assert rest == (of_all[-len(rest) :] if rest else [])
        monitors = [
            [c.history for c in run.ours if isinstance(c, MaskingMonitor)] for run in (self, whole)
        ]
        assert monitors[0] == monitors[1]


class SavesBetweenWindows(SavesEveryBatch):
    """Saves after each optimizer step, after validations, and at each epoch's end."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, between=True)
        self.steps = 0

    def on_train_batch_end(self, trainer: pl.Trainer, *args: Any) -> None:
        if trainer.global_step > self.steps:
            self.steps = trainer.global_step
            self._save(trainer)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        if trainer.accumulate_grad_batches in (1, trainer.fit_loop.batch_idx + 1):
            super().on_validation_end(trainer, pl_module)


@pytest.mark.filterwarnings("ignore:.training_step. returned .None.")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ROWS)
@pytest.mark.bug_report(
    "huggingface/transformers#22143",
    "What a window has gathered before a checkpoint is lost on resume.",
)
def test_a_run_resumed_between_two_windows_ends_with_the_same_bits_and_has_seen_the_same(
    name, way, tmp_path
):
    saves = SavesBetweenWindows(tmp_path)
    whole = Run(ROWS[name], way, saves)
    validated = [path for path in saves.checkpoints() if "validated" in path.stem]
    if not ROWS[name].settings:
        assert len(validated) == EPOCHS * 3  # a window closes where a validation may save
    last = f"{EPOCHS - 1}-{BATCHES - 1:02d}"  # it leaves nothing to train
    paths = [path for path in saves.checkpoints() if not path.stem.startswith(last)]
    assert len(paths) > 3
    for path in paths[:: 1 if way == "plain" else 3]:
        Run(ROWS[name], way, resume_from=path).assert_ends_as(whole)


def test_a_run_resumed_inside_a_window_takes_the_mean_over_its_other_batches_and_says_so(tmp_path):
    data = batches_of(8, dtype=torch.float64)
    settings: dict[str, Any] = {"max_epochs": 1}
    saves = SavesEveryBatch(tmp_path)
    callbacks = [AdaptiveGradientAccumulation(FOUR), saves]
    quiet_trainer(callbacks=callbacks, **settings).fit(
        Plain(dtype=torch.float64), StatefulLoader(data)
    )
    resumed, ours = Plain(dtype=torch.float64), AdaptiveGradientAccumulation(FOUR)
    with pytest.warns(UserWarning, match="inside a window, after 2 of its batches"):
        quiet_trainer(callbacks=[ours], **settings).fit(
            resumed, StatefulLoader(data), ckpt_path=tmp_path / "0-05.ckpt"
        )
    assert [(window.batch, window.length) for window in ours.history] == [(4, 4)]
    loader = StatefulLoader(data)
    order = list(loader)
    by_hand = Plain(dtype=torch.float64)
    optimizer: Any = by_hand.configure_optimizers()
    for window in (order[:4], order[6:]):
        optimizer.zero_grad()
        for batch in window:
            by_hand.loss_of(batch).backward()
        for parameter in by_hand.parameters():
            parameter.grad /= len(window)
        optimizer.step()
    assert same_weights(resumed, by_hand)


def test_testing_the_best_checkpoint_does_not_rewind_the_history(tmp_path: Path) -> None:
    class Tested(ScriptedMasking):
        def test_step(self, batch: Any, batch_idx: int) -> None: ...

    saves, callbacks = SavesEveryBatch(tmp_path), ROWS["AS-Speed, and the monitor"].callbacks()
    trainer, module = quiet_trainer(max_epochs=2, callbacks=[saves, *callbacks]), Tested((8,))
    trainer.fit(module, loader_of(batches_of(4)))
    before = [list(callback.history) for callback in callbacks]
    trainer.test(module, loader_of(batches_of(2)), ckpt_path=saves.checkpoints()[2], verbose=False)
    assert [callback.history for callback in callbacks] == before


class Fails(pl.Callback):
    """Raises where a hook is called for the n-th time."""

    def __init__(self, hook: str, number: int) -> None:
        def fails(trainer: pl.Trainer, *args: Any) -> None:
            self.calls += not trainer.sanity_checking
            if self.calls == number:
                raise ArithmeticError

        self.calls = 0
        setattr(self, hook, fails)


PLACES = [
    "on_train_batch_start",
    "on_before_backward",
    "on_before_optimizer_step",
    "on_train_batch_end",
    "on_validation_batch_end",
]


@pytest.mark.filterwarnings(
    "ignore:The checkpoint lies inside a window", "ignore:.training_step. returned .None."
)
@pytest.mark.parametrize("hook", PLACES)
@pytest.mark.parametrize("name", ROWS)
def test_an_exception_at_any_place_leaves_nothing_behind_and_its_checkpoint_goes_on(
    name, hook, tmp_path
):
    row = ROWS[name]
    whole = Run(row, "clipped")
    for number in (3,) if hook == "on_before_optimizer_step" else (2, 9):
        saves, folder = OnExceptionCheckpoint(tmp_path / str(number)), tmp_path / str(number)
        failed = Run(row, "clipped", saves, Fails(hook, number))
        if failed.error is None:
            continue
        assert failed.trainer.accumulate_grad_batches == row.settings.get(
            "accumulate_grad_batches", 1
        )
        assert not failed.trainer.optimizers[0]._optimizer_step_pre_hooks
        for scheduler in (config.scheduler for config in failed.trainer.lr_scheduler_configs):
            rates = [group["lr"] for group in scheduler.optimizer.param_groups]
            assert scheduler.get_last_lr() == rates
        # Another training by the same callbacks.
        Run(row, "clipped", ours=failed.ours).assert_ends_as(whole)
        resumed = Run(row, "clipped", resume_from=folder / "on_exception.ckpt")
        assert resumed.error is None
        if hook == "on_validation_batch_end" and "Lightning's" not in name:
            resumed.assert_ends_as(whole)  # a validation lies between two windows
