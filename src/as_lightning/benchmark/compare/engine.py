"""Runs a comparison: equal trials for every method, then each tuned method at each budget, then what has finished."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from as_lightning.benchmark.compare.plan import ComparisonPlan, Run
from as_lightning.benchmark.compare.search import Space, at_edge, trials
from as_lightning.benchmark.run.result import Result


@dataclass(frozen=True)
class Failure:
    """A run that has ended in an error, or in a score that is not finite."""

    run: Run
    error: str

    def __str__(self) -> str:
        return f"{self.run}: {self.error}"


Outcome = tuple[Run, Result | Failure]
Execute = Callable[[Sequence[Run]], Iterable[Outcome]]


@dataclass
class Comparison:
    """What the runs of a comparison have left.

    Attributes:
        plan: what was planned.
        results: the final runs that have finished.
        failures: the runs that have not, or whose score is not finite.
        settings: the chosen settings of each method that could be tuned.
        tuning: per method its trials: the settings and the mean validation score (NaN where a run failed).
        notes: sentences for the advice.
    """

    plan: ComparisonPlan
    results: list[Result] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    settings: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    tuning: dict[str, list[tuple[Mapping[str, Any], float]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def cost(plan: ComparisonPlan, spaces: Mapping[str, Space]) -> tuple[int, float]:
    """The number of runs, and their length in trainings of the experiment (budget 1)."""
    tried = {method: trials(spaces[method], plan.trials) for method in plan.methods}
    runs = plan.tuning_runs(tried) + plan.final_runs({method: {} for method in plan.methods})
    return len(runs), sum(run.budget for run in runs)


def run_comparison(
    plan: ComparisonPlan, spaces: Mapping[str, Space], execute: Execute, *, higher_is_better: bool = True
) -> Comparison:
    """Make all runs of a plan.

    A run whose score is not finite (no finite validation in tuning, a test score of NaN at the end) is a failure.

    Args:
        plan: what to compare.
        spaces: per method what is tuned.
        execute: makes runs and yields each with its result or failure, in any order.
        higher_is_better: of the validation score that settings are chosen by.

    Returns:
        The comparison. A method none of whose trials has finished is left out, and named in the notes.
    """
    comparison = Comparison(plan)
    tried = {method: trials(spaces[method], plan.trials) for method in plan.methods}
    scores: dict[tuple[str, int], list[float]] = {}
    total = 0
    for run, outcome in execute(plan.tuning_runs(tried)):
        total += 1
        score = math.nan if isinstance(outcome, Failure) else best_validation(outcome, higher_is_better)
        scores.setdefault((run.method, run.trial), []).append(score)
        if isinstance(outcome, Failure):
            comparison.failures.append(outcome)
        elif not math.isfinite(score):
            comparison.failures.append(Failure(run, f"no validation has given a finite {outcome.score}"))
    sign = 1.0 if higher_is_better else -1.0
    for method in plan.methods:
        if len(tried[method]) == 1:
            comparison.settings[method] = tried[method][0]
            continue
        means = [float(np.mean(scores.get((method, trial), [math.nan]))) for trial in range(len(tried[method]))]
        comparison.tuning[method] = list(zip(tried[method], means, strict=True))
        finished = [trial for trial, mean in enumerate(means) if math.isfinite(mean)]
        if not finished:
            comparison.notes.append(f"{method} is left out: no trial of it has finished.")
            continue
        best = max(finished, key=lambda trial: sign * means[trial])  # of equal ones the first
        comparison.settings[method] = tried[method][best]
        for name in at_edge(spaces[method], tried[method], tried[method][best]):
            value = tried[method][best][name]
            comparison.notes.append(
                f"The best {name} of {method}, {value:.3g}, is the {_end(tried[method], name, value)} that was tried: "
                "a wider search may find a better one."
            )
    # without the baseline there is nothing to compare with
    final = plan.final_runs(comparison.settings) if plan.baseline in comparison.settings else []
    for run, outcome in execute(final):
        total += 1
        if isinstance(outcome, Failure):
            comparison.failures.append(outcome)
        elif not math.isfinite(outcome.metrics[outcome.score]):
            comparison.failures.append(Failure(run, f"its {outcome.score} is {outcome.metrics[outcome.score]}"))
        else:
            comparison.results.append(outcome)
    if comparison.failures:
        comparison.notes.append(f"{len(comparison.failures)} of {total} runs have failed and are not in these numbers.")
    return comparison


def best_validation(result: Result, higher_is_better: bool = True) -> float:
    """The best finite validation score of a run; NaN if it has none."""
    scores = [evaluation["score"] for evaluation in result.evaluations if math.isfinite(evaluation["score"])]
    return (max(scores) if higher_is_better else min(scores)) if scores else math.nan


def epochs_of(budget: float, full_epochs: int) -> int:
    """The whole epochs of a budget, at least 1.

    >>> epochs_of(0.25, 6), epochs_of(0.5, 1)
    (2, 1)
    """
    return max(1, round(budget * full_epochs))


def distinct_budgets(budgets: Sequence[float], full_epochs: int) -> list[float]:
    """Of budgets that come to the same number of epochs the largest.

    >>> distinct_budgets([0.25, 0.5, 1.0], 2)
    [0.5, 1.0]
    """
    by_epochs = {epochs_of(budget, full_epochs): budget for budget in sorted(budgets)}
    return sorted(by_epochs.values())


def one_by_one(run_one: Callable[[Run], Result]) -> Execute:
    """Make runs in this process, one after another; an exception is the run's failure."""

    def execute(runs: Sequence[Run]) -> Iterator[Outcome]:
        for run in runs:
            try:
                yield run, run_one(run)
            except Exception as error:
                yield run, Failure(run, f"{type(error).__name__}: {error}")

    return execute


def _end(tried: Sequence[Mapping[str, Any]], name: str, value: Any) -> str:
    return "smallest" if value == min(trial[name] for trial in tried) else "largest"
