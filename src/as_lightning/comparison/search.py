"""Which settings are tried: first a spread, then where a better score may lie, also beyond what was
tried.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import qmc

from as_lightning.report.record import Trial

RATE = "lr"
FINALISTS = 2  # the trials of a candidate that get the tuning seeds after the first one
# values of a range that are tried before it is known where the best ones lie; of learning rates 3
FIRST = 2
LOWEST, CAUTION, DRAWN = -3.0, 1.0, 1024  # of the search by a Gaussian process


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``; the search goes beyond with ``log``, else half of the way
    to a finite limit.

    ``log`` spreads them evenly in the logarithm. At ``neutral`` the candidate is the baseline. A
    range of whole numbers from 1 on, such as a width, gives whole numbers alone.
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
        if not isinstance(self.neutral, (int, float, type(None))):
            raise ValueError(f"a range needs a number as neutral, got {self.neutral!r}")

    def spread(self, count: int) -> list[Any]:
        """The default, and values that span the range with it; without the neutral one, whose
        trials are shared.

        >>> Range(0.1, 1.0, default=0.1, neutral=1.0).spread(3)
        [0.1, 0.4, 0.7]
        >>> Range(0.25, 2.0, default=0.5, log=True).spread(3)
        [0.5, 0.25, 2.0]
        >>> Range(0.9, 0.99999, default=0.9, limits=(0, 1)).spread(3)
        [0.9, 0.95, 0.99999]
        """
        at_an_end = self.neutral in (self.low, self.high)
        grid = np.linspace(self.place(self.low), self.place(self.high), max(count + at_an_end, 2))
        first = int(self.neutral == self.low)
        values = [self.value(place) for place in grid[first : first + count]]
        nearest = min(values, key=lambda value: abs(self.place(value) - self.place(self.default)))
        return [self.default, *(value for value in values if value != nearest)]

    def draw(self, shares: np.ndarray, tried: Sequence[float]) -> np.ndarray:
        """Places at these shares, in [0, 1], of the range as the search extends it."""
        places = [*map(self.place, (self.low, self.high, *tried))]
        ends = np.array([min(places), max(places)])
        if self.log:
            half = (self.place(self.high) - self.place(self.low)) / 2
            ends += [-half, half]
        else:  # half of the way to a limit
            ends = np.where(np.isfinite(self.limits), (ends + self.limits) / 2, ends)
        return ends[0] + shares * (ends[1] - ends[0])

    def coordinates(self, places: np.ndarray) -> np.ndarray:
        """The coordinates of places for the Gaussian process, in halves of the range."""
        low, high = self.place(self.low), self.place(self.high)
        return 2 * (places[:, None] - low) / (high - low)

    def allows(self, value: float) -> bool:
        """Whether a value lies within the limits and is not the baseline's."""
        return self.limits[0] < value < self.limits[1] and value != self.neutral

    def place(self, value: float) -> float:
        """The value, or its logarithm; 0 is placed half of the range below ``low``."""
        if not self.log:
            return float(value)
        if value > 0:
            return math.log(value)
        return 1.5 * math.log(self.low) - 0.5 * math.log(self.high)

    def value(self, place: float) -> Any:
        """Return the value at a place, rounded where that crosses no end or limit of the range."""
        exact = math.exp(place) if self.log else place
        bounds = np.array([self.low, self.high, *self.limits])
        rounded = float(f"{exact:.4g}")
        if np.any(np.sign(rounded - bounds) * np.sign(exact - bounds) < 0):
            rounded = exact
        for end in (self.low, self.high):  # which a logarithm may miss by a rounding
            if math.isclose(exact, end):
                rounded = end
        if self.low >= 1 and {type(self.low), type(self.high), type(self.default)} == {int}:
            return max(1, round(rounded))
        return rounded


