"""Which settings are tried: the default, then steps from the best so far, a setting at a time."""

from __future__ import annotations

import json
import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from as_lightning.report.record import Trial

RATE = "lr"
FINALISTS = 2  # the trials of a candidate that get the tuning seeds after the first one
FIRST_STEP = 0.75  # of the way from the middle of a range to its end


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``; the search goes beyond with ``log``, else up to finite
    ``limits``.

    ``log`` makes equal steps in the logarithm. A range of whole numbers from 1 on, such as a width,
    gives whole numbers alone.

    >>> learning_rates = Range(0.0025, 0.04, default=0.01, log=True)
    >>> learning_rates.moved(0.01, 1.0), learning_rates.moved(0.04, 0.5)
    (0.04, 0.08)
    >>> Range(0.1, 1.0, default=0.5, limits=(0.0, 1.0)).moved(0.9, 1.0)
    0.95
    """

    low: float
    high: float
    default: float
    log: bool = False
    limits: Sequence[float] = (-math.inf, math.inf)

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ValueError(f"a range needs low < high, got {self.low} and {self.high}")
        if self.log and self.low <= 0:
            raise ValueError(f"a range with log needs low > 0, got {self.low}")

    def moves(self, value: float, step: float) -> list[tuple[Any, float]]:
        return [(self.moved(value, each), each) for each in (step, -step)]

    def moved(self, value: float, step: float) -> Any:
        """Return the value a step away, in halves of the range, or half of the way to a limit."""
        start = self._place(value)
        place = start + step * (self._place(self.high) - self._place(self.low)) / 2
        low, high = self._bounds()
        if place <= low:
            place = (start + low) / 2
        elif place >= high:
            place = (start + high) / 2
        exact = math.exp(place) if self.log else place
        rounded = float(f"{exact:.4g}")
        if not self.limits[0] < rounded < self.limits[1]:
            return exact
        if self.low >= 1 and {type(self.low), type(self.high), type(self.default)} == {int}:
            return max(1, round(rounded))
        return rounded

    def _bounds(self) -> tuple[float, float]:
        """Return the places of the limits; of an infinite one without ``log`` that of the end."""
        low, high = self.limits
        if self.log:
            return math.log(low) if low > 0 else -math.inf, math.log(high)
        if math.isinf(low):
            low = self.low
        if math.isinf(high):
            high = self.high
        return low, high

    def _place(self, value: float) -> float:
        """Return the value, or its logarithm; 0 is placed half of the range below ``low``."""
        if not self.log:
            return float(value)
        if value > 0:
            return math.log(value)
        return 1.5 * math.log(self.low) - 0.5 * math.log(self.high)


@dataclass(frozen=True)
class Choice:
    """One of a few values, each of which is tried; the first trial takes ``default``."""

    values: Sequence[Any]
    default: Any

    def __post_init__(self) -> None:
        if self.default not in self.values:  # a configured value that a candidate does not list
            object.__setattr__(self, "values", [self.default, *self.values])

    def moves(self, value: Any, step: float) -> list[tuple[Any, float]]:
        return [(each, step) for each in self.values]


Space = Mapping[str, Range | Choice]


def learning_rates(default: float, factor: float) -> Range:
    if not default > 0:
        raise ValueError(f"a learning rate must be positive to be tuned, got {default:g}")
    if not isinstance(factor, (int, float)) or not factor > 1:
        raise ValueError(f"search.lr_factor must be a number above 1, got {factor!r}")
    return Range(default / factor, default * factor, default, log=True)


def setting_range(description: Any, default: Any = None) -> Range | Choice:
    """Return the range or choice that a ``search`` describes; the first value is the default."""
    try:
        json.dumps(description)  # as results are written
        is_list = isinstance(description, list)
        first = description[0] if is_list else description["low"]
        if default is None:
            default = first
        if is_list:
            return Choice(description, default)
        return Range(**{"default": default, **description})
    except (TypeError, LookupError, ValueError) as error:
        expected = "{low, high, default, log, limits} or a list of values"
        raise ValueError(f"expected {expected}, got {description!r}: {error}") from None


def best_of(trials: Sequence[Trial], sign: float) -> Trial | None:
    finished = [trial for trial in trials if math.isfinite(trial.score)]
    most = max((trial.seeds for trial in finished), default=0)
    best = finalists([trial for trial in finished if trial.seeds == most], sign)
    return best[0] if best else None


def finalists(trials: Sequence[Trial], sign: float) -> list[Trial]:
    """Return the best trials, which alone get the tuning seeds after the first one.

    Of equal scores the earlier trial is better. A trial that has not finished has a score of NaN;
    ``sign`` is 1 where a higher score is better, else -1.
    """
    finished = [trial for trial in trials if math.isfinite(trial.score)]
    finished.sort(key=lambda trial: -round(sign * trial.score, 9))
    return finished[:FINALISTS]


def next_trial(
    space: Space, tried: Sequence[Trial], count: int, sign: float
) -> dict[str, Any] | None:
    """Return what a candidate tries next; None after ``count`` trials, or where no step is left."""
    if len(tried) >= count:
        return None
    steps = search(space, rounds=count)
    try:
        settings = next(steps)
        for trial in tried:
            settings = steps.send(sign * trial.score)
    except StopIteration:
        return None
    return settings


def search(space: Space, rounds: int) -> Generator[dict[str, Any], float, None]:
    """Yield settings to try; each gets its score, or NaN.

    The first ones are the defaults. In each round every setting in turn takes a step from the best
    settings so far: down, and up if that is no better; the learning rate as many as are better. The
    next round goes on in the direction that was better; if none was, its step is half as long.
    Choices come first: all their values are tried.
    """
    best = {name: dimension.default for name, dimension in space.items()}
    best_score = yield best
    tried = [best]
    steps = dict.fromkeys(space, -FIRST_STEP)
    for _ in range(rounds):
        for name in sorted(space, key=lambda name: isinstance(space[name], Range)):
            for again in range(rounds if name == RATE else 1):
                start, improved = best, False
                moves = space[name].moves(start[name], steps[name])
                for value, step in moves[:1] if again else moves:
                    settings = {**start, name: value}
                    if settings in tried or (improved and isinstance(space[name], Range)):
                        continue
                    tried.append(settings)
                    score = yield settings
                    # where no trial has finished the last one is as good
                    if score > best_score or math.isnan(best_score):
                        best, best_score, steps[name], improved = settings, score, step, True
                if not improved:
                    steps[name] /= 2
                    break
