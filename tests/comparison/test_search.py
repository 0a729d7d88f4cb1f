"""The search: where it begins, where it goes, what it chooses."""

import math
from collections.abc import Callable, Mapping
from itertools import pairwise
from statistics import median
from typing import Any

import pytest

from as_lightning.comparison.search import (
    Choice,
    Range,
    Space,
    best_of,
    finalists,
    learning_rates,
    next_trial,
    setting_range,
)
from as_lightning.report.record import Trial

RATES = {"lr": learning_rates(0.01, 4.0)}
DELTA = Range(0.1, 1.0, default=0.1, limits=(0.0, 1.0))


def searched(
    space: Space, score: Callable[[Mapping[str, Any]], float], count: int = 6
) -> list[Trial]:
    own: list[Trial] = []
    while settings := next_trial(space, own, count, 1.0):
        own.append(Trial(settings, score(settings)))
    return own


def peak(rate: float) -> Callable[[Mapping[str, Any]], float]:
    return lambda settings: -abs(math.log(settings["lr"] / rate))


@pytest.mark.parametrize("rate", [1e-4, 1e-3, 0.004, 0.01, 0.03, 0.3])
def test_the_best_learning_rate_is_followed_beyond_the_edge_and_met_within_a_factor_of_two(
    rate: float,
):
    own = searched(RATES, peak(rate))
    down, up = (pytest.approx(0.01 * 4.0**step, rel=1e-3) for step in (-0.75, 0.75))
    assert own[0].settings["lr"] == 0.01
    assert own[1].settings["lr"] == down
    assert rate < 0.01 or own[2].settings["lr"] == up
    assert len(own) == 6
    best = best_of(own, 1.0)
    assert best is not None
    reached = max(min(rate, 0.01 * 2.82**4), 0.01 / 2.82**4)
    assert 0.5 <= best.settings["lr"] / reached <= 2.0


def test_a_score_that_no_step_improves_is_searched_nearer_and_failed_trials_are_left():
    own = searched(RATES, lambda settings: 1.0 if settings["lr"] > 0.005 else math.nan)
    assert [trial.score for trial in own].count(1.0) == 5
    diverged = searched(RATES, lambda settings: 1.0 if settings["lr"] < 1e-3 else math.nan)
    assert diverged[-1].score == 1.0


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 20])
def test_each_method_makes_the_asked_number_of_trials_and_none_twice(count):
    for space in (RATES, RATES | {"delta": DELTA}, {"width": Range(8, 64, default=16)} | RATES):
        own = searched(space, peak(0.02), count)
        assert len(own) == count
        assert len({tuple(trial.settings.items()) for trial in own}) == count


def test_no_rate_is_tried_again_on_the_way_back():
    space = {"lr": learning_rates(0.001, 4.0), "delta": DELTA}
    own = searched(space, lambda tried: peak(0.004)(tried) - abs(tried["delta"] - 0.3), 12)
    places = sorted((trial.settings["delta"], trial.settings["lr"]) for trial in own)
    for (delta, lower), (other, upper) in pairwise(places):
        assert delta != other or upper > 1.01 * lower


@pytest.mark.parametrize(("trials", "most"), [(5, 0.25), (8, 0.2), (16, 0.02)])
def test_a_knob_whose_best_value_needs_another_rate_is_found_with_it(trials, most):
    space = RATES | {"q": Range(0.1, 0.9, default=0.5, limits=(0.0, 1.0))}
    lost = []
    for place in (-0.8, -0.4, 0.0, 0.4, 0.8):

        def ridge(settings: Mapping[str, Any], place: float = place) -> float:
            rate, knob = math.log(settings["lr"] / 0.01, 4), settings["q"] - 0.5
            return -((rate - place - 2 * knob) ** 2) - 4 * (knob + place / 4) ** 2

        lost.append(-max(trial.score for trial in searched(space, ridge, trials)))
    assert median(lost) < most


