"""What a comparison has found, candidate by candidate: what page and advice are written from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from as_lightning.report.record import ABOUT, SETTING, ComparisonRecord
from as_lightning.statistics.verdicts import MIN_PAIRS, Verdict


class TimeRatio(NamedTuple):
    """A ratio of training times: the geometric mean over the seeds, and its 95% interval (t on the
    logarithms).

    The interval is NaN below three seeds, and all is NaN where no time is known.
    """

    ratio: float = math.nan
    low: float = math.nan
    high: float = math.nan

    @property
    def clearly_less(self) -> bool:
        """Whether the whole interval lies below 0.95: on a busy machine less means little."""
        return self.high < 0.95

    @property
    def in_words(self) -> str:
        """A part of a sentence; empty unless it is clearly less, or surely more."""
        if self.clearly_less:
            return f", {100 * (1 - self.ratio):.0f}% less time"
        return f", {100 * (self.ratio - 1):.0f}% slower" if self.low > 1.0 else ""


def time_ratio(seconds: Mapping[Any, float], reference: Mapping[Any, float]) -> TimeRatio:
    """The ratio of the training times of the seeds, or the seeds and sessions, that both have.

    >>> time_ratio({0: 1.0, 1: 2.0, 2: 2.0}, {0: 2.0, 1: 4.0, 2: 4.0})
    TimeRatio(ratio=0.5, low=0.5, high=0.5)
    """
    ratios = pd.Series(seconds, dtype=float) / pd.Series(reference, dtype=float)
    logarithms = np.log(ratios[(ratios > 0) & (ratios < math.inf)])
    mean, half_width = logarithms.mean(), math.nan
    if len(logarithms) >= MIN_PAIRS:
        half_width = stats.t.isf(0.025, len(logarithms) - 1) * logarithms.sem()
    return TimeRatio(*np.exp([mean, mean - half_width, mean + half_width]).tolist())


@dataclass(frozen=True)
class Row:
    """The numbers, settings and verdict of one candidate."""

    arm: str  # the candidate's name
    epochs: float
    settings: Mapping[str, Any]
    seeds: int
    mean: float  # of the score over the seeds, in points
    std: float
    time: TimeRatio  # of training, to the baseline
    verdict: Verdict | None  # against the baseline; None for the baseline itself
    metrics: Mapping[str, float]  # the means of all test metrics, and of what else was counted

    @property
    def name(self) -> str:
        """The candidate and how long it was trained, as far as it is known."""
        if math.isnan(self.epochs):
            return self.arm
        return f"{self.arm}, {self.epochs:g} epoch{'s' * (self.epochs != 1)}"


@dataclass(frozen=True)
class Findings:
    """A row for each candidate, the baseline first."""

    record: ComparisonRecord
    rows: tuple[Row, ...]

    @property
    def reference(self) -> Row:
        return self.rows[0]

    @property
    def judged(self) -> list[tuple[Row, Verdict]]:
        return [(row, row.verdict) for row in self.rows if row.verdict is not None]

    @property
    def verdicts(self) -> list[Verdict]:
        """The verdicts on all candidates but the baseline."""
        return [verdict for _, verdict in self.judged]


def findings(record: ComparisonRecord) -> Findings:
    """Return the numbers of each candidate; without a run of the baseline a ValueError."""
    runs = record.final
    of_candidate = dict(list(runs.groupby("candidate", sort=False)))
    if record.baseline not in of_candidate:
        missing = f"nothing to compare: no final run of {record.baseline!r} has finished"
        raise ValueError("\n  ".join([missing, *record.failures[:10]]))
    verdicts = {verdict.arm: verdict for verdict in record.verdicts()}
    # a machine is not equally fast at all times: runs of one seed are compared within a session
    seconds = runs.set_index(["candidate", "seed", "session"])["train_seconds"].astype(float)
    rows = []
    for candidate in sorted(of_candidate, key=record.candidates.index):
        finals = of_candidate[candidate]
        scores, first = record.points * finals["score"], finals.iloc[0]
        row = Row(
            arm=candidate,
            epochs=float(first["epochs"]),
            settings=record.settings.get(candidate, {}),
            seeds=len(finals),
            mean=float(scores.mean()),
            std=float(scores.std()),
            time=time_ratio(seconds[candidate], seconds[record.baseline]),
            verdict=verdicts.get(candidate),
            metrics=_means(finals, record.score),
        )
        rows.append(row)
    return Findings(record, tuple(rows))


def _means(finals: pd.DataFrame, score: str) -> dict[str, float]:
    """Return the means of the test metrics, and of what else the runs have counted."""
    others = [name for name in finals if name in ABOUT or name.startswith(SETTING)]
    measured = finals.drop(columns=others)
    measured[score] = finals["score"]
    last = finals["masking"].str.extract(r"(\d+)/(\d+)$").astype(float)
    measured["masked samples, last epoch"] = last[0] / last[1]
    return measured.astype(float).mean().dropna().to_dict()
