"""Runs a comparison: one search, all methods at the full budget look by look, then smaller budgets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from as_lightning.benchmark.compare.plan import ComparisonPlan, Run
from as_lightning.benchmark.compare.search import (
    RATE,
    Space,
    as_neutral,
    at_edge,
    best_of,
    contains_baseline,
    is_neutral,
    next_trials,
)
from as_lightning.benchmark.report.findings import findings
from as_lightning.benchmark.report.record import ComparisonRecord, Trial
from as_lightning.benchmark.report.verdicts import Arm, still_open
from as_lightning.benchmark.run.predictions import Predictions
from as_lightning.benchmark.run.result import Result

Outcome = tuple[Run, Result | str]  # in words the error that has ended a run
Execute = Callable[[Sequence[Run]], Iterable[Outcome]]


def failure(run: Run, error: object) -> str:
    """An error that has ended a run, in words."""
    return f"{run}: {type(error).__name__}: {error}"


def one_by_one(run_one: Callable[[Run], Result]) -> Execute:
    """Make runs in this process, one after another; an exception is the run's failure."""

    def execute(runs: Sequence[Run]) -> Iterator[Outcome]:
        for run in runs:
            try:
                yield run, run_one(run)
            except Exception as error:
                yield run, failure(run, error)

    return execute


