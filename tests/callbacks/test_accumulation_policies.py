"""Windows of any policy: what it decides, and what a run costs."""

import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from harness.scripted_masking import (
    Plain,
    ScriptedMasking,
    batches_of,
    loader_of,
    masking_that_asks_for,
    quiet_trainer,
    same_weights,
)
from hypothesis import given
from hypothesis import strategies as st
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from oracles.accumulation_loop import train_by_hand, windows_of_training
from torch import Tensor

from as_lightning import (
    AccumulationSchedule,
    AdaptiveGradientAccumulation,
    ASSoftmaxLoss,
    DeltaWarmup,
    MaskingMonitor,
)
from as_lightning.callbacks import AccumulationWindow
from as_lightning.callbacks.accumulation_policy import MaskingPolicy
from as_lightning.functional import MaskingCounts

pytestmark = pytest.mark.usefixtures("one_thread")


def fit(
    policy: Any, *, module: Any = None, loader: Any = None, epochs: int = 2, **arguments: Any
) -> Any:
    speed = AdaptiveGradientAccumulation(policy)
    fit_arguments = {"ckpt_path": arguments.pop("ckpt_path", None)}
    trainer = quiet_trainer(
        max_epochs=epochs, callbacks=[*arguments.pop("callbacks", ()), speed], **arguments
    )
    trainer.fit(module or Plain(), loader or loader_of(batches_of(24)), **fit_arguments)
    return speed


def taken(speed: AdaptiveGradientAccumulation) -> list[tuple[int, ...]]:
    return [window[:3] for window in speed.history]


def scheduled(schedule: dict[int, int]) -> Any:
    """The length that each window wants, by the number of windows before it."""
    windows = itertools.count()
    return lambda: schedule[
        max(key for window in [next(windows)] for key in schedule if key <= window)
    ]


@pytest.mark.parametrize("schedule", [{0: 1}, {0: 4}, {0: 1, 5: 4, 9: 16}, {0: 8, 2: 3, 3: 1}])
@pytest.mark.parametrize("batches", [1, 13, 24])
@pytest.mark.bug_report(
    "Lightning-AI/pytorch-lightning#21534", "Accumulation can be scheduled by epochs alone."
)
def test_a_schedule_by_step_trains_as_the_hand_written_loop(
    schedule: dict[int, int], batches: int
) -> None:
    data, module = batches_of(batches), Plain(optimizer="adamw")
    speed = fit(AccumulationSchedule(schedule), module=module, loader=loader_of(data), epochs=3)
    windows = windows_of_training([batches] * 3, scheduled(schedule))
    assert taken(speed) == [window[:3] for window in windows]
    assert [window.step for window in speed.history] == list(range(1, len(windows) + 1))

    reference = Plain(optimizer="adamw")
    optimizer = torch.optim.AdamW(reference.parameters(), lr=0.01, weight_decay=0.1)
    train_by_hand(reference, optimizer, [data] * 3, windows, loss_of=reference.loss_of)
    assert same_weights(module, reference)


def test_a_schedule_by_samples_counts_the_samples_of_a_module_without_a_counter() -> None:
    speed = fit(AccumulationSchedule({0: 1, 10: 2, 40: 4}, by="samples"))  # batches of two
    starts = [2 * (24 * window.epoch + window.batch) for window in speed.history]
    assert [window.samples for window in speed.history] == [
        2 * window.length for window in speed.history
    ]
    wanted = [1 if start < 10 else 2 if start < 40 else 4 for start in starts]
    assert all(
        window.length <= length for window, length in zip(speed.history, wanted, strict=True)
    )
    assert taken(speed)[4:7] == [
        (0, 4, 1),
        (0, 5, 1),
        (0, 6, 2),
    ]  # a window that starts at batch 5 takes one
    assert taken(speed)[-6:] == [(1, batch, 4) for batch in range(0, 24, 4)]


class Graph:
    """A batch whose size Lightning cannot tell."""

    def __init__(self, batch: Any) -> None:
        self.parts = batch


class OfGraphs(Plain):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.loss_of(batch.parts)


def test_a_batch_of_ones_own_class_needs_a_size_only_where_a_schedule_goes_by_samples() -> None:
    loader = loader_of([Graph(batch) for batch in batches_of(8)])
    speed = fit(lambda window: 2, module=OfGraphs(), loader=loader)
    assert {(window.length, window.samples) for window in speed.history} == {(2, 0)}
    with pytest.raises(
        MisconfigurationException,
        match=r"by='samples' needs the size .* cannot tell of a Graph: take",
    ):
        fit(AccumulationSchedule({0: 2}, by="samples"), module=OfGraphs(), loader=loader)


