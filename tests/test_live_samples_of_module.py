"""The record of live samples that the mixin keeps for a callback that asks for it."""

from __future__ import annotations

import lightning.pytorch as pl
import pytest
import torch
from torch import Tensor, nn

from as_lightning import ASSoftmaxMixin
from as_lightning.functional import live_samples

TARGET = torch.tensor([0, 1, 2, -100, 1, 0, 2, 2])


class Module(ASSoftmaxMixin, pl.LightningModule):
    def __init__(self, delta: float = 0.2) -> None:
        super().__init__(delta=delta)
        self.net = nn.Linear(4, 3)


@pytest.fixture
def hidden() -> Tensor:
    return 3 * torch.randn(8, 4, generator=torch.Generator().manual_seed(0))


def gradients(loss: Tensor, logits: Tensor) -> Tensor:
    """Which rows of the logits have a gradient."""
    (gradient,) = torch.autograd.grad(loss, logits)
    return (gradient != 0).any(-1)


def test_nothing_is_recorded_unless_it_is_asked_for(hidden: Tensor) -> None:
    module = Module()
    module.as_softmax_loss(module.net(hidden), TARGET)
    assert module.masking_counter.live is None


def test_live_samples_are_those_with_a_gradient(hidden: Tensor) -> None:
    module = Module()
    module.masking_counter.wants_live = True
    logits = module.net(hidden).detach().requires_grad_()
    loss = module.as_softmax_loss(logits, TARGET)
    live = module.masking_counter.take_live()
    assert live is not None
    assert live.tolist() == gradients(loss, logits).tolist()
    assert 0 < live.sum() < 7
    masked, samples, *_ = module.masking_counter.open_counts.tolist()
    assert samples - masked == live.sum()  # a sample is live or masked


@pytest.mark.parametrize("live_delta", [None, 0.05, 0.5, 0.9])
def test_the_record_has_a_margin_of_its_own_and_the_loss_keeps_its(live_delta: float | None, hidden: Tensor) -> None:
    module, plain = Module(), Module()
    plain.load_state_dict(module.state_dict())
    module.masking_counter.wants_live, module.masking_counter.live_delta = True, live_delta
    logits = module.net(hidden)
    assert module.as_softmax_loss(logits, TARGET) == plain.as_softmax_loss(logits, TARGET)
    live = module.masking_counter.take_live()
    assert live is not None
    assert live.tolist() == live_samples(logits, TARGET, live_delta or 0.2).tolist()
    assert torch.equal(module.masking_counter.open_counts, plain.masking_counter.open_counts)


@pytest.mark.parametrize("live_delta", [None, 0.5])
def test_the_head_loss_records_the_live_samples_of_its_logits(live_delta: float | None, hidden: Tensor) -> None:
    module = Module()
    module.masking_counter.wants_live, module.masking_counter.live_delta = True, live_delta
    module.as_softmax_head_loss(hidden, module.net, TARGET)
    live = module.masking_counter.take_live()
    assert live is not None
    assert live.tolist() == live_samples(module.net(hidden), TARGET, live_delta or 0.2).tolist()


@pytest.mark.parametrize("live_delta", [None, 0.5])
def test_the_multi_label_loss_records_one_flag_a_sample(live_delta: float | None, hidden: Tensor) -> None:
    module = Module()
    module.masking_counter.wants_live, module.masking_counter.live_delta = True, live_delta
    logits = (3 * module.net(hidden)).detach().requires_grad_()
    labels = torch.nn.functional.one_hot(TARGET.clamp(min=0), 3)
    module.multilabel_as_softmax_loss(logits, labels)
    live = module.masking_counter.take_live()
    at_the_margin = Module(delta=live_delta or 0.2).multilabel_as_softmax_loss(logits, labels)
    assert live is not None
    assert live.tolist() == gradients(at_the_margin, logits).tolist()


def test_tokens_are_live_one_by_one() -> None:
    module = Module()
    module.masking_counter.wants_live = True
    logits = 3 * torch.randn(2, 3, 5)
    target = torch.randint(3, (2, 5))
    module.as_softmax_loss(logits, target)
    live = module.masking_counter.take_live()
    assert live is not None
    assert live.shape == target.shape


def test_nothing_is_recorded_while_evaluating(hidden: Tensor) -> None:
    module = Module().eval()
    module.masking_counter.wants_live = True
    module.as_softmax_loss(module.net(hidden), TARGET)
    assert module.masking_counter.live is None