@dataclass
class Engine:
    """Makes the runs of a plan, and gathers what they leave in a record.

    All that it decides is a function of the results: where finished runs are read and not made again, a comparison that
    was interrupted goes the same way.

    ``spaces`` has what is tuned of each method; ``execute`` makes runs, and yields them in any order; their folders lie
    below ``directory``; ``remaining`` is told before each look the most runs that are left, and their length together.
    """

    plan: ComparisonPlan
    spaces: Mapping[str, Space]
    execute: Execute
    record: ComparisonRecord
    directory: Path
    remaining: Callable[[int, float], None] = lambda runs, length: None
    _finished: dict[Run, Result | str] = field(default_factory=dict)
    _diverged: int = 0

    def __post_init__(self) -> None:
        self._sign = 1.0 if self.record.mode == "max" else -1.0

    def run(self) -> ComparisonRecord:
        """Make all runs.

        A method none of whose trials has finished is left out, and named in the notes; without the baseline no final
        run is made.
        """
        plan, record = self.plan, self.record
        self._tune()
        if plan.baseline in record.settings:
            self._looks([Arm(method, plan.full_budget) for method in record.settings if method != plan.baseline])
            worse = {verdict.arm.method for verdict in self.record.verdicts() if verdict.word == "worse"}
            smaller = [
                Arm(method, budget)
                for method in record.settings
                if method not in worse
                for budget in reversed(plan.budgets_of(method))
                if budget != plan.full_budget
            ]
            self._looks(smaller)
        if self._diverged:
            record.notes.append(f"{self._diverged} final runs diverged and count as the worst score.")
        if record.failures:
            record.notes.append(
                f"{len(record.failures)} of {len(self._finished)} runs have failed and are not in these numbers."
            )
        return record

    # --- tuning

    def _tune(self) -> None:
        plan, record = self.plan, self.record
        if plan.trials == 1 or not any(self.spaces.values()):
            record.settings = {m: {name: d.default for name, d in self.spaces[m].items()} for m in plan.methods}
            return
        own: dict[str, list[Trial]] = {method: [] for method in plan.methods}
        shared = {m: self.spaces[m] for m in plan.methods[1:] if contains_baseline(self.spaces[m])}
        self._search([method for method in plan.methods if method not in shared], own, {})
        # those that contain the baseline begin at its best learning rate
        known = {
            method: [
                t
                for t in (as_neutral(space, trial) for trial in own[plan.baseline])
                if t.settings.keys() == space.keys()
            ]
            for method, space in shared.items()
        }
        self._search(list(shared), own, known)
        for method in plan.methods:
            trials = [*known.get(method, []), *own[method]]  # of equal ones the baseline
            best = best_of(trials, self._sign)
            if len(trials) > 1:
                record.tuning[method] = trials
            if best is None:
                record.notes.append(f"{method} is left out: no trial of it has finished.")
                continue
            record.settings[method] = best.settings
            if method != plan.baseline and is_neutral(self.spaces[method], best.settings):
                record.same_as[method] = plan.baseline
                knobs = ", ".join(f"{name}={value}" for name, value in best.settings.items() if name != RATE)
                record.notes.append(
                    f"Validation chose the setting at which {method} is {plan.baseline} ({knobs}): its runs are those "
                    f"of {plan.baseline}."
                )
            for name in at_edge(self.spaces[method], trials, best.settings):
                record.notes.append(
                    f"The best {name} of {method}, {best.settings[name]:.3g}, is the last that {plan.trials} trials "
                    "reached: a larger number of trials may find a better one."
                )

    def _search(
        self, methods: Sequence[str], own: Mapping[str, list[Trial]], shared: Mapping[str, Sequence[Trial]]
    ) -> None:
        """Let each method make its trials, added to ``own``, the methods by turns."""
        plan = self.plan
        while True:
            proposed = {
                m: next_trials(self.spaces[m], own[m], shared.get(m, ()), plan.trials, self._sign) for m in methods
            }
            count = max(map(len, proposed.values()), default=0)
            if count == 0:
                return
            runs = [
                Run("tuning", m, proposed[m][i], plan.full_budget, seed, len(own[m]) + i)
                for i in range(count)
                for seed in plan.tuning_seeds
                for m in methods
                if i < len(proposed[m])
            ]
            self._make(runs)
            for m, settings in proposed.items():
                for trial, tried in enumerate(settings, start=len(own[m])):
                    outcomes = [self._finished[run] for run in runs if (run.method, run.trial) == (m, trial)]
                    score, loss = np.mean([best_validation(outcome, self._sign) for outcome in outcomes], axis=0)
                    own[m].append(Trial(tried, float(score), float(loss)))

    # --- final runs

    def _looks(self, arms: Sequence[Arm]) -> None:
        """Give these arms, and the baseline's that they are compared with, seeds until all are decided."""
        if not arms:
            return
        plan, looks = self.plan, self.plan.design.looks
        open_arms = [arm for arm in arms if arm.method not in self.record.same_as]
        for number, look in enumerate(looks):
            needed = [Arm(plan.baseline, plan.full_budget)]
            needed += [Arm(plan.baseline, a.budget) for a in open_arms if a.budget in plan.budgets_of(plan.baseline)]
            needed = list(dict.fromkeys([*needed, *open_arms]))
            runs = [run for run in self._runs(needed, plan.seeds[:look]) if run not in self._finished]
            if number and self._hours(runs) > (plan.max_hours or math.inf):
                self._stop(open_arms, f"max_hours={plan.max_hours:g}", look, runs)
                return
            later = self._runs(needed, plan.seeds[look:])
            self.remaining(len(runs) + len(later), sum(run.budget for run in [*runs, *later]))
            self._make(runs)
            self._gather()
            found = self.record.verdicts()
            if look == looks[-1]:
                undecided = [verdict.arm for verdict in found if not (verdict.decided or verdict.reason)]
            else:
                # This is the one decision that rests on measured times. A comparison that goes on reads those of its
                # finished runs, and no word depends on when an arm stops: each look has its share of the error.
                cheaper = {row.arm for row in findings(self.record).rows if row.time.clearly_less}
                undecided = still_open(found, plan.design, cheaper=cheaper)
            open_arms = [arm for arm in open_arms if arm in undecided]
            if not open_arms:
                return
        if len(looks) > 1:
            more = len(plan.seeds) + len(plan.seeds) // 2
            runs = self._runs(needed, range(len(plan.seeds), more))
            self._stop(open_arms, f"max_seeds={len(plan.seeds)}", more, runs)

    def _runs(self, arms: Sequence[Arm], seeds: Iterable[int]) -> list[Run]:
        return [Run("final", a.method, self.record.settings[a.method], a.budget, seed) for seed in seeds for a in arms]

    def _stop(self, open_arms: Sequence[Arm], cap: str, look: int, runs: Sequence[Run]) -> None:
        """Say that a cap was reached, and what it costs to lift."""
        names = ", ".join(f"{arm.method} at budget {arm.budget:g}" for arm in open_arms)
        hours = self._hours(runs) - self._hours([])
        said = (
            f"{cap} was reached with {names} undecided; {look} seeds would take {len(runs)} more runs, "
            f"{hours:.2g} hours of training."
        )
        self.record.stopped = f"{self.record.stopped} {said}".lstrip()

    def _hours(self, runs: Sequence[Run]) -> float:
        """The hours of all runs so far, and of ``runs`` by the mean of their like."""
        seconds = {run: outcome.train_seconds for run, outcome in self._finished.items() if isinstance(outcome, Result)}
        total = sum(seconds.values())
        for run in runs:
            alike = [s for r, s in seconds.items() if (r.method, r.budget) == (run.method, run.budget)]
            total += float(np.mean(alike)) if alike else 0.0
        return total / 3600.0

    def _make(self, runs: Sequence[Run]) -> None:
        made = dict(self.execute(runs))
        self._finished |= made
        self.record.failures += [outcome for outcome in made.values() if isinstance(outcome, str)]

    def _gather(self) -> None:
        """Put the final runs into the record: budgets from the largest, methods and seeds in their order."""
        record, plan = self.record, self.plan
        record.results, record.predictions, record.missing = [], {}, []
        self._diverged = 0
        final = sorted((run for run in self._finished if run.phase == "final"), key=lambda run: (-run.budget, run.seed))
        for budget in dict.fromkeys(run.budget for run in final):
            for method in record.settings:
                stands_for = record.same_as.get(method, method)
                if budget not in plan.budgets_of(method):
                    continue
                for run in [run for run in final if (run.method, run.budget) == (stands_for, budget)]:
                    outcome = self._finished[run]
                    if isinstance(outcome, str):
                        record.missing.append((method, budget, run.seed))
                        continue
                    score = outcome.metrics[outcome.score]
                    if not math.isfinite(score):
                        self._diverged += 1
                        score = self._worst(run.seed)
                    record.add(outcome, Predictions.read(self.directory / run.folder), method, score)

    def _worst(self, seed: int) -> float:
        """What a run without a finite score counts as: 0, or the largest loss that the baseline's run has seen."""
        if self.record.mode == "max":
            return 0.0
        reference = ("final", seed, self.record.reference)
        losses = [
            evaluation["score"]
            for run, outcome in self._finished.items()
            if isinstance(outcome, Result) and (run.phase, run.seed, Arm(run.method, run.budget)) == reference
            for evaluation in outcome.evaluations
            if math.isfinite(evaluation["score"])
        ]
        return max(losses, default=0.0)


def best_validation(outcome: Result | str, sign: float) -> tuple[float, float]:
    """The best finite validation score of a run, and the lowest loss of the validations that had it; NaN for none."""
    evaluations = [] if isinstance(outcome, str) else outcome.evaluations
    scores = [evaluation["score"] for evaluation in evaluations if math.isfinite(evaluation["score"])]
    best = max(scores, key=lambda score: sign * score, default=math.nan)
    losses = [e.get("loss", math.nan) for e in evaluations if e["score"] == best]
    return best, min((loss for loss in losses if math.isfinite(loss)), default=math.nan)
