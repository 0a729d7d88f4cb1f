"""What the cells of all tables look like: differences and ratios with their intervals, settings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from as_lightning.benchmark.report.old_verdicts import POINT, Verdict
from as_lightning.benchmark.report.time_to_score import TimeRatio


def with_interval(value: float | None, low: float | None, high: float | None, form: str = ".2f") -> str:
    """A number with its interval, where there is one; an en dash for a missing number (None or NaN).

    >>> with_interval(0.5, 0.25, 0.75), with_interval(0.5, None, None, "+.1f"), with_interval(math.nan, None, None)
    ('0.50 [0.25, 0.75]', '+0.5', '–')
    """
    if value is None or math.isnan(value):
        return "–"
    if low is None or high is None or math.isnan(low):
        return f"{value:{form}}"
    return f"{value:{form}} [{low:{form}}, {high:{form}}]"


def difference(verdict: Verdict | None) -> str:
    """The difference to the reference in points, with its 95% interval.

    >>> difference(Verdict("better", pairs=3, margin=0.005, difference=0.02, low=0.01, high=0.03))
    '+2.00 [+1.00, +3.00]'
    """
    if verdict is None:
        return "–"
    mean, low, high = (
        None if number is None else number / POINT for number in (verdict.difference, verdict.low, verdict.high)
    )
    return with_interval(mean, low, high, "+.2f")


def short_verdict(in_words: str) -> str:
    """A verdict in words, without what follows a colon.

    >>> short_verdict("no verdict: 2 seeds in common, at least 3 are needed"), short_verdict("equal within 0.5 points")
    ('no verdict', 'equal within 0.5 points')
    """
    return in_words.partition(":")[0]


def ratio(time: TimeRatio | None) -> str:
    """A ratio of training times, with its 95% interval; that of the reference to itself has none.

    >>> ratio(TimeRatio(0.8, 0.7, 0.9)), ratio(TimeRatio(1.0, 1.0, 1.0))
    ('0.80 [0.70, 0.90]', '1.00')
    """
    if time is None:
        return "–"
    low, high = (None, None) if time.low == time.high else (time.low, time.high)
    return with_interval(time.ratio, low, high)


def epochs_in_words(epochs: float) -> str:
    """A number of epochs.

    >>> epochs_in_words(1), epochs_in_words(6.0)
    ('1 epoch', '6 epochs')
    """
    return "1 epoch" if epochs == 1 else f"{epochs:g} epochs"


def short(value: Any) -> str:
    """A setting's value, numbers with three digits.

    >>> short(0.0031622), short("cosine"), short(None)
    ('0.00316', 'cosine', 'null')
    """
    return "null" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)


def settings_cell(settings: Mapping[str, Any]) -> str:
    """Settings and their values; an en dash where there are none.

    >>> settings_cell({"lr": 0.0031622, "k": 4}), settings_cell({})
    ('lr 0.00316, k 4', '–')
    """
    return ", ".join(f"{name} {short(value)}" for name, value in settings.items()) or "–"
