"""What a comparison has found, arm by arm: the numbers that the page and the advice are written from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from as_lightning.benchmark.report.record import ComparisonRecord, arm_of
from as_lightning.benchmark.report.verdicts import POINT, Arm, Verdict, verdicts
from as_lightning.benchmark.run.result import Result
from as_lightning.functional.counts import masking_ratio

SAME_CALIBRATION = 1e-3  # calibration errors of the same probabilities, computed in two ways, differ by less


class TimeRatio(NamedTuple):
    """A ratio of training times: the geometric mean over the seeds, and its 95% interval (t on the logarithms).

    The interval is None with one seed.
    """

    ratio: float
    low: float | None = None
    high: float | None = None

    @property
    def clearly_less(self) -> bool:
        """Whether the whole interval lies below 1."""
        return self.high is not None and self.high < 1.0


def time_ratio(seconds: Mapping[int, float], reference: Mapping[int, float]) -> TimeRatio | None:
    """The ratio of the training times of the seeds that both have; None where there is none, or a time is 0.

    Examples:
        >>> time_ratio({0: 1.0, 1: 2.0}, {0: 2.0, 1: 4.0})
        TimeRatio(ratio=0.5, low=0.5, high=0.5)
    """
    shared = sorted(seconds.keys() & reference.keys())
    if not shared or any(times[seed] <= 0 for times in (seconds, reference) for seed in shared):
        return None
    logarithms = np.array([math.log(seconds[seed] / reference[seed]) for seed in shared])
    mean, count = float(logarithms.mean()), len(shared)
    if count < 2:
        return TimeRatio(math.exp(mean))
    half = float(stats.t.isf(0.025, count - 1) * logarithms.std(ddof=1) / math.sqrt(count))
    return TimeRatio(*(math.exp(mean + shift) for shift in (0.0, -half, half)))


@dataclass(frozen=True)
class Row:
    """What was found of one arm: its score over the seeds in points, its mean training time, the tuned settings.

    Attributes:
        time: the ratio of its training time to that of the baseline's full budget.
        verdict: against the baseline's full budget; None for that arm itself.
        same_budget: of a smaller budget the verdict against the baseline at that budget.
        metrics: the means of all test metrics, and of what else the runs have counted.
    """

    arm: Arm
    epochs: float
    settings: Mapping[str, Any]
    seeds: int
    mean: float
    std: float
    seconds: float
    time: TimeRatio | None
    verdict: Verdict | None
    same_budget: Verdict | None
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def has_own_probabilities(self) -> bool:
        """Whether the method's probabilities are others than the softmax of its logits, as those of entmax are."""
        own, of_softmax = (self.metrics.get(f"calibration_error{kind}") for kind in ("", "_unscaled"))
        return own is not None and of_softmax is not None and abs(own - of_softmax) > SAME_CALIBRATION


@dataclass(frozen=True)
class Findings:
    """What a comparison has found: the baseline first, then method by method, the full budget first.

    ``reference`` is the baseline at its full budget; without runs it has 0 seeds.
    """

    record: ComparisonRecord
    rows: tuple[Row, ...]
    reference: Row
    verdicts: tuple[Verdict, ...]

    @property
    def methods(self) -> list[str]:
        """The methods that have runs, the baseline first."""
        return list(dict.fromkeys(row.arm.method for row in self.rows))

    def full(self, method: str) -> Row:
        """The row of a method at its largest budget."""
        return next(row for row in self.rows if row.arm.method == method)


def findings(record: ComparisonRecord) -> Findings:
    """Put the final runs of a comparison together.

    Raises:
        ValueError: if the baseline has no finished run; the message has the failures.
    """
    runs: dict[Arm, list[Result]] = {}
    for result in record.results:
        runs.setdefault(arm_of(result), []).append(result)
    reference = record.reference
    scores = record.scores()
    found: list[Verdict] = []
    if reference in runs:
        found = verdicts(
            scores,
            baseline=reference.method,
            design=record.design,
            disagreement=record.disagreement(),
            higher_is_better=record.mode == "max",
        )
    elif all(arm.method != reference.method for arm in runs):
        methods = ", ".join(sorted({arm.method for arm in runs})) or "no method"
        failures = "".join(f"\n  {failure}" for failure in record.failures[:10])
        raise ValueError(
            f"no run of the baseline {reference.method!r} has finished, so there is nothing to compare with: there are "
            f"runs of {methods}{failures}"
        )
    by_pair = {(verdict.arm, verdict.against): verdict for verdict in found}
    methods_in_order = sorted(dict.fromkeys(arm.method for arm in runs), key=lambda method: method != reference.method)
    order = sorted({*runs, reference}, key=lambda arm: (methods_in_order.index(arm.method), -arm.budget))
    base_seconds = {run.seed: run.train_seconds for run in runs.get(reference, [])}
    rows = [
        _row(
            arm,
            runs.get(arm, []),
            base_seconds,
            by_pair.get((arm, reference)),
            by_pair.get((arm, Arm(reference.method, arm.budget))) if arm.budget != reference.budget else None,
        )
        for arm in order
    ]
    return Findings(record, tuple(rows), rows[order.index(reference)], tuple(found))


def clearly_cheaper(record: ComparisonRecord) -> set[Arm]:
    """The arms whose training takes clearly less time than the baseline's: the interval of the ratio lies below 1."""
    return {row.arm for row in findings(record).rows if row.time is not None and row.time.clearly_less}


def _row(
    arm: Arm,
    runs: list[Result],
    base_seconds: Mapping[int, float],
    verdict: Verdict | None,
    same_budget: Verdict | None,
) -> Row:
    scores = np.array([run.metrics[run.score] / POINT for run in runs])
    about: dict[str, Any] = runs[0].config["comparison"] if runs else {"epochs": math.nan, "settings": {}}
    return Row(
        arm=arm,
        epochs=about["epochs"],
        settings=dict(about["settings"]),
        seeds=len(runs),
        mean=float(scores.mean()) if runs else math.nan,
        std=float(scores.std(ddof=1)) if len(runs) > 1 else math.nan,
        seconds=float(np.mean([run.train_seconds for run in runs])) if runs else math.nan,
        time=time_ratio({run.seed: run.train_seconds for run in runs}, base_seconds),
        verdict=verdict,
        same_budget=same_budget,
        metrics=_mean_metrics(runs),
    )


def _mean_metrics(runs: list[Result]) -> dict[str, float]:
    """The means of what the runs have measured; a metric that a run lacks is left out of its mean."""
    counted = []
    for run in runs:
        last = run.masking[-1] if run.masking else None
        more = {
            "masked samples, last epoch": float(masking_ratio(last["masked_samples"], last["samples"]))
            if last
            else None,
            "optimizer steps": run.optimizer_steps,
            "correlation of loss and score": run.loss_accuracy_correlation,
            "peak memory, MiB": None if run.peak_memory is None else run.peak_memory / 2**20,
        }
        counted.append(run.metrics | {name: value for name, value in more.items() if value is not None})
    names = dict.fromkeys(name for metrics in counted for name in metrics)
    return {name: float(np.mean([metrics[name] for metrics in counted if name in metrics])) for name in names}
