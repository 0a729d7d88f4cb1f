"""Time to the baseline's score."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from as_lightning.benchmark.report.old_verdicts import paired_verdicts
from as_lightning.benchmark.report.time_to_score import TimeRatio, time_ratio, time_to_score


def test_the_ratio_is_the_geometric_mean_with_students_interval_of_the_logarithms() -> None:
    seconds, reference = {0: 5.0, 1: 6.0, 2: 4.0}, {0: 10.0, 1: 9.0, 2: 11.0}
    found = time_ratio(seconds, reference)
    logarithms = np.log([5 / 10, 6 / 9, 4 / 11])
    low, high = stats.t.interval(0.95, 2, loc=logarithms.mean(), scale=stats.sem(logarithms))
    assert (found.ratio, found.low, found.high) == pytest.approx(np.exp([logarithms.mean(), low, high]))


def test_a_ratio_and_its_inverse_agree() -> None:
    seconds, reference = {0: 5.0, 1: 6.0}, {0: 10.0, 1: 9.0}
    forth, back = time_ratio(seconds, reference), time_ratio(reference, seconds)
    assert (forth.ratio, forth.low, forth.high) == pytest.approx((1 / back.ratio, 1 / back.high, 1 / back.low))


def test_one_seed_has_no_interval() -> None:
    assert time_ratio({0: 1.0}, {0: 4.0, 1: 3.0}) == TimeRatio(0.25, None, None)


@pytest.mark.parametrize(("seconds", "reference"), [({0: 1.0}, {1: 1.0}), ({0: 0.0}, {0: 1.0})])
def test_times_that_cannot_be_compared_are_refused(seconds: dict[int, float], reference: dict[int, float]) -> None:
    with pytest.raises(ValueError, match=r"no seed|positive"):
        time_ratio(seconds, reference)


def test_the_cheapest_budget_that_is_not_worse_is_found() -> None:
    verdicts = paired_verdicts(
        {
            0.25: [-0.05, -0.06, -0.04, -0.05],  # cheap and worse
            0.5: [0.0005, -0.0004, 0.0001, 0.0],
            1.0: [0.02, 0.021, 0.019, 0.02],
        }
    )
    times = {budget: TimeRatio(budget, budget, budget) for budget in verdicts}
    found = time_to_score(verdicts, times)
    assert found is not None
    assert (found.budget, found.time.ratio) == (0.5, 0.5)


def test_a_budget_of_which_nothing_is_shown_does_not_reach_the_score() -> None:
    verdicts = paired_verdicts({0.5: [0.02, -0.015, 0.005, 0.01, -0.01]})
    assert verdicts[0.5].word == "inconclusive"
    assert time_to_score(verdicts, {0.5: TimeRatio(0.5, 0.5, 0.5)}) is None
