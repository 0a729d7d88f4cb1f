"""Narrowed batches change no step: weights, counts, losses and schedule are those of AS-Softmax on whole batches."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest
import torch
from harness.narrowed_modules import DELTA, KINDS, OneClass, backward_skipping, fit
from harness.sleeping_samples import FEATURES
from torch import Tensor, nn

from as_lightning import AdaptiveGradientAccumulation, DeltaWarmup, MaskedSampleSkipping
from as_lightning.callbacks.backward_pace import FIRST_DECISION, BackwardPace


def assert_the_same_training(plain: OneClass, narrowed: OneClass) -> None:
    torch.testing.assert_close(narrowed.weights(), plain.weights(), rtol=0.0, atol=1e-12)
    torch.testing.assert_close(torch.stack(narrowed.losses), torch.stack(plain.losses), rtol=0.0, atol=1e-12)
    assert len(plain.losses) >= 50
    assert sum(narrowed.sizes) < 0.9 * sum(plain.sizes)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_losses_and_counts_are_those_of_whole_batches(kind: str) -> None:
    plain, narrowed = KINDS[kind](), KINDS[kind]()
    expected = fit(plain, []).history
    assert fit(narrowed, [backward_skipping()]).history == expected
    assert_the_same_training(plain, narrowed)


@pytest.mark.parametrize(
    "settings",
    [{"accumulate_grad_batches": 3}, {"gradient_clip_val": 0.05}],
    ids=["gradient accumulation", "clipping"],
)
def test_weights_are_those_of_whole_batches_in_lightnings_settings(settings: dict[str, Any]) -> None:
    plain, narrowed = OneClass(), OneClass()
    fit(plain, [], **settings)
    fit(narrowed, [backward_skipping()], **settings)
    assert_the_same_training(plain, narrowed)


def test_adaptive_accumulation_beside_it_takes_the_windows_of_whole_batches() -> None:
    plain, narrowed = OneClass(), OneClass()
    speeds = AdaptiveGradientAccumulation(), AdaptiveGradientAccumulation()
    fit(plain, [speeds[0]])
    fit(narrowed, [speeds[1], backward_skipping()])
    assert_the_same_training(plain, narrowed)
    assert speeds[0].history == speeds[1].history
    assert max(window.length for window in speeds[0].history) > 1


def test_a_margin_schedule_is_followed() -> None:
    plain, narrowed = (OneClass(delta_warmup=DeltaWarmup(0.5, shape="linear")) for _ in range(2))
    fit(plain, [])
    fit(narrowed, [backward_skipping()])
    assert_the_same_training(plain, narrowed)


@pytest.mark.parametrize("optimizer", ["sgd", "lbfgs"])
def test_weights_are_those_of_whole_batches_under(optimizer: str) -> None:
    class Lbfgs(OneClass):
        """Its closure takes several training steps per batch."""

        def configure_optimizers(self) -> Any:
            return torch.optim.LBFGS(self.parameters(), lr=0.05, max_iter=3)

    def module() -> OneClass:
        return Lbfgs() if optimizer == "lbfgs" else OneClass(adam=False)

    plain, narrowed = module(), module()
    fit(plain, [])
    fit(narrowed, [backward_skipping()])
    assert_the_same_training(plain, narrowed)


def test_what_a_narrowed_batch_has_found_puts_the_samples_of_whole_batches_to_sleep() -> None:
    plain, narrowed = OneClass(), OneClass()
    whole = MaskedSampleSkipping(2, min_masked=0.0, max_woken=1.0, class_floor=0.0)
    fit(plain, [whole], max_epochs=16)
    both = backward_skipping(max_sleep=2)
    fit(narrowed, [both], max_epochs=16)
    assert_the_same_training(plain, narrowed)
    for expected, found in zip(whole.history, both.history, strict=True):
        assert found[:-1] == expected[:-1]
        assert expected.backward == expected.visits
    assert sum(epoch.backward for epoch in both.history) == sum(narrowed.sizes)
    assert min(epoch.awake for epoch in both.history) < both.history[0].awake


def test_a_margin_of_its_own_for_sleep_is_that_of_whole_batches() -> None:
    delta = 0.8  # above margin and slack: some samples that the search leaves out are live for sleep
    plain, narrowed = OneClass(), OneClass()
    whole = MaskedSampleSkipping(2, delta=delta, min_masked=0.0, max_woken=1.0, class_floor=0.0)
    fit(plain, [whole], max_epochs=16)
    both = backward_skipping(max_sleep=2, delta=delta)
    fit(narrowed, [both], max_epochs=16)
    assert_the_same_training(plain, narrowed)
    assert [epoch[:-1] for epoch in both.history] == [epoch[:-1] for epoch in whole.history]
    assert min(epoch.awake for epoch in both.history) < both.history[0].awake


def test_a_batch_without_a_live_sample_keeps_one_and_has_zero_gradient() -> None:
    class Sure(OneClass):
        """Right by a wide margin from the start."""

        def loss(self, inputs: Tensor, target: Tensor) -> Tensor:
            logits = 50 * nn.functional.one_hot(target, 3) + self.head(self.body(inputs))
            return self.as_softmax_loss(logits, target)

        def on_after_backward(self) -> None:
            assert all(weight.grad is not None and not weight.grad.any() for weight in self.parameters())

    plain, narrowed = Sure(), Sure()
    expected = fit(plain, []).history
    assert fit(narrowed, [backward_skipping()]).history == expected
    assert set(narrowed.sizes) == {1}
    assert_the_same_training(plain, narrowed)  # weight decay and schedule go on


def test_the_margin_of_the_search_is_wider_by_the_slack_and_it_runs_in_evaluation_mode() -> None:
    class Watched(OneClass):
        def __init__(self) -> None:
            super().__init__(dropout=0.5)
            self.passes: list[tuple[bool, bool, int]] = []

        def loss(self, inputs: Tensor, target: Tensor) -> Tensor:
            self.passes.append((self.training, torch.is_grad_enabled(), len(target)))
            if not self.training:
                probability = self.head(self.body(inputs)).softmax(-1)
                lead = probability.gather(1, target[:, None]) - probability.scatter(1, target[:, None], 0.0).amax(
                    1, True
                )
                self.expected = max(int((lead <= DELTA + 0.2).sum()), 1)
            else:
                assert len(target) == self.expected
            return super().loss(inputs, target)

    module = Watched()
    module.head.eval()
    fit(module, [backward_skipping(slack=0.2)])
    searches, steps = module.passes[::2], module.passes[1::2]
    assert {(training, gradients) for training, gradients, _ in searches} == {(False, False)}
    assert {(training, gradients) for training, gradients, _ in steps} == {(True, True)}
    assert sum(size for *_, size in steps) < 0.9 * sum(size for *_, size in searches)
    assert module.body.training
    assert not module.head.training


DRAWS = {
    "torch": lambda: torch.randn(FEATURES, dtype=torch.float64),
    "numpy": lambda: torch.from_numpy(np.random.randn(FEATURES)),
    "python": lambda: torch.tensor([random.gauss() for _ in range(FEATURES)], dtype=torch.float64),
}


@pytest.mark.parametrize("generator", DRAWS)
def test_nothing_after_the_loss_runs_twice_and_a_search_leaves_no_trace(generator: str) -> None:
    class Draws(OneClass):
        after = 0

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            inputs, target, numbers = batch
            self.log("before", 1.0, on_epoch=True, reduce_fx="sum")
            noise = 0.1 * DRAWS[generator]()  # one draw for the batch
            try:
                loss = super().training_step((inputs + noise, target, numbers), batch_idx)
            except Exception as error:  # a module that forgives errors must not catch the end of the search
                raise AssertionError from error
            self.after += 1
            return loss

    plain, narrowed = Draws(), Draws()
    for module, callbacks in ((plain, []), (narrowed, [backward_skipping()])):
        random.seed(0)
        np.random.seed(0)
        fit(module, callbacks)
    assert_the_same_training(plain, narrowed)
    assert narrowed.after == plain.after == len(plain.sizes)
    for name in ("before_epoch", "train/loss_epoch"):
        logged, expected = (module.trainer.callback_metrics[name] for module in (narrowed, plain))
        torch.testing.assert_close(logged, expected)


def test_a_step_that_takes_its_batch_apart_finds_it_whole() -> None:
    class Pops(OneClass):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:  # type: ignore[override]
            target = batch.pop("target")
            return super().training_step((batch["inputs"], target, target), batch_idx)

    def collate(samples: list[Any]) -> dict[str, Tensor]:
        inputs, target, _ = torch.utils.data.default_collate(samples)
        return {"inputs": inputs, "target": target}

    plain, narrowed = Pops(), Pops()
    fit(plain, [], collate_fn=collate)
    fit(narrowed, [backward_skipping()], collate_fn=collate)
    assert_the_same_training(plain, narrowed)


def test_a_batch_that_training_step_skips_is_skipped() -> None:
    class SkipsSome(OneClass):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return None if batch_idx % 3 == 1 else super().training_step(batch, batch_idx)

    plain, narrowed = SkipsSome(), SkipsSome()
    fit(plain, [], max_epochs=10)
    fit(narrowed, [backward_skipping()], max_epochs=10)
    assert_the_same_training(plain, narrowed)


def test_weights_are_cast_anew_under_autocast() -> None:
    plain, narrowed = OneClass().float(), OneClass().float()

    def to_float(samples: list[Any]) -> Any:
        inputs, target, numbers = torch.utils.data.default_collate(samples)
        return inputs.float(), target, numbers

    start = plain.weights()
    for module, callbacks in ((plain, []), (narrowed, [backward_skipping()])):
        fit(module, callbacks, precision="bf16-mixed", collate_fn=to_float)
    torch.testing.assert_close(narrowed.weights(), plain.weights(), rtol=0.0, atol=0.02)
    assert (start - plain.weights()).abs().max() > 0.2
    assert sum(narrowed.sizes) < 0.9 * sum(plain.sizes)


def test_a_compiled_network_inside_the_module_works() -> None:
    plain, narrowed = OneClass(), OneClass()
    narrowed.body.compile(backend="eager")
    fit(plain, [])
    fit(narrowed, [backward_skipping()])
    assert_the_same_training(plain, narrowed)


class ScriptedClock(BackwardPace):
    """A clock on which searching a batch takes 1 and a whole step 4; it switches itself on, not every batch."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(clock=lambda: self.now)
        self.activity: list[bool] = []

    def found(self, live_share: float) -> None:
        self.now += 1.0
        super().found(live_share)
        self.narrowed_share = live_share

    def start(self) -> bool:
        self.narrowed_share = 1.0
        return super().start()

    def finish(self) -> None:
        self.now += 4.0 * self.narrowed_share
        super().finish()
        self.activity.append(self.active)


