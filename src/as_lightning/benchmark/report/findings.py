"""What a comparison has found, arm by arm: the numbers that the table, the page and the advice are written from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from as_lightning.benchmark.report.old_verdicts import (
    MARGIN_POINTS,
    POINT,
    Verdict,
    check_seeds,
    paired_differences,
    paired_verdicts,
)
from as_lightning.benchmark.report.time_to_score import TimeRatio, TimeToScore, time_ratio, time_to_score
from as_lightning.benchmark.run.result import Result

SAME_CALIBRATION = 1e-3  # calibration errors of the same probabilities, computed in two ways, differ by less


class ArmKey(NamedTuple):
    """A tuned method at a budget."""

    method: str
    budget: float


@dataclass(frozen=True)
class Arm:
    """What was found of one method at one budget.

    Attributes:
        method: its name.
        budget: the share of the full training.
        epochs: the epochs of the budget.
        settings: what was tuned, and the chosen values.
        seeds: the number of runs.
        mean: the test score, mean over the seeds; in the score's unit, higher is better.
        std: its standard deviation over the seeds; None with one seed.
        seconds: the training time, mean over the seeds.
        time: its ratio to the baseline's full budget; None where no seed is shared.
        verdict: against the baseline's full budget; None for that arm itself.
        metrics: the means of all test metrics.
    """

    method: str
    budget: float
    epochs: float
    settings: Mapping[str, Any]
    seeds: int
    mean: float
    std: float | None
    seconds: float
    time: TimeRatio | None
    verdict: Verdict | None
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def has_own_probabilities(self) -> bool:
        """Whether the method's probabilities are others than the softmax of its logits, as those of entmax are."""
        own, of_softmax = (self.metrics.get(f"calibration_error{kind}") for kind in ("", "_unscaled"))
        return own is not None and of_softmax is not None and abs(own - of_softmax) > SAME_CALIBRATION


@dataclass(frozen=True)
class Findings:
    """What a comparison has found.

    Attributes:
        name: of the experiment.
        score: the metric that is compared.
        split: of what data the score is: ``test``, or ``validation`` where there is no test split.
        baseline: the method that all are compared with, at its full budget.
        margin: what counts as equal, in the score's unit.
        arms: baseline first, then method by method, the full budget first.
        reference: the arm of the baseline's full budget; with 0 seeds and no score where none of its runs has finished.
        test_samples: samples of the split that is scored; None where unknown.
        notes: sentences about the comparison itself: failed runs, what could not be tuned.
    """

    name: str
    score: str
    split: str
    baseline: str
    margin: float
    arms: tuple[Arm, ...]
    reference: Arm
    test_samples: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def methods(self) -> list[str]:
        """The methods, the baseline first."""
        return list(dict.fromkeys(arm.method for arm in self.arms))

    def of(self, method: str) -> list[Arm]:
        """The arms of a method, the full budget first."""
        return [arm for arm in self.arms if arm.method == method]

    def time_to_score(self, method: str) -> TimeToScore | None:
        """The cheapest budget of a method that is shown to be not worse than the baseline's full budget."""
        compared = [arm for arm in self.of(method) if arm.verdict is not None and arm.time is not None]
        found = time_to_score(
            {arm.budget: arm.verdict for arm in compared if arm.verdict is not None},
            {arm.budget: arm.time for arm in compared if arm.time is not None},
        )
        if method == self.baseline and self.reference.seeds and (found is None or found.time.ratio > 1):
            return TimeToScore(self.reference.budget, TimeRatio(1.0, 1.0, 1.0))
        return found