def test_a_knob_whose_best_value_is_the_smallest_goes_below_it_and_not_beyond_its_limit():
    own = searched(RATES | {"delta": DELTA}, lambda settings: -settings["delta"], count=12)
    assert 0.0 < min(trial.settings["delta"] for trial in own) < 0.1
    own = searched(RATES | {"delta": DELTA}, lambda settings: settings["delta"], count=12)
    assert 0.8 < max(trial.settings["delta"] for trial in own) < 1.0
    for default in (1e-2, 0.0):  # which has no logarithm
        decay = {"decay": Range(1e-3, 0.5, default, log=True, limits=(0.0, 1.0))}
        tried = [
            trial.settings["decay"]
            for trial in searched(decay, lambda settings: settings["decay"], count=12)
        ]
        assert 0.5 < max(tried) < 1.0
    within = searched({"x": Range(1.0, 2.0, default=1.0)}, lambda settings: settings["x"], count=12)
    assert all(1.0 <= trial.settings["x"] <= 2.0 for trial in within)


def test_whole_numbers_stay_whole():
    own = searched({"width": Range(16, 64, default=16)}, lambda settings: settings["width"], 6)
    assert {type(trial.settings["width"]) for trial in own} == {int}
    assert own[-1].settings["width"] > 50


def test_every_value_of_a_choice_is_tried_once_before_the_learning_rates_move():
    own = searched(RATES | {"k": Choice((2, 3, 5), 5)}, lambda settings: settings["k"])
    assert [trial.settings["k"] for trial in own[:3]] == [5, 2, 3]
    assert all(trial.settings["k"] == 5 for trial in own[3:5])
    # which is not listed
    own = searched(RATES | {"k": Choice((2, 3), 5)}, lambda settings: settings["k"])
    assert sum(trial.settings["k"] == 5 for trial in own) > 1
    lists = [[1, 1], [1, 2], [1, 3], [2, 1], [3, 1]]
    tried = searched({"weight": setting_range(lists)}, lambda settings: settings["weight"][0])
    assert sorted(trial.settings["weight"] for trial in tried) == lists


def test_every_learning_rate_of_a_list_is_tried_before_other_settings():
    rates = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
    listed = {"lr": Choice(rates, rates[0])}
    for space in (listed, listed | {"m": Range(0.1, 0.5, default=0.35)}):
        own = searched(space, peak(3e-3), count=5)
        assert sorted(trial.settings["lr"] for trial in own) == list(rates)
    three = {"lr": Choice(rates[:3], rates[0]), "order": Choice((2, 4, 6), 2)}
    own = searched(
        three, lambda settings: settings["order"] - abs(math.log(settings["lr"] / 3e-4)), count=5
    )
    found = [tuple(trial.settings.values()) for trial in own]
    assert found == [(1e-4, 2), (3e-4, 2), (1e-3, 2), (3e-4, 4), (3e-4, 6)]


def test_of_equal_scores_the_first_is_chosen_and_none_that_has_failed():
    trials = [
        Trial({"lr": lr}, score) for lr, score in ((0, math.nan), (1, 0.4), (2, 0.5), (3, 0.5))
    ]
    assert best_of(trials, 1.0) is trials[2]
    assert best_of(trials, -1.0) is trials[1]
    assert best_of(trials[:1], 1.0) is None


def test_two_trials_are_repeated_and_one_of_them_is_chosen_though_another_was_luckier_in_its_one_seed():
    trials = [
        Trial({"lr": lr}, score) for lr, score in ((1, 0.7), (2, 0.9), (3, math.nan), (4, 0.8))
    ]
    assert finalists(trials, 1.0) == [trials[1], trials[3]]
    assert finalists(trials, -1.0) == [trials[0], trials[3]]
    repeated = [
        Trial({"lr": 2}, 0.6, by_seed=[0.9, 0.3]),
        Trial({"lr": 4}, 0.65, by_seed=[0.8, 0.5]),
    ]
    assert best_of([trials[0], repeated[0], trials[2], repeated[1]], 1.0) is repeated[1]


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ({"low": 1, "high": 0}, "low < high"),
        ({"low": 0, "high": 1, "log": True}, "low > 0"),
        ({"lowest": 0, "high": 1}, "expected {low, high"),
        ("0.1", "expected {low, high"),
        ([int, float], "Object of type type is not JSON"),
        ({"low": 0, "high": 1, "neutral": 1}, "unexpected keyword argument .neutral"),
        ([], "list index out of range"),
    ],
)
def test_a_range_that_is_none_is_refused(description, message):
    with pytest.raises(ValueError, match=message):
        setting_range(description, 0.5)
