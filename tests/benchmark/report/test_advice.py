"""The advice: one test for each branch of the rule, on made-up runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from as_lightning.benchmark.report.advice import advice, recommended
from as_lightning.benchmark.report.findings import Findings, findings
from as_lightning.benchmark.run.result import Result

BASE = [0.90, 0.91, 0.89, 0.905, 0.895]
SMALL = [0.0004, -0.0003, 0.0001, -0.0002, 0.0]  # around equality
NOISE = [0.02, -0.015, 0.005, 0.01, -0.012]


def shifted(shift: float, spread: list[float] = SMALL) -> list[float]:
    return [score + shift + more for score, more in zip(BASE, spread, strict=True)]


@pytest.fixture
def found(result: Callable[..., Result]) -> Callable[..., Findings]:
    """Findings from ``{(method, budget): (scores, seconds)}``; the full budget has 6 epochs."""

    def make(table: dict[tuple[str, float], tuple[list[float], float]], **options) -> Findings:
        calibration = options.pop("calibration", {})
        runs = []
        for (method, budget), (scores, seconds) in table.items():
            settings = {"lr": 0.01} | ({} if method == "softmax" else {"delta": 0.1})
            config = {"comparison": {"budget": budget, "epochs": 6 * budget, "settings": settings}}
            for seed, score in enumerate(scores):
                run = result(method, seed, score, seconds=seconds * (1 + 0.01 * seed), config=config)
                run.metrics |= calibration.get(method, {})
                runs.append(run)
        return findings(runs, baseline="softmax", **options)

    return make


def test_fewer_epochs_of_the_baseline_that_are_as_good_are_the_advice(found) -> None:
    said = advice(found({("softmax", 1.0): (BASE, 10.0), ("softmax", 0.5): (shifted(0.0), 5.2)}))
    assert said[0] == (
        "Train softmax for 3 epochs in place of 6: as good (equal within 0.5 points), in 0.52 of the time."
    )


def test_a_method_that_is_better_is_the_advice(found) -> None:
    said = advice(found({("softmax", 1.0): (BASE, 10.0), ("as_softmax", 1.0): (shifted(0.02), 10.3)}))
    assert said[0] == (
        "Use as_softmax (delta 0.1), 6 epochs: better than softmax, 6 epochs, by 2.0 points [2.0, 2.0], in 1.03 of the "
        "time."
    )


def test_of_several_better_arms_the_best_is_the_advice(found) -> None:
    what = found(
        {
            ("softmax", 1.0): (BASE, 10.0),
            ("as_softmax", 1.0): (shifted(0.02), 10.0),
            ("as_softmax", 0.5): (shifted(0.01), 5.0),
            ("as_speed", 1.0): (shifted(0.03), 9.0),
        }
    )
    assert (recommended(what).method, recommended(what).budget) == ("as_speed", 1.0)
    assert any("as_softmax, 6 epochs, is better than softmax by 2.0" in sentence for sentence in advice(what))


def test_nothing_better_and_nothing_cheaper_means_stay(found) -> None:
    said = advice(found({("softmax", 1.0): (BASE, 10.0), ("as_softmax", 1.0): (shifted(0.0), 10.0)}))
    assert said[0] == "Stay with softmax, 6 epochs: nothing here is better, and nothing cheaper is shown to be as good."
    assert said[1] == "as_softmax, 6 epochs, makes no difference above 0.0 points, in 1.00 of the time."


def test_a_method_must_be_clearly_cheaper_than_the_baselines_own_cheapest_budget(found) -> None:
    table = {("softmax", 1.0): (BASE, 10.0), ("softmax", 0.5): (shifted(0.0), 5.2)}
    wide = found(table | {("as_speed", 0.5): (shifted(0.0), 4.0)})
    assert recommended(wide).method == "as_speed"
    same = found(table | {("as_speed", 0.5): (shifted(0.0), 5.2)})
    assert recommended(same).method == "softmax"


def test_not_worse_is_said_where_equality_is_not_shown(found) -> None:
    spread = [0.004, 0.008, 0.001, 0.012, 0.0]
    said = advice(found({("softmax", 1.0): (BASE, 10.0), ("as_speed", 0.5): (shifted(0.0, spread), 5.0)}))
    assert "as good as softmax, 6 epochs (not worse by 0.5 points or more), in 0.50 of the time" in said[0]


# three other comparisons, whose differences vary by 1.2 points: what is typical here
VARYING = {(method, 1.0): (shifted(0.0, NOISE), 10.0) for method in ("t_softmax", "entmax", "sparsemax")}


@pytest.mark.parametrize(
    ("arm", "sentence"),
    [
        (
            {("as_softmax", 0.5): (shifted(0.0), 5.0)},
            "Stay with softmax, 6 epochs, for now: as_softmax (delta 0.1), 3 epochs, looks as good (equal within 0.5 "
            "points), in 0.50 of the time, but this comparison is too small to rely on it.",
        ),
        (
            {("softmax", 0.5): (shifted(0.0), 5.0)},
            "Stay with softmax, 6 epochs, for now: softmax, 3 epochs, looks as good (equal within 0.5 points), in 0.50 "
            "of the time, but this comparison is too small to rely on it.",
        ),
        (
            {("as_softmax", 1.0): (shifted(0.02), 10.0)},
            "Stay with softmax, 6 epochs, for now: as_softmax (delta 0.1), 6 epochs, looks better, by 2.0 points [2.0, "
            "2.0], in 1.00 of the time, but this comparison is too small to rely on it.",
        ),
        (
            {("as_softmax", 1.0): (shifted(0.06), 10.0)},
            "Use as_softmax (delta 0.1), 6 epochs: better than softmax, 6 epochs, by 6.0 points [6.0, 6.0], in 1.00 of "
            "the time.",
        ),
    ],
    ids=["as good", "fewer epochs", "better", "much better"],
)
def test_a_spread_that_is_small_by_luck_is_no_reason_to_switch(found, arm, sentence) -> None:
    what = found({("softmax", 1.0): (BASE, 10.0)} | VARYING | arm)
    assert advice(what)[0] == sentence
    assert (recommended(what) is what.reference) == sentence.startswith("Stay")
    assert not any("as_softmax, 6 epochs, is better" in said for said in advice(what)[1:])


@pytest.mark.parametrize(
    ("spread", "sentence"),
    [
        ([20 * value for value in NOISE], "To see differences of 1.0 points would take more than 100 seeds: "),
        (NOISE, "To see differences of 1.0 points, run the comparison again with seeds=20."),
        (
            [0.38 * value for value in NOISE],
            "To see differences of 0.5 points, run the comparison again with seeds=13.",
        ),
    ],
    ids=["hopeless", "large", "small"],
)
def test_an_undecided_comparison_says_what_to_run_next(found, spread, sentence) -> None:
    said = advice(found({("softmax", 1.0): (BASE, 10.0), ("as_softmax", 1.0): (shifted(0.0, spread), 10.0)}))
    assert sentence in said[-1]


def test_a_decided_comparison_asks_for_no_more_runs(found) -> None:
    said = advice(found({("softmax", 1.0): (BASE, 10.0), ("as_softmax", 1.0): (shifted(-0.03), 10.0)}))
    assert not any("run the comparison again" in sentence for sentence in said)


def test_a_worse_method_is_named_with_its_loss(found) -> None:
    said = advice(found({("softmax", 1.0): (BASE, 10.0), ("as_softmax", 1.0): (shifted(-0.03), 10.0)}))
    assert "as_softmax, 6 epochs, is worse than softmax by 3.0 points [3.0, 3.0], in 1.00 of the time." in said
    assert "as_softmax is not shown to reach the score of softmax at any budget." in said


@pytest.mark.parametrize(
    ("shift", "between"),
    [
        (0.0, "up to 1.7 points worse or up to 2.0 points better"),
        (-0.022, "0.2 to 3.9 points worse"),
        (0.019, "0.2 to 3.9 points better"),
    ],
)
def test_an_inconclusive_method_is_said_to_lie_in_the_interval_of_the_table(found, shift, between) -> None:
    table = {("softmax", 1.0): (BASE, 10.0), ("as_softmax", 1.0): (shifted(shift, NOISE), 10.0)}
    # more comparisons to correct for: without them the shifted ones would be decided
    table |= {(f"other_{number}", 1.0): (shifted(0.0, NOISE[::-1]), 10.0) for number in range(4)}
    said = advice(found(table))
    assert f"as_softmax, 6 epochs, may be {between}, in 1.00 of the time: this comparison cannot tell." in said


def test_an_inconclusive_comparison_says_what_it_could_not_have_seen(found) -> None:
    table = {("softmax", 1.0): (BASE, 10.0), ("as_softmax", 1.0): (shifted(0.0, NOISE), 10.0)}
    said = advice(found(table, test_samples=360))
    assert said[-1] == (
        "With 5 seeds and 360 test samples this comparison sees differences of 2.5 points or more, with 80% "
        "probability. Smaller differences may exist. To see differences of 1.0 points, run the comparison again with "
        "seeds=20."
    )


def test_worse_calibration_is_named_with_its_repair(found) -> None:
    calibration = {
        "softmax": {"calibration_error": 0.08, "calibration_error_scaled": 0.04},
        "as_softmax": {"calibration_error": 0.31, "calibration_error_scaled": 0.02},
    }
    table = {("softmax", 1.0): (BASE, 10.0), ("as_softmax", 1.0): (shifted(0.0), 10.0)}
    said = advice(found(table, calibration=calibration))
    assert (
        "The probabilities of as_softmax are worse calibrated (0.31 against 0.08); one temperature, fitted on "
        "validation, brings them to 0.020 against 0.040."
    ) in said
    del calibration["as_softmax"]["calibration_error_scaled"]
    said = advice(found(table, calibration=calibration))
    assert "The probabilities of as_softmax are worse calibrated (0.31 against 0.08)." in said


def test_where_probabilities_are_not_the_softmax_the_repair_is_that_of_the_softmax(found) -> None:
    calibration = {
        "softmax": {"calibration_error": 0.08, "calibration_error_unscaled": 0.08, "calibration_error_scaled": 0.04},
        "entmax": {"calibration_error": 0.31, "calibration_error_unscaled": 0.43, "calibration_error_scaled": 0.02},
    }
    table = {("softmax", 1.0): (BASE, 10.0), ("entmax", 1.0): (shifted(0.0), 10.0)}
    assert (
        "The probabilities of entmax are worse calibrated (0.31 against 0.08); the softmax of its logits at one "
        "temperature, fitted on validation, has 0.020 against 0.040."
    ) in advice(found(table, calibration=calibration))


def test_calibration_that_is_no_worse_is_not_mentioned(found) -> None:
    calibration = {"softmax": {"calibration_error": 0.08}, "as_softmax": {"calibration_error": 0.09}}
    table = {("softmax", 1.0): (BASE, 10.0), ("as_softmax", 1.0): (shifted(0.0), 10.0)}
    assert not any("calibrated" in said for said in advice(found(table, calibration=calibration)))
    calibration["as_softmax"]["calibration_error"] = float("nan")
    assert not any("calibrated" in said for said in advice(found(table, calibration=calibration)))


def test_two_seeds_give_no_advice(found) -> None:
    said = advice(found({("softmax", 1.0): (BASE[:2], 10.0), ("as_softmax", 1.0): ([0.99, 0.98], 10.0)}))
    assert said[0] == "No advice: 2 seeds in common, at least 3 are needed."
    assert said[1] == "as_softmax, 6 epochs, cannot be judged: 2 seeds in common, at least 3 are needed."


def test_equal_scores_in_every_seed_give_no_verdict(found) -> None:
    said = advice(found({("softmax", 1.0): (BASE, 10.0), ("as_softmax", 1.0): (BASE, 10.0)}))
    assert said[0] == "No advice: the scores of every seed are the same."


def test_notes_end_the_advice(found) -> None:
    said = advice(found({("softmax", 1.0): (BASE, 10.0)}, notes=["2 of 45 runs have failed."]))
    assert said[-1] == "2 of 45 runs have failed."


def test_a_loss_that_falls_is_better(found) -> None:
    table = {("softmax", 1.0): (BASE, 10.0), ("as_softmax", 1.0): (shifted(-0.02), 10.0)}
    assert advice(found(table, higher_is_better=False))[0].startswith("Use as_softmax")


def test_a_missing_baseline_is_an_error(found) -> None:
    with pytest.raises(ValueError, match="no run of the baseline 'softmax' has finished"):
        found({("as_softmax", 1.0): (BASE, 10.0)})


def test_the_same_seed_twice_is_an_error(found, result) -> None:
    config = {"comparison": {"budget": 1.0, "epochs": 6, "settings": {}}}
    runs = [result("softmax", seed, 0.9, config=config) for seed in (1, 1.0)]
    with pytest.raises(ValueError, match="softmax at budget 1: seed 1 is given twice"):
        findings(runs, baseline="softmax")


def test_arms_come_baseline_first_and_full_budget_first(found) -> None:
    what = found(
        {
            ("as_softmax", 0.5): (BASE, 5.0),
            ("softmax", 0.5): (BASE, 5.0),
            ("as_softmax", 1.0): (BASE, 10.0),
            ("softmax", 1.0): (BASE, 10.0),
        }
    )
    assert [(arm.method, arm.budget) for arm in what.arms] == [
        ("softmax", 1.0),
        ("softmax", 0.5),
        ("as_softmax", 1.0),
        ("as_softmax", 0.5),
    ]


def test_time_to_score_is_found_for_each_method(found) -> None:
    what = found(
        {
            ("softmax", 1.0): (BASE, 10.0),
            ("softmax", 0.5): (shifted(-0.05), 5.0),
            ("as_speed", 1.0): (shifted(0.0), 9.0),
            ("as_speed", 0.5): (shifted(0.001), 4.5),
        }
    )
    assert what.time_to_score("softmax").time.ratio == 1.0
    assert what.time_to_score("as_speed").budget == 0.5
    assert what.time_to_score("as_speed").time.ratio == pytest.approx(0.45)


def test_without_a_run_of_the_baseline_at_its_full_budget_nothing_is_judged(found) -> None:
    what = found({("softmax", 0.5): (BASE, 5.0), ("as_softmax", 1.0): (shifted(0.02), 10.0)}, full_budget=1.0)
    assert (what.reference.budget, what.reference.epochs, what.reference.seeds) == (1.0, 6.0, 0)
    assert {arm.verdict.word for arm in what.arms if arm.verdict is not None} == {"no verdict"}
    said = advice(what)
    assert said[0] == "No advice: softmax, 6 epochs, which all are compared with, has no finished run."
    assert all("Stay with" not in sentence for sentence in said)
    assert what.time_to_score("softmax") is None
