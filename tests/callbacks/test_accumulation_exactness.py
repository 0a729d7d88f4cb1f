"""Training with the callback ends with the weights of a loop by hand over the same windows, bit for
bit.
"""

import itertools
import math
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from harness.scripted_masking import (
    OPTIMIZERS,
    SAMPLES,
    Batches,
    BatchStream,
    KeepsRows,
    Plain,
    ScriptedMasking,
    batches_of,
    loader_of,
    quiet_trainer,
    same_weights,
    with_a_scaler,
)
from harness.token_batches import MaskedTagger, SkipsBatches, Tagger, token_batches, tokens_in
from hypothesis import given, settings
from hypothesis import strategies as st
from lightning.pytorch.plugins.precision import MixedPrecision
from oracles.accumulation_loop import WantedSteps, train_by_hand, windows_of_training
from oracles.large_batch import train_on_large_batches
from torch import Tensor
from torch.utils.data import DataLoader

from as_lightning import (
    AccumulationSchedule,
    AccumulationWindow,
    AdaptiveGradientAccumulation,
    ASSoftmaxLoss,
    MaskingMonitor,
    TokenBudget,
)

pytestmark = pytest.mark.usefixtures("one_thread")  # sums in another order are other bits

RESTLESS = (1, 3, 2, 8, 16, 2, 1, 5, 7, 16, 16, 16, 3)  # up and down again


def taken(callback: AdaptiveGradientAccumulation) -> list[tuple[int, int, int]]:
    return [(window.epoch, window.batch, window.length) for window in callback.history]


def by_hand(data, windows, *, script=(1,), **options):
    """The module after a loop by hand over ``windows``."""
    build = {key: options.pop(key) for key in ("optimizer", "dtype") if key in options}
    module = ScriptedMasking(script, **build)
    epochs = [data] * (1 + max((epoch for epoch, *_ in windows), default=0))
    optimizer = OPTIMIZERS[module.optimizer_name](module)
    options = {"rate_scale": math.sqrt, **options}
    train_by_hand(module, optimizer, epochs, windows, loss_of=module.loss_of, **options)
    return module


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
    optimizer_steps=st.just(-1) | st.integers(1, 60),
    data=st.data(),
)
@pytest.mark.bug_report(
    "Lightning-AI/pytorch-lightning#19987",
    "The short window at the end of an epoch is divided by the full number of batches.",
)
def test_any_training_of_as_speed_equals_the_loop_by_hand(
    batches,
    epochs,
    max_steps,
    script,
    monotone,
    length_known,
    optimizer,
    dtype,
    clip,
    last_size,
    optimizer_steps,
    data,
):
    all_batches = batches_of(batches, last_size=last_size, dtype=dtype)
    # A stream must not end before its limit: the window open then would be lost (see below).
    most = batches + 5 if length_known else batches
    limit = data.draw(st.none() | st.integers(1, most), label="limit_train_batches")
    seen = min(batches, limit or batches)
    every = data.draw(st.none() | st.integers(1, seen), label="val_check_interval")
    arguments: dict[str, Any] = {"limit_train_batches": limit}
    for name, bound in clip.items():
        arguments["gradient_clip_val"] = bound
        arguments["gradient_clip_algorithm"] = name.removeprefix("clip_")
    if every is not None:
        arguments |= {"val_check_interval": every, "num_sanity_val_steps": 1}
    module = ScriptedMasking(script, optimizer=optimizer, dtype=dtype)
    callback = AdaptiveGradientAccumulation(max_steps=max_steps, monotone=monotone)
    trainer = quiet_trainer(
        max_epochs=epochs, max_steps=optimizer_steps, callbacks=[callback], **arguments
    )
    trainer.fit(
        module,
        loader_of(all_batches, length_known=length_known),
        loader_of(all_batches[:2]) if every else None,
    )
    windows = windows_of_training(
        seen,
        epochs,
        WantedSteps(script, max_steps, monotone=monotone),
        validated_every=every,
        max_windows=None if optimizer_steps == -1 else optimizer_steps,
    )
    assert taken(callback) == windows
    assert same_weights(
        module, by_hand(all_batches, windows, optimizer=optimizer, dtype=dtype, **clip)
    )
    assert trainer.accumulate_grad_batches == 1


# Windows of any policy, weighed by items

