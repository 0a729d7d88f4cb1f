"""Time to the baseline's score: the cheapest budget at which a method is not worse than the baseline's full budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import stats

from as_lightning.benchmark.report.old_verdicts import ALPHA, Verdict


@dataclass(frozen=True)
class TimeRatio:
    """A ratio of training times, paired by seed.

    Attributes:
        ratio: the geometric mean over the seeds of the seconds of one arm / the seconds of the other.
        low: of its 95% confidence interval (Student's t on the logarithms); equal to ``ratio`` where the seeds agree,
            None with fewer than 2 seeds.
        high: the same.
    """

    ratio: float
    low: float | None
    high: float | None

    def clearly_below(self, other: TimeRatio) -> bool:
        """Whether this ratio's interval lies below the other's.

        >>> TimeRatio(0.5, 0.45, 0.55).clearly_below(TimeRatio(0.6, 0.56, 0.64))
        True
        """
        return self.high is not None and other.low is not None and self.high < other.low


@dataclass(frozen=True)
class TimeToScore:
    """The cheapest budget of a method that reaches the baseline's score, and its time."""

    budget: float
    time: TimeRatio


def time_ratio(seconds: Mapping[int, float], reference: Mapping[int, float]) -> TimeRatio:
    """The ratio of training times for the seeds that both have.

    Raises:
        ValueError: if no seed is shared, or a time is not positive.

    >>> time_ratio({0: 1.0, 1: 2.0}, {0: 2.0, 1: 4.0})
    TimeRatio(ratio=0.5, low=0.5, high=0.5)
    """
    shared = sorted(seconds.keys() & reference.keys())
    if not shared:
        raise ValueError("no seed has a time on both sides")
    pairs = np.array([[seconds[seed], reference[seed]] for seed in shared], dtype=np.float64)
    if not (pairs > 0).all():
        raise ValueError(f"training times must be positive, got {pairs.tolist()}")
    logarithms = np.log(pairs[:, 0] / pairs[:, 1])
    mean, count = float(logarithms.mean()), len(shared)
    if count < 2:
        return TimeRatio(float(np.exp(mean)), None, None)
    half = float(stats.t.isf(ALPHA / 2, count - 1) * logarithms.std(ddof=1) / np.sqrt(count))
    return TimeRatio(float(np.exp(mean)), float(np.exp(mean - half)), float(np.exp(mean + half)))


def time_to_score(verdicts: Mapping[float, Verdict], times: Mapping[float, TimeRatio]) -> TimeToScore | None:
    """The cheapest budget that is shown to be not worse than the reference (a one-sided test with the margin).

    Args:
        verdicts: per budget of one method the verdict against the baseline's full budget.
        times: per budget the ratio of its training time to that of the baseline's full budget.

    Returns:
        None where no budget is shown to be not worse: absence of evidence is not enough.
    """
    good = [budget for budget, verdict in verdicts.items() if verdict.not_worse]
    if not good:
        return None
    cheapest = min(good, key=lambda budget: times[budget].ratio)
    return TimeToScore(cheapest, times[cheapest])