def test_a_batch_that_is_an_iterator_is_not_used_up() -> None:
    class OfIterators(Plain):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return self.loss_of(tuple(batch))

    loader = loader_of([iter(batch) for batch in batches_of(8)])
    speed = fit(lambda window: 2, module=OfIterators(), loader=loader, epochs=1)
    assert {(window.length, window.samples) for window in speed.history} == {(2, 0)}


def test_a_function_sees_each_window_once_and_an_empty_one_first() -> None:
    seen: list[AccumulationWindow] = []

    def grows(window: AccumulationWindow) -> int:
        seen.append(window)
        return 2 if window.step < 3 else 4

    speed = fit(grows)
    assert seen == [AccumulationWindow(0, 0, 0, 0, 0), *speed.history]
    assert [window.length for window in speed.history][:6] == [2, 2, 2, 3, 3, 4]


def test_a_resumed_run_may_go_on_with_another_policy(tmp_path: Path) -> None:
    speed = AdaptiveGradientAccumulation(max_steps=2)
    trainer = quiet_trainer(max_epochs=1, callbacks=[speed])
    trainer.fit(ScriptedMasking((16,)), loader_of(batches_of(12)))
    trainer.save_checkpoint(tmp_path / "end.ckpt")
    module, loader = ScriptedMasking(), loader_of(batches_of(12))
    resumed = fit(
        AccumulationSchedule({0: 3}), module=module, loader=loader, ckpt_path=tmp_path / "end.ckpt"
    )
    assert taken(resumed) == [(1, batch, 3) for batch in range(0, 12, 3)]
    assert resumed.history[0].step == speed.history[-1].step + 1


@pytest.mark.parametrize("length", [0, -1, 2.0, None, True, "4"])
def test_a_policy_that_gives_no_length_is_refused_before_training(length: Any) -> None:
    with pytest.raises(
        MisconfigurationException, match=r"must return the number of batches of the next window"
    ):
        fit(lambda window: length)


@pytest.mark.parametrize(
    "schedule", [{}, {1: 2}, {0: 0}, {-1: 2, 0: 1}, {0: 1.5}, {0: True}, {0.0: 1}]
)
def test_a_schedule_that_says_no_length_everywhere_is_refused(schedule: Any) -> None:
    with pytest.raises(
        ValueError, match="by must be one of 'step', 'samples', 'items', got 'epoch'"
    ):
        AccumulationSchedule({0: 1}, by="epoch")  # type: ignore[arg-type]
    with pytest.raises(
        (TypeError, ValueError), match=r"schedule must (say the length from 0 on|be an integer)"
    ):
        AccumulationSchedule(schedule)


@given(
    schedule=st.dictionaries(st.integers(1, 200), st.integers(1, 32), max_size=5),
    first=st.integers(1, 32),
    lengths=st.lists(st.integers(1, 8), max_size=40),
)
def test_a_schedule_says_the_length_of_its_latest_key(
    schedule: dict[int, int], first: int, lengths: list[int]
) -> None:
    for step, length in enumerate(lengths, 1):
        positions: Any = {
            "step": step,
            "samples": 3 * sum(lengths[:step]),
            "items": 5.5 * sum(lengths[:step]),
        }
        seen = positions["samples"], positions["items"]
        window = AccumulationWindow(0, 0, length, 0, 3 * length, 0, step, 1, *seen)
        for by, position in positions.items():
            keys = [key for key in schedule if key <= position]
            policy = AccumulationSchedule({0: first, **schedule}, by=by)
            assert policy(window) == (schedule[max(keys)] if keys else first)


def test_the_papers_formula_is_the_default() -> None:
    policy = AdaptiveGradientAccumulation().policy
    assert policy == MaskingPolicy(max_steps=4, scale=1.0, monotone=True)


class WithLossModule(ScriptedMasking):
    """Reports no counts itself."""

    def __init__(self) -> None:
        super().__init__()
        del self.masking_counter
        self.criterion = ASSoftmaxLoss()

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        return self.criterion(self.net(batch[0]), batch[1])


