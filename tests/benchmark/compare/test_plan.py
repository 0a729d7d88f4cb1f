"""The plan of a comparison: which runs, in which order, and what is refused."""

from __future__ import annotations

import pytest

from as_lightning.benchmark.compare.plan import ComparisonPlan

TRIALS = {"softmax": [{"lr": 1}, {"lr": 2}], "as_softmax": [{"lr": 1, "delta": 0.1}, {"lr": 2, "delta": 0.2}]}


def test_the_baseline_comes_first_and_is_added_where_it_is_missing() -> None:
    assert ComparisonPlan(["as_speed", "as_softmax"]).methods == ("softmax", "as_speed", "as_softmax")
    assert ComparisonPlan(["as_speed", "softmax"]).methods == ("softmax", "as_speed")


def test_fewer_seeds_than_a_verdict_needs_are_named_before_the_first_run() -> None:
    said = ComparisonPlan(["as_softmax"], seeds=2).too_few_seeds
    assert said == "2 seeds: at least 3 are needed for verdicts and advice, so this comparison ends without them."
    assert ComparisonPlan(["as_softmax"], seeds=3).too_few_seeds is None


def test_every_method_is_tuned_by_the_same_number_of_runs_at_the_full_budget() -> None:
    plan = ComparisonPlan(["as_softmax"], budgets=(0.5, 1), tuning_seeds=2)
    runs = plan.tuning_runs(TRIALS)
    counts = {method: sum(run.method == method for run in runs) for method in plan.methods}
    assert counts == {"softmax": 4, "as_softmax": 4}
    assert {run.budget for run in runs} == {1.0}
    assert [run.method for run in runs[:4]] == ["softmax", "as_softmax"] * 2


def test_a_method_with_one_trial_is_not_tuned() -> None:
    assert ComparisonPlan(["as_softmax"]).tuning_runs({"softmax": [{}], "as_softmax": [{}]}) == []


def test_seeds_take_turns_in_the_final_runs() -> None:
    plan = ComparisonPlan(["as_softmax"], budgets=(0.5, 1), seeds=3)
    runs = plan.final_runs({"softmax": {"lr": 1}, "as_softmax": {"lr": 2}})
    assert [run.seed for run in runs] == [0] * 4 + [1] * 4 + [2] * 4
    assert {(run.method, run.budget) for run in runs[:4]} == {
        (method, budget) for method in plan.methods for budget in (0.5, 1.0)
    }


def test_tuning_seeds_are_not_used_again() -> None:
    plan = ComparisonPlan(["as_softmax"], seeds=5, tuning_seeds=5)
    tuned = {run.seed for run in plan.tuning_runs(TRIALS)}
    assert tuned.isdisjoint(run.seed for run in plan.final_runs({"softmax": {}}))


def test_every_run_has_a_folder_of_its_own() -> None:
    plan = ComparisonPlan(["as_softmax"], budgets=(0.25, 0.5, 1), seeds=3)
    runs = plan.tuning_runs(TRIALS) + plan.final_runs({"softmax": {}, "as_softmax": {}})
    assert len({run.folder for run in runs}) == len(runs)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"budgets": (0, 1)}, r"in \(0, 2\], got 0"),
        ({"budgets": (2.5,)}, r"in \(0, 2\], got 2.5"),
        ({"budgets": ("half",)}, "got 'half'"),
        ({"budgets": ()}, "at least one share"),
        ({"trials": 0}, "trials must be a whole number of at least 1, got 0"),
        ({"trials": 2.5}, "got 2.5"),
        ({"seeds": 0}, "seeds must be at least 1, got 0"),
        ({"seeds": []}, "seeds must be at least one seed"),
        ({"seeds": [1, 1.0]}, "given twice"),
        ({"seeds": "5"}, "a number of seeds or a list"),
        ({"tuning_seeds": 0}, "tuning_seeds must be at least 1"),
        ({"seeds": [3], "tuning_seeds": [3]}, "in seeds and in tuning_seeds"),
        ({"margin": 0}, "margin must be a positive number"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(arguments, message) -> None:
    with pytest.raises(ValueError, match=message):
        ComparisonPlan(**({"methods": ["softmax"]} | arguments))


@pytest.mark.parametrize("methods", ["softmax", []])
def test_methods_must_be_a_list(methods) -> None:
    with pytest.raises(ValueError, match="a list of at least one name"):
        ComparisonPlan(methods)
