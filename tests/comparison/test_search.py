"""The search: what it spans, where it goes, what it shares, what it chooses."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from omegaconf import OmegaConf

from as_lightning.comparison.methods import knobs, method_config
from as_lightning.comparison.search import (
    Choice,
    Range,
    Space,
    as_neutral,
    best_of,
    finalists,
    learning_rates,
    next_trials,
    setting_range,
)
from as_lightning.report.record import Trial

RATES = {"lr": learning_rates(0.01, 4.0)}
DELTA = Range(0.1, 1.0, default=0.1, neutral=1.0, limits=(0.0, 1.0))


def searched(
    space: Space,
    score: Callable[[Mapping[str, Any]], float],
    count: int = 6,
    shared: list[Trial] | None = None,
) -> list[Trial]:
    own: list[Trial] = []
    while proposed := next_trials(space, own, shared or [], count, 1.0):
        own += [Trial(settings, score(settings), 0.0) for settings in proposed]
    return own


def peak(rate: float) -> Callable[[Mapping[str, Any]], float]:
    return lambda settings: -abs(math.log(settings["lr"] / rate))


@pytest.mark.parametrize("rate", [1e-4, 1e-3, 0.004, 0.01, 0.03, 0.3])
def test_the_best_learning_rate_is_followed_beyond_the_edge_and_met_within_a_factor_of_two(
    rate: float,
):
    own = searched(RATES, peak(rate))
    # the default, a factor to each side
    assert [trial.settings["lr"] for trial in own[:3]] == [0.01, 0.0025, 0.04]
    assert len(own) == 6
    best = best_of(own, 1.0)
    assert best is not None
    reached = max(min(rate, 0.01 * 4**4), 0.01 / 4**4)
    assert 0.5 <= best.settings["lr"] / reached <= 2.0


def test_what_is_worse_than_most_is_not_tried_again_though_most_have_the_best_score():
    own = searched(RATES, lambda settings: 1.0 if settings["lr"] > 0.005 else math.nan)
    assert [trial.score for trial in own].count(1.0) == 5


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
def test_each_method_makes_the_asked_number_of_trials_and_none_twice(count):
    for space in (RATES, RATES | {"delta": DELTA}):
        own = searched(space, peak(0.02), count)
        assert len(own) == count
        assert len({tuple(trial.settings.items()) for trial in own}) == count


def test_a_method_that_contains_the_baseline_begins_at_its_best_rate_and_its_knob_reaches_the_neutral_value():
    space = RATES | {"delta": DELTA}
    shared = [
        as_neutral(space, trial)
        for trial in searched(RATES, lambda settings: 1.0 + peak(0.04)(settings))
    ]
    own = searched(space, lambda settings: settings["delta"], shared=shared)
    assert {trial.settings["lr"] for trial in own[:2]} == {0.04}
    assert [trial.settings["delta"] for trial in own[:2]] == [0.1, 0.55]
    assert max(trial.settings["delta"] for trial in own) > 0.8
    assert not any(trial.settings["delta"] == 1.0 or trial.shared for trial in own)
    assert all(trial.settings["delta"] == 1.0 and trial.shared for trial in shared)
    # a knob that both tune keeps its value
    decay = space | {"decay": Choice([0.0, 0.1], default=0.0)}
    both = as_neutral(decay, Trial({"lr": 0.01, "decay": 0.1}, 1.0))
    assert both.settings == {"lr": 0.01, "decay": 0.1, "delta": 1.0}


def test_a_knob_whose_best_value_needs_another_rate_than_the_baseline_is_found_with_it():
    def ridge(settings: Mapping[str, Any]) -> float:
        rate, knob = math.log2(settings["lr"] / 0.01), settings.get("q", 0.0)
        return -((rate - 4 * knob) ** 2) / 6 - 8 * (0.8 - knob) ** 2

    space = RATES | {"q": Range(0.1, 0.9, default=0.5, neutral=0.0, limits=(0.0, 1.0))}
    shared = [as_neutral(space, trial) for trial in searched(RATES, ridge, 5)]
    assert max(trial.score for trial in searched(space, ridge, 8, shared)) > -0.05


def test_a_knob_whose_best_value_is_the_smallest_goes_below_it_and_not_beyond_its_limit():
    own = searched(RATES | {"delta": DELTA}, lambda settings: -settings["delta"], count=12)
    assert 0.0 < min(trial.settings["delta"] for trial in own) < 0.1
    for default in (1e-2, 0.0):  # which has no logarithm
        decay = {"decay": Range(1e-3, 0.5, default, log=True, limits=(0.0, 1.0))}
        tried = [
            trial.settings["decay"]
            for trial in searched(decay, lambda settings: settings["decay"], count=12)
        ]
        assert 0.5 < max(tried) < 1.0


def test_every_value_of_a_choice_is_tried_once_before_the_learning_rates_move():
    own = searched(
        RATES | {"k": Choice((2, 3, 5), 5, neutral="all")}, lambda settings: settings["k"]
    )
    assert sorted(trial.settings["k"] for trial in own[:3]) == [2, 3, 5]
    assert all(trial.settings["k"] == 5 for trial in own[3:5])
    # which is not listed
    own = searched(RATES | {"k": Choice((2, 3), 5)}, lambda settings: settings["k"])
    assert sum(trial.settings["k"] == 5 for trial in own) > 1
    lists = [[1, 1], [1, 2], [1, 3], [2, 1], [3, 1]]
    tried = searched({"weight": setting_range(lists)}, lambda settings: settings["weight"][0])
    assert sorted(trial.settings["weight"] for trial in tried) == lists


def test_every_learning_rate_of_a_list_is_tried_unless_the_baseline_has_tried_it():
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
    contains = listed | {"delta": DELTA}
    shared = [as_neutral(contains, trial) for trial in searched(listed, peak(3e-3), count=5)]
    first = searched(contains, peak(3e-3), count=5, shared=shared)[:2]
    assert {trial.settings["lr"] for trial in first} == {3e-3}


def test_as_speed_that_gathers_batches_without_a_masked_sample_contains_no_softmax():
    config = method_config("as_speed")
    assert knobs(config, ())["delta"].neutral == 1.0
    config.scale = 1.5  # rounds to two batches
    assert knobs(config, ())["delta"].neutral is None
    config.max_steps = 1
    assert knobs(config, ())["delta"].neutral == 1.0


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
    ("methods", "knob", "neutral"),
    [
        (["as_softmax", "as_speed", "multilabel_as_softmax"], "delta", 1.0),
        (["label_smoothing"], "smoothing", 0.0),
        (["t_softmax"], "tau", 1.0),
        (["entmax"], "alpha", 1.0),
        (["sparse_softmax"], "k", "all"),
    ],
)
def test_the_configured_methods_that_contain_softmax_name_where_they_do(methods, knob, neutral):
    for config in map(method_config, methods):
        found = setting_range(OmegaConf.to_container(config.search[knob]), config[knob])
        values = found.spread(3)
        assert (found.neutral, values[0]) == (neutral, config[knob])
        assert neutral not in values


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ({"low": 1, "high": 0}, "low < high"),
        ({"low": 0, "high": 1, "log": True}, "low > 0"),
        ({"lowest": 0, "high": 1}, "expected {low, high"),
        ("0.1", "expected {low, high"),
        ([int, float], "Object of type type is not JSON"),
        ({"low": 0, "high": 1, "neutral": "all"}, "a number as neutral"),
        ({"values": []}, "list index out of range"),
    ],
)
def test_a_range_that_is_none_is_refused(description, message):
    with pytest.raises(ValueError, match=message):
        setting_range(description, 0.5)
