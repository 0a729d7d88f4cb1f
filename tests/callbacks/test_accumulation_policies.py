"""Windows of any policy: by a schedule or a function, with a module that knows nothing of masking."""

from __future__ import annotations

import copy
import itertools
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from harness.scripted_masking import (
    SavesEveryBatch,
    ScriptedMasking,
    batches_of,
    loader_of,
    quiet_trainer,
    same_weights,
)
from harness.stateful_loader import StatefulLoader
from hypothesis import given
from hypothesis import strategies as st
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from oracles.accumulation_loop import train_by_hand, windows_of_training

from as_lightning import AdaptiveGradientAccumulation, MaskingPolicy, StepSchedule
from as_lightning.callbacks import AccumulationWindow

pytestmark = pytest.mark.usefixtures("one_thread")


class Plain(ScriptedMasking):
    """A module without the mixin and without a masking counter."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        del self.masking_counter

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.loss_of(batch)


def fit(policy: Any, *, module: Any = None, loader: Any = None, epochs: int = 2, **arguments: Any) -> Any:
    speed = AdaptiveGradientAccumulation(policy)
    fit_arguments = {"ckpt_path": arguments.pop("ckpt_path", None)}
    trainer = quiet_trainer(max_epochs=epochs, callbacks=[*arguments.pop("callbacks", ()), speed], **arguments)
    trainer.fit(module or Plain(), loader or loader_of(batches_of(24)), **fit_arguments)
    return speed


def taken(speed: AdaptiveGradientAccumulation) -> list[tuple[int, ...]]:
    return [window[:3] for window in speed.history]


def scheduled(schedule: dict[int, int]) -> Any:
    """The length that each window wants, by the number of windows before it."""
    windows = itertools.count()
    return lambda: schedule[max(key for window in [next(windows)] for key in schedule if key <= window)]


@pytest.mark.parametrize("schedule", [{0: 1}, {0: 4}, {0: 1, 5: 4, 9: 16}, {0: 8, 2: 3, 3: 1}])
@pytest.mark.parametrize("batches", [1, 13, 24])
def test_a_schedule_by_step_trains_as_the_hand_written_loop(schedule: dict[int, int], batches: int) -> None:
    data, module = batches_of(batches), Plain(optimizer="adamw")
    speed = fit(StepSchedule(schedule), module=module, loader=loader_of(data), epochs=3)
    windows = windows_of_training([batches] * 3, scheduled(schedule))
    assert taken(speed) == [window[:3] for window in windows]
    assert [window.step for window in speed.history] == list(range(1, len(windows) + 1))

    reference = Plain(optimizer="adamw")
    optimizer = torch.optim.AdamW(reference.parameters(), lr=0.01, weight_decay=0.1)
    train_by_hand(reference, optimizer, [data] * 3, windows, loss_of=reference.loss_of)
    assert same_weights(module, reference)


def test_a_schedule_by_samples_counts_the_samples_of_a_module_without_a_counter() -> None:
    speed = fit(StepSchedule({0: 1, 10: 2, 40: 4}, by="samples"))  # batches of two
    starts = [2 * (24 * window.epoch + window.batch) for window in speed.history]
    assert [window.samples for window in speed.history] == [2 * window.length for window in speed.history]
    wanted = [1 if start < 10 else 2 if start < 40 else 4 for start in starts]
    assert all(window.length <= length for window, length in zip(speed.history, wanted, strict=True))
    assert taken(speed)[4:7] == [(0, 4, 1), (0, 5, 1), (0, 6, 2)]  # a window that starts at batch 5 takes one
    assert taken(speed)[-6:] == [(1, batch, 4) for batch in range(0, 24, 4)]


def test_a_function_sees_each_window_once_and_an_empty_one_first() -> None:
    seen: list[AccumulationWindow] = []

    def grows(window: AccumulationWindow) -> int:
        seen.append(window)
        return 2 if window.step < 3 else 4

    speed = fit(grows)
    assert seen == [AccumulationWindow(0, 0, 0, 0, 0), *speed.history]
    assert [window.length for window in speed.history][:6] == [2, 2, 2, 3, 3, 4]


def test_an_object_with_its_own_state_is_a_policy(tmp_path: Path) -> None:
    class Alternates:
        def __init__(self) -> None:
            self.calls = 0

        def next_length(self, window: AccumulationWindow) -> int:
            self.calls += 1
            return 1 + self.calls % 3

        def state_dict(self) -> dict[str, Any]:
            return {"calls": self.calls}

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            self.calls = state_dict["calls"]

    data, saves = batches_of(9), SavesEveryBatch(tmp_path)
    whole = fit(Alternates(), loader=StatefulLoader(data), callbacks=[saves])
    for path in saves.checkpoints()[:-1]:
        resumed = fit(Alternates(), loader=StatefulLoader(data), ckpt_path=path)
        assert resumed.history == whole.history[-len(resumed.history) :], path.name


def test_a_resumed_run_may_go_on_with_another_policy(tmp_path: Path) -> None:
    speed = AdaptiveGradientAccumulation(max_steps=2)
    trainer = quiet_trainer(max_epochs=1, callbacks=[speed])
    trainer.fit(ScriptedMasking((16,)), loader_of(batches_of(12)))
    trainer.save_checkpoint(tmp_path / "end.ckpt")
    module, loader = ScriptedMasking(), loader_of(batches_of(12))
    resumed = fit(StepSchedule({0: 3}), module=module, loader=loader, ckpt_path=tmp_path / "end.ckpt")
    assert taken(resumed) == [(1, batch, 3) for batch in range(0, 12, 3)]
    assert resumed.history[0].step == speed.history[-1].step + 1


def test_a_callback_starts_its_policy_anew_in_another_training() -> None:
    speed = AdaptiveGradientAccumulation(StepSchedule({0: 1, 10: 4}, by="samples"))
    histories = []
    for _ in range(2):
        quiet_trainer(max_epochs=2, callbacks=[speed]).fit(Plain(), loader_of(batches_of(24)))
        histories.append(speed.history)
    assert histories[0] == histories[1]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda speed: pickle.loads(pickle.dumps(speed))])
def test_a_copy_of_the_callback_decides_for_itself(copied: Any) -> None:
    """Strategies that start processes pickle the callbacks."""
    speed = AdaptiveGradientAccumulation(StepSchedule({0: 1, 10: 4}, by="samples"), lr_scale="sqrt")
    other = copied(speed)
    histories = []
    for callback in (other, speed):
        quiet_trainer(max_epochs=1, callbacks=[callback]).fit(Plain(), loader_of(batches_of(12)))
        histories.append(callback.history)
    assert histories[0] == histories[1] != []


@pytest.mark.parametrize("length", [0, -1, 2.0, None, True, "4"])
def test_a_policy_that_gives_no_length_is_refused_before_training(length: Any) -> None:
    with pytest.raises(MisconfigurationException, match=r"must return the number of batches of the next window"):
        fit(lambda window: length)


def test_masking_needs_a_module_that_counts_it() -> None:
    with pytest.raises(MisconfigurationException, match=r"Plain.masking_counter is None"):
        fit(MaskingPolicy())


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"policy": 4}, TypeError, r"got 4 \(for AS-Speed write max_steps=4\)"),
        ({"policy": object()}, TypeError, "policy must be a MaskingPolicy, a StepSchedule"),
        ({"policy": StepSchedule({0: 2}), "max_steps": 4}, ValueError, "max_steps: arguments of MaskingPolicy"),
    ],
)
def test_what_is_no_policy_is_refused(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        AdaptiveGradientAccumulation(**arguments)


@pytest.mark.parametrize("schedule", [{}, {1: 2}, {0: 0}, {-1: 2, 0: 1}, {0: 1.5}, {0: True}, {0.0: 1}])
def test_a_schedule_that_says_no_length_everywhere_is_refused(schedule: Any) -> None:
    with pytest.raises(ValueError, match="schedule must map integers of at least 0, a 0 among them"):
        StepSchedule(schedule)


def test_a_schedule_by_epochs_is_refused() -> None:
    with pytest.raises(ValueError, match="by must be 'step' or 'samples', got 'epoch'"):
        StepSchedule({0: 1}, by="epoch")  # type: ignore[arg-type]


@given(
    schedule=st.dictionaries(st.integers(1, 200), st.integers(1, 32), max_size=5),
    first=st.integers(1, 32),
    lengths=st.lists(st.integers(1, 8), max_size=40),
)
def test_a_schedule_says_the_length_of_its_latest_key(schedule: dict[int, int], first: int, lengths: list[int]) -> None:
    by_samples, by_step = StepSchedule({0: first, **schedule}, by="samples"), StepSchedule({0: first, **schedule})
    samples = 0
    for step, length in enumerate(lengths, 1):
        window = AccumulationWindow(0, 0, length, 0, 3 * length, step=step)
        samples += 3 * length
        for policy, position in ((by_samples, samples), (by_step, step)):
            keys = [key for key in schedule if key <= position]
            assert policy.next_length(window) == (schedule[max(keys)] if keys else first)
