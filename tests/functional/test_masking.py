from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

from as_lightning.functional import as_softmax_mask, live_samples


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_delta_one_keeps_everything(dtype: torch.dtype) -> None:
    logits = torch.randn(50, 20, generator=torch.Generator().manual_seed(0)).mul(30).to(dtype)
    assert as_softmax_mask(logits, logits.argmax(1), 1.0).all()


@pytest.mark.parametrize("value", [0.0, 3.7, -1e4, 1e4, 1e-3])
def test_at_delta_zero_a_tie_with_the_target_is_kept(value: float) -> None:
    logits = torch.full((1, 7), value - 1.0)
    logits[0, [2, 5]] = value
    assert as_softmax_mask(logits, torch.tensor([2]), 0.0).nonzero()[:, 1].tolist() == [2, 5]


def test_nan_logits_are_kept() -> None:
    logits = torch.tensor([[9.0, float("nan"), 0.0]])
    assert as_softmax_mask(logits, torch.tensor([0]), 0.1).all()


@pytest.mark.parametrize("function", [as_softmax_mask, live_samples])
def test_bad_input_is_refused_as_by_the_loss(function: Callable[..., torch.Tensor]) -> None:
    with pytest.raises(ValueError, match=r"delta .* got 1.01"):
        function(torch.zeros(1, 4), torch.tensor([0]), 1.01)
    with pytest.raises(IndexError, match=r"target must hold class indices from 0 to 3 .* got 4"):
        function(torch.zeros(1, 4), torch.tensor([4]), 0.1)


def test_one_sample_without_a_batch_dimension() -> None:
    logits = torch.tensor([1.2, 1.5, 1.0, -0.35])
    assert as_softmax_mask(logits, torch.tensor(1), 0.1).tolist() == [False, True, False, False]


@pytest.mark.parametrize("function", [as_softmax_mask, live_samples])
def test_an_output_with_logits_is_refused_as_by_the_loss(function: Callable[..., torch.Tensor]) -> None:
    output = SimpleNamespace(logits=torch.zeros(1, 4))
    with pytest.raises(TypeError, match=r"logits must be a tensor, got SimpleNamespace: pass its \.logits"):
        function(output, torch.tensor([0]), 0.1)
