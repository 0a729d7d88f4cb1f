"""Verdicts: what paired differences allow one to say."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from as_lightning.benchmark.report.old_verdicts import (
    check_seeds,
    detectable_effect,
    paired_differences,
    paired_verdicts,
)

# in points, so that a row reads as a table does
TABLE = [
    ([2.0, 2.2, 2.1, 1.9, 2.0], "better"),
    ([-2.0, -2.2, -2.1, -1.9, -2.0], "worse"),
    ([0.1, -0.1, 0.05, 0.0, -0.05], "equal"),
    ([0.21, 0.19, 0.2, 0.22, 0.2], "equal"),  # significant, and smaller than what matters
    ([2.0, -1.5, 0.5, 1.0, -1.0], "inconclusive"),
    ([0.4, 0.9, 0.2, 1.1, 0.3], "better"),
    ([5.0, 5.1], "no verdict"),
    ([5.0], "no verdict"),
    ([], "no verdict"),
    ([0.0, 0.0, 0.0, 0.0, 0.0], "no verdict"),
    ([2.0, 2.0, 2.0, 2.0, 2.0], "no verdict"),
]


def in_points(differences: list[float]) -> np.ndarray:
    return np.array(differences) / 100


@pytest.mark.parametrize(("differences", "word"), TABLE)
def test_the_verdict_of_one_comparison(differences: list[float], word: str) -> None:
    assert paired_verdicts({"a": in_points(differences)})["a"].word == word


def test_swapping_the_sides_swaps_better_and_worse_and_keeps_the_rest() -> None:
    swapped = {"better": "worse", "worse": "better"}
    for differences, word in TABLE:
        assert paired_verdicts({"a": -in_points(differences)})["a"].word == swapped.get(word, word)


def test_constant_differences_up_to_rounding_give_no_verdict() -> None:
    scores = {0: 0.9, 1: 0.8, 2: 0.7, 3: 0.3}
    reference = {seed: score - 0.1 for seed, score in scores.items()}
    differences = paired_differences(scores, reference)
    assert len(set(differences.tolist())) > 1  # rounding makes them differ
    assert paired_verdicts({"a": differences})["a"].word == "no verdict"


def test_comparisons_without_a_verdict_take_no_part_in_the_correction() -> None:
    differences = in_points([0.4, 0.9, 0.2, 1.1, 0.3])
    alone = paired_verdicts({"a": differences})["a"]
    beside = paired_verdicts({"a": differences, **{f"same {i}": np.zeros(5) for i in range(20)}})["a"]
    assert alone == beside


def test_corrected_p_values_are_holms_over_all_comparisons() -> None:
    rng = np.random.default_rng(0)
    differences = {index: rng.normal(0.004 * index, 0.01, size=6) for index in range(5)}
    verdicts = paired_verdicts(differences)
    raw = [stats.ttest_1samp(values, 0.0).pvalue for values in differences.values()]
    corrected = multipletests(raw, method="holm")[1]
    assert [verdict.p_difference for verdict in verdicts.values()] == pytest.approx(corrected)


def test_equal_needs_both_one_sided_tests() -> None:
    differences, margin = in_points([0.1, -0.2, 0.15, 0.05, -0.1]), 0.005
    verdict = paired_verdicts({"a": differences}, margin)["a"]
    error = differences.std(ddof=1) / np.sqrt(5)
    lower = stats.t.sf((differences.mean() + margin) / error, 4)
    upper = stats.t.cdf((differences.mean() - margin) / error, 4)
    assert verdict.p_equal == pytest.approx(max(lower, upper))
    assert verdict.p_not_worse == pytest.approx(lower)


def test_the_bound_of_a_verdict_never_contradicts_its_word() -> None:
    draws = np.random.default_rng(0)
    for _ in range(50):
        spread = draws.uniform(0.0005, 0.01)
        arms = {arm: draws.normal(draws.normal(0, 0.004), spread, 6) for arm in range(8)}
        for verdict in paired_verdicts(arms, margin=0.005).values():
            assert verdict.bound is not None
            assert verdict.word != "inconclusive" or verdict.bound >= 0.005
            assert verdict.bound >= abs(verdict.difference or 0.0)


def test_one_comparisons_bound_is_the_end_of_the_interval_of_the_two_one_sided_tests() -> None:
    values = np.array([0.02, -0.015, 0.005, 0.01, -0.012])
    low, high = stats.t.interval(0.90, 4, loc=values.mean(), scale=stats.sem(values))
    assert paired_verdicts({"a": values})["a"].bound == pytest.approx(max(-low, high))


def test_identical_methods_are_rarely_told_apart() -> None:
    """Eight comparisons of methods that do not differ: at most 5% of the reports may say better or worse."""
    rng = np.random.default_rng(1)
    reports = [paired_verdicts({arm: rng.normal(0, 0.01, size=5) for arm in range(8)}) for _ in range(150)]
    false = sum(any(verdict.word in ("better", "worse") for verdict in report.values()) for report in reports)
    assert false <= 0.05 * 150 + 3 * np.sqrt(0.05 * 0.95 * 150)


def test_methods_at_the_margin_are_rarely_called_equal() -> None:
    rng = np.random.default_rng(2)
    reports = [paired_verdicts({arm: rng.normal(0.005, 0.002, size=5) for arm in range(5)}) for _ in range(200)]
    false = sum(any(verdict.word == "equal" for verdict in report.values()) for report in reports)
    assert false <= 0.05 * 200 + 3 * np.sqrt(0.05 * 0.95 * 200)


@pytest.mark.parametrize(("pairs", "alpha"), [(3, 0.05), (5, 0.05), (5, 0.05 / 8), (10, 0.05)])
def test_the_detectable_effect_is_seen_in_80_percent_of_comparisons(pairs: int, alpha: float) -> None:
    effect = detectable_effect(pairs, alpha)
    samples = np.random.default_rng(3).normal(effect, 1.0, size=(4000, pairs))
    seen = (stats.ttest_1samp(samples, 0.0, axis=1).pvalue < alpha).mean()
    assert seen == pytest.approx(0.80, abs=0.03)


def test_an_inconclusive_verdict_names_the_difference_that_would_have_been_seen() -> None:
    differences = in_points([2.0, -1.5, 0.5, 1.0, -1.0])
    verdict = paired_verdicts({"a": differences})["a"]
    assert verdict.detectable == pytest.approx(differences.std(ddof=1) * detectable_effect(5))
    assert f"below {100 * verdict.detectable:.1f} points" in verdict.in_words


def test_more_comparisons_need_a_larger_difference() -> None:
    differences = in_points([2.0, -1.5, 0.5, 1.0, -1.0])
    alone = paired_verdicts({"a": differences})["a"].detectable
    among_ten = paired_verdicts(dict.fromkeys(range(10), differences))[0].detectable
    assert among_ten > alone


@pytest.mark.parametrize(
    ("seeds", "message"),
    [
        ([1, 1.0], "given twice"),
        ([0, 1, 1], "given twice"),
        ([1.2], "whole number"),
        ([True], "whole number"),
        (["0"], "whole number"),
        ([-1], "whole number"),
        ([float("nan")], "whole number"),
    ],
)
def test_bad_seeds_are_refused(seeds: list[object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_seeds(seeds)


def test_seeds_of_numpy_are_seeds() -> None:
    assert check_seeds(np.arange(3)) == [0, 1, 2]


def test_only_shared_seeds_are_paired() -> None:
    assert paired_differences({0: 0.5, 2: 0.9, 3: 0.1}, {2: 0.4, 0: 0.25}).tolist() == [0.25, 0.5]


@pytest.mark.parametrize("margin", [0.0, -0.1, float("nan")])
def test_a_margin_that_is_not_positive_is_refused(margin: float) -> None:
    with pytest.raises(ValueError, match="margin must be positive"):
        paired_verdicts({}, margin)


def test_scores_that_are_not_finite_are_refused() -> None:
    with pytest.raises(ValueError, match="not all finite"):
        paired_verdicts({"a": [0.1, float("nan"), 0.2]})
