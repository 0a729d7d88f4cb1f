"""Properties of the transforms: what makes each a probability distribution, and what sets them
apart.
"""

import numpy as np
import pytest
import torch
from harness.variant_methods import WITH_TRANSFORM, random_logits
from hypothesis import given, settings
from hypothesis import strategies as st

from as_lightning.functional import entmax, perturb_max, sparsemax

every_transform = pytest.mark.parametrize(
    "method", WITH_TRANSFORM.values(), ids=WITH_TRANSFORM.keys()
)


@every_transform
@pytest.mark.parametrize("scale", [0.3, 3.0])
@pytest.mark.parametrize("classes", [7, 20])
def test_transform_equals_reference(method, classes, scale):
    logits = random_logits(3, classes, scale=scale)
    expected = np.stack(
        [method.reference_transform(row, **method.arguments) for row in logits.numpy()]
    )
    np.testing.assert_allclose(
        method.transform(logits, **method.arguments).numpy(), expected, rtol=1e-6, atol=1e-9
    )


@every_transform
@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    shape=st.lists(st.integers(1, 5), min_size=0, max_size=2),
    classes=st.integers(3, 60),
    scale=st.sampled_from([0.0, 1.0, 30.0, 1000.0]),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16]),
)
def test_probabilities_lie_on_the_simplex(method, seed, shape, classes, scale, dtype):
    logits = random_logits(*shape, classes, scale=scale, seed=seed, dtype=dtype)
    p = method.transform(logits, **method.arguments)
    assert p.dtype == dtype
    assert p.shape == logits.shape
    assert (p >= 0).all()
    assert (p <= 1 + 4 * torch.finfo(dtype).eps).all()
    tolerance = (
        1e-5 if dtype in (torch.float32, torch.float64) else classes * torch.finfo(dtype).eps
    )
    torch.testing.assert_close(
        p.double().sum(-1), torch.ones(shape).double(), rtol=0, atol=tolerance
    )


@every_transform
def test_a_transform_along_another_dimension_is_the_transposed_one(method):
    logits = random_logits(4, 5, 6)
    expected = method.transform(logits.movedim(1, -1), **method.arguments).movedim(-1, 1)
    assert torch.equal(method.transform(logits, dim=1, **method.arguments), expected)


@pytest.mark.parametrize("alpha", [1.2, 1.5, 2.0])
def test_entmax_is_exactly_zero_where_a_class_is_far_enough_behind(alpha):
    logits = random_logits(5, 300, scale=5.0)
    behind = logits <= logits.amax(-1, keepdim=True) - 1 / (alpha - 1)
    p = entmax(logits, alpha=alpha)
    assert behind.any()
    assert (p[behind] == 0).all()
    assert ((p == 0).sum(-1) < 300).all()


@pytest.mark.parametrize("classes", [8, 500])
def test_alpha_of_two_is_sparsemax_and_alpha_to_one_tends_to_softmax_which_it_is_at_one(classes):
    logits = random_logits(5, classes)
    assert torch.equal(entmax(logits, alpha=2.0), sparsemax(logits))
    torch.testing.assert_close(entmax(logits, alpha=2 - 1e-9), sparsemax(logits), rtol=0, atol=1e-6)
    distances = [
        (entmax(logits, alpha=a) - logits.softmax(-1)).abs().max()
        for a in (2.0, 1.5, 1.1, 1.01, 1.0001)
    ]
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 1e-3
    torch.testing.assert_close(entmax(logits, alpha=1.0), logits.softmax(-1))


@pytest.mark.parametrize("alpha", [1.0001, 1.005, 1.02, 1.3, 1.7])
def test_entmax_in_float32_has_the_digits_of_float32(alpha):
    logits = random_logits(8, 200, dtype=torch.float32)
    torch.testing.assert_close(
        entmax(logits, alpha=alpha).double(),
        entmax(logits.double(), alpha=alpha),
        rtol=0,
        atol=1e-6,
    )


@pytest.mark.parametrize("alpha", [1.5, 2.0])
def test_partial_sorting_finds_supports_larger_than_it_looks_at(alpha):
    flat = torch.zeros(2, 1000, dtype=torch.float64)
    flat[1, :300] = 1.0
    p = entmax(flat, alpha=alpha)
    torch.testing.assert_close(p[0], torch.full((1000,), 1e-3, dtype=torch.float64))
    assert (p[1] > 0).sum() >= 300
    torch.testing.assert_close(p.sum(-1), torch.ones(2, dtype=torch.float64))


@pytest.mark.parametrize("noise", ["normal", "logistic"])
def test_equal_logits_give_the_uniform_distribution_at_any_number_of_classes(noise):
    for classes in (2, 10, 1000, 20_000):
        p = perturb_max(torch.zeros(1, classes), noise=noise)
        torch.testing.assert_close(p, torch.full((1, classes), 1 / classes), rtol=1e-3, atol=0)
