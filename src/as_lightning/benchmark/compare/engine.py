"""Runs a comparison: one search, all methods at the full budget look by look, then smaller budgets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from as_lightning.benchmark.compare.plan import ComparisonPlan, Run
from as_lightning.benchmark.compare.search import (
    Space,
    as_neutral,
    at_edge,
    best_of,
    contains_baseline,
    is_neutral,
    next_trials,
)
from as_lightning.benchmark.report.findings import clearly_cheaper
from as_lightning.benchmark.report.record import ComparisonRecord, Trial
from as_lightning.benchmark.report.verdicts import Arm, Verdict, still_open, verdicts
from as_lightning.benchmark.run.predictions import Predictions
from as_lightning.benchmark.run.result import Result


@dataclass(frozen=True)
class Failure:
    """A run that has ended in an error."""

    run: Run
    error: str

    def __str__(self) -> str:
        return f"{self.run}: {self.error}"


Outcome = tuple[Run, Result | Failure]
Execute = Callable[[Sequence[Run]], Iterable[Outcome]]
Remaining = Callable[[int, float], None]


def one_by_one(run_one: Callable[[Run], Result]) -> Execute:
    """Make runs in this process, one after another; an exception is the run's failure."""

    def execute(runs: Sequence[Run]) -> Iterator[Outcome]:
        for run in runs:
            try:
                yield run, run_one(run)
            except Exception as error:
                yield run, Failure(run, f"{type(error).__name__}: {error}")

    return execute


