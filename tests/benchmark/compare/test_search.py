"""The settings that are tried."""

from __future__ import annotations

import pytest

from as_lightning.benchmark.compare.search import Choice, Range, at_edge, learning_rates, setting_range, trials

SPACE = {"lr": learning_rates(0.01), "delta": Range(0.02, 0.8, default=0.1, log=True)}


def test_the_first_trial_is_the_defaults() -> None:
    assert trials(SPACE, 5)[0] == {"lr": 0.01, "delta": 0.1}


def test_methods_with_a_knob_are_tried_at_the_same_learning_rates() -> None:
    alone = [trial["lr"] for trial in trials({"lr": learning_rates(0.01)}, 8)]
    assert [trial["lr"] for trial in trials(SPACE, 8)] == alone


@pytest.mark.parametrize("count", [1, 2, 6, 20])
def test_as_many_different_trials_as_were_asked_for(count: int) -> None:
    tried = trials(SPACE, count)
    assert len({tuple(trial.items()) for trial in tried}) == len(tried) == count


def test_trials_lie_in_their_ranges_and_cover_both_halves() -> None:
    tried = trials(SPACE, 9)[1:]
    assert all(0.001 <= trial["lr"] <= 0.1 and 0.02 <= trial["delta"] <= 0.8 for trial in tried)
    for name, middle in (("lr", 0.01), ("delta", 0.126)):
        assert 2 <= sum(trial[name] < middle for trial in tried) <= 6


def test_a_choice_has_no_more_trials_than_values() -> None:
    assert trials({"noise": Choice(("normal", "logistic"), "normal")}, 6) == [
        {"noise": "normal"},
        {"noise": "logistic"},
    ]


def test_every_value_of_a_choice_is_tried_once_before_one_is_tried_again() -> None:
    margins = (0.05, 0.1, 0.2, 0.3, 0.4, 1.0)
    space = {"lr": learning_rates(0.01), "delta": Choice(margins, 0.05)}
    assert sorted(trial["delta"] for trial in trials(space, 6)) == list(margins)
    assert all([trial["delta"] for trial in trials(space, 12)].count(margin) == 2 for margin in margins)


def test_nothing_to_tune_is_one_trial() -> None:
    assert trials({}, 6) == [{}]


def test_whole_numbers_stay_whole() -> None:
    values = {trial["k"] for trial in trials({"k": Range(2, 20, default=5, log=True, whole=True)}, 8)}
    assert all(isinstance(value, int) and 2 <= value <= 20 for value in values)


def test_the_best_at_the_edge_is_named() -> None:
    tried = trials(SPACE, 6)
    largest = max(tried, key=lambda trial: trial["lr"])
    assert "lr" in at_edge(SPACE, tried, largest)
    assert at_edge(SPACE, tried, tried[0]) == []


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ({"low": 1, "high": 0}, "low < high"),
        ({"low": 0, "high": 1, "log": True}, "low > 0"),
        ({"lowest": 1}, "expected {low, high, log, whole}"),
        ("wide", "a range"),
        ([], "a range"),
    ],
)
def test_a_range_that_cannot_be_is_refused(description, message) -> None:
    with pytest.raises(ValueError, match=message):
        setting_range(description, default=1)


def test_a_learning_rate_of_zero_cannot_be_tuned() -> None:
    with pytest.raises(ValueError, match="must be positive"):
        learning_rates(0.0)