def findings(
    results: Sequence[Result],
    *,
    baseline: str,
    margin: float = MARGIN_POINTS * POINT,
    full_budget: float | None = None,
    higher_is_better: bool = True,
    split: str = "test",
    test_samples: int | None = None,
    notes: Sequence[str] = (),
    verdicts: Mapping[ArmKey, Verdict] | None = None,
) -> Findings:
    """Put the final runs of one comparison together.

    Args:
        results: runs of one experiment; each has its ``budget``, ``epochs`` and ``settings`` in
            ``config["comparison"]``.
        baseline: the method to compare with.
        margin: what counts as equal, in the score's unit.
        full_budget: the baseline's budget that all are compared with; None is its largest one that has runs. Without a
            run at ``full_budget`` no arm has a verdict, and the reference has no seeds.
        higher_is_better: False turns all differences round.
        split: what the scores are of.
        test_samples: how many samples.
        notes: sentences for the advice.
        verdicts: of the arms, corrected for more comparisons than these; None corrects for these.

    Raises:
        ValueError: if the baseline has no finished run, two runs are of one arm and seed, or a seed is no whole number.
    """
    runs: dict[ArmKey, list[Result]] = {}
    for result in results:
        runs.setdefault(ArmKey(result.method, float(result.config["comparison"]["budget"])), []).append(result)
    budgets = [key.budget for key in runs if key.method == baseline]
    if not budgets:
        raise ValueError(
            f"no run of the baseline {baseline!r} has finished, so there is nothing to compare with: there are runs of "
            f"{', '.join(sorted({key.method for key in runs})) or 'no method'}"
        )
    reference = ArmKey(baseline, max(budgets) if full_budget is None else float(full_budget))
    for key, group in runs.items():
        try:
            check_seeds(run.seed for run in group)
        except ValueError as error:
            raise ValueError(f"{key.method} at budget {key.budget:g}: {error}") from None
    sign = 1.0 if higher_is_better else -1.0
    scores: dict[ArmKey, dict[int, float]] = {
        key: {run.seed: sign * run.metrics[run.score] for run in group} for key, group in runs.items()
    }
    seconds: dict[ArmKey, dict[int, float]] = {
        key: {run.seed: run.train_seconds for run in group} for key, group in runs.items()
    }
    if verdicts is None:
        compared = [key for key in runs if key != reference]
        differences = {key: paired_differences(scores[key], scores.get(reference, {})) for key in compared}
        verdicts = paired_verdicts(differences, margin)
    methods = sorted(dict.fromkeys(key.method for key in runs), key=lambda method: method != baseline)
    order = sorted({*runs, reference}, key=lambda key: (methods.index(key.method), -key.budget))
    reference_seconds = seconds.get(reference, {})
    arms = {
        key: _arm(key, runs[key], verdicts.get(key), seconds[key], reference_seconds)
        if key in runs
        else _missing_arm(key, runs)
        for key in order
    }
    first = runs[ArmKey(baseline, max(budgets))][0]
    return Findings(
        name=first.name,
        score=first.score,
        split=split,
        baseline=baseline,
        margin=margin,
        arms=tuple(arms.values()),
        reference=arms[reference],
        test_samples=test_samples,
        notes=tuple(notes),
    )


def _missing_arm(key: ArmKey, runs: Mapping[ArmKey, Sequence[Result]]) -> Arm:
    """The reference where none of its runs has finished; its epochs are those of another run, in proportion."""
    budget, epochs = max((other.budget, group[0].config["comparison"]["epochs"]) for other, group in runs.items())
    whole = round(epochs * key.budget / budget)
    return Arm(key.method, key.budget, whole, {}, 0, math.nan, None, math.nan, time=None, verdict=None)


def _arm(
    key: ArmKey,
    runs: Sequence[Result],
    verdict: Verdict | None,
    seconds: Mapping[int, float],
    reference_seconds: Mapping[int, float],
) -> Arm:
    values = np.array([run.metrics[run.score] for run in runs])
    comparison = runs[0].config["comparison"]
    return Arm(
        method=key.method,
        budget=key.budget,
        epochs=comparison["epochs"],
        settings=dict(comparison["settings"]),
        seeds=len(runs),
        mean=float(values.mean()),
        std=float(values.std(ddof=1)) if len(values) > 1 else None,
        seconds=float(np.mean(list(seconds.values()))),
        time=time_ratio(seconds, reference_seconds) if seconds.keys() & reference_seconds.keys() else None,
        verdict=verdict,
        metrics={name: float(np.mean([run.metrics.get(name, np.nan) for run in runs])) for name in runs[0].metrics},
    )
