"""Modules that report live samples by the mixin: one class per sample, several labels, tokens, a fused head."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from harness.scripted_masking import quiet_trainer
from harness.searches import FindsInTheSecondEpoch
from harness.sleeping_samples import CLASSES, FEATURES, SAMPLES, NumberedSamples
from torch import Tensor, nn
from torch.utils.data import DataLoader

from as_lightning import ASSoftmaxMixin, MaskedSampleSkipping
from as_lightning.functional import live_samples

LENGTH = 4
NO_GUARDS: dict[str, Any] = {"min_masked": 0.0, "max_woken": 1.0, "class_floor": 0.0}


class OneClass(ASSoftmaxMixin, pl.LightningModule):
    """Notes for each epoch which samples were visited, and which of them the formula calls live."""

    def __init__(self, **margin: Any) -> None:
        super().__init__(**margin)
        torch.manual_seed(0)
        self.head = nn.Linear(FEATURES, CLASSES).double()
        self.live: list[dict[int, bool]] = []

    def on_train_epoch_start(self) -> None:
        self.live.append({})

    def loss(self, inputs: Tensor, target: Tensor) -> Tensor:
        return self.as_softmax_loss(self.head(inputs), target)

    def formula(self, inputs: Tensor, target: Tensor) -> Tensor:
        return live_samples(self.head(inputs), target, 0.3)

    def training_step(self, batch: tuple[Tensor, Tensor, Tensor], batch_idx: int) -> Tensor:
        inputs, target, numbers = batch
        with torch.no_grad():
            live = self.formula(inputs, target)
        self.live[-1] |= dict(zip(numbers.tolist(), live.tolist(), strict=True))
        return self.loss(inputs, target)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.5)


class FusedHead(OneClass):
    def loss(self, inputs: Tensor, target: Tensor) -> Tensor:
        return self.as_softmax_head_loss(inputs, self.head, target)


class Tokens(OneClass):
    """Each sample is the same input at several places; the last place of some is no token."""

    def targets(self, target: Tensor) -> Tensor:
        places = target.unsqueeze(1).repeat(1, LENGTH)
        places[target == 0, -1] = -100
        return places

    def places(self, inputs: Tensor) -> Tensor:
        scale = torch.linspace(0.5, 1.5, LENGTH, dtype=inputs.dtype)
        return self.head(inputs.unsqueeze(1) * scale[:, None]).transpose(1, 2)

    def loss(self, inputs: Tensor, target: Tensor) -> Tensor:
        return self.as_softmax_loss(self.places(inputs), self.targets(target))

    def formula(self, inputs: Tensor, target: Tensor) -> Tensor:
        probabilities, targets = self.places(inputs).softmax(1), self.targets(target)
        of_target = probabilities.gather(1, targets.clamp(min=0).unsqueeze(1))
        others = probabilities.scatter(1, targets.clamp(min=0).unsqueeze(1), 0.0).amax(1)
        return ((of_target.squeeze(1) - others <= 0.3) & (targets != -100)).any(1)


class SeveralLabels(OneClass):
    def targets(self, target: Tensor) -> Tensor:
        return nn.functional.one_hot(target, CLASSES) | nn.functional.one_hot((target + 1).clamp(max=2), CLASSES)

    def loss(self, inputs: Tensor, target: Tensor) -> Tensor:
        return self.multilabel_as_softmax_loss(self.head(inputs), self.targets(target).double())

    def formula(self, inputs: Tensor, target: Tensor) -> Tensor:
        positive, probabilities = self.targets(target).bool(), self.head(inputs).softmax(1)
        lowest = probabilities.masked_fill(~positive, 2.0).amin(1)
        highest = probabilities.masked_fill(positive, -1.0).amax(1)
        return lowest - highest <= 0.3


@pytest.mark.parametrize("skipping_first", [True, False])
@pytest.mark.parametrize("settings", [{}, {"max_sleep": 0, "skip_backward": True}], ids=["sleeping", "skip_backward"])
def test_a_learning_rate_search_in_the_midst_of_training_visits_no_sample(
    settings: dict[str, Any], skipping_first: bool, tmp_path: Path
) -> None:
    def train(*finders: pl.Callback) -> MaskedSampleSkipping:
        skipping = MaskedSampleSkipping(**NO_GUARDS, **settings)
        callbacks = [skipping, *finders] if skipping_first else [*finders, skipping]
        loader = DataLoader(NumberedSamples(), batch_size=16)  # the last batch has another size
        trainer = quiet_trainer(max_epochs=5, callbacks=callbacks, default_root_dir=tmp_path)
        trainer.fit(OneClass(delta=0.3), loader)
        return skipping

    searched = train(FindsInTheSecondEpoch())
    if "skip_backward" in settings:  # how many take the backward pass is for the clock to say
        assert [epoch.visits for epoch in searched.history] == [SAMPLES] * 5
    else:
        assert searched.history == train().history


@pytest.mark.parametrize(
    ("module", "settings"),
    [
        (lambda: OneClass(delta=0.3), {}),
        (lambda: OneClass(delta=1.0), {"delta": 0.3}),
        (lambda: FusedHead(delta=0.3), {}),
        (lambda: Tokens(delta=0.3), {}),
        (lambda: Tokens(delta=1.0), {"delta": 0.3}),
        (lambda: SeveralLabels(delta=0.3), {}),
    ],
    ids=["one class", "cross-entropy", "fused head", "tokens", "tokens of cross-entropy", "several labels"],
)
def test_the_samples_that_the_formula_calls_masked_are_left_out_of_the_next_epoch(module: Any, settings: Any) -> None:
    data = NumberedSamples(noise=0.3)
    model, skipping = module(), MaskedSampleSkipping(max_sleep=1, **NO_GUARDS, **settings)
    trainer = quiet_trainer(max_epochs=12, callbacks=[skipping])
    trainer.fit(model, DataLoader(data, batch_size=4, shuffle=True))
    fell_asleep = 0
    for before, after in zip(model.live, model.live[1:], strict=False):
        masked = {number for number, live in before.items() if not live}
        rest = set(range(SAMPLES)) - masked
        assert rest <= set(after)
        assert len(set(after) & masked) == max(len(rest), 4) + (len(rest) % 4 == 1 and len(rest) > 4) - len(rest)
        fell_asleep += len(masked)
    assert fell_asleep > SAMPLES