@pytest.mark.parametrize(
    "make", [lambda: ScriptedMasking((4,)), WithLossModule], ids=["own counts", "loss module"]
)
@pytest.mark.parametrize("beside", [[], [MaskingMonitor()]], ids=["alone", "with monitor"])
def test_one_host_read_a_window_and_none_a_batch(
    beside: list[pl.Callback], make: Callable[[], ScriptedMasking], host_reads: Counter[str]
) -> None:
    speed = AdaptiveGradientAccumulation(max_steps=4)
    trainer = quiet_trainer(max_epochs=2, callbacks=[speed, *beside])
    trainer.fit(make(), loader_of(batches_of(24)))
    ours = {
        name: count
        for name, count in host_reads.items()
        if name.startswith("as_lightning.callbacks")
    }
    # the monitor reads at the end of each epoch, and where it writes a step: here the first and the
    # last
    written = {"as_lightning.callbacks.masking_monitor": 2 + 2} if beside else {}
    # the first and the last step write their loss
    assert (
        ours
        == {"as_lightning.callbacks.adaptive_gradient_accumulation": len(speed.history) + 2}
        | written
    )
    assert len(speed.history) < 48 or make is WithLossModule


@pytest.mark.gpu
@pytest.mark.skipif(
    not torch.cuda.is_available(), reason="counts device synchronisations of a CUDA device"
)
def test_no_device_synchronisation_inside_a_window() -> None:
    mode = torch.cuda.set_sync_debug_mode
    # inside a window, waiting for the device is an error
    hooks = {
        "on_train_batch_start": lambda *_: mode("error"),
        "on_before_optimizer_step": lambda *_: mode("default"),
    }
    module = ScriptedMasking((8,)).cuda()
    counts = MaskingCounts(*(count.cuda() for count in masking_that_asks_for(8)))
    module.training_step = lambda batch, batch_idx: (  # type: ignore[method-assign]
        module.masking_counter.update(counts),
        module.loss_of(batch),
    )[1]
    data = [(inputs.cuda(), target.cuda()) for inputs, target in batches_of(48)]
    speed = AdaptiveGradientAccumulation(max_steps=8)
    callbacks = [speed, MaskingMonitor(), pl.callbacks.LambdaCallback(**hooks)]
    trainer = quiet_trainer(max_epochs=2, callbacks=callbacks, accelerator="gpu")
    try:
        trainer.fit(module, loader_of(data))
    finally:
        mode("default")
    assert max(window.length for window in speed.history) == 8


def test_lengths_may_be_integers_of_numpy() -> None:
    assert AccumulationSchedule({np.int64(0): np.int64(4)}).schedule == {0: 4}
    assert (
        type(MaskingPolicy(max_steps=np.int64(2)).max_steps)
        is type(DeltaWarmup(batches=np.int64(2)).batches)
        is int
    )
    assert [window.length for window in fit(lambda window: np.int64(3), epochs=1).history] == [
        3
    ] * 8


@pytest.mark.bug_report(
    "Lightning-AI/pytorch-lightning#21808",
    "Windows longer than the epoch are cut short in silence.",
)
def test_windows_that_would_be_longer_than_the_epoch_are_warned_of_once() -> None:
    with pytest.warns(
        UserWarning, match="wants windows of 8 batches, and an epoch has 3"
    ) as warned:
        speed = fit(AccumulationSchedule({0: 8}), loader=loader_of(batches_of(3)))
    assert taken(speed) == [(0, 0, 3), (1, 0, 3)]
    assert [window.wanted for window in speed.history] == [8, 8]
    assert sum("wants windows" in str(warning.message) for warning in warned) == 1


def test_a_state_of_0_3_is_taken_over() -> None:
    window = {"first_batch": 4, "length": 2, "accumulated": 1, "is_open": True}
    policy = {
        "name": "MaskingPolicy",
        "state": {"steps": 3, "windows_seen": 5, "undecided": (1, 64, 32)},
    }
    old = {"policy": policy, "next_length": 3, "window": window, "unit": None, "lr_scale": "sqrt"}
    speed = AdaptiveGradientAccumulation(max_steps=2)
    speed.load_state_dict(old)
    assert speed.state_dict()["next_length"] == 2  # the smaller max_steps applies at once
    schedule = AdaptiveGradientAccumulation(AccumulationSchedule({0: 1, 90: 4}, by="samples"))
    schedule.load_state_dict(old | {"policy": {"name": "StepSchedule", "state": {"samples": 100}}})
    assert schedule.state_dict()["seen"] == (100, 0.0)
    assert schedule.state_dict()["next_length"] == 3
