"""What every callback of windows holds: resumed after any batch, failed at any place, with clipping
and a scaler.
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
    with_a_scaler,
)
from harness.stateful_loader import StatefulLoader
from harness.token_batches import (
    MaskedTagger,
    SkipsBatches,
    SumTagger,
    Tagger,
    token_batches,
    tokens_in,
)
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
    exact: bool = True  # whether a run that is resumed inside a window has its gradients


def by_items(policy: Any, **arguments: Any) -> list[Any]:
    return [AdaptiveGradientAccumulation(policy, **{"items": tokens_in, **arguments})]


FOUR = AccumulationSchedule({0: 4})
ROWS = {
    "AS-Speed, and the monitor": Row(
        scripted,
        lambda: [MaskingMonitor(), AdaptiveGradientAccumulation(max_steps=5, monotone=False)],
    ),
    "a schedule, the rate scaled, without a counter": Row(
        lambda: scripted(Plain),
        lambda: [
            AdaptiveGradientAccumulation(
                AccumulationSchedule({0: 1, 2: 3, 5: 4}), lr_scale="linear"
            )
        ],
    ),
    # Lightning does not restore a loader that asking for them has loaded
    "a schedule of the estimated steps": Row(
        lambda: ScriptedMasking(RESTLESS, dtype=torch.float64, scheduler=one_cycle),
        lambda: [AdaptiveGradientAccumulation(max_steps=5, monotone=False)],
        settings={"val_check_interval": None},
        datamodule=True,
    ),
    "items, by samples": Row(
        Tagger, lambda: by_items(AccumulationSchedule({0: 1, 6: 3, 14: 5}, by="samples")), TOKENS
    ),
    "items": Row(Tagger, lambda: by_items(FOUR), TOKENS),
    "items, and batches without a loss": Row(SkipsBatches, lambda: by_items(FOUR), TOKENS),
    "items that are summed": Row(SumTagger, lambda: by_items(FOUR, loss_is="sum"), TOKENS),
    "a budget of items": Row(Tagger, lambda: by_items(TokenBudget(30)), TOKENS),
    "items of the counter, and the monitor": Row(
        MaskedTagger, lambda: [*by_items(FOUR, items="module"), MaskingMonitor()], TOKENS
    ),
    "the monitor": Row(scripted, lambda: [MaskingMonitor()]),
    "the monitor, with Lightning's windows": Row(
        scripted,
        lambda: [MaskingMonitor(step="samples")],
        settings={"accumulate_grad_batches": 4},
        exact=False,
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

    def __init__(
        self,
        row: Row,
        way: str,
        *others: pl.Callback,
        resume_from: Path | None = None,
        ours: Any = None,
    ) -> None:
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
        validation = loader_of(row.data[:1]) if hasattr(row.module(), "validation_step") else None
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
        for weight, expected in zip(
            self.module.parameters(), whole.module.parameters(), strict=True
        ):
            assert torch.equal(weight, expected) or not self.row.exact
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


@pytest.mark.filterwarnings(
    "ignore:The policy wants windows", "ignore:.training_step. returned .None."
)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ROWS)
@pytest.mark.bug_report(
    "huggingface/transformers#22143",
    "What a window has gathered before a checkpoint is lost on resume.",
)
def test_a_run_resumed_after_any_batch_ends_with_the_same_bits_and_has_seen_the_same(
    name: str, way: str, tmp_path: Path
) -> None:
    saves = SavesEveryBatch(tmp_path, between=way == "plain")
    whole = Run(ROWS[name], way, saves)
    lengths = {
        window.length
        for c in whole.ours
        for window in getattr(c, "history", [])
        if hasattr(window, "length")
    }
    assert not lengths or max(lengths) > 1
    checkpoints = saves.checkpoints()
    assert len([path for path in checkpoints if path.stem[-1].isdigit()]) == EPOCHS * BATCHES
    last = f"{EPOCHS - 1}-{BATCHES - 1:02d}"  # it leaves nothing to train
    for path in [path for path in checkpoints if not path.stem.startswith(last)][
        :: 1 if way == "plain" else 4
    ]:
        Run(ROWS[name], way, resume_from=path).assert_ends_as(whole)


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
]


@pytest.mark.filterwarnings(
    "ignore:The policy wants windows", "ignore:The checkpoint lies inside a window"
)
@pytest.mark.filterwarnings("ignore:.training_step. returned .None.")
@pytest.mark.parametrize("hook", [*PLACES, "on_validation_batch_end"])
@pytest.mark.parametrize("name", ROWS)
def test_an_exception_at_any_place_leaves_nothing_behind_and_its_checkpoint_goes_on(
    name: str, hook: str, tmp_path: Path
) -> None:
    row = ROWS[name]
    whole = Run(row, "clipped")
    for number in (3,) if hook == "on_before_optimizer_step" else (2, 4, 9):
        saves, folder = OnExceptionCheckpoint(tmp_path / str(number)), tmp_path / str(number)
        failed = Run(row, "clipped", saves, Fails(hook, number))
        if hook == "on_validation_batch_end" and not hasattr(row.module(), "validation_step"):
            return
        if failed.error is None:
            continue
        assert failed.trainer.accumulate_grad_batches == row.settings.get(
            "accumulate_grad_batches", 1
        )
        assert not failed.trainer.optimizers[0]._optimizer_step_pre_hooks
        for scheduler in (config.scheduler for config in failed.trainer.lr_scheduler_configs):
            assert scheduler.get_last_lr() == [
                group["lr"] for group in scheduler.optimizer.param_groups
            ]
        assert not any(parameter._backward_hooks for parameter in failed.module.parameters())
        Run(row, "clipped", ours=failed.ours).assert_ends_as(
            whole
        )  # another training by the same callbacks
        resumed = Run(row, "clipped", resume_from=folder / "on_exception.ckpt")
        assert resumed.error is None
        if hook == "on_validation_batch_end":  # between two batches all is saved
            resumed.assert_ends_as(whole)