@dataclass(frozen=True)
class Choice:
    """One of a few values, each of which is tried; the first trial takes ``default``."""

    values: Sequence[Any]
    default: Any
    neutral: Any = None

    def __post_init__(self) -> None:
        if self.default not in self.values:  # a configured value that a candidate does not list
            object.__setattr__(self, "values", [self.default, *self.values])

    def spread(self, count: int) -> list[Any]:
        """All values, the default first."""
        return [self.default, *(value for value in self.values if value != self.default)]

    def draw(self, shares: np.ndarray, tried: Sequence[Any]) -> np.ndarray:
        """Places at these shares, in [0, 1], of all."""
        return np.minimum(shares * len(self.values), len(self.values) - 1).astype(int)

    def coordinates(self, places: np.ndarray) -> np.ndarray:
        """The coordinates of places for the Gaussian process: one-hot, and zeros for place -1."""
        return np.eye(len(self.values) + 1)[places][:, :-1]

    def allows(self, value: Any) -> bool:
        """Whether a value is not the baseline's."""
        return bool(value != self.neutral)

    def place(self, value: Any) -> int:
        """The index of a value; -1 for one that is not listed, such as a neutral one."""
        if value in self.values:
            return list(self.values).index(value)
        return -1

    def value(self, place: int) -> Any:
        """The value at an index."""
        return self.values[place]


Space = Mapping[str, Range | Choice]


def settings_in(space: Space) -> float:
    """The number of settings in a space, 1 for an empty one; infinite with a range."""
    return math.prod(len(d.values) if isinstance(d, Choice) else math.inf for d in space.values())


def without_neutral(space: Space) -> Space:
    """Return a space in which no value makes a candidate the baseline."""
    return {name: replace(dimension, neutral=None) for name, dimension in space.items()}


def learning_rates(default: float, factor: float) -> Range:
    """Learning rates around the default, at first a factor to each side."""
    if not default > 0:
        raise ValueError(f"a learning rate must be positive to be tuned, got {default:g}")
    if not isinstance(factor, (int, float)) or not factor > 1:
        raise ValueError(f"search.lr_factor must be a number above 1, got {factor!r}")
    return Range(default / factor, default * factor, default, log=True)


def setting_range(description: Any, default: Any = None) -> Range | Choice:
    """A range or choice, as a ``search`` describes it; the first value is the default."""
    try:
        if isinstance(description, list):
            description = {"values": description}
        json.dumps(dict(description))  # as results are written
        kind: Any = Range
        if "values" in description:
            kind, first = Choice, description["values"][0]
        else:
            first = description["low"]
        if default is None:
            default = first
        return kind(**{"default": default, **description})
    except (TypeError, LookupError, ValueError) as error:
        expected = "{low, high, log, neutral, limits}, {values, neutral} or a list of values"
        raise ValueError(f"expected {expected}, got {description!r}: {error}") from None


def as_neutral(space: Space, trial: Trial) -> Trial:
    """A trial of the baseline as one of a candidate that contains it."""
    knobs = {}
    for name, dimension in space.items():
        if name != RATE:
            knobs[name] = dimension.default
            if dimension.neutral is not None:
                knobs[name] = dimension.neutral
    return trial._replace(settings={**knobs, **trial.settings}, shared=True)


def best_of(trials: Sequence[Trial], sign: float) -> Trial | None:
    """The trial with the best mean score of those with the most tuning seeds."""
    finished = [trial for trial in trials if math.isfinite(trial.score)]
    most = max((trial.seeds for trial in finished), default=0)
    best = finalists([trial for trial in finished if trial.seeds == most], sign)
    return best[0] if best else None


def finalists(trials: Sequence[Trial], sign: float) -> list[Trial]:
    """The best trials, which alone get the tuning seeds after the first one.

    Of equal scores the earlier trial is better: those of the baseline come first. A trial that has
    not finished has a score of NaN; ``sign`` is 1 where a higher score is better, else -1.
    """
    finished = [trial for trial in trials if math.isfinite(trial.score)]
    finished.sort(key=lambda trial: -round(sign * trial.score, 9))
    return finished[:FINALISTS]


