"""The engine, on runs whose scores are written down: what is chosen, what is left out, what is said."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from as_lightning.benchmark.compare.api import comparison_findings
from as_lightning.benchmark.compare.engine import (
    Failure,
    best_validation,
    cost,
    distinct_budgets,
    epochs_of,
    one_by_one,
    run_comparison,
)
from as_lightning.benchmark.compare.plan import ComparisonPlan, Run
from as_lightning.benchmark.compare.search import Range, learning_rates
from as_lightning.benchmark.run.result import Result

SPACES = {
    "softmax": {"lr": learning_rates(0.01)},
    "as_softmax": {"lr": learning_rates(0.01), "delta": Range(0.02, 0.8, default=0.1, log=True)},
}
PLAN = ComparisonPlan(["as_softmax"], budgets=(0.5, 1.0), trials=4, seeds=3)


@pytest.fixture
def scored(result: Callable[..., Result]) -> Callable[..., Callable[[Run], Result]]:
    """A run whose score is a function of the run."""

    def make(score: Callable[[Run], float]) -> Callable[[Run], Result]:
        def run_one(run: Run) -> Result:
            comparison = {"budget": run.budget, "epochs": 6 * run.budget, "settings": dict(run.settings)}
            return result(run.method, run.seed, score(run), config={"comparison": comparison})

        return run_one

    return make


def test_the_trial_of_the_best_mean_validation_score_is_chosen(scored) -> None:
    run_one = scored(lambda run: 0.9 - abs(run.settings["lr"] - 0.003162))
    comparison = run_comparison(PLAN, SPACES, one_by_one(run_one))
    assert {settings["lr"] for settings in comparison.settings.values()} == {0.003162}
    assert {run.config["comparison"]["settings"]["lr"] for run in comparison.results} == {0.003162}


def test_a_loss_is_chosen_by_its_smallest_value(scored) -> None:
    run_one = scored(lambda run: abs(run.settings["lr"] - 0.003162))
    comparison = run_comparison(PLAN, SPACES, one_by_one(run_one), higher_is_better=False)
    assert {settings["lr"] for settings in comparison.settings.values()} == {0.003162}


def test_the_mean_over_tuning_seeds_decides_and_not_the_luckiest_seed(scored) -> None:
    def score(run: Run) -> float:
        lucky = run.trial == 1 and run.seed == 1000
        return 1.0 if lucky else 0.1 if run.trial == 1 else 0.6

    comparison = run_comparison(PLAN, SPACES, one_by_one(scored(score)))
    assert comparison.settings["softmax"] == {"lr": 0.01}


def test_all_final_runs_are_made_once(scored) -> None:
    comparison = run_comparison(PLAN, SPACES, one_by_one(scored(lambda run: 0.5)))
    made = [(run.method, run.config["comparison"]["budget"], run.seed) for run in comparison.results]
    assert len(set(made)) == len(made) == 2 * 2 * 3


def test_one_trial_makes_no_tuning_run(scored) -> None:
    phases = []

    def score(run: Run) -> float:
        phases.append(run.phase)
        return 0.5

    run_comparison(ComparisonPlan(["as_softmax"], trials=1), SPACES, one_by_one(scored(score)))
    assert set(phases) == {"final"}


def test_a_failed_run_is_recorded_and_the_others_go_on(scored) -> None:
    def score(run: Run) -> float:
        if run.phase == "final" and run.seed == 1 and run.method == "as_softmax":
            raise RuntimeError("out of memory")
        return 0.5

    comparison = run_comparison(PLAN, SPACES, one_by_one(scored(score)))
    assert [type(failure) for failure in comparison.failures] == [Failure, Failure]
    assert "RuntimeError: out of memory" in str(comparison.failures[0])
    assert len(comparison.results) == 10
    assert comparison.notes[-1] == "2 of 28 runs have failed and are not in these numbers."


def test_a_trial_with_a_failed_run_is_not_chosen(scored) -> None:
    def score(run: Run) -> float:
        if run.phase == "tuning" and run.trial == 2 and run.seed == 1001:
            raise RuntimeError("diverged")
        return 0.99 if run.trial == 2 else 0.5

    comparison = run_comparison(PLAN, SPACES, one_by_one(scored(score)))
    assert comparison.settings["softmax"] == {"lr": 0.01}


@pytest.mark.parametrize("score", [math.nan, math.inf])
def test_a_final_run_without_a_finite_score_is_a_failure_and_the_others_are_compared(scored, score: float) -> None:
    def diverged(run: Run) -> float:
        lost = run.phase == "final" and run.method == "as_softmax" and run.seed == 1 and run.budget == 1.0
        return score if lost else 0.5 + run.seed / 100

    comparison = run_comparison(PLAN, SPACES, one_by_one(scored(diverged)))
    assert [str(failure).rpartition(": ")[2] for failure in comparison.failures] == [f"its accuracy is {score}"]
    assert comparison.failures[0].run.folder == "runs/as_softmax/budget=1,seed=1"
    assert comparison.notes[-1] == "1 of 28 runs have failed and are not in these numbers."
    arms = comparison_findings(comparison).arms
    assert {(arm.method, arm.budget): arm.seeds for arm in arms} == {
        ("softmax", 1.0): 3,
        ("softmax", 0.5): 3,
        ("as_softmax", 1.0): 2,
        ("as_softmax", 0.5): 3,
    }


def test_a_trial_without_a_finite_validation_is_a_failure_and_not_chosen(scored) -> None:
    def score(run: Run) -> float:
        return math.nan if run.trial == 2 and run.method == "softmax" else 0.5

    comparison = run_comparison(PLAN, SPACES, one_by_one(scored(score)))
    assert [failure.run.trial for failure in comparison.failures] == [2, 2]
    assert comparison.failures[0].error == "no validation has given a finite accuracy"
    assert comparison.settings["softmax"] == {"lr": 0.01}


@pytest.mark.parametrize("position", [0, 1, 2])
@pytest.mark.parametrize(("higher_is_better", "best"), [(True, 0.6), (False, 0.4)])
def test_a_validation_of_nan_counts_for_nothing_wherever_it_stands(
    result, position: int, higher_is_better: bool, best: float
) -> None:
    scores = [0.4, 0.6]
    scores.insert(position, math.nan)
    run = result("softmax", 0, 0.5, evaluations=[{"score": score} for score in scores])
    assert best_validation(run, higher_is_better) == best


def test_a_method_that_never_trains_is_left_out_and_named(scored) -> None:
    def score(run: Run) -> float:
        if run.method == "as_softmax":
            raise RuntimeError("no")
        return 0.5

    comparison = run_comparison(PLAN, SPACES, one_by_one(scored(score)))
    assert "as_softmax is left out: no trial of it has finished." in comparison.notes
    assert {run.method for run in comparison.results} == {"softmax"}


def test_without_a_trial_of_the_baseline_no_final_run_is_made(scored) -> None:
    def score(run: Run) -> float:
        assert run.phase == "tuning"
        if run.method == "softmax":
            raise RuntimeError("no")
        return 0.5

    comparison = run_comparison(PLAN, SPACES, one_by_one(scored(score)))
    assert comparison.results == []
    assert "softmax is left out: no trial of it has finished." in comparison.notes
    assert {failure.run.method for failure in comparison.failures} == {"softmax"}


def test_a_best_learning_rate_at_the_edge_is_said(scored) -> None:
    plan = ComparisonPlan(["as_softmax"], trials=6)
    comparison = run_comparison(plan, SPACES, one_by_one(scored(lambda run: run.settings["lr"])))
    assert any("best lr of softmax, 0.0316, is the largest that was tried" in note for note in comparison.notes)


def test_the_cost_counts_every_run_and_its_budget() -> None:
    # 4 trials x 2 seeds x 2 methods, and 3 seeds x 2 methods at half and whole length
    assert cost(PLAN, SPACES) == (16 + 12, 16 + 3 * 2 * 1.5)


@pytest.mark.parametrize(("budget", "epochs"), [(0.25, 2), (0.5, 3), (1.0, 6), (0.01, 1), (2.0, 12)])
def test_a_budget_is_a_share_of_the_epochs_and_at_least_one(budget: float, epochs: int) -> None:
    assert epochs_of(budget, 6) == epochs


def test_budgets_of_the_same_number_of_epochs_are_one() -> None:
    assert distinct_budgets([0.25, 0.5, 1.0], 1) == [1.0]
    assert distinct_budgets([0.25, 0.5, 1.0], 4) == [0.25, 0.5, 1.0]
