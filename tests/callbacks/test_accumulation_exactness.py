"""Training with the callback ends with the weights of a hand-written loop over the same windows,
bit for bit.
"""

import itertools
import math
from contextlib import nullcontext
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from harness.scripted_masking import (
    OPTIMIZERS,
    SAMPLES,
    Batches,
    BatchStream,
    ScriptedMasking,
    batches_of,
    loader_of,
    quiet_trainer,
    same_weights,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.accumulation_loop import WantedSteps, train_by_hand, windows_of_training
from torch import Tensor
from torch.utils.data import DataLoader

from as_lightning.callbacks import AccumulationSchedule, AdaptiveGradientAccumulation

pytestmark = pytest.mark.usefixtures("one_thread")  # sums in another order are other bits

RESTLESS = (1, 3, 2, 8, 16, 2, 1, 5, 7, 16, 16, 16, 3)  # up and down again


def by_hand(
    data: list[Any], windows: list[tuple[int, int, int, int]], *, script: Any = (1,), **options: Any
) -> ScriptedMasking:
    """The module after a hand-written loop over ``windows``."""
    build = {key: options.pop(key) for key in ("optimizer", "dtype") if key in options}
    module = ScriptedMasking(script, **build)
    epochs = [data] * (1 + max((epoch for epoch, *_ in windows), default=0))
    optimizer = OPTIMIZERS[module.optimizer_name](module)
    train_by_hand(
        module, optimizer, epochs, windows, loss_of=module.loss_of, rate_scale=math.sqrt, **options
    )
    return module


def trained(
    module: ScriptedMasking,
    loader: Any,
    *,
    max_steps: int = 4,
    epochs: int = 3,
    callbacks: Any = (),
) -> list[tuple[int, int, int, int]]:
    """Train the module; the windows, each the mean over its batches."""
    callback = AdaptiveGradientAccumulation(max_steps=max_steps)
    trainer = quiet_trainer(max_epochs=epochs, callbacks=[*callbacks, callback])
    trainer.fit(module, loader)
    assert trainer.accumulate_grad_batches == 1
    assert all(window.samples == window.length * SAMPLES for window in callback.history)
    return [(*window, window[-1]) for window in taken(callback)]


def taken(callback: AdaptiveGradientAccumulation) -> list[tuple[int, int, int]]:
    return [(window.epoch, window.batch, window.length) for window in callback.history]


@settings(max_examples=80)
@given(
    batches=st.integers(1, 40),
    epochs=st.integers(1, 3),
    max_steps=st.integers(1, 16),
    script=st.lists(st.integers(1, 16), min_size=1, max_size=8),
    monotone=st.booleans(),
    length_known=st.booleans(),
    optimizer=st.sampled_from(sorted(OPTIMIZERS)),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    clip=st.sampled_from([{}, {"clip_norm": 0.05}, {"clip_value": 0.01}]),
    last_size=st.sampled_from([1, 2]),
    validate=st.booleans(),
    optimizer_steps=st.just(-1) | st.integers(1, 60),
    data=st.data(),
)
@pytest.mark.bug_report(
    "Lightning-AI/pytorch-lightning#19987",
    "The short window at the end of an epoch is divided by the full number of batches.",
)
def test_any_training_equals_the_hand_written_loop(
    batches: int,
    epochs: int,
    max_steps: int,
    script: list[int],
    monotone: bool,
    length_known: bool,
    optimizer: str,
    dtype: torch.dtype,
    clip: dict[str, float],
    last_size: int,
    validate: bool,
    optimizer_steps: int,
    data: st.DataObject,
) -> None:
    all_batches = batches_of(batches, last_size=last_size, dtype=dtype)
    # A stream must not end before its limit: the window open then would be lost (see the tests
    # below).
    limit = data.draw(
        st.none() | st.integers(1, batches + 5 * length_known), label="limit_train_batches"
    )
    seen = min(batches, limit) if limit is not None else batches
    arguments: dict[str, Any] = {}
    if clip:
        ((name, bound),) = clip.items()
        arguments |= {
            "gradient_clip_val": bound,
            "gradient_clip_algorithm": name.removeprefix("clip_"),
        }
    if limit is not None:
        arguments["limit_train_batches"] = limit
    if validate:
        arguments["val_check_interval"] = data.draw(
            st.integers(1, seen), label="val_check_interval"
        )
        arguments["num_sanity_val_steps"] = 1
    module = ScriptedMasking(script, optimizer=optimizer, dtype=dtype)
    callback = AdaptiveGradientAccumulation(max_steps=max_steps, monotone=monotone)
    trainer = quiet_trainer(
        max_epochs=epochs, max_steps=optimizer_steps, callbacks=[callback], **arguments
    )
    trainer.fit(
        module,
        loader_of(all_batches, length_known=length_known),
        loader_of(all_batches[:2]) if validate else None,
    )

    # With a limit the end is foreseen although the stream's own length is not.
    windows = windows_of_training(
        [seen] * epochs,
        WantedSteps(script, max_steps, monotone=monotone),
        length_known=math.isfinite(trainer.num_training_batches),
        max_windows=None if optimizer_steps == -1 else optimizer_steps,
    )
    assert taken(callback) == [window[:3] for window in windows]
    assert same_weights(
        module, by_hand(all_batches, windows, optimizer=optimizer, dtype=dtype, **clip)
    )
    assert trainer.accumulate_grad_batches == 1


class LeavesEpochEarly(ScriptedMasking):
    def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
        return -1 if batch_idx == 10 else None


class PromisesTooMuch(BatchStream):
    def __len__(self) -> int:
        return len(self.batches) + 5


class StopsMidWindow(pl.Callback):
    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        trainer.should_stop = trainer.current_epoch == 1 and batch_idx == 5


@pytest.mark.filterwarnings("ignore:.*has `__len__` defined.*", "ignore:Length of IterableDataset")
@pytest.mark.parametrize(
    ("kind", "data", "stream", "callbacks", "said", "last"),
    [
        (
            LeavesEpochEarly,
            batches_of(24),
            Batches,
            [],
            "gradients of its last 2 batches are dropped",
            (2, 4, 4, 4),
        ),
        (
            ScriptedMasking,
            batches_of(11),
            PromisesTooMuch,
            [],
            "ended inside an accumulation window",
            (2, 4, 4, 4),
        ),
        (ScriptedMasking, batches_of(12), Batches, [StopsMidWindow()], "", (1, 0, 4, 4)),
    ],
    ids=["the module leaves an epoch", "the data end before their length", "training stops"],
)
def test_a_window_that_does_not_end_takes_no_step_says_so_and_leaks_nothing_into_the_next_epoch(
    kind: type[ScriptedMasking],
    data: list[Any],
    stream: Any,
    callbacks: list[Any],
    said: str,
    last: tuple[int, ...],
) -> None:
    module = kind((16,))
    with pytest.warns(UserWarning, match=said) if said else nullcontext():
        windows = trained(module, DataLoader(stream(data), batch_size=None), callbacks=callbacks)
    assert windows[-1] == last
    assert same_weights(module, by_hand(data, windows))


@pytest.mark.filterwarnings("ignore:.*yielded None")
def test_a_batch_of_none_that_ends_a_window_says_that_the_windows_gradients_are_dropped() -> None:
    data: list[Any] = [*batches_of(4)]
    callback = AdaptiveGradientAccumulation(AccumulationSchedule({0: 2}), lr_scale="sqrt")
    trainer = quiet_trainer(max_epochs=1, callbacks=[callback])
    with pytest.warns(
        UserWarning, match=r"None for batch 3, .* window's other batches, 1, are dropped"
    ):
        trainer.fit(module := ScriptedMasking(), loader_of([*data[:3], None]))
    assert trainer.global_step == 1
    assert same_weights(module, by_hand(data[:2], [(0, 0, 2, 2)]))


class FrozenUntilAsked(ScriptedMasking):
    """One layer gets no gradient: it has none to rescale."""

    def loss_of(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        inputs, target = batch
        return torch.nn.functional.cross_entropy(self.net[0](inputs), target)


def test_parameters_without_a_gradient_stay_as_they_are() -> None:
    data = batches_of(7)
    module = FrozenUntilAsked((16,))
    before = [parameter.clone() for parameter in module.net[2].parameters()]
    trainer = quiet_trainer(max_epochs=2, callbacks=[AdaptiveGradientAccumulation(max_steps=4)])
    trainer.fit(module, loader_of(data, length_known=False))
    assert all(torch.equal(a, b) for a, b in zip(before, module.net[2].parameters(), strict=True))


def test_a_second_fit_of_the_trainer_goes_on_and_one_of_another_trainer_starts_anew() -> None:
    data = batches_of(10)
    callback = AdaptiveGradientAccumulation(max_steps=4)
    module = ScriptedMasking((16,))
    trainer = quiet_trainer(max_epochs=2, callbacks=[callback])
    trainer.fit(module, loader_of(data))
    assert trainer.accumulate_grad_batches == 1
    first_fit = taken(callback)
    trainer.fit_loop.max_epochs = 3
    trainer.fit(module, loader_of(data))
    windows = windows_of_training([10] * 3, WantedSteps((16,), 4))
    assert taken(callback) == [window[:3] for window in windows]

    quiet_trainer(max_epochs=2, callbacks=[callback]).fit(ScriptedMasking((16,)), loader_of(data))
    assert taken(callback) == first_fit


def test_every_hook_of_a_batch_sees_the_same_accumulation() -> None:
    seen: dict[tuple[int, int], set[int]] = {}

    class Watches(pl.Callback):
        def note(self, trainer: pl.Trainer) -> None:
            batch = (trainer.current_epoch, trainer.fit_loop.batch_idx)
            seen.setdefault(batch, set()).add(trainer.accumulate_grad_batches)

        def on_train_batch_start(self, trainer: pl.Trainer, *args: Any) -> None:
            self.note(trainer)

        on_before_zero_grad = on_before_backward = on_after_backward = on_before_optimizer_step = (
            on_train_batch_start
        )
        on_train_batch_end = on_validation_start = on_validation_end = on_train_batch_start

    trainer = quiet_trainer(
        max_epochs=2,
        callbacks=[Watches(), AdaptiveGradientAccumulation(max_steps=5, monotone=False)],
        val_check_interval=3,
        num_sanity_val_steps=0,
    )
    trainer.fit(ScriptedMasking(RESTLESS), loader_of(batches_of(20)), loader_of(batches_of(1)))
    assert len(seen) == 40
    assert all(len(values) == 1 for values in seen.values())
    assert set(itertools.chain.from_iterable(seen.values())) > {1}
