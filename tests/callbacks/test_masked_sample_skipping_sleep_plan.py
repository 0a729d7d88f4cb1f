"""The plan of an epoch against the rule written out sample by sample."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import sleep_plan as oracle

from as_lightning.callbacks.sleep_plan import Outcome, SleepPlan

shares = st.sampled_from([0.0, 0.1, 0.3, 0.5, 1.0])


def plan_of(samples: int, max_sleep: int = 4, **settings: Any) -> SleepPlan:
    """A plan with one visit before the first sleep, and bounds that a test sets where it means them."""
    others: dict[str, Any] = {"patience": 1, "min_masked": 0.3, "max_woken": 0.3, "class_floor": 0.05}
    return SleepPlan(samples, max_sleep, **(others | settings))


def plan_after(epochs: list[list[int]], max_sleep: int, *, full: list[int] | None = None, **settings: Any) -> SleepPlan:
    plan = plan_of(len(epochs[0]), max_sleep, **settings)
    for epoch, outcomes in enumerate(epochs, start=1):
        plan.end_epoch(torch.tensor(outcomes), may_sleep=epoch not in (full or ()))
    return plan


@st.composite
def visits_by_the_plan(draw: st.DrawFn) -> dict[str, Any]:
    """Epochs in which each sample that is awake is visited, or left over at an early stop."""
    samples = draw(st.integers(1, 12))
    settings = {
        "max_sleep": draw(st.sampled_from([0, 1, 2, 3, 4, 255])),
        "patience": draw(st.integers(1, 3)),
        "min_masked": draw(shares),
        "max_woken": draw(shares),
        "class_floor": draw(shares),
        "classes": draw(st.lists(st.integers(0, 2), min_size=samples, max_size=samples)),
        "full": draw(st.lists(st.integers(1, 8), max_size=3)),
    }
    epochs: list[list[int]] = []
    for _ in range(draw(st.integers(1, 8))):
        awake = oracle.awake_after(epochs, **settings) if epochs else [True] * samples
        found = draw(st.lists(st.integers(-1, 1), min_size=samples, max_size=samples))
        epochs.append([outcome if taken else -1 for outcome, taken in zip(found, awake, strict=True)])
    return settings | {"epochs": epochs}


@given(visits_by_the_plan())
def test_plan_equals_the_rule_written_out_sample_by_sample(case: dict[str, Any]) -> None:
    expected = oracle.awake_after(**case)
    plan = plan_after(**(case | {"classes": torch.tensor(case["classes"])}))
    assert plan.awake().tolist() == expected


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_the_class_floor_is_the_same_for_every_integer_type_of_the_classes(dtype: torch.dtype) -> None:
    classes = torch.arange(240) % 120  # 119 * 5 levels is beyond what a byte holds
    settings: dict[str, Any] = {"min_masked": 0.0, "class_floor": 0.3}
    epochs = [[int(Outcome.MASKED)] * 240] * 2
    awake = plan_after(epochs, 4, classes=classes.to(dtype), **settings).awake()
    assert awake.tolist() == oracle.awake_after(epochs, 4, classes=classes.tolist(), **settings)
    assert torch.bincount(classes[awake]).tolist() == [1] * 120


@given(visits_by_the_plan(), st.integers(1, 8))
def test_a_plan_goes_on_from_its_saved_state_as_if_it_had_not_been_saved(case: dict[str, Any], after: int) -> None:
    epochs, full = case.pop("epochs"), case.pop("full")
    settings = case | {"classes": torch.tensor(case["classes"])}
    whole = plan_after(epochs, full=full, **settings)
    saved = plan_after(epochs[:after], full=full, **settings).state_dict()
    resumed = plan_of(len(epochs[0]), **settings)
    resumed.load_state_dict(saved)
    for epoch, outcomes in enumerate(epochs[after:], start=after + 1):
        resumed.end_epoch(torch.tensor(outcomes), may_sleep=epoch not in full)
    assert torch.equal(resumed.awake(), whole.awake())


def epochs_left_out(max_sleep: int, epochs: int, **settings: Any) -> str:
    """``.`` for an epoch that leaves out a sample that is always masked, ``#`` for one that takes it."""
    plan, seen = plan_of(1, max_sleep, **settings), ""
    for _ in range(epochs):
        awake = bool(plan.awake())
        seen += "#" if awake else "."
        plan.end_epoch(torch.tensor([Outcome.MASKED if awake else Outcome.NOT_VISITED]))
    return seen


def test_a_sample_that_stays_masked_sleeps_1_2_4_epochs_and_then_the_longest_sleep() -> None:
    assert epochs_left_out(max_sleep=4, epochs=20) == "#.#..#....#....#...."


