from __future__ import annotations

import pytest
import torch
from harness.normal_floats import floats
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles.as_softmax import multilabel_reference

from as_lightning.functional import multilabel_as_cross_entropy

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}


@settings(max_examples=150, deadline=None)
@given(
    batch=st.integers(1, 5),
    classes=st.integers(1, 12),
    extra=st.lists(st.integers(1, 3), max_size=1),
    delta=st.one_of(st.sampled_from([0.0, 0.1, 1.0]), floats(0.0, 1.0)),
    scale=st.sampled_from([0.1, 1.0, 5.0]),
    share=st.sampled_from([0.0, 0.2, 0.5, 1.0]),
    dtype=st.sampled_from(DTYPES),
    target_dtype=st.sampled_from([torch.bool, torch.int64, torch.float32]),
    seed=st.integers(0, 2**16),
)
def test_value_gradient_and_counts_follow_the_formula(
    batch: int,
    classes: int,
    extra: list[int],
    delta: float,
    scale: float,
    share: float,
    dtype: torch.dtype,
    target_dtype: torch.dtype,
    seed: int,
) -> None:
    generator = torch.Generator().manual_seed(seed)
    shape = (batch, classes, *extra)
    logits = (torch.randn(shape, generator=generator, dtype=torch.float64) * scale).to(dtype)
    target = (torch.rand(shape, generator=generator) < share).to(target_dtype)
    exact = logits.double().requires_grad_()
    expected, expected_counts = multilabel_reference(exact, target, delta)
    # leave out a label within rounding of the margin: either mask is right
    nearby = [multilabel_reference(exact, target, min(max(delta + d, 0.0), 1.0))[1] for d in (-1e-6, 1e-6)]
    assume(nearby == [expected_counts] * 2)
    upstream = torch.linspace(-1.0, 2.0, expected.numel(), dtype=torch.float64).reshape(expected.shape)
    (expected_gradient,) = torch.autograd.grad(expected, exact, upstream)
    leaf = logits.requires_grad_()
    loss, counts = multilabel_as_cross_entropy(leaf, target, delta, reduction="none", return_counts=True)
    (gradient,) = torch.autograd.grad(loss, leaf, upstream.to(dtype))
    close = {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype]}
    torch.testing.assert_close(loss.double(), expected.to(dtype).double(), **close)
    torch.testing.assert_close(gradient.double(), expected_gradient.to(dtype).double(), **close)
    assert tuple(int(count) for count in counts) == expected_counts
    assert loss.dtype == gradient.dtype == dtype


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_nan_logits_give_a_nan_loss(reduction: str) -> None:
    for position in range(3):
        logits = torch.tensor([[9.0, 0.0, -9.0]])
        logits[0, position] = torch.nan
        assert multilabel_as_cross_entropy(logits, torch.tensor([[1, 0, 0]]), 0.1, reduction=reduction).isnan().all()


@pytest.mark.parametrize(("delta", "classes", "message"), [(2, 3, r"delta .* got 2"), (0.1, 0, "at least one label")])
def test_a_margin_out_of_range_and_no_label_are_refused(delta: float, classes: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        multilabel_as_cross_entropy(torch.zeros(2, classes), torch.zeros(2, classes), delta)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_gpu_is_never_waited_for() -> None:
    logits, target = torch.randn(3, 4).cuda().requires_grad_(), torch.randint(2, (3, 4)).cuda()
    multilabel_as_cross_entropy(logits, target, 0.1).backward()  # start up CUDA's libraries
    torch.cuda.set_sync_debug_mode("error")
    try:
        loss, _ = multilabel_as_cross_entropy(logits, target, 0.1, return_counts=True)
        loss.backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.testing.assert_close(loss.cpu(), multilabel_as_cross_entropy(logits.cpu(), target.cpu(), 0.1))