def test_it_goes_on_by_measured_times_and_weights_do_not_depend_on_when() -> None:
    pace = ScriptedClock()
    plain, narrowed = OneClass(), OneClass()
    fit(plain, [], max_epochs=16)
    fit(narrowed, [backward_skipping(pace)], max_epochs=16)
    assert_the_same_training(plain, narrowed)
    assert not any(pace.activity[:35])
    assert all(pace.activity[100:])


def test_a_training_whose_samples_stay_live_is_searched_in_the_first_rounds_alone() -> None:
    class Unsure(OneClass):
        """Nothing is ever masked."""

        def loss(self, inputs: Tensor, target: Tensor) -> Tensor:
            self.searches += not torch.is_grad_enabled()
            return self.as_softmax_loss(0.0 * self.head(self.body(inputs)), target)

    ticks = itertools.count()
    module = Unsure()
    module.searches = 0
    fit(module, [backward_skipping(BackwardPace(clock=lambda: float(next(ticks))))], max_epochs=32)
    assert len(module.losses) > 4 * 50  # with a clock that ticks evenly a round has 50 batches
    assert module.searches == FIRST_DECISION


def test_the_module_is_left_as_it_was() -> None:
    module, skipping = OneClass(), backward_skipping()
    monitor = fit(module, [skipping])
    assert "training_step" not in vars(module)
    assert "log" not in vars(module)
    assert module.masking_counter.narrowed_loss is None
    assert monitor.history[0].samples == 61
    ratio = float(module.trainer.callback_metrics["masking/backward_ratio"])
    assert ratio == pytest.approx(skipping.history[-1].backward / skipping.history[-1].visits)
    assert ratio < 0.8