COUNTS = (3, 17, 1, 24, 8, 24, 2, 5, 24, 1, 0, 7, 0)
TOKENS = token_batches(COUNTS)
LENGTHS = (1, 3, 4, 2, 5, 7)


class Autocast(Tagger):
    """The weights are float64 and what autocast rounds is each row's own: the sum over the window
    is as exact.
    """

    def losses(self, window: list[Any]) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return super().losses(window)


class WithLossModule(Tagger):
    """Counted, masks a little, and divides by the rows that count."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.criterion = ASSoftmaxLoss(0.05, **settings)

    losses = MaskedTagger.losses

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.criterion(self.net(batch[0]).flatten(0, 1), batch[1].flatten())


def frozen() -> Tagger:
    """One layer has no gradient to divide."""
    module = Tagger()
    module.net[0].requires_grad_(False)
    return module


@dataclass
class Case:
    policy: Any
    lengths: list[int]  # of the first windows
    make: Callable[[], Tagger] = Tagger
    items: Any = tokens_in
    large_batch: bool = True


FOURS = [4, 4, 4, 1]
CASES = {
    "a budget": Case(TokenBudget(30), [4, 2, 3, 4]),
    "a budget of more than an epoch": Case(TokenBudget(1000), [13, 13, 13]),
    "a schedule": Case(AccumulationSchedule({0: 4}), FOURS),
    "a schedule by steps": Case(AccumulationSchedule({0: 1, 3: 3, 5: 2}), [1, 1, 1, 3, 3, 2, 2]),
    "a schedule by items": Case(AccumulationSchedule({0: 2, 45: 3}, by="items"), [2, 2, 3, 3, 3]),
    "a function": Case(lambda window: window.length >= LENGTHS[window.step % 6], [1, 3, 4, 2, 3]),
    "items on what may be a device": Case(
        TokenBudget(30), [4, 2, 3, 4], items=lambda batch: (batch[1] != -100).sum()
    ),
    "batches": Case(lambda window: window.length >= 3, [3, 3, 3, 3, 1], items=None),
    "batches are items of their own": Case(lambda w: w.items >= 3, [3, 3, 3, 3, 1], items=None),
    "a module's losses": Case(
        AccumulationSchedule({0: 4}), FOURS, make=WithLossModule, items="module"
    ),
    "a frozen layer": Case(AccumulationSchedule({0: 4}), FOURS, make=frozen),
    "autocast": Case(AccumulationSchedule({0: 4}), FOURS, make=Autocast),
}


class SeesOwnLoss(pl.Callback):
    """Collects the losses that callbacks see, and those that training_step has returned."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.seen.append(float(outputs["loss"]))


class KeepsLosses:
    """Wraps training_step to keep what it returns."""

    def __init__(self, module: Tagger) -> None:
        self.kept: list[float] = []
        step = module.training_step

        def training_step(batch: Any, batch_idx: int) -> Any:
            loss = step(batch, batch_idx)
            self.kept.append(float(loss))
            return loss

        module.training_step = training_step  # type: ignore[method-assign]


