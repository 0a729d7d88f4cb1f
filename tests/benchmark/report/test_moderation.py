"""Variances without the seed's effect, and what the methods' variances have in common, against the formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize, special

from as_lightning.benchmark.report.moderation import inverse_trigamma, moderate, seed_residual_variances, variance_prior


def prior_by_the_formula(variances: list[float], degrees: list[float]) -> tuple[float, float]:
    """Smyth 2004, section 6.2, one number at a time."""
    evidence = [
        math.log(s) - float(special.psi(d / 2)) + math.log(d / 2) for s, d in zip(variances, degrees, strict=True)
    ]
    mean = sum(evidence) / len(evidence)
    spread = sum((e - mean) ** 2 for e in evidence) / (len(evidence) - 1)
    spread -= sum(float(special.polygamma(1, d / 2)) for d in degrees) / len(degrees)
    if spread <= 0:
        return sum(s * d for s, d in zip(variances, degrees, strict=True)) / sum(degrees), math.inf
    half = optimize.brentq(lambda x: float(special.polygamma(1, x)) - spread, 1e-6, 1e9, xtol=1e-14, rtol=1e-14)
    return math.exp(mean + float(special.psi(half)) - math.log(half)), 2 * half


@pytest.mark.parametrize("seed", range(6))
def test_the_prior_is_that_of_the_formula_for_unequal_degrees_of_freedom(seed):
    generator = np.random.default_rng(seed)
    degrees = generator.uniform(2.0, 20.0, size=5)
    variances = generator.chisquare(3.0, size=5) / 3.0 * 10.0 ** generator.uniform(-1, 1, 5)
    variance, prior = variance_prior(variances, degrees)
    expected = prior_by_the_formula(variances.tolist(), degrees.tolist())
    assert (float(variance[0]), float(prior[0])) == pytest.approx(expected, rel=1e-9)


def test_the_prior_of_many_methods_is_the_one_that_they_are_drawn_from():
    generator = np.random.default_rng(1)
    true = 2.0 * 8.0 / generator.chisquare(8.0, size=20_000)
    variance, prior = variance_prior(true * generator.chisquare(4.0, true.size) / 4.0, np.full(true.size, 4.0))
    assert float(variance[0]) == pytest.approx(2.0, rel=0.05)
    assert float(prior[0]) == pytest.approx(8.0, rel=0.1)


def test_variances_move_to_the_prior_by_its_degrees_of_freedom_and_to_it_where_these_are_infinite():
    variances = np.array([1.0, 4.0])
    assert moderate(variances, 4.0, np.array([2.0]), np.array([4.0])).tolist() == [1.5, 3.0]
    assert moderate(variances, 4.0, np.array([2.0]), np.array([np.inf])).tolist() == [2.0, 2.0]


def test_no_spread_at_all_stays_none():
    variance, _ = variance_prior(np.zeros(3), np.full(3, 4.0))
    assert variance.tolist() == [0.0]


@pytest.mark.parametrize("value", [1e-4, 0.1, 1.0, 30.0, 1e4])
def test_the_inverse_of_trigamma_is_one(value):
    assert float(special.polygamma(1, inverse_trigamma(np.array([value])))[0]) == pytest.approx(value, rel=1e-9)


def test_two_methods_have_together_the_variance_of_their_paired_differences():
    scores = np.random.default_rng(2).normal(size=(2, 9))
    variances, degrees = seed_residual_variances(scores, np.array([True, True]))
    assert variances.sum() == pytest.approx((scores[1] - scores[0]).var(ddof=1))
    assert degrees.sum() == pytest.approx(8.0)


def test_the_effect_of_a_seed_on_all_methods_does_not_count():
    generator = np.random.default_rng(3)
    scores = generator.normal(size=(4, 6))
    present = np.array([True, True, False, True])
    shifted = scores + 100.0 * generator.normal(size=6)
    plain, moved = (seed_residual_variances(values, present)[0] for values in (scores, shifted))
    np.testing.assert_allclose(plain, moved, rtol=1e-9)
    assert np.isnan(plain[2])
    without = seed_residual_variances(scores[present], np.ones(3, dtype=bool))[0]
    np.testing.assert_allclose(plain[present], without, rtol=1e-12)
