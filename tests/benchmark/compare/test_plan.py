"""What a comparison may be asked to do, and what it costs."""

from __future__ import annotations

import inspect

import pytest

from as_lightning.benchmark.compare.api import compare
from as_lightning.benchmark.compare.plan import ComparisonPlan, default_settings
from as_lightning.benchmark.compare.search import Range, learning_rates


def plan(*methods: str, epochs: int = 12, **settings) -> ComparisonPlan:
    return ComparisonPlan(methods or ("as_softmax",), **({"baseline": "softmax", "full_epochs": epochs} | settings))


def test_by_default_seeds_are_added_look_by_look_and_the_baseline_alone_has_a_smaller_budget():
    found = plan("as_softmax", "as_speed")
    assert found.candidates == found.design.candidates == ("softmax", "as_softmax", "as_speed")
    assert (found.seeds, found.tuning_seeds) == (tuple(range(20)), (1000, 1001))
    assert (found.budgets_of("softmax"), found.budgets_of("as_speed")) == ((0.5, 1.0), (1.0,))
    assert plan("as_softmax", baseline="as_softmax").candidates == ("as_softmax",)
    assert plan("softmax", "as_softmax", baseline="as_softmax").candidates == ("as_softmax", "softmax")


@pytest.mark.parametrize(
    ("settings", "looks"),
    [
        ({"max_seeds": 5}, (5,)),
        ({"max_seeds": 8}, (5, 6, 7, 8)),
        ({"max_seeds": 20}, tuple(range(5, 21))),
        ({"seeds": 4}, (4,)),
        ({"seeds": [7, 3]}, (2,)),
    ],
)
def test_looks_end_at_the_most_seeds_and_given_seeds_are_one_look(settings, looks):
    assert plan(**settings).design.looks == looks


def test_given_budgets_are_for_all_and_those_of_the_same_epochs_are_one():
    given = plan(budgets=[0.25, 0.5, 1], epochs=2)
    assert given.budgets_of("as_softmax") == given.budgets_of("softmax") == (0.5, 1.0)
    assert plan(epochs=1).budgets_of("softmax") == (1.0,)


def test_the_fewest_and_the_most_runs_are_counted():
    asked, rates = plan("as_softmax", budgets=[0.5, 1], trials=6), {"lr": learning_rates(0.01, 4.0)}
    assert asked.of({"softmax": rates, "as_softmax": rates}).runs() == (12 + 4 + 5 * 3, 12 + 4 + 20 * 4)
    containing = rates | {"delta": Range(0.1, 1.0, default=0.1, neutral=1.0)}
    assert asked.of({"softmax": rates, "as_softmax": containing}).runs() == (12 + 2 + 5 * 2, 12 + 4 + 20 * 4)
    assert asked.runs()[0] == 5 * 3  # nothing is tuned


def test_the_defaults_of_a_comparison_are_stated_once():
    parameters = inspect.signature(compare).parameters
    shared = parameters.keys() & default_settings().keys() - {"methods"}
    assert len(shared) == 10
    assert {parameters[name].default for name in shared} == {None}
    assert default_settings()["trials"] == plan().trials


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"candidates": []}, "methods must be a list of at least one name"),
        ({"candidates": "softmax"}, "methods must be a list of at least one name"),
        ({"candidates": ["entmax", "entmax"]}, "each given once, got"),
        ({"budgets": True}, "got True"),
        ({"candidates": ["softmax"], "budgets": 1}, "nothing is compared with softmax: name another candidate, or a"),
        ({"budgets": [0]}, r"in \(0, 2\].* got 0"),
        ({"budgets": "half"}, "budgets must be a share"),
        ({"budgets": []}, "or a list of at least one"),
        ({"trials": 0}, "trials must be an integer of at least 1"),
        ({"seeds": "some"}, "seeds must be auto, a number of seeds, or a list"),
        ({"seeds": []}, "seeds must be"),
        ({"seeds": [1, 1]}, "a list of different whole numbers"),
        ({"seeds": [-1]}, r"whole numbers of at least 0, got \[-1\]"),
        ({"seeds": [1000]}, "are in seeds and in tuning_seeds"),
        ({"max_seeds": 3}, "max_seeds=3 is outside the looks at 5 to 20 seeds: .* as in seeds=3"),
        ({"max_seeds": 30}, "max_seeds=30 is outside the looks at 5 to 20 seeds: .* as in seeds=30"),
        ({"max_seeds": 5.5}, "max_seeds must be an integer"),
        ({"max_hours": 0}, "max_hours must be a positive number of hours, got 0"),
        ({"equal_within": 0}, "equal_within must be a positive number of points, got 0"),
        ({"equal_within": float("nan")}, "equal_within must be a positive number of points"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(settings, message):
    with pytest.raises((TypeError, ValueError), match=message) as refused:
        ComparisonPlan(**({"candidates": ["as_softmax"], "baseline": "softmax", "full_epochs": 12} | settings))
    assert "\n" not in str(refused.value)
