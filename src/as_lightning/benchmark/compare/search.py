"""What settings are tried for a method: the defaults, then points spread evenly over its ranges."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scipy.stats import qmc

MIN_VALUES = 5


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``.

    Args:
        low: the smallest value.
        high: the largest.
        default: what the first trial takes.
        log: whether the values are spread evenly in the logarithm.
        whole: whether only whole numbers are tried.

    Raises:
        ValueError: if the ends are in the wrong order, or not positive with ``log``.
    """

    low: float
    high: float
    default: float
    log: bool = False
    whole: bool = False

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ValueError(f"a range needs low < high, got {self.low} and {self.high}")
        if self.log and self.low <= 0:
            raise ValueError(f"a range with log needs low > 0, got {self.low}")

    def at(self, share: float) -> float:
        """The value at a share of the range, in [0, 1].

        >>> Range(0.01, 1.0, default=0.1, log=True).at(0.5)
        0.1
        """
        if self.log:
            value = math.exp(math.log(self.low) + share * (math.log(self.high) - math.log(self.low)))
        else:
            value = self.low + share * (self.high - self.low)
        return round(value) if self.whole else float(f"{value:.4g}")


@dataclass(frozen=True)
class Choice:
    """One of a few values; the first trial takes ``default``."""

    values: tuple[Any, ...]
    default: Any

    def __post_init__(self) -> None:
        if not self.values:
            raise ValueError("a choice needs at least one value")

    def least_tried(self, share: float, tried: Sequence[Any]) -> Any:
        """The value at a share, in [0, 1), of the list of those that have been tried least often.

        >>> Choice((1, 2, 3), default=1).least_tried(0.9, tried=[1, 3])
        2
        """
        counts = [tried.count(value) for value in self.values]
        left = [value for value, count in zip(self.values, counts, strict=True) if count == min(counts)]
        return left[int(share * len(left))]


Space = Mapping[str, Range | Choice]


def learning_rates(default: float, factor: float = 10.0) -> Range:
    """Learning rates around the default, a factor of 10 to each side.

    Raises:
        ValueError: if ``default`` is not positive.
    """
    if not default > 0:
        raise ValueError(f"a learning rate must be positive to be tuned, got {default}")
    return Range(default / factor, default * factor, default, log=True)


def setting_range(description: Any, default: Any) -> Range | Choice:
    """A range or choice as a method's configuration describes it: ``{low, high, log, whole}``, or a list of values.

    Raises:
        ValueError: if it is neither.
    """
    if isinstance(description, Mapping):
        try:
            return Range(**{"default": default, **description})
        except TypeError as error:
            raise ValueError(f"expected {{low, high, log, whole}}, got {dict(description)}: {error}") from None
    if isinstance(description, Sequence) and not isinstance(description, str) and description:
        return Choice(tuple(description), default)
    raise ValueError(f"expected a range {{low, high, log, whole}} or a list of values, got {description!r}")


def trials(space: Space, count: int) -> list[dict[str, Any]]:
    """The settings to try, in order: the defaults, then points of Halton's sequence.

    The first dimension's values do not depend on the others, so methods with a knob of their own are tried at the
    same learning rates as methods without. Of a :class:`Choice` each value is tried once before one is tried again.
    Trials that repeat an earlier one are left out.

    Args:
        space: what is tuned; put what all methods share first.
        count: how many, at least 1; fewer where the space has no more.

    >>> [trial["lr"] for trial in trials({"lr": learning_rates(0.01)}, 4)]
    [0.01, 0.003162, 0.03162, 0.001778]
    >>> [trial["k"] for trial in trials({"lr": learning_rates(0.01), "k": Choice((1, 2, 3), 1)}, 4)]
    [1, 3, 2, 2]
    """
    found = [{name: dimension.default for name, dimension in space.items()}]
    if not space or count == 1:
        return found
    points = qmc.Halton(d=len(space), scramble=False).random(64 * count)
    for point in points[2:]:  # the first two are the corner and the middle, which is the default learning rate
        trial = {
            name: dimension.at(float(share))
            if isinstance(dimension, Range)
            else dimension.least_tried(float(share), [earlier[name] for earlier in found])
            for (name, dimension), share in zip(space.items(), point, strict=True)
        }
        if trial not in found:
            found.append(trial)
        if len(found) == count:
            break
    return found


def at_edge(space: Space, tried: Sequence[Mapping[str, Any]], chosen: Mapping[str, Any]) -> list[str]:
    """The settings whose best value is the smallest or the largest that was tried: the optimum may lie beyond."""
    edges = []
    for name, dimension in space.items():
        values = [trial[name] for trial in tried]
        # of a few values the best is at an edge by chance
        if (
            isinstance(dimension, Range)
            and len(set(values)) >= MIN_VALUES
            and chosen[name] in (min(values), max(values))
        ):
            edges.append(name)
    return edges
