"""A head of cosines: its logits, and what it does with features of length zero."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cosine

from as_lightning.benchmark.tasks.classifier import CosineHead


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31), scale=st.sampled_from([1e-3, 1.0, 1e4]))
def test_logits_are_cosines_whatever_the_length_of_the_features(seed: int, scale: float) -> None:
    torch.manual_seed(seed)
    head = CosineHead(5, 3).double()
    features = torch.randn(4, 5, dtype=torch.float64)
    logits = head(features * scale).detach()
    for row, x in zip(logits, features, strict=True):
        for value, w in zip(row, head.weight, strict=True):
            assert float(value) == pytest.approx(1 - cosine(x.numpy(), w.detach().numpy()), abs=1e-12)


def test_features_of_length_zero_give_zero_logits_and_finite_gradients() -> None:
    head = CosineHead(5, 3)
    logits = head(torch.zeros(2, 5))
    logits.sum().backward()
    assert torch.equal(logits, torch.zeros(2, 3))
    assert head.weight.grad is not None
    assert head.weight.grad.isfinite().all()
