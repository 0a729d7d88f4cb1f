"""Which settings are tried: first a spread, then around the best, beyond it where it lies at an edge."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np

from as_lightning.benchmark.report.record import Trial

RATE = "lr"
FINALISTS = 2  # the trials of a candidate that get the tuning seeds after the first one


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, which the search leaves for up to ``limits`` where the best lies at an edge.

    ``log`` spreads them evenly in the logarithm. At ``neutral`` the candidate is the baseline. A range of whole numbers
    from 1 on, as of a width, stays one of whole numbers.
    """

    low: float
    high: float
    default: float
    log: bool = False
    neutral: Any = None
    limits: Sequence[float] = (-math.inf, math.inf)

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ValueError(f"a range needs low < high, got {self.low} and {self.high}")
        if self.log and self.low <= 0:
            raise ValueError(f"a range with log needs low > 0, got {self.low}")

    def spread(self, count: int) -> list[Any]:
        """The default, and values that span the range with it; without the neutral one, whose trials are shared.

        >>> Range(0.1, 1.0, default=0.1, neutral=1.0).spread(3)
        [0.1, 0.4, 0.7]
        >>> Range(0.25, 2.0, default=0.5, log=True).spread(3)
        [0.5, 0.25, 2.0]
        """
        first, number = int(self.neutral == self.low), max(count + (self.neutral in (self.low, self.high)), 2)
        grid = np.linspace(self._place(self.low), self._place(self.high), number)[first : first + count]
        values = [self._value(place) for place in grid]
        nearest = min(values, key=lambda value: abs(self._place(value) - self._place(self.default)))
        return [self.default, *(value for value in values if value != nearest)]

    def beside(self, best: float, scores: Sequence[tuple[float, float]]) -> float | None:
        """The next value: beyond ``best`` where no tried value is, else in the middle of the wider gap beside it.

        ``scores`` are the tried values, and how good each was.
        """
        tried = dict(sorted(scores, key=itemgetter(1)))  # of trials of one value the best counts
        below = max((value for value in tried if value < best), default=None)
        above = min((value for value in tried if value > best), default=None)
        beyond, between = [], []
        for value, opposite, limit, sign in ((above, below, self.limits[1], 1), (below, above, self.limits[0], -1)):
            if value is not None:
                gap = round(abs(self._place(value) - self._place(best)), 6)
                between.append(((-gap, -tried[value]), (self._place(best) + self._place(value)) / 2))
            elif self.log:  # as far as the neighbour on the other side
                ratio = math.sqrt(self.high / self.low) ** 0.5 if opposite is None else best / opposite
                beyond.append(math.log(best) + sign * abs(math.log(ratio)))
            elif math.isfinite(limit):
                beyond.append((best + limit) / 2)
        places = [*beyond, *(place for _, place in sorted(between, key=itemgetter(0)))]
        low, high = self.limits
        return next((value for value in map(self._value, places) if value not in tried and low < value < high), None)

    def _place(self, value: float) -> float:
        return math.log(value) if self.log and value > 0 else float(value)

    def _value(self, place: float) -> float:
        value = float(f"{math.exp(place) if self.log else place:.4g}")
        whole = self.low >= 1 and all(type(given) is int for given in (self.low, self.high, self.default))
        return max(1, round(value)) if whole else value


@dataclass(frozen=True)
class Choice:
    """One of a few values, each of which is tried; the first trial takes ``default``."""

    values: Sequence[Any]
    default: Any
    neutral: Any = None

    def spread(self, count: int) -> list[Any]:
        """All values, the default first."""
        return [self.default, *(value for value in self.values if value != self.default)]

    def beside(self, best: Any, scores: Sequence[tuple[Any, float]]) -> Any:
        """A value that has not been tried; None if all have."""
        tried = [value for value, _ in scores]
        return next((value for value in self.values if value not in tried), None)


Space = Mapping[str, Range | Choice]


def learning_rates(default: float, factor: float) -> Range:
    """Learning rates around the default, at first a factor to each side."""
    if not default > 0:
        raise ValueError(f"a learning rate must be positive to be tuned, got {default:g}")
    if not isinstance(factor, (int, float)) or not factor > 1:
        raise ValueError(f"search.lr_factor must be a number above 1, got {factor!r}")
    return Range(default / factor, default * factor, default, log=True)


