"""Skipping by a criterion beside what saves as many passes: skipping at random, and fewer epochs of softmax."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from as_lightning.benchmark.published.compared_data_sets import (
    against_control,
    control_sentence,
    counted,
    over_all,
    over_all_in_short,
)
from as_lightning.benchmark.published.equal_time import at_equal_time, equal_time_lines, equal_time_sentence
from as_lightning.benchmark.published.saved_time import aim_sentence, saved_time_lines
from as_lightning.benchmark.report.findings import Findings, findings, left_out
from as_lightning.benchmark.report.verdicts import Verdict
from as_lightning.benchmark.run.result import Result

Runs = Callable[..., list[Result]]


@pytest.fixture
def runs(result: Callable[..., Result]) -> Runs:
    """Runs of an arm, whose scores vary between the seeds."""

    def make(
        method: str,
        scores: Sequence[float],
        *,
        awake: int = 60,
        backward: int | None = None,
        budget: float = 1.0,
        seconds: float = 1.0,
        like: str = "",
    ) -> list[Result]:
        return [
            result(
                method,
                seed,
                score,
                seconds=seconds,
                skipping=[
                    {"samples": 100, "awake": awake, "visits": awake}
                    | ({} if backward is None else {"backward": backward})
                ],
                config={
                    "method": {"like": f"folder/runs/{like}/budget={budget},seed={seed}"} if like else {},
                    "comparison": {"budget": budget, "epochs": 4 * budget, "settings": {}},
                },
            )
            for seed, score in enumerate(scores)
        ]

    return make


def test_a_control_is_compared_with_the_method_that_it_follows_alone(runs: Runs) -> None:
    control = runs("random_skip", [0.70, 0.71, 0.73], like="softmax_skip")
    others = [*runs("as_skip", [0.8, 0.82, 0.81]), *runs("infobatch", [0.6, 0.62, 0.61])]
    (found,) = against_control([*runs("softmax_skip", [0.9, 0.91, 0.92]), *others, *control])
    assert set(found.methods) == {"random_skip", "softmax_skip"}
    assert "`softmax_skip`" in control_sentence([found])
    assert "of 1 comparisons" in control_sentence([found])
    assert against_control([*others, *control]) == []


def test_verdicts_against_chance_are_corrected_for_all_budgets(runs: Runs) -> None:
    level = [0.80, 0.82, 0.81, 0.84, 0.83]
    close = [score + more for score, more in zip(level, [-0.006, -0.003, 0.0, 0.003, 0.006], strict=True)]

    def words(budgets: Sequence[float]) -> list[str]:
        made = [
            run
            for budget in budgets
            for run in (
                *runs("softmax_skip", close, budget=budget),
                *runs("random_skip", level, like="softmax_skip", budget=budget),
            )
        ]
        return [arm.verdict.word for found in against_control(made) for arm in found.arms if arm.verdict]

    assert words([1.0]) == ["equal"]
    assert words([1.0, 0.5]) == ["inconclusive", "inconclusive"]


def test_comparisons_without_a_verdict_are_counted_by_their_reasons() -> None:
    same = Verdict("no verdict", 5, 0.005, reason="the scores of every seed are the same")
    few = Verdict("no verdict", 2, 0.005, reason="2 seeds in common, at least 3 are needed")
    assert counted([same]).endswith(" No verdict in 1: the scores of every seed are the same.")
    assert counted([same, few, same]).endswith(
        " No verdict in 3: 2 seeds in common, at least 3 are needed (1); the scores of every seed are the same (2)."
    )
    assert "erdict" not in counted([Verdict("better", 5, 0.005)])


def test_a_method_that_leaves_out_nothing_is_not_compared_with_chance(runs: Runs) -> None:
    control = runs("random_skip", [0.70, 0.71, 0.73], like="softmax_skip")
    assert against_control([*runs("softmax_skip", [0.9, 0.91, 0.92], awake=100), *control]) == []


def test_a_control_that_follows_no_method_is_compared_with_none(runs: Runs) -> None:
    assert against_control([*runs("softmax_skip", [0.9, 0.91, 0.92]), *runs("random_skip", [0.70, 0.71, 0.73])]) == []


def test_skipping_is_compared_with_what_softmax_reaches_in_the_same_time(runs: Runs) -> None:
    softmax = [
        *runs("softmax", [0.60, 0.61, 0.62], awake=100, budget=0.5, seconds=5.0),
        *runs("softmax", [0.80, 0.81, 0.82], awake=100, seconds=10.0),
    ]
    skipping = runs("as_skip", [0.720, 0.731, 0.742], seconds=7.5)  # softmax in that time: 0.70, 0.71, 0.72
    (row,) = at_equal_time([*softmax, *skipping], "softmax", margin=0.005)
    assert (row.method, row.epochs, row.time) == ("as_skip", 4.0, pytest.approx(0.75))
    assert row.baseline_score == pytest.approx(0.71)
    assert row.verdict.word == "better"
    assert row.verdict.difference == pytest.approx(0.021)
    assert "better in 1 of 1 comparisons" in equal_time_sentence([row])
    assert any(line.startswith("| set | 4 | as_skip | 0.75 | 71.00 | +2.10 [") for line in equal_time_lines([row]))


def test_no_row_for_what_leaves_out_nothing_or_is_shorter_than_all_of_softmax(runs: Runs) -> None:
    softmax = [
        *runs("softmax", [0.60, 0.61, 0.62], awake=100, budget=0.5, seconds=5.0),
        *runs("softmax", [0.80, 0.81, 0.82], awake=100, seconds=10.0),
    ]
    full = runs("as_softmax", [0.72, 0.731, 0.742], awake=100, seconds=7.5)
    short = runs("as_skip", [0.72, 0.731, 0.742], seconds=4.0)
    assert at_equal_time([*softmax, *full, *short], "softmax", margin=0.005) == []
    assert equal_time_lines([]) == []


@pytest.mark.parametrize(("backward", "share"), [(None, 0.0), (100, 0.0), (45, 0.55)])
def test_a_backward_pass_that_is_not_taken_is_left_out_also_where_no_sample_sleeps(
    runs: Runs, backward: int | None, share: float
) -> None:
    assert left_out(runs("as_skip_backward", [0.7, 0.8], awake=100, backward=backward)) == pytest.approx(share)
    assert left_out(runs("as_skip_both", [0.7], awake=60, backward=50)) == pytest.approx(0.5)


def test_a_data_set_where_a_method_skips_nothing_is_no_evidence_on_skipping(runs: Runs) -> None:
    def found(awake: int) -> Findings:
        made = [*runs("softmax", [0.8, 0.81, 0.82], awake=100), *runs("as_skip", [0.7, 0.71, 0.72], awake=awake)]
        for run in made:
            run.skipping = run.skipping if run.method == "as_skip" else []
        return findings(made, baseline="softmax")

    (line,) = over_all([found(60), found(70), found(80), found(100)])
    assert line.startswith("`as_skip` over 3 data sets: ")
    (line,) = over_all_in_short([found(60), found(70), found(80), found(100)])
    assert line.startswith("Over 3 data sets where they leave out at least 1% of the passes, the probabilities of")
    assert over_all([found(60), found(70), found(100)]) == []


def test_a_data_set_counts_for_the_aim_if_its_time_is_short_enough_and_its_score_no_lower_than_the_margin(
    runs: Runs,
) -> None:
    level = [0.80, 0.82, 0.81]
    softmax = runs("softmax", level, awake=100, seconds=10.0)
    kept = [score - 0.004 for score in level]
    lower = [score - 0.006 for score in level]
    compared = [
        findings([*softmax, *runs("as_skip", scores, seconds=seconds)], baseline="softmax", margin=0.005)
        for scores, seconds in ((kept, 6.0), (kept, 8.5), (kept, 8.6), (lower, 5.0))
    ]
    arms = [(found, found.of("as_skip")[0]) for found in compared]
    assert "`as_skip` misses it: at most 0.60 on 1 (" in aim_sentence("as_skip", arms)
    assert "at most 0.85 on 1 (" in aim_sentence("as_skip", arms)
    assert "reaches" in aim_sentence("as_skip", [*[arms[0]] * 3, *[arms[1]] * 2])
    assert "reaches" in aim_sentence("as_skip", [arms[0]] * 5)
    assert "misses" in aim_sentence("as_skip", [*[arms[0]] * 2, *[arms[1]] * 3])


def test_the_table_of_saved_time_has_each_method_that_skips_by_a_criterion(runs: Runs) -> None:
    level = [0.80, 0.82, 0.81]
    plain = runs("softmax", level, awake=100, seconds=10.0)
    found = findings([*plain, *runs("as_skip", level), *runs("random_skip", level)], baseline="softmax")
    (row,) = [line for line in saved_time_lines([found]) if "as_skip |" in line]
    assert "| 40% | 0.10" in row
    assert not [line for line in saved_time_lines([found]) if "random_skip" in line]
    assert saved_time_lines([findings(plain, baseline="softmax")]) == []
