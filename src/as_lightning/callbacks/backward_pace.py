"""When a search for the live samples of a batch pays: a rule, and the measurements that it needs."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from statistics import median
from typing import NamedTuple

WARM_UP = 4  # batches that nothing is measured of: the first ones allocate and compile
ROUND = 16  # the fewest batches from one measurement to the next
ROUND_WHILE_ACTIVE = 64
PRICE = 0.02  # the share of the time that measuring may cost while no batch is narrowed
GAIN = 0.05  # narrowing begins where it saves at least this share of a step, and ends where it saves nothing
REMEMBERED = 5  # rounds, of whose measurements the median counts
FIRST_DECISION = 3  # rounds before narrowing may begin: a clock is wrong once, seldom twice


class StepTimes(NamedTuple):
    """What a batch costs.

    Attributes:
        search: seconds of a search over a whole batch, with narrowing it.
        whole: seconds of forward and backward of a whole batch.
        fixed: of these, seconds that do not shrink with the batch.
    """

    search: float
    whole: float
    fixed: float = 0.0

    def narrowed(self, live_share: float) -> float:
        """The seconds of a batch that is searched and then narrowed to this share of its samples."""
        return self.search + self.fixed + (self.whole - self.fixed) * live_share


def skipping_pays(times: StepTimes, live_share: float, active: bool) -> bool:
    """Whether to search the next batches and narrow them.

    Args:
        times: measured of this model.
        live_share: the share of live samples in a batch, in [0, 1].
        active: whether batches are narrowed at present. They have to gain 5% to begin, and go on while they gain at
            all, so that the noise of the clock does not switch at every turn.

    Example:
        >>> skipping_pays(StepTimes(search=1.0, whole=3.0), live_share=0.5, active=False)
        True
        >>> skipping_pays(StepTimes(search=1.0, whole=3.0), live_share=0.7, active=False)
        False
    """
    return times.narrowed(live_share) < times.whole * (1.0 if active else 1.0 - GAIN)


def fixed_seconds(whole: float, narrowed: float, share: float) -> float:
    """The part of a step that does not shrink: where the line through two batches, 1 and ``share`` of one, meets 0."""
    return min(max((narrowed - share * whole) / (1.0 - share), 0.0), whole)


def round_length(times: StepTimes, active: bool) -> int:
    """How many batches until the next measurement, of which one is searched for nothing while not active."""
    if active:
        return ROUND_WHILE_ACTIVE
    return max(ROUND, math.ceil(times.search / (PRICE * times.whole))) if times.whole > 0 else ROUND_WHILE_ACTIVE


class BackwardPace:
    """Decides batch by batch whether it is searched, and measures what that costs.

    In each round one whole batch and one searched batch are measured, one after the other; the others go as decided. A
    search costs time: after the first rounds none is made while nothing is narrowed and the loss of the whole batch
    shows that it would not pay.

    Args:
        clock: gives the time in seconds, when all work on the device is done.
        mean_over_ranks: makes the measurements of all ranks one, so that all decide alike.

    Attributes:
        active: whether batches are narrowed at present.
        times: the medians over the latest rounds; None before the first.
    """

    def __init__(
        self, clock: Callable[[], float], mean_over_ranks: Callable[[list[float]], list[float]] = list
    ) -> None:
        self.clock, self._mean_over_ranks = clock, mean_over_ranks
        self.active = False
        self.times: StepTimes | None = None
        self._batch = -WARM_UP
        self._length = ROUND
        self._searches = self._measures = False
        self._seconds: deque[list[float]] = deque(maxlen=REMEMBERED)  # of each round: search, whole
        self._fixed: deque[float] = deque(maxlen=REMEMBERED)  # of those that were narrowed enough to tell
        self._round: list[float] = []
        self._mark = 0.0
        self._whole_share: float | None = None  # what a search would keep of the measured whole batch
        self._shares: list[float] = []  # since the last decision

    def start(self) -> bool:
        """A batch starts; returns whether it is to be searched."""
        hopeless = self._batch == 1 and self._hopeless()
        self._measures = self._batch in (0, 1) and not hopeless
        self._searches = (self._batch == 1 and not hopeless) or (self.active and self._batch != 0)
        if hopeless:
            self._round = []
        self._batch += 1
        if self._measures:
            self._mark = self.clock()
        return self._searches

    @property
    def measures_whole(self) -> bool:
        """Whether the running batch is the round's whole one, for :meth:`looked`."""
        return self._measures and not self._searches

    def looked(self, live_share: float) -> None:
        """The loss of the whole batch has shown this share of samples that a search would keep."""
        self._whole_share = live_share

    def _hopeless(self) -> bool:
        """Whether a search of the next batch is known not to pay."""
        share, self._whole_share = self._whole_share, None
        if share is None or self.times is None or self.active or len(self._seconds) < FIRST_DECISION:
            return False
        # what does not shrink is learned by searching: a wrong measurement of it must not end the searches
        most_hopeful = self.times._replace(fixed=0.0)
        return not skipping_pays(most_hopeful, self._mean_over_ranks([share])[0], active=False)

    def found(self, live_share: float) -> None:
        """The search has found this share of live samples, and the batch is narrowed."""
        self._shares.append(live_share)
        if self._measures:
            self._lap()

    def finish(self) -> None:
        """The backward pass is done."""
        if self._measures:
            self._lap()
        self._measures = False
        if len(self._round) == 3:
            self._decide()
        if self._batch >= self._length:
            self._batch, self._round = 0, []

    def skip(self) -> None:
        """The batch has computed no loss: nothing is learned of it."""
        self._measures, self._round = False, []
        if 0 < self._batch <= 2:
            self._batch = 0

    def _lap(self) -> None:
        now = self.clock()
        self._round.append(now - self._mark)
        self._mark = now

    def _decide(self) -> None:
        latest, mean = self._shares[-1], sum(self._shares) / len(self._shares)
        whole, search, narrowed, latest, mean = self._mean_over_ranks([*self._round, latest, mean])
        self._seconds.append([search, whole])
        if latest < 0.9:  # the line through two batches of almost one size would begin anywhere
            self._fixed.append(fixed_seconds(whole, narrowed, latest))
        self._round, self._shares = [], []
        search, whole = (median(column) for column in zip(*self._seconds, strict=True))
        self.times = StepTimes(search, whole, min(median(self._fixed), whole) if self._fixed else 0.0)
        pays = skipping_pays(self.times, mean, self.active)
        self.active = pays and len(self._seconds) >= FIRST_DECISION
        self._length = round_length(self.times, self.active)
