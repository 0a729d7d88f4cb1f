from typing import Any

import pytest
import torch
from torch import nn

from as_lightning.functional import as_cross_entropy, multilabel_as_cross_entropy
from as_lightning.losses import ASSoftmaxLoss, LinearCrossEntropyLoss, MultiLabelASSoftmaxLoss

LOGITS = torch.randn(6, 5, generator=torch.Generator().manual_seed(0)) * 3
TARGET = torch.tensor([0, 1, -1, 3, 4, 0])


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_a_module_is_its_function(reduction: str) -> None:
    settings: dict[str, Any] = {"ignore_index": -1, "reduction": reduction}
    weight, labels = torch.linspace(0.5, 1.5, 5), (LOGITS > 0.5).long()
    expected = as_cross_entropy(LOGITS, TARGET, 0.2, weight=weight, **settings)
    assert torch.equal(ASSoftmaxLoss(0.2, weight=weight, **settings)(LOGITS, TARGET), expected)
    of_labels = multilabel_as_cross_entropy(LOGITS, labels, 0.2, **settings)
    assert torch.equal(MultiLabelASSoftmaxLoss(0.2, **settings)(LOGITS, labels), of_labels)


def test_weight_follows_the_module_to_another_dtype() -> None:
    module = ASSoftmaxLoss(weight=torch.ones(5), ignore_index=-1).double()
    assert module.weight is not None
    assert module.weight.dtype == torch.float64
    assert module(LOGITS.double(), TARGET).dtype == torch.float64


@pytest.mark.parametrize("loss", [ASSoftmaxLoss, MultiLabelASSoftmaxLoss])
def test_an_unknown_reduction_is_refused_when_the_module_is_made(loss: type[nn.Module]) -> None:
    with pytest.raises(ValueError, match=r"reduction must be one of .* got 'max'"):
        loss(reduction="max")


def test_a_parametrized_or_watched_head_has_the_loss_of_its_logits() -> None:
    loss = LinearCrossEntropyLoss(5, 7)
    nn.utils.parametrizations.spectral_norm(loss.linear)
    loss.linear.register_forward_pre_hook(lambda *args: None)  # as profilers watch every module
    loss.eval()
    target = TARGET.clamp(min=0)
    torch.testing.assert_close(
        loss(LOGITS, target), nn.functional.cross_entropy(loss.linear(LOGITS), target)
    )