@dataclass
class Engine:
    """Makes the runs of a plan, and gathers what they leave in a record.

    All that it decides is a function of the results: where finished runs are read and not made again, a comparison that
    was interrupted goes the same way.

    Args:
        plan: what to compare.
        spaces: per method what is tuned.
        execute: makes runs, and yields each with its result or failure, in any order.
        record: to fill.
        directory: below which the runs' folders lie.
        remaining: told before each group of runs the most runs that are left, and their length in full trainings.
    """

    plan: ComparisonPlan
    spaces: Mapping[str, Space]
    execute: Execute
    record: ComparisonRecord
    directory: Path
    remaining: Remaining = lambda runs, length: None
    _finished: dict[Run, Result | Failure] = field(default_factory=dict)

    @property
    def _sign(self) -> float:
        return 1.0 if self.record.mode == "max" else -1.0

    def run(self) -> ComparisonRecord:
        """Make all runs.

        Returns:
            The record. A method none of whose trials has finished is left out, and named in the notes; without the
            baseline no final run is made.
        """
        self._tune()
        if self.plan.baseline in self.record.settings:
            full = self.plan.full_budget
            self._looks([Arm(method, full) for method in self.record.settings if method != self.plan.baseline])
            self._looks(self._smaller_arms())
        failed = sum(isinstance(outcome, Failure) for outcome in self._finished.values())
        if failed:
            self.record.notes.append(
                f"{failed} of {len(self._finished)} runs have failed and are not in these numbers."
            )
        return self.record

    # --- tuning

    def _tune(self) -> None:
        plan, record = self.plan, self.record
        shared = [method for method in plan.methods if contains_baseline(self.spaces[method])]
        if plan.trials == 1 or not any(self.spaces.values()):
            record.settings = {m: _first(self.spaces[m]) for m in plan.methods}
            return
        own: dict[str, list[Trial]] = {method: [] for method in plan.methods}
        # those that contain the baseline begin at its best learning rate
        self._search([m for m in plan.methods if m not in shared or m == plan.baseline], own, shared)
        self._search([m for m in shared if m != plan.baseline], own, shared)
        for method in plan.methods:
            trials = [*self._shared(method, own), *own[method]]  # of equal ones the baseline
            best = best_of(trials, self._sign)
            if len(trials) > 1:
                record.tuning[method] = trials
            if best is None:
                record.notes.append(f"{method} is left out: no trial of it has finished.")
                continue
            record.settings[method] = best.settings
            if method != plan.baseline and is_neutral(self.spaces[method], best.settings):
                record.same_as[method] = plan.baseline
                record.notes.append(
                    f"Validation chose the setting at which {method} is {plan.baseline} "
                    f"({_knobs(best.settings)}): its runs are those of {plan.baseline}."
                )
            for name in at_edge(self.spaces[method], trials, best.settings):
                record.notes.append(
                    f"The best {name} of {method}, {best.settings[name]:.3g}, is the last that {plan.trials} trials "
                    "reached: a larger number of trials may find a better one."
                )

    def _shared(self, method: str, own: Mapping[str, Sequence[Trial]]) -> list[Trial]:
        space = self.spaces[method]
        if method == self.plan.baseline or not contains_baseline(space):
            return []
        known = [as_neutral(space, trial) for trial in own[self.plan.baseline]]
        return [trial for trial in known if set(trial.settings) == set(space)]

    def _search(self, methods: Sequence[str], own: dict[str, list[Trial]], shared: Sequence[str]) -> None:
        plan = self.plan
        while True:
            proposed = {
                m: next_trials(self.spaces[m], own[m], self._shared(m, own), plan.trials, self._sign) for m in methods
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
            outcomes = self._make(runs)
            for m, settings in proposed.items():
                first = len(own[m])
                for number, tried in enumerate(settings, start=first):
                    found = [outcomes[run] for run in runs if (run.method, run.trial) == (m, number)]
                    score, loss = np.mean([best_validation(outcome, self._sign) for outcome in found], axis=0)
                    own[m].append(Trial(tried, float(score), float(loss)))

    # --- final runs

    def _looks(self, arms: Sequence[Arm]) -> None:
        """Give these arms, and the baseline's that they are compared with, seeds until all are decided."""
        plan = self.plan
        open_arms = [arm for arm in arms if arm.method not in self.record.same_as]
        if not arms:
            return
        for number, look in enumerate(plan.design.looks):
            needed = [Arm(plan.baseline, plan.full_budget)]
            needed += [Arm(plan.baseline, a.budget) for a in open_arms if a.budget in plan.budgets_of(plan.baseline)]
            needed = list(dict.fromkeys([*needed, *open_arms]))
            runs = [
                Run("final", arm.method, self.record.settings[arm.method], arm.budget, seed)
                for seed in plan.seeds[:look]
                for arm in needed
            ]
            runs = [run for run in runs if run not in self._finished]
            if number and self._hours(runs) > (plan.max_hours or math.inf):
                self._stop(open_arms, f"max_hours={plan.max_hours:g}", look, runs)
                return
            later = plan.design.looks[-1] - look
            self.remaining(
                len(runs) + later * len(needed), sum(r.budget for r in runs) + later * sum(a.budget for a in needed)
            )
            self._make(runs)
            self._gather()
            found = self._verdicts()
            undecided = {v.arm for v in found if not (v.decided or v.reason)}
            if look != plan.design.looks[-1]:
                undecided = set(still_open(found, plan.design, cheaper=clearly_cheaper(self.record)))
            open_arms = [arm for arm in open_arms if arm in undecided]
            if not open_arms:
                return
        if len(plan.design.looks) > 1:
            more = len(plan.seeds) + len(plan.seeds) // 2
            runs = [Run("final", a.method, {}, a.budget, s) for s in range(len(plan.seeds), more) for a in needed]
            self._stop(open_arms, f"max_seeds={len(plan.seeds)}", more, runs)

    def _stop(self, open_arms: Sequence[Arm], cap: str, look: int, runs: Sequence[Run]) -> None:
        """Say that a cap was reached, and what it costs to lift."""
        names = ", ".join(f"{arm.method} at budget {arm.budget:g}" for arm in open_arms)
        hours = self._hours(runs) - self._hours([])
        self.record.stopped = " ".join(
            filter(
                None,
                [
                    self.record.stopped,
                    f"{cap} was reached with {names} undecided; {look} seeds would take {len(runs)} more runs, "
                    f"{hours:.2g} hours of training.",
                ],
            )
        )

    def _smaller_arms(self) -> list[Arm]:
        """The smaller budgets of the baseline, and of the methods that are not worse."""
        plan = self.plan
        worse = {verdict.arm.method for verdict in self._verdicts() if verdict.word == "worse"}
        return [
            Arm(method, budget)
            for method in self.record.settings
            if method not in worse
            for budget in reversed(plan.budgets_of(method))
            if budget != plan.full_budget
        ]

    def _verdicts(self) -> list[Verdict]:
        return verdicts(
            self.record.scores(),
            baseline=self.plan.baseline,
            design=self.plan.design,
            disagreement=self.record.disagreement(),
            higher_is_better=self.record.mode == "max",
        )

    def _hours(self, runs: Sequence[Run]) -> float:
        """The hours of all runs so far, and of ``runs`` by the mean of their like."""
        seconds = {run: outcome.train_seconds for run, outcome in self._finished.items() if isinstance(outcome, Result)}
        total = sum(seconds.values())
        for run in runs:
            alike = [s for r, s in seconds.items() if (r.method, r.budget) == (run.method, run.budget)]
            total += float(np.mean(alike)) if alike else 0.0
        return total / 3600.0

    def _make(self, runs: Sequence[Run]) -> dict[Run, Result | Failure]:
        outcomes: dict[Run, Result | Failure] = {}
        for run, outcome in self.execute(runs):
            outcomes[run] = self._finished[run] = outcome
        for outcome in outcomes.values():
            if isinstance(outcome, Failure):
                self.record.failures.append(str(outcome))
        return outcomes

    def _gather(self) -> None:
        """Put the final runs into the record: budgets from the largest, methods and seeds in their order."""
        record, plan = self.record, self.plan
        record.results, record.predictions, record.missing = [], {}, []
        final = {run: outcome for run, outcome in self._finished.items() if run.phase == "final"}
        budgets = sorted({run.budget for run in final}, reverse=True)
        diverged = 0
        for budget in budgets:
            for method in record.settings:
                stands_for = record.same_as.get(method, method)
                if budget not in plan.budgets_of(method):
                    continue
                for run in sorted(
                    (r for r in final if (r.method, r.budget) == (stands_for, budget)), key=lambda r: r.seed
                ):
                    outcome = final[run]
                    if isinstance(outcome, Failure):
                        record.missing.append((method, budget, run.seed))
                        continue
                    score = outcome.metrics[outcome.score]
                    if not math.isfinite(score):
                        diverged += 1
                        score = self._worst(final, run)
                    record.add(outcome, Predictions.read(self.directory / run.folder), method, score)
        about = "final runs diverged and count as the worst score"
        record.notes = [note for note in record.notes if about not in note]
        if diverged:
            record.notes.append(f"{diverged} {about}.")

    def _worst(self, final: Mapping[Run, Result | Failure], run: Run) -> float:
        """What a run without a finite score counts as: 0, or the largest loss that the baseline's run has seen."""
        if self.record.mode == "max":
            return 0.0
        reference = next(
            (
                outcome
                for other, outcome in final.items()
                if (other.method, other.seed) == (self.plan.baseline, run.seed) and isinstance(outcome, Result)
            ),
            None,
        )
        seen = [e["score"] for e in reference.evaluations if math.isfinite(e["score"])] if reference else []
        return max(seen, default=0.0)


def best_validation(outcome: Result | Failure, sign: float) -> tuple[float, float]:
    """The best finite validation score of a run, and the lowest loss of the validations that had it; NaN for none."""
    if isinstance(outcome, Failure):
        return math.nan, math.nan
    scores = [evaluation["score"] for evaluation in outcome.evaluations if math.isfinite(evaluation["score"])]
    if not scores:
        return math.nan, math.nan
    best = max(scores) if sign > 0 else min(scores)
    losses = [e.get("loss", math.nan) for e in outcome.evaluations if e["score"] == best]
    return best, min((loss for loss in losses if math.isfinite(loss)), default=math.nan)


def _first(space: Space) -> dict[str, object]:
    return {name: dimension.default for name, dimension in space.items()}


def _knobs(settings: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items() if name != "lr")
