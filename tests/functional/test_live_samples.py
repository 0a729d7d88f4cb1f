"""Which samples have a gradient."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from as_lightning.functional import (
    as_cross_entropy,
    as_softmax_mask,
    live_samples,
    multilabel_as_cross_entropy,
)

DELTAS = (0.0, 0.1, 0.5, 1.0)
SHAPES = ((7,), (40, 7), (6, 7, 4), (3, 7, 2, 2), (5, 1))


def example(shape: tuple[int, ...], several_labels: bool = False) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(shape, generator=generator, dtype=torch.float64) * 3
    class_dim = 0 if len(shape) == 1 else 1
    if several_labels:
        target = (torch.rand(shape, generator=generator) < 0.3).long()
    else:
        target = torch.randint(
            shape[class_dim], shape[:class_dim] + shape[class_dim + 1 :], generator=generator
        )
    if target.numel() > 1:
        target.view(-1)[1] = -100
    return logits, target


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("loss", [as_cross_entropy, multilabel_as_cross_entropy])
def test_live_samples_are_those_with_a_loss_and_a_gradient_to_the_last_bit(
    loss: Callable[..., Any], shape: tuple[int, ...], delta: float
) -> None:
    logits, target = example(shape, loss is multilabel_as_cross_entropy)
    live = live_samples(logits.requires_grad_(), target, delta)
    assert not live.requires_grad
    losses, counts = loss(logits, target, delta, reduction="none", return_counts=True)
    losses.sum().backward()
    assert logits.grad is not None
    assert torch.equal(live, losses > 0)
    assert torch.equal(live, logits.grad.any(0 if logits.dim() == 1 else 1))
    assert int(live.sum()) == int(counts.samples - counts.masked_samples)


def test_rows_with_nan_are_live_and_kept() -> None:
    logits = torch.tensor([[torch.nan, 9.0, 0.0]])
    assert live_samples(logits, torch.tensor([1])).tolist() == [True]
    assert as_softmax_mask(logits, torch.tensor([1]), 0.1).all()