@pytest.mark.parametrize(("max_sleep", "expected"), [(1, "#.#.#.#."), (3, "#.#..#...#...#"), (0, "#####")])
def test_no_sleep_is_longer_than_the_longest(max_sleep: int, expected: str) -> None:
    assert epochs_left_out(max_sleep, len(expected)) == expected


def test_the_longest_sleep_of_a_byte_is_reached() -> None:
    seen = epochs_left_out(max_sleep=255, epochs=900)
    assert max(len(sleep) for sleep in seen.split("#")) == 255


def test_patience_is_the_number_of_masked_visits_before_the_first_sleep() -> None:
    assert epochs_left_out(max_sleep=4, epochs=12, patience=3) == "###.#..#...."


def test_a_live_visit_wakes_a_sample_and_its_sleep_begins_with_1_again() -> None:
    plan = plan_after([[0], [-1], [0], [-1], [-1], [1]], 4, min_masked=0.0)
    assert plan.awake().tolist() == [True]
    plan.end_epoch(torch.tensor([0]))
    plan.end_epoch(torch.tensor([-1]))
    assert plan.awake().tolist() == [True]


def test_counts_say_which_revisited_samples_were_live() -> None:
    plan = plan_after([[0, 0, 1, 1], [-1, -1, 0, 1]], 1, min_masked=0.0)
    counts = plan.end_epoch(torch.tensor([0, 1, -1, 1]))
    assert counts._asdict() == {"visited": 3, "masked": 1, "revisited": 2, "woken": 1}


def test_an_epoch_that_visits_nothing_counts_nothing() -> None:
    assert tuple(plan_of(3).end_epoch(-torch.ones(3))) == (0, 0, 0, 0)


def test_below_the_least_masked_share_nothing_sleeps() -> None:
    assert plan_after([[0, 0, 1, 1, 1, 1, 1, 1, 1, 1]], 4, min_masked=0.3).awake().all()
    assert plan_after([[0, 0, 0, 1, 1, 1, 1, 1, 1, 1]], 4, min_masked=0.3).awake().sum() == 7


def test_many_woken_samples_halve_the_longest_sleep() -> None:
    plan = plan_of(10, 4, min_masked=0.0, max_woken=0.3)
    plan.end_epoch(torch.zeros(10))
    plan.end_epoch(-torch.ones(10))
    plan.end_epoch(torch.tensor([1] * 3 + [0] * 7))
    assert plan.longest_sleep == 4
    plan.end_epoch(torch.tensor([0] * 3 + [-1] * 7))
    plan.end_epoch(torch.tensor([-1] * 3 + [1] * 4 + [0] * 3))
    assert plan.longest_sleep == 2


def test_the_halved_longest_sleep_never_falls_below_one_epoch() -> None:
    plan = plan_of(1, 1, min_masked=0.0, max_woken=0.0)
    for outcome in [0, -1, 1] * 3:
        plan.end_epoch(torch.tensor([outcome]))
    assert plan.longest_sleep == 1


def test_each_class_keeps_its_floor_of_awake_samples() -> None:
    classes = torch.tensor([0] * 10 + [1] * 5)
    outcomes = torch.tensor([Outcome.MASKED] * 15)
    plan = plan_of(15, 4, min_masked=0.0, classes=classes, class_floor=0.2)
    plan.end_epoch(outcomes)
    assert plan.awake().nonzero().squeeze(-1).tolist() == [0, 1, 10]


@pytest.mark.parametrize(
    ("settings", "error", "named"),
    [
        ({"max_sleep": -1}, ValueError, "max_sleep"),
        ({"max_sleep": 256}, ValueError, "max_sleep"),
        ({"max_sleep": 1.5}, TypeError, "max_sleep"),
        ({"patience": 0}, ValueError, "patience"),
        ({"min_masked": 1.5}, ValueError, "min_masked"),
        ({"max_woken": -0.1}, ValueError, "max_woken"),
        ({"class_floor": "half"}, TypeError, "class_floor"),
        ({"classes": torch.zeros(4, dtype=torch.long)}, ValueError, "classes"),
        ({"classes": torch.zeros(3)}, TypeError, "classes"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(settings: dict[str, Any], error: type, named: str) -> None:
    with pytest.raises(error, match=named):
        plan_of(3, **settings)


def test_the_state_of_another_data_set_is_refused() -> None:
    with pytest.raises(ValueError, match="3 samples, but the data set has 4"):
        plan_of(4).load_state_dict(plan_of(3).state_dict())
