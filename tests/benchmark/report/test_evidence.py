"""How large a comparison must be for advice to switch, on the committed runs and on made-up ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from as_lightning.benchmark.compare.stored_comparison import StoredComparison
from as_lightning.benchmark.report.advice import advice, recommended
from as_lightning.benchmark.report.evidence import detectable, seeds_to_see
from as_lightning.benchmark.report.findings import Findings, findings

DIGITS = Path(__file__).parents[3] / "results" / "digits" / "comparison"


@pytest.fixture(scope="module")
def digits() -> list:
    return StoredComparison.read(DIGITS).comparison.results


def test_twenty_seeds_of_the_digits_advise_no_switch(digits) -> None:
    what = findings(digits, baseline="softmax")
    assert recommended(what) is what.reference


@pytest.mark.parametrize(
    ("seeds", "looks"),
    [
        ((1, 2, 3, 4, 7), "as_softmax (delta 0.03), 6 epochs, looks as good"),
        ((2, 3, 5, 12, 15), "as_softmax (delta 0.03), 6 epochs, looks better"),
    ],
)
def test_five_of_them_whose_verdicts_speak_for_a_switch_by_luck_advise_none(digits, seeds, looks) -> None:
    what = findings([run for run in digits if run.seed in seeds], baseline="softmax")
    assert recommended(what) is what.reference
    assert looks in advice(what)[0]


def test_more_seeds_see_smaller_differences_and_the_stated_number_is_the_first_that_is_enough(digits) -> None:
    what = findings([run for run in digits if run.seed < 5], baseline="softmax")
    seeds = seeds_to_see(what, 0.01)
    assert seeds is not None
    assert detectable(what, seeds) <= 0.01 < detectable(what, seeds - 1)


def test_the_visible_difference_is_that_of_the_comparisons_in_the_middle(digits) -> None:
    what: Findings = findings(digits, baseline="softmax")
    own = sorted(arm.verdict.detectable for arm in what.arms if arm.verdict is not None)
    assert detectable(what) == pytest.approx((own[len(own) // 2 - 1] + own[len(own) // 2]) / 2)


def test_without_verdicts_nothing_is_known(digits) -> None:
    what = findings([run for run in digits if run.seed < 2], baseline="softmax")
    assert detectable(what) is None
    assert seeds_to_see(what, 0.01) is None