def setting_range(description: Any, default: Any = None) -> Range | Choice:
    """A range or choice as ``search`` of a method, or a pair of ``losses``, describes it; the default is the first."""
    try:
        given = {"values": description} if isinstance(description, list) else dict(description)
        kind, first = (Choice, given["values"][0]) if "values" in given else (Range, given["low"])
        return kind(**{"default": first if default is None else default} | given)
    except (TypeError, LookupError, ValueError) as error:
        expected = "{low, high, log, neutral, limits}, {values, neutral} or a list of values"
        raise ValueError(f"expected {expected}, got {description!r}: {error}") from None


def as_neutral(space: Space, trial: Trial) -> Trial:
    """A trial of the baseline as one of a candidate that contains it; what both tune keeps its value."""
    knobs = {name: d.default if d.neutral is None else d.neutral for name, d in space.items() if name != RATE}
    return trial._replace(settings={**knobs, **trial.settings}, shared=True)


def best_of(trials: Sequence[Trial], sign: float) -> Trial | None:
    """The best trial: of those with the most tuning seeds that of the best mean score; of equal ones as `finalists`."""
    most = max((trial.seeds for trial in trials if math.isfinite(trial.score)), default=0)
    return next(iter(finalists([trial for trial in trials if trial.seeds == most], sign)), None)


def finalists(trials: Sequence[Trial], sign: float) -> list[Trial]:
    """The best trials, which alone get the tuning seeds after the first one.

    Of equal scores the lower loss is better, if all runs have recorded one and the same loss (`Trial.loss`); else the
    trial that stands first: those of the baseline do. A score of NaN is one of a trial that has not finished; ``sign``
    is 1 where a higher score is better, else -1.
    """
    finished = [trial for trial in trials if math.isfinite(trial.score)]
    comparable = all(math.isfinite(trial.loss) for trial in finished)
    return sorted(finished, key=lambda t: (-round(sign * t.score, 9), t.loss if comparable else 0.0))[:FINALISTS]


def next_trials(
    space: Space, own: Sequence[Trial], shared: Sequence[Trial], count: int, sign: float
) -> list[dict[str, Any]]:
    """The settings to try next; none when ``count`` have been tried, or the space has no more.

    The first half spreads over the knobs at the best learning rate of the baseline (or, without a knob, over learning
    rates; a list of these is tried whole at first, unless the baseline has tried it). The others go around the best so
    far, by turns along the learning rate and along the knob: beyond it where it is the smallest or largest tried,
    otherwise between it and its neighbours. ``own`` has the trials of the candidate in the order in which they were
    proposed, ``shared`` those of the baseline as trials of this candidate.
    """
    defaults = {name: dimension.default for name, dimension in space.items()}
    if not space:
        return [] if own else [defaults]
    knobs = [name for name in space if name != RATE]
    if not own:
        start = best_of(shared, sign)
        if start is not None and RATE in space:
            defaults[RATE] = start.settings[RATE]
        listed = isinstance(space.get(RATE), Choice) and not shared
        varied = [RATE] if listed or not knobs else knobs
        spread = {name: space[name].spread(min(count, max(2, (count + 1) // 2))) for name in varied}
        number = min(count, max(map(len, spread.values())))
        points = [defaults | {name: values[i % len(values)] for name, values in spread.items()} for i in range(number)]
        return [point for i, point in enumerate(points) if point not in points[:i]]
    if len(own) >= count:
        return []
    best = best_of(own, sign) or own[0]
    turns = [RATE, RATE, *knobs] if RATE in space and knobs else list(space)
    first = len(own) % len(turns)
    for name in [*turns[first:], *turns[:first]]:
        trials = own if name == RATE else [*own, *shared]
        scores = [(t.settings[name], sign * t.score if math.isfinite(t.score) else -math.inf) for t in trials]
        proposed = {**best.settings, name: space[name].beside(best.settings[name], scores)}
        if proposed[name] is not None and all(trial.settings != proposed for trial in own):
            return [proposed]
    return []
