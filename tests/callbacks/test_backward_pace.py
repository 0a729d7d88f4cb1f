"""When a search pays: the rule, and the pace that measures by a clock that is given to it."""

from __future__ import annotations

import pytest

from as_lightning.callbacks.backward_pace import (
    FIRST_DECISION,
    ROUND,
    ROUND_WHILE_ACTIVE,
    WARM_UP,
    BackwardPace,
    StepTimes,
    fixed_seconds,
    round_length,
    skipping_pays,
)


@pytest.mark.parametrize(
    ("search", "whole", "fixed", "live_share", "active", "pays"),
    [
        (1.0, 3.0, 0.0, 0.0, False, True),
        (1.0, 3.0, 0.0, 0.5, False, True),  # 2.5 of 3
        (1.0, 3.0, 0.0, 0.61, False, True),  # 2.83 of 3: saves more than 5%
        (1.0, 3.0, 0.0, 0.63, False, False),  # 2.89: saves less
        (1.0, 3.0, 0.0, 0.63, True, True),  # but goes on
        (1.0, 3.0, 0.0, 0.67, True, False),  # 3.01
        (1.0, 3.0, 0.0, 1.0, False, False),
        (1.0, 3.0, 1.0, 0.5, False, False),  # 3.0: a third does not shrink
        (1.0, 3.0, 1.0, 0.2, False, True),  # 2.4
        (3.0, 3.0, 0.0, 0.0, False, False),  # the search costs what it can save
        (3.0, 3.0, 0.0, 0.0, True, False),
        (0.0, 3.0, 3.0, 0.0, False, False),  # nothing shrinks
        (0.0, 0.0, 0.0, 0.0, False, False),  # a clock that stands still
    ],
)
def test_a_search_pays_where_what_it_saves_is_more_than_it_costs(
    search: float, whole: float, fixed: float, live_share: float, active: bool, pays: bool
) -> None:
    assert skipping_pays(StepTimes(search, whole, fixed), live_share, active) is pays


@pytest.mark.parametrize(
    ("whole", "narrowed", "share", "fixed"),
    [(4.0, 2.0, 0.5, 0.0), (4.0, 3.0, 0.5, 2.0), (4.0, 4.5, 0.5, 4.0), (4.0, 0.5, 0.5, 0.0), (4.0, 1.0, 0.0, 1.0)],
)
def test_the_fixed_part_of_a_step_is_where_the_line_through_two_batches_begins(
    whole: float, narrowed: float, share: float, fixed: float
) -> None:
    assert fixed_seconds(whole, narrowed, share) == pytest.approx(fixed)


def test_measuring_costs_at_most_its_price_while_nothing_is_narrowed() -> None:
    for search in (0.01, 0.3, 1.0, 3.0):
        times = StepTimes(search, whole=1.0)
        assert search / round_length(times, active=False) <= 0.02
        assert round_length(times, active=False) >= ROUND
        assert round_length(times, active=True) == ROUND_WHILE_ACTIVE


class Training:
    """Batches on a clock of its own: what a search costs, a whole step, and the share of live samples."""

    def __init__(
        self, search: float, whole: float, fixed: float = 0.0, live_share: float = 0.5, looks: bool = False
    ) -> None:
        self.looks = looks
        self.now, self.search, self.whole, self.fixed, self.live_share = 0.0, search, whole, fixed, live_share
        self.pace = BackwardPace(clock=lambda: self.now)

    def batch(self) -> bool:
        searched = self.pace.start()
        share = 1.0
        if searched:
            share = self.live_share
            self.now += self.search
            self.pace.found(share)
        elif self.looks and self.pace.measures_whole:
            self.pace.looked(self.live_share)
        self.now += self.fixed + (self.whole - self.fixed) * share
        self.pace.finish()
        return searched

    def batches(self, count: int) -> list[bool]:
        return [self.batch() for _ in range(count)]