def next_trials(
    space: Space, own: Sequence[Trial], shared: Sequence[Trial], count: int, sign: float
) -> list[dict[str, Any]]:
    """Return the settings to try next; none when ``count`` have been tried, or there are no more.

    The first ones spread over the knobs, two values of a range or all of a choice, at the
    baseline's best learning rate. Without a knob they are three learning rates. A list of rates is
    tried whole first, unless the baseline has. The others go where a Gaussian process over all
    trials expects or does not exclude a better score, also beyond what was tried (GP-UCB: Srinivas
    et al., 2010). ``own`` has the trials of the candidate in the order in which they were proposed,
    ``shared`` those of the baseline as trials of this candidate.
    """
    if not own:
        return _spread(space, shared, count, sign)
    if not space or len(own) >= count:
        return []
    return _promising(space, own, shared, sign)


def _spread(space: Space, shared: Sequence[Trial], count: int, sign: float) -> list[dict[str, Any]]:
    """Return the first settings, which spread over the knobs or over the learning rates."""
    defaults = {name: dimension.default for name, dimension in space.items()}
    best_shared = best_of(shared, sign)
    if best_shared is not None and RATE in space:
        defaults[RATE] = best_shared.settings[RATE]
    varied = [name for name in space if name != RATE]
    if RATE in space and (not varied or (isinstance(space[RATE], Choice) and not shared)):
        varied = [RATE]
    values = {}
    for name in varied:
        values[name] = space[name].spread(min(count, FIRST + (name == RATE)))
    points: list[dict[str, Any]] = []
    for number in range(min(count, max(map(len, values.values()), default=1))):
        point = dict(defaults)
        for name in varied:
            point[name] = values[name][number % len(values[name])]
        if point not in points:
            points.append(point)
    return points


def _promising(
    space: Space, own: Sequence[Trial], shared: Sequence[Trial], sign: float
) -> list[dict[str, Any]]:
    """Return the settings with the highest upper confidence bound; none where all are tried."""
    from sklearn.gaussian_process import GaussianProcessRegressor  # here: it takes a second to load
    from sklearn.gaussian_process.kernels import RBF

    tried = [*own, *shared]
    scores = np.array([sign * trial.score for trial in tried])
    scores[~np.isfinite(scores)] = -math.inf
    finite = scores[np.isfinite(scores)]
    if not len(finite):
        finite = np.zeros(1)
    # the unit is from the median score to the best one, or the whole spread where these are equal
    height = finite.max() - np.median(finite) or np.ptp(finite) or 1.0
    heights = np.maximum((scores - finite.max()) / height, LOWEST)
    shares = qmc.Halton(len(space), scramble=False).random(DRAWN).T
    drawn, x, x_drawn = {}, [], []
    for (name, dimension), axis_shares in zip(space.items(), shares, strict=True):
        values = [trial.settings[name] for trial in tried]
        drawn[name] = dimension.draw(axis_shares, values)
        x.append(dimension.coordinates(np.array([*map(dimension.place, values)])))
        x_drawn.append(dimension.coordinates(drawn[name]))
    # far from all trials the model expects the median score
    model = GaussianProcessRegressor(RBF(), alpha=0.01, optimizer=None)
    model.fit(np.hstack(x), heights + 1.0)
    mean, deviation = model.predict(np.hstack(x_drawn), return_std=True)
    # rounded, so that ties are the same in every process and machine
    bounds = (mean + CAUTION * deviation).round(6)
    settings_tried = [trial.settings for trial in own]
    for index in np.argsort(-bounds, kind="stable"):
        proposed = {}
        for name, dimension in space.items():
            proposed[name] = dimension.value(drawn[name][index])
        allowed = all(space[name].allows(value) for name, value in proposed.items())
        if allowed and proposed not in settings_tried:
            return [proposed]
    return []
