"""The line over several data sets."""

from __future__ import annotations

import numpy as np
import pytest

from as_lightning.benchmark.report.across_data_sets import across_data_sets

REFERENCE = np.linspace(0.4, 0.95, 6)


@pytest.mark.parametrize(("shift", "likeliest"), [(0.03, "better"), (0.0, "equal"), (-0.03, "worse")])
def test_the_likeliest_outcome_is_that_of_the_differences(shift: float, likeliest: str) -> None:
    found = across_data_sets(REFERENCE + shift + 0.001 * np.arange(6), REFERENCE)
    assert max(("better", "equal", "worse"), key=lambda name: getattr(found, name)) == likeliest
    assert found.better + found.equal + found.worse == pytest.approx(1.0)


def test_the_margin_is_the_region_of_practical_equivalence() -> None:
    scores = REFERENCE + 0.01
    assert across_data_sets(scores, REFERENCE, margin=0.005).better > 0.9
    assert across_data_sets(scores, REFERENCE, margin=0.02).equal > 0.9


def test_the_same_scores_give_the_same_line() -> None:
    assert across_data_sets(REFERENCE + 0.004, REFERENCE) == across_data_sets(REFERENCE + 0.004, REFERENCE)


@pytest.mark.parametrize(
    ("scores", "reference", "message"),
    [
        ([0.1, 0.2], [0.1, 0.2], "at least 3"),
        ([0.1, 0.2, 0.3], [0.1, 0.2], "shapes"),
        ([0.1, 0.2, float("nan")], [0.1] * 3, "finite"),
    ],
)
def test_scores_that_cannot_be_compared_are_refused(scores: list[float], reference: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        across_data_sets(scores, reference)
