"""The looks of a sequential comparison spend the error that they say, and no more."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from as_lightning.benchmark.report.boundaries import nominal_levels


@pytest.mark.parametrize("alpha", [0.05, 0.0125, 0.001])
def test_two_looks_spend_half_of_the_error_each_by_the_bivariate_normal_distribution(alpha):
    levels = nominal_levels((5, 10), alpha)
    first, second = stats.norm.isf(levels)
    together = stats.multivariate_normal([0, 0], [[1, np.sqrt(0.5)], [np.sqrt(0.5), 1]])
    assert levels[0] == pytest.approx(alpha / 2)
    assert 1 - together.cdf([first, second], rng=0) == pytest.approx(alpha, abs=2e-5)


@pytest.mark.parametrize("power", [1.0, 3.0])
@pytest.mark.parametrize("looks", [tuple(range(5, 21)), (3, 4, 5, 6, 7, 8), (1, 100)])
def test_the_chance_of_a_false_positive_at_any_look_is_the_stated_one(looks, power):
    generator, paths, alpha = np.random.default_rng(0), 400_000, 0.025
    total, crossed = np.zeros(paths), np.zeros(paths, dtype=bool)
    for before, count, level in zip((0, *looks), looks, nominal_levels(looks, alpha, power), strict=False):
        total += np.sqrt(count - before) * generator.standard_normal(paths)
        crossed |= total / np.sqrt(count) > stats.norm.isf(level)
        if count == looks[0]:
            assert crossed.mean() == pytest.approx(alpha * (count / looks[-1]) ** power, abs=1e-3)
    found = stats.binomtest(int(crossed.sum()), paths).proportion_ci(0.9999, method="exact")
    assert found.low <= alpha <= found.high
