"""Skipping changes nothing but which samples are visited, and visits those of the plan."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from harness.length_batches import LengthBatches
from harness.scripted_masking import quiet_trainer
from harness.sleeping_samples import SAMPLES, NumberedSamples, SleepingClassifier, numbered_loader
from oracles.sleep_plan import LIVE, MASKED, NOT_VISITED, awake_after
from torch.utils.data import RandomSampler

from as_lightning.callbacks.masked_sample_skipping import MaskedSampleSkipping
from as_lightning.functional import as_cross_entropy

NO_GUARDS: dict[str, Any] = {"min_masked": 0.0, "max_woken": 1.0, "class_floor": 0.0}


def fit(
    module: SleepingClassifier, callbacks: list[Any], loader: Any = None, *, max_epochs: int = 8, **settings: Any
) -> SleepingClassifier:
    torch.manual_seed(0)
    trainer = quiet_trainer(max_epochs=max_epochs, callbacks=callbacks, **settings)
    trainer.fit(module, numbered_loader() if loader is None else loader, numbered_loader(shuffle=False))
    return module


def outcomes(module: SleepingClassifier, epoch: int) -> list[int]:
    live = module.live[epoch]
    return [NOT_VISITED if n not in live else LIVE if live[n] else MASKED for n in range(SAMPLES)]


def by_length() -> LengthBatches:
    return LengthBatches(RandomSampler(range(SAMPLES)), 8, False)


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("by", ["random", "length"])
def test_without_sleep_weights_are_bit_identical_to_a_training_without_the_callback(by: str, num_workers: int) -> None:
    def loader() -> Any:
        workers = {"num_workers": num_workers, "persistent_workers": num_workers > 0}
        return numbered_loader(**({} if by == "random" else {"batch_sampler": by_length()}), **workers)

    epochs = 2 if num_workers else 4
    plain = fit(SleepingClassifier(dropout=0.3), [], loader(), max_epochs=epochs, reload_dataloaders_every_n_epochs=1)
    callbacks = [MaskedSampleSkipping(max_sleep=0)]
    skipping = fit(SleepingClassifier(dropout=0.3), callbacks, loader(), max_epochs=epochs)
    assert plain.epochs == skipping.epochs
    assert all(torch.equal(weight, skipping.weights()[name]) for name, weight in plain.weights().items())


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"max_sleep": 4}, {}),
        ({"max_sleep": 1, "patience": 2}, {"patience": 2}),
        ({"max_sleep": 4, "full_epochs": (3, 2)}, {"full": (1, 2, 6, 7)}),
        ({"max_sleep": 4, "full_epochs": (0.25, 0.25)}, {"full": (1, 6, 7)}),
        ({"max_sleep": 4, "min_masked": 0.5}, {"min_masked": 0.5}),
        ({"max_sleep": 4, "max_woken": 0.0}, {"max_woken": 0.0}),
        ({"max_sleep": 8, "class_floor": 0.3}, {"class_floor": 0.3, "classes": NumberedSamples().targets.tolist()}),
    ],
)
def test_each_epoch_visits_the_samples_of_the_plan_each_once(settings: dict[str, Any], rule: dict[str, Any]) -> None:
    skipping = MaskedSampleSkipping(**(NO_GUARDS | settings))
    module = fit(SleepingClassifier(), [skipping])
    for epoch in range(1, 8):
        earlier = [outcomes(module, before) for before in range(epoch)]
        rule_of_sleep = {"max_sleep": settings["max_sleep"]} | rule
        awake = awake_after(earlier, **rule_of_sleep)
        planned = {number for number in range(SAMPLES) if awake[number]}
        visited = module.visited(epoch)
        count = max(len(planned), 8)  # one batch at least, and no last batch of one sample
        assert len(visited) == len(set(visited)) == count + (count % 8 == 1), f"epoch {epoch}"
        assert planned <= set(visited), f"epoch {epoch}"
        assert skipping.history[epoch].awake == len(planned)
    assert min(len(module.visited(epoch)) for epoch in range(8)) < 0.8 * SAMPLES


def test_batches_of_shortened_epochs_are_full() -> None:
    module = fit(SleepingClassifier(), [MaskedSampleSkipping(**NO_GUARDS)])
    assert all(len(batch) == 8 for epoch in module.epochs for batch in epoch[:-1])
    assert all(len(module.epochs[epoch]) == module.lengths[epoch] for epoch in range(8))


def test_a_sample_that_falls_asleep_has_exactly_zero_gradient() -> None:
    class TakesGradients(SleepingClassifier):
        """At each visit the whole batch's gradient, and that of the live samples alone with the batch's denominator."""

        checked = 0

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            inputs, target, numbers = batch
            loss = super().training_step(batch, batch_idx)
            live = torch.tensor([self.live[-1][number] for number in numbers.tolist()])
            parameters = list(self.parameters())
            of_live = as_cross_entropy(self(inputs[live]), target[live], self.delta, reduction="sum") / len(target)
            whole = torch.autograd.grad(loss, parameters, retain_graph=True)
            if live.any():
                for gradient, expected in zip(whole, torch.autograd.grad(of_live, parameters), strict=True):
                    torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=1e-15)
            for number in torch.arange(len(target))[~live].tolist():
                one = as_cross_entropy(self(inputs[number, None]), target[number, None], self.delta)
                assert one.item() == 0.0
                assert all(not gradient.any() for gradient in torch.autograd.grad(one, parameters))
                self.checked += 1
            return loss

    module = fit(TakesGradients(), [MaskedSampleSkipping(**NO_GUARDS)])
    assert isinstance(module, TakesGradients)
    assert module.checked > 50


def test_a_margin_of_its_own_makes_plain_cross_entropy_skip() -> None:
    skipping = MaskedSampleSkipping(delta=0.5, **NO_GUARDS)
    module = fit(SleepingClassifier(delta=1.0, live_delta=0.5), [skipping])
    assert all(sum(live.values()) < len(live) for live in module.live[3:])
    assert skipping.history[-1].awake < SAMPLES / 2
    assert not module.masking_counter.wants_live  # only while fit runs


def test_history_and_logged_values_are_those_of_the_visits() -> None:
    class ReadsLogs(SleepingClassifier):
        def on_train_epoch_start(self) -> None:
            self.logs = [*getattr(self, "logs", []), dict(self.trainer.callback_metrics)]
            super().on_train_epoch_start()

    skipping = MaskedSampleSkipping(**NO_GUARDS)
    module = fit(ReadsLogs(), [skipping])
    assert isinstance(module, ReadsLogs)
    passes = 0
    for epoch in skipping.history:
        found = outcomes(module, epoch.epoch)
        passes += epoch.visits
        assert (epoch.samples, epoch.visits) == (SAMPLES, len(module.visited(epoch.epoch)))
        assert epoch.masked == found.count(MASKED)
        assert epoch.woken <= epoch.revisited <= epoch.visits
        if epoch.epoch < 7:
            logged = module.logs[epoch.epoch + 1]
            assert float(logged["masking/awake_ratio"]) == pytest.approx(epoch.awake / SAMPLES)
            assert float(logged["masking/sample_passes"]) == pytest.approx(passes / SAMPLES)
            woken_ratio = epoch.woken / epoch.revisited if epoch.revisited else 0.0
            assert float(logged["masking/woken_ratio"]) == pytest.approx(woken_ratio)
    assert sum(epoch.revisited for epoch in skipping.history) > 10
