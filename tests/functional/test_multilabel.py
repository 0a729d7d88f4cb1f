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
README_LOGITS = [[1.2, 1.5, 1.0, -0.35], [2.5, 3.5, 0.4, 0.3], [2.5, 3.5, 0.4, 0.3]]
README_LABELS = [[1, 1, 0, 0], [0, 1, 1, 0], [1, 1, 0, 1]]


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


@pytest.mark.parametrize("labels", [[0, 0, 0], [1, 1, 1]], ids=["no positives", "no negatives"])
@pytest.mark.parametrize("delta", [0.0, 0.1])
def test_without_positives_or_negatives_nothing_is_masked(labels: list[int], delta: float) -> None:
    logits, target = torch.tensor([[8.0, -3.0, 0.5]]), torch.tensor([labels])
    loss, counts = multilabel_as_cross_entropy(logits, target, delta, return_counts=True)
    sign = -1.0 if labels[0] else 1.0
    expected = torch.logsumexp(torch.cat([torch.zeros(1, 1), sign * logits], 1), 1)
    torch.testing.assert_close(loss, expected[0])
    assert int(counts.masked_classes) == int(counts.masked_samples) == 0
    assert int(counts.classes) == 3


def test_a_sample_past_the_margin_has_zero_loss_and_gradient_to_the_last_bit() -> None:
    logits = torch.tensor([[20.0, 20.1, 0.0, -4.0]], requires_grad=True)
    loss, counts = multilabel_as_cross_entropy(logits, torch.tensor([[1, 1, 0, 0]]), 0.1, return_counts=True)
    loss.backward()
    assert loss.item() == 0.0
    assert logits.grad is not None
    assert not logits.grad.any()
    assert [int(count) for count in counts] == [1, 1, 4, 4]


def test_a_positive_whose_probability_underflows_stays_positive() -> None:
    logits = torch.tensor([[0.0, -200.0, 3.0]])
    loss = multilabel_as_cross_entropy(logits, torch.tensor([[0, 1, 1]]), 0.1)
    assert loss.item() == pytest.approx(200.0 + torch.log1p(torch.tensor(1.0)).item(), rel=1e-6)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_nan_logits_give_a_nan_loss(reduction: str) -> None:
    for position in range(3):
        logits = torch.tensor([[9.0, 0.0, -9.0]])
        logits[0, position] = torch.nan
        assert multilabel_as_cross_entropy(logits, torch.tensor([[1, 0, 0]]), 0.1, reduction=reduction).isnan().all()


@pytest.mark.parametrize("target_dtype", [torch.int64, torch.int8, torch.float32], ids=str)
@pytest.mark.parametrize("delta", [0.0, 0.1, 1.0])
def test_an_ignored_label_is_as_good_as_absent(delta: float, target_dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(5)
    logits = torch.randn(30, 8, generator=generator, dtype=torch.float64) * 4
    target = (torch.rand(30, 8, generator=generator) < 0.3).to(target_dtype)
    known = torch.rand(30, 8, generator=generator) < 0.7
    known[4] = False
    logits[~known] = torch.nan  # what an unknown label scores must not matter
    leaf = logits.requires_grad_()
    loss, counts = multilabel_as_cross_entropy(
        leaf, target.masked_fill(~known, -9), delta, ignore_index=-9, reduction="none", return_counts=True
    )
    loss.sum().backward()
    assert leaf.grad is not None
    assert not leaf.grad[~known].any()
    totals = [0, 0, 0, 0]
    for i in range(30):
        if not known[i].any():
            assert loss[i] == 0.0
            continue
        exact = logits.detach()[i, known[i]].requires_grad_()
        expected, expected_counts = multilabel_reference(exact, target[i, known[i]], delta)
        torch.testing.assert_close(loss[i], expected)
        torch.testing.assert_close(leaf.grad[i, known[i]], torch.autograd.grad(expected, exact)[0])
        totals = [a + b for a, b in zip(totals, expected_counts, strict=True)]
    assert [int(count) for count in counts] == totals


@pytest.mark.parametrize(("delta", "classes", "message"), [(2, 3, r"delta .* got 2"), (0.1, 0, "at least one label")])
def test_a_margin_out_of_range_and_no_label_are_refused(delta: float, classes: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        multilabel_as_cross_entropy(torch.zeros(2, classes), torch.zeros(2, classes), delta)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_gpu_is_never_waited_for() -> None:
    logits, target = torch.tensor(README_LOGITS).cuda().requires_grad_(), torch.tensor(README_LABELS).cuda()
    multilabel_as_cross_entropy(logits, target, 0.1).backward()  # start up CUDA's libraries
    torch.cuda.set_sync_debug_mode("error")
    try:
        loss, _ = multilabel_as_cross_entropy(logits, target, 0.1, return_counts=True)
        loss.backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert f"{loss.item():.4f}" == "2.0778"
