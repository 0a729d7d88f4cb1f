"""What a comparison has found, arm by arm: the numbers that the page and the advice are written
from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from as_lightning.bench.run.result import Result
from as_lightning.functional.counts import masking_ratio
from as_lightning.report.record import Arm, ComparisonRecord, arm_of
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
        """Whether the whole interval lies below 0.95: on a machine that is not quiet less means
        little.
        """
        return self.high < 0.95

    @property
    def in_words(self) -> str:
        """A part of a sentence; empty unless it is clearly less, or the whole interval lies above
        1.
        """
        more = f", {100 * (self.ratio - 1):.0f}% slower" if self.low > 1.0 else ""
        return f", {100 * (1 - self.ratio):.0f}% less time" if self.clearly_less else more


def time_ratio(seconds: Mapping[Any, float], reference: Mapping[Any, float]) -> TimeRatio:
    """The ratio of the training times of the seeds, or the seeds and sessions, that both have.

    >>> time_ratio({0: 1.0, 1: 2.0, 2: 2.0}, {0: 2.0, 1: 4.0, 2: 4.0})
    TimeRatio(ratio=0.5, low=0.5, high=0.5)
    """
    ratios = pd.Series(seconds, dtype=float) / pd.Series(reference, dtype=float)
    logarithms = np.log(ratios[(ratios > 0) & (ratios < math.inf)])
    mean, half_width = logarithms.mean(), stats.t.isf(0.025, len(logarithms) - 1) * logarithms.sem()
    half_width = half_width if len(logarithms) >= MIN_PAIRS else math.nan
    return TimeRatio(*np.exp([mean, mean - half_width, mean + half_width]).tolist())


@dataclass(frozen=True)
class Row:
    """The numbers, settings and verdicts of one arm."""

    arm: Arm
    epochs: float
    settings: Mapping[str, Any]
    seeds: int
    mean: float  # of the score over the seeds, in points
    std: float
    seconds: float  # the mean training time
    time: TimeRatio  # of training, to the baseline's full budget
    verdict: Verdict | None  # against the baseline's full budget; None for that arm itself
    same_budget: Verdict | None  # of a smaller budget the one against the baseline at that budget
    metrics: Mapping[
        str, float
    ]  # the means of all test metrics, and of what else the runs have counted
    parameters: int | None = None  # that are trained; None where unknown

    @property
    def length(self) -> str:
        """How long it was trained."""
        if math.isnan(self.epochs):
            return f"budget {self.arm.budget:g}"
        return "1 epoch" if self.epochs == 1 else f"{self.epochs:g} epochs"

    @property
    def name(self) -> str:
        """The candidate and how long it was trained, as far as it is known."""
        known = not math.isnan(self.epochs) or self.arm.budget != 1.0
        return f"{self.arm.candidate}, {self.length}" if known else self.arm.candidate


@dataclass(frozen=True)
class Findings:
    """A row for each arm: the baseline at its full budget first, then candidate by candidate,
    budgets descending.
    """

    record: ComparisonRecord
    rows: tuple[Row, ...]

    @property
    def reference(self) -> Row:
        """The baseline at its full budget."""
        return self.rows[0]

    @property
    def verdicts(self) -> list[Verdict]:
        """All verdicts, against the baseline at the full and at the same budget."""
        return [
            verdict
            for row in self.rows
            for verdict in (row.verdict, row.same_budget)
            if verdict is not None
        ]

    @property
    def candidates(self) -> list[str]:
        """The candidates that have runs, the baseline first."""
        return list(dict.fromkeys(row.arm.candidate for row in self.rows))

    def full(self, candidate: str) -> Row:
        """The row of a candidate at its largest budget."""
        return next(row for row in self.rows if row.arm.candidate == candidate)


def findings(record: ComparisonRecord) -> Findings:
    """The numbers of each arm from its final runs; without a full run of the baseline a ValueError
    has the failures.
    """
    runs: dict[Arm, list[Result]] = {}
    for result in record.results:
        runs.setdefault(arm_of(result), []).append(result)
    reference = record.reference
    if reference not in runs:
        failures = "".join(f"\n  {failure}" for failure in record.failures[:10])
        missing, purpose = f"the baseline {reference.candidate!r}", "to compare with"
        if (
            reference.candidate in record.settings and len(record.settings) == 1
        ):  # it was tuned, and all others failed
            missing, purpose = ", ".join(record.candidates[1:]), f"is compared with {missing}"
        raise ValueError(f"no run of {missing} has finished: nothing {purpose}{failures}")
    by_pair = {(verdict.arm, verdict.against): verdict for verdict in record.verdicts()}
    # a machine is not equally fast at all times: a run is compared with the baseline's that the
    # same command has made
    seconds = {
        arm: {(r.seed, r.session or r.command): r.train_seconds for r in finals}
        for arm, finals in runs.items()
    }
    rows, points = [], record.points
    for arm in sorted(
        runs,
        key=lambda arm: (arm != reference, record.candidates.index(arm.candidate), -arm.budget),
    ):
        scores = pd.Series([points * run.metrics[run.score] for run in runs[arm]])
        first, same_budget_base = runs[arm][0], Arm(reference.candidate, arm.budget)
        row = Row(
            arm=arm,
            epochs=math.nan if first.epochs is None else first.epochs,
            settings=dict(first.settings),
            seeds=int(scores.count()),
            mean=float(scores.mean()),
            std=float(scores.std()),
            seconds=float(pd.Series(seconds[arm], dtype=float).mean()),  # of those that are known
            time=time_ratio(seconds[arm], seconds[reference]),
            verdict=by_pair.get((arm, reference)),
            same_budget=None
            if same_budget_base == reference
            else by_pair.get((arm, same_budget_base)),
            metrics=pd.DataFrame([_measured(run) for run in runs[arm]], dtype=float)
            .mean()
            .dropna()
            .to_dict(),
            parameters=first.parameters,
        )
        rows.append(row)
    return Findings(record, tuple(rows))


def _measured(run: Result) -> dict[str, float | None]:
    """The test metrics of a run, and what else it has counted."""
    last = run.masking[-1] if run.masking else None
    return run.metrics | {
        "masked samples, last epoch": float(masking_ratio(last["masked_samples"], last["samples"]))
        if last
        else None,
        "optimizer steps": run.optimizer_steps,
        "correlation of loss and score": run.loss_accuracy_correlation,
    }
