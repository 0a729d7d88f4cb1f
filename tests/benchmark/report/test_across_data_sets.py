"""Several data sets together: the mean difference, its interval, and the words counted."""

from __future__ import annotations

import numpy as np
import pytest

from as_lightning.benchmark.report.across_data_sets import across_data_sets


def by_loops(differences: dict[str, list[float]], resamples: int) -> tuple[float, float]:
    """The bootstrap as it is defined: data sets with replacement, then each one's seeds with replacement."""
    generator = np.random.default_rng(123)
    names, draws = list(differences), []
    for _ in range(resamples):
        chosen = generator.choice(names, len(names))
        draws.append(np.mean([generator.choice(differences[name], len(differences[name])).mean() for name in chosen]))
    low, high = np.percentile(draws, (2.5, 97.5))
    return float(low), float(high)


def test_the_interval_is_that_of_the_bootstrap_by_loops():
    generator = np.random.default_rng(0)
    differences = {name: generator.normal(shift, 0.4, size).tolist() for name, shift, size in
                   (("a", -1.0, 5), ("b", 0.2, 8), ("c", 0.5, 20), ("d", -0.1, 5))}  # fmt: skip
    found = across_data_sets(differences, dict.fromkeys(differences, "equal"))
    assert found.difference == pytest.approx(np.mean([np.mean(values) for values in differences.values()]))
    assert (found.low, found.high) == pytest.approx(by_loops(differences, 4000), abs=0.04)
    assert found == across_data_sets(differences, dict.fromkeys(differences, "equal"))


@pytest.mark.parametrize(
    ("differences", "message"),
    [
        ({"a": [1.0], "b": [1.0]}, "at least 3 data sets, got differences of a, b"),
        ({"a": [1.0], "b": [], "c": [1.0]}, "at least one seed of b"),
        ({"a": [1.0], "b": [1.0], "c": [float("nan")]}, "finite differences of at least one seed of c"),
        ({"b": [1.0], "c": [1.0], "d": [1.0]}, "differences of b, c, d and words for a, b, c"),
    ],
)
def test_too_few_or_missing_differences_are_refused(differences, message):
    with pytest.raises(ValueError, match=message):
        across_data_sets(differences, dict.fromkeys([*"abc"[: len(differences)]], "equal"))