@pytest.mark.parametrize("way", ["plain", "clipped", "stream", "scaler"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.bug_report(
    "ml-explore/mlx-lm#1413",
    "Accumulated means over batches of unequal length favour the short ones.",
)
@pytest.mark.bug_report(
    "karpathy/nanochat#59",
    "Gradients are divided by the number of batches, whatever number of tokens these have.",
)
@pytest.mark.bug_report(
    "Lightning-AI/pytorch-lightning#21534", "Accumulation can be scheduled by epochs alone."
)
@pytest.mark.bug_report(
    "Lightning-AI/pytorch-lightning#18464",
    "Hooks see the loss divided by the accumulated batches: it seems to fall where the window "
    "grows.",
)
@pytest.mark.bug_report(
    "Lightning-AI/pytorch-lightning#15315",
    "The loss that callbacks get is not the one that `training_step` has returned.",
)
@pytest.mark.bug_report(
    "pytorch/pytorch#70348", "Where all targets are ignored the mean loss is NaN."
)
def test_windows_of_any_policy_equal_the_loop_by_hand_and_one_large_batch(name, way):
    case = CASES[name]
    module, clip = case.make(), 0.05 if way == "clipped" else None
    losses, sees = KeepsLosses(module), SeesOwnLoss()
    callback = AdaptiveGradientAccumulation(case.policy, items=case.items)
    plugins = [with_a_scaler(init_scale=2.0**8, growth_interval=3)] if way == "scaler" else []
    trainer = quiet_trainer(
        max_epochs=3, callbacks=[sees, callback], gradient_clip_val=clip, plugins=plugins
    )
    # Without items each batch's loss counts, and one of none is not a number.
    data = TOKENS if case.items is not None else token_batches([n or 1 for n in COUNTS])
    trainer.fit(module, loader_of(data, length_known=way != "stream"))
    assert [window.length for window in callback.history][: len(case.lengths)] == case.lengths
    assert trainer.accumulate_grad_batches == 1
    torch.testing.assert_close(sees.seen, losses.kept, rtol=1e-15, atol=0, equal_nan=True)

    reference = case.make()
    items_of = (lambda batch: 1.0) if case.items is None else tokens_in
    train_by_hand(
        reference,
        reference.configure_optimizers(),
        [data] * 3,
        taken(callback),
        loss_of=lambda batch: reference.training_step(batch, 0),
        items_of=items_of,
        clip_norm=clip,
    )
    assert same_weights(module, reference)
    for window in callback.history:
        window_batches = data[window.batch : window.batch + window.length]
        assert window.items == sum(map(items_of, window_batches))
    if case.items is not None:
        whole = case.make()
        windows = [(epoch * len(data) + first, length) for epoch, first, length in taken(callback)]
        train_on_large_batches(
            whole,
            whole.configure_optimizers(),
            data * 3,
            windows,
            loss_of_items=whole.losses,
            clip_norm=clip,
        )
        assert distance(module, whole) < 1e-12


def distance(module: torch.nn.Module, other: torch.nn.Module) -> float:
    pairs = zip(module.parameters(), other.parameters(), strict=True)
    return max((a - b).abs().max().item() for a, b in pairs)


@pytest.mark.filterwarnings("ignore:.training_step. returned .None.")
def test_a_training_step_that_returns_none_adds_neither_gradient_nor_items() -> None:
    module = SkipsBatches()
    callback = AdaptiveGradientAccumulation(AccumulationSchedule({0: 4}), items=tokens_in)
    quiet_trainer(max_epochs=3, callbacks=[callback]).fit(module, loader_of(TOKENS))
    left = [
        (x, torch.full_like(y, -100)) if index in module.skipped else (x, y)
        for index, (x, y) in enumerate(TOKENS)
    ]
    reference = Tagger()
    train_by_hand(
        reference,
        reference.configure_optimizers(),
        [left] * 3,
        taken(callback),
        loss_of=lambda batch: reference.training_step(batch, 0),
        items_of=tokens_in,
    )
    assert callback.history[0].items == 17 + 1
    assert same_weights(module, reference)


def test_16_mixed_with_its_scaler_is_near_one_large_batch_and_stays_in_range() -> None:
    data = token_batches((200, 12, 240, 90) * 3, length=128, dtype=torch.float32)
    module, scaler = Tagger(dtype=torch.float32), torch.amp.GradScaler("cpu")
    callback = AdaptiveGradientAccumulation(AccumulationSchedule({0: 4}), items=tokens_in)
    plugins = [MixedPrecision("16-mixed", "cpu", scaler)]
    quiet_trainer(max_epochs=3, callbacks=[callback], plugins=plugins).fit(module, loader_of(data))
    # The unit of the first window is not known: its step may be left out, no other is.
    assert scaler.get_scale() >= 2.0**15
    reference = Tagger(dtype=torch.float32)
    windows = [(epoch * len(data) + first, length) for epoch, first, length in taken(callback)]
    train_on_large_batches(
        reference,
        reference.configure_optimizers(),
        data * 3,
        windows if scaler.get_scale() == 2.0**16 else windows[1:],
        loss_of_items=reference.losses,
        autocast=lambda: torch.autocast("cpu", dtype=torch.float16),
    )
    assert distance(module, reference) < 5e-3


# Windows that do not end, and what the hooks see


class LeavesEpochEarly(ScriptedMasking):
    def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
        return -1 if batch_idx == 10 else None


class PromisesTooMuch(BatchStream):
    def __len__(self) -> int:
        return len(self.batches) + 5


class StopsMidWindow(pl.Callback):
    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        trainer.should_stop = trainer.current_epoch == 1 and batch_idx == 5


@pytest.mark.filterwarnings("ignore:.*has `__len__` defined.*", "ignore:Length of IterableDataset")
@pytest.mark.filterwarnings("ignore:.*yielded None")
@pytest.mark.parametrize(
    ("kind", "data", "stream", "callbacks", "said", "last"),
    [
        (LeavesEpochEarly, batches_of(24), Batches, [], "inside an accumulation", (2, 4, 4)),
        (ScriptedMasking, batches_of(11), PromisesTooMuch, [], "inside an", (2, 4, 4)),
        (ScriptedMasking, [*batches_of(11), None], Batches, [], "inside an", (2, 4, 4)),
        (ScriptedMasking, batches_of(12), Batches, [StopsMidWindow()], "", (1, 0, 4)),
    ],
    ids=["the module leaves an epoch", "the data end early", "None at the end", "training stops"],
)
def test_a_window_that_does_not_end_takes_no_step_says_so_and_leaks_nothing_into_the_next_epoch(
    kind, data, stream, callbacks, said, last
):
    module, callback = kind((16,)), AdaptiveGradientAccumulation(max_steps=4)
    trainer = quiet_trainer(max_epochs=3, callbacks=[*callbacks, callback])
    with pytest.warns(UserWarning, match=said) if said else nullcontext():
        trainer.fit(module, DataLoader(stream(data), batch_size=None))
    assert trainer.accumulate_grad_batches == 1
    assert all(window.samples == window.length * SAMPLES for window in callback.history)
    assert taken(callback)[-1] == last
    assert same_weights(module, by_hand(data, taken(callback)))


def test_a_second_fit_of_the_trainer_goes_on_and_one_of_another_trainer_starts_anew() -> None:
    data = batches_of(10)
    callback = AdaptiveGradientAccumulation(max_steps=4)
    module = ScriptedMasking((16,))
    trainer = quiet_trainer(max_epochs=2, callbacks=[callback])
    trainer.fit(module, loader_of(data))
    first_fit = taken(callback)
    trainer.fit_loop.max_epochs = 3
    trainer.fit(module, loader_of(data))
    assert taken(callback) == windows_of_training(10, 3, WantedSteps((16,), 4))
    quiet_trainer(max_epochs=2, callbacks=[callback]).fit(ScriptedMasking((16,)), loader_of(data))
    assert taken(callback) == first_fit


def test_every_hook_of_a_batch_sees_the_same_accumulation_and_each_window_is_zeroed_once() -> None:
    seen: dict[tuple[int, int], set[int]] = {}
    zeroed: list[tuple[int, int]] = []

    class Watches(pl.Callback):
        def note(self, trainer: pl.Trainer) -> tuple[int, int]:
            batch = (trainer.current_epoch, trainer.fit_loop.batch_idx)
            seen.setdefault(batch, set()).add(trainer.accumulate_grad_batches)
            return batch

        def on_train_batch_start(self, trainer: pl.Trainer, *args: Any) -> None:
            self.note(trainer)

        def on_before_zero_grad(self, trainer: pl.Trainer, *args: Any) -> None:
            zeroed.append(self.note(trainer))

        on_before_backward = on_after_backward = on_before_optimizer_step = on_train_batch_start
        on_train_batch_end = on_validation_start = on_validation_end = on_train_batch_start

    callback = AdaptiveGradientAccumulation(max_steps=5, monotone=False)
    trainer = quiet_trainer(
        max_epochs=2, callbacks=[Watches(), callback], val_check_interval=9, num_sanity_val_steps=0
    )
    trainer.fit(ScriptedMasking(RESTLESS), loader_of(batches_of(20)), loader_of(batches_of(1)))
    assert len(seen) == 40
    assert all(len(values) == 1 for values in seen.values())
    assert set(itertools.chain.from_iterable(seen.values())) > {1}
    assert zeroed == [(epoch, first) for epoch, first, _ in taken(callback)]


# What policies are told, and what they cost


def test_a_function_is_asked_at_each_batch_and_sees_the_closed_window_before() -> None:
    asked: list[tuple[int, int, int, Any]] = []

    def policy(window: AccumulationWindow) -> bool:
        last = None if window.last is None else window.last.length
        asked.append((window.step, window.batch, window.length, last))
        return window.length >= 3

    callback = AdaptiveGradientAccumulation(policy)
    quiet_trainer(max_epochs=1, callbacks=[callback]).fit(Plain(), loader_of(batches_of(5)))
    assert asked == [(0, 0, 1, None), (0, 0, 2, None), (0, 0, 3, None), (1, 3, 1, 3), (1, 3, 2, 3)]


@pytest.mark.parametrize("answer", [4, None, 2.0])
def test_a_policy_that_does_not_say_yes_or_no_is_refused_before_the_first_step(answer: Any) -> None:
    trainer = quiet_trainer(callbacks=[AdaptiveGradientAccumulation(lambda window: answer)])
    with pytest.raises(pl.utilities.exceptions.MisconfigurationException, match="policy"):
        trainer.fit(Plain(), loader_of(batches_of(4)))


@pytest.mark.parametrize("beside", [[], [MaskingMonitor()]], ids=["alone", "with monitor"])
@pytest.mark.parametrize(
    ("make", "arguments"),
    [
        (lambda: ScriptedMasking((16,)), {"max_steps": 4}),
        (Tagger, {"policy": AccumulationSchedule({0: 4}), "items": lambda b: (b[1] != -100).sum()}),
    ],
)
def test_one_host_read_a_window_and_none_a_batch(make, arguments, beside, host_reads):
    module = make()
    counted = isinstance(module, ScriptedMasking)
    data = batches_of(24) if counted else TOKENS[:8] * 3
    callback = AdaptiveGradientAccumulation(**arguments)
    trainer = quiet_trainer(
        max_epochs=1, callbacks=[callback, *(beside if counted else [])], log_every_n_steps=10**6
    )
    trainer.fit(module, loader_of(data))
    # An item's tensor lies on the CPU, where its number is no wait.
    of_items = 0 if counted else len(data)
    assert host_reads["as_lightning.callbacks.open_window"] == len(callback.history) + of_items
    assert host_reads[AdaptiveGradientAccumulation.__module__] == 0
    assert host_reads["as_lightning.masking_counter"] == 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("items", [None, lambda batch: (batch[1] != -100).sum(), "module"])
def test_no_device_synchronisation_inside_a_window(items: Any) -> None:
    class Forbids(pl.Callback):
        """Lets the host wait for the device at a window's last batch alone."""

        def on_train_batch_start(self, trainer: Any, *args: Any) -> None:
            closes = trainer.accumulate_grad_batches == trainer.fit_loop.batch_idx + 1
            torch.cuda.set_sync_debug_mode(0 if closes else 1)

        def on_before_optimizer_step(self, *args: Any) -> None:
            torch.cuda.set_sync_debug_mode(0)

        def on_train_batch_end(self, *args: Any) -> None:
            torch.cuda.set_sync_debug_mode(0)

    batches = [
        (x.float().cuda(), y.cuda())
        for x, y in token_batches([7, 3, 9, 4] * 4, dtype=torch.float32)
    ]
    module = WithLossModule().float()
    schedule = AccumulationSchedule({0: 16})
    callbacks = [AdaptiveGradientAccumulation(schedule, items=items), Forbids(), MaskingMonitor()]
    trainer = quiet_trainer(max_epochs=2, callbacks=callbacks, accelerator="gpu")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*synchron.*")
        trainer.fit(module, loader_of(batches))
    assert trainer.global_step == 2


@pytest.mark.parametrize("plugins", [list, lambda: [with_a_scaler()]], ids=["plain", "scaler"])
def test_the_logged_loss_is_the_mean_over_the_windows_items(plugins: Any) -> None:
    data, logger, losses = TOKENS[:10], KeepsRows(), []

    class Keeps(Tagger):
        def losses(self, window: list[Any]) -> Tensor:
            rows = super().losses(window)
            losses.append(rows.detach())
            return rows

    callback = AdaptiveGradientAccumulation(AccumulationSchedule({0: 4}), items=tokens_in)
    quiet_trainer(
        max_epochs=1, callbacks=[callback], logger=logger, log_every_n_steps=1, plugins=plugins()
    ).fit(Keeps(), loader_of(data))
    for row, window in zip(logger.rows, callback.history, strict=True):
        rows = torch.cat(losses[window.batch : window.batch + window.length])
        assert row["accumulation/loss"] == pytest.approx(rows.mean().item(), rel=1e-12)
        assert row["accumulation/steps"] == window.length