def test_it_is_on_after_three_rounds_in_which_it_pays_and_off_after_it_does_not() -> None:
    training = Training(search=1.0, whole=4.0)
    first = WARM_UP + (FIRST_DECISION - 1) * ROUND
    searched = training.batches(first + 2 + 100)
    assert sum(searched[: first + 2]) == FIRST_DECISION
    assert searched[first + 2 :].count(False) <= 100 // ROUND_WHILE_ACTIVE + 1
    training.live_share = 1.0
    training.batches(5 * ROUND_WHILE_ACTIVE)
    assert not training.pace.active
    assert sum(training.batches(100)) <= 100 * 0.08  # 1 in 13 at a price of a quarter each


def test_it_stays_off_where_it_never_pays_and_costs_two_percent_at_most() -> None:
    training = Training(search=1.5, whole=4.0, live_share=0.9)
    training.batches(WARM_UP + ROUND)
    before = training.now
    training.batches(600)
    assert not training.pace.active
    assert (training.now - before) / (600 * 4.0) <= 1.02


def test_no_search_is_made_while_the_whole_batch_shows_that_it_would_not_pay() -> None:
    training = Training(search=1.0, whole=4.0, live_share=0.95, looks=True)
    searched = training.batches(WARM_UP + 20 * ROUND)
    assert sum(searched) == FIRST_DECISION  # what a search costs has to be measured
    training.live_share = 0.5
    training.batches(ROUND + 2)
    assert training.pace.active


def test_wrong_measurements_of_what_does_not_shrink_do_not_end_the_searches() -> None:
    training = Training(search=1.0, whole=4.0, fixed=4.0, live_share=0.5, looks=True)
    training.batches(WARM_UP + 5 * ROUND)
    assert training.pace.times is not None
    assert training.pace.times.fixed == 4.0
    training.fixed = 0.0
    training.batches(4 * ROUND)
    assert training.pace.active


def test_all_ranks_agree_on_whether_a_search_may_pay() -> None:
    training = Training(search=1.0, whole=4.0, live_share=0.95, looks=True)
    others = 0.0  # the share of the other rank

    def mean(numbers: list[float]) -> list[float]:
        return [(numbers[0] + others) / 2] if len(numbers) == 1 else numbers

    training.pace = BackwardPace(clock=lambda: training.now, mean_over_ranks=mean)
    assert sum(training.batches(WARM_UP + 3 * ROUND)) == 3
    others = 1.0
    assert sum(training.batches(WARM_UP + 3 * ROUND)) <= 1


def test_one_wrong_measurement_does_not_switch_it() -> None:
    training = Training(search=1.0, whole=4.0, live_share=0.95)
    training.batches(WARM_UP)
    training.whole = 400.0  # the clock of one batch is wrong
    training.batch()
    training.whole = 4.0
    training.batches(10 * ROUND)
    assert not training.pace.active


def test_the_part_that_does_not_shrink_is_learned() -> None:
    training = Training(search=1.0, whole=4.0, fixed=3.5, live_share=0.1)
    training.batches(WARM_UP + 10 * ROUND)
    assert training.pace.times == StepTimes(search=1.0, whole=4.0, fixed=pytest.approx(3.5))
    assert not training.pace.active


def test_a_batch_that_computes_no_loss_is_not_measured() -> None:
    training = Training(search=1.0, whole=4.0)
    training.batches(WARM_UP)
    for _ in range(5):
        assert not training.pace.start()
        training.now += 100.0
        training.pace.skip()
    training.batches(2)
    assert training.pace.times is not None
    assert training.pace.times.whole == 4.0


def test_all_ranks_decide_by_the_same_numbers() -> None:
    gathered: list[list[float]] = []

    def mean(numbers: list[float]) -> list[float]:
        gathered.append(numbers)
        return [4.0, 1.0, 2.0, 0.5, 0.5]

    training = Training(search=9.0, whole=4.0, live_share=1.0)
    training.pace = BackwardPace(clock=lambda: training.now, mean_over_ranks=mean)
    training.batches(WARM_UP + FIRST_DECISION * ROUND)
    assert training.pace.active
    assert gathered[0] == [4.0, 9.0, 4.0, 1.0, 1.0]
