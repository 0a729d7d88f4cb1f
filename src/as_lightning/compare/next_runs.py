"""What a comparison does next: a pure function of its plan and of the runs that have finished.

One search tunes all candidates, then all run at the full budget, look by look, then at smaller
budgets.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from statistics import fmean
from typing import Any

from as_lightning.bench.run.predictions import Predictions
from as_lightning.bench.run.result import Result
from as_lightning.compare.plan import ComparisonPlan, Run
from as_lightning.compare.search import RATE, as_neutral, best_of, finalists, next_trials
from as_lightning.report.findings import findings
from as_lightning.report.record import Arm, ComparisonRecord, Trial
from as_lightning.statistics.verdicts import still_open

UNTUNED = (
    "Each with its settings as they are, not tuned: no advice. For advice ask for several trials."
)
Outcome = Result | str  # of a run; a text is the error that has ended it


def next_runs(
    plan: ComparisonPlan,
    finished: Mapping[Run, Outcome],
    predictions: Mapping[Run, Predictions] | None = None,
) -> list[Run]:
    """The runs that the plan asks for now; none where the comparison has ended.

    An interrupted comparison goes on the same way: nothing else decides. ``predictions`` of final
    runs set the smallest spread that a difference is taken to have.
    """
    return Replay(plan, finished, predictions or {}).runs


class Replay:
    """A comparison replayed from its finished runs: its ``record``, and the next ``runs``."""

    def __init__(
        self, plan: ComparisonPlan, finished: Mapping[Run, Outcome], of: Mapping[Run, Predictions]
    ) -> None:
        self.plan, self.finished, self.predictions = plan, finished, of
        facts: dict[str, Any] = {
            "baseline": plan.baseline,
            "candidates": [*plan.candidates],
            "design": plan.design,
        }
        facts |= {"full_budget": plan.full_budget, "trials": plan.trials} | dict(plan.facts)
        facts["notes"] = [*facts.get("notes", ())]
        facts |= {} if plan.tunes else {"untuned": UNTUNED}
        self.record = ComparisonRecord(**facts)
        self.record.failures = [
            outcome for outcome in finished.values() if isinstance(outcome, str)
        ]
        self.runs: list[Run] = []
        self._left_out = 0  # runs that diverged where the baseline's did
        self._sign = 1.0 if self.record.mode == "max" else -1.0
        self._tune()
        if self.runs or plan.baseline not in self.record.settings:
            return
        self._gather()
        self._next_look(
            [Arm(name, plan.full_budget) for name in self.record.settings if name != plan.baseline]
        )
        if not self.runs:
            verdicts = (
                self.record.verdicts() if self.record.results else ()
            )  # none if all but the baseline failed
            worse = {verdict.arm.candidate for verdict in verdicts if verdict.word == "worse"}
            arms = [
                Arm(m, b)
                for m in self.record.settings
                if m not in worse
                for b in reversed(plan.budgets_of(m))
            ]
            self._next_look([arm for arm in arms if arm.budget != plan.full_budget])

    @property
    def ended(self) -> ComparisonRecord:
        """The record of a comparison that has ended; a ValueError without a finished run of the
        baseline.
        """
        diverged = sum(
            run.phase == "final" and _diverged(outcome) for run, outcome in self.finished.items()
        )
        if diverged := diverged - self._left_out:
            self.record.notes.append(
                f"{diverged} final runs diverged and count as the worst score."
            )
        if self._left_out:
            note = "final runs diverged as the baseline's of their seed did, and are left out."
            self.record.notes.append(f"{self._left_out} {note}")
        if failed := len(self.record.failures):
            note = (
                f"{failed} of {len(self.finished)} runs have failed and are not in these numbers."
            )
            self.record.notes.append(note)
        findings(self.record)
        return self.record

    # --- tuning

    def _tune(self) -> None:
        plan, record = self.plan, self.record
        if not plan.tunes:
            record.settings = {
                name: {k: d.default for k, d in plan.spaces[name].items()}
                for name in plan.candidates
            }
            return
        own: dict[str, list[Trial]] = {}
        containing = plan.containing
        self._search([name for name in plan.candidates if name not in containing], own, {})
        if self.runs:
            return
        shared = {
            name: [as_neutral(plan.spaces[name], trial) for trial in own[plan.baseline]]
            for name in containing
        }
        self._search(containing, own, shared)
        if self.runs:
            return
        tried = {
            name: [*shared.get(name, []), *own[name]] for name in plan.candidates
        }  # ties go to the first
        raced = {name: self._raced(name, trials, own) for name, trials in tried.items()}
        if self.runs:
            return
        trained = {
            run.candidate for run, outcome in self.finished.items() if isinstance(outcome, Result)
        }
        for name, trials in raced.items():
            best = (
                best_of(trials, self._sign) if name in trained else None
            )  # shared trials do not show that it trains
            if len(trials) > 1:
                record.tuning[name] = trials
            for knob, dimension in plan.spaces[name].items():
                seen, values = (
                    [trial.settings.get(knob) for trial in trials],
                    getattr(dimension, "values", ()),
                )
                if unseen := [
                    str(value) for value in values if value not in seen and dimension.allows(value)
                ]:
                    record.notes.append(
                        f"{name} was not tried with {knob}={' or '.join(unseen)}: ask for more "
                        "trials."
                    )
            if best is None:
                record.notes.append(f"{name} is left out: no trial of it has finished.")
                continue
            record.settings[name] = best.settings
            neutral = {
                key: d.neutral for key, d in plan.spaces[name].items() if d.neutral is not None
            }
            if name in containing and any(
                best.settings[key] == value for key, value in neutral.items()
            ):
                record.same_as[name] = plan.baseline
                record.settings[name] = {**best.settings, **record.settings.get(plan.baseline, {})}
                knobs = ", ".join(
                    f"{key}={value}" for key, value in best.settings.items() if key != RATE
                )
                note = f"Validation chose the setting at which {name} is {plan.baseline} ({knobs}): its runs are"
                record.notes.append(f"{note} those of {plan.baseline}.")

    def _search(
        self, names: Sequence[str], own: dict[str, list[Trial]], shared: Mapping[str, list[Trial]]
    ) -> None:
        """Replay the search with the first tuning seed: finished trials go to ``own``, the next
        ones to the runs.
        """
        plan = self.plan
        for name in names:
            own[name] = []
            while proposed := next_trials(
                plan.spaces[name], own[name], shared.get(name, ()), plan.trials, self._sign
            ):
                numbers = range(len(own[name]), len(own[name]) + len(proposed))
                runs = [
                    self._tuning_run(name, *trial) for trial in zip(proposed, numbers, strict=True)
                ]
                if missing := [run for run in runs if run not in self.finished]:
                    self.runs += missing
                    break
                own[name] += [self._trial([run]) for run in runs]

    def _raced(
        self, name: str, trials: Sequence[Trial], own: Mapping[str, list[Trial]]
    ) -> list[Trial]:
        """The trials of a candidate, the finalists with all tuning seeds; asks for the runs that
        these lack.
        """
        raced = list(trials)
        for trial in finalists(trials, self._sign) if len(trials) > 1 else ():
            owner, place = (self.plan.baseline if trial.shared else name), raced.index(trial)
            number = place if trial.shared else place - len(trials) + len(own[name])
            settings = own[owner][number].settings
            runs = [
                self._tuning_run(owner, settings, number, seed) for seed in self.plan.tuning_seeds
            ]
            missing = [run for run in runs if run not in self.finished and run not in self.runs]
            self.runs += missing
            if all(run in self.finished for run in runs):
                raced[place] = self._trial(runs)._replace(
                    settings=trial.settings, shared=trial.shared
                )
        return raced

    def _tuning_run(
        self, name: str, settings: Mapping[str, Any], number: int, seed: int | None = None
    ) -> Run:
        first = self.plan.tuning_seeds[0]
        return Run(
            "tuning", name, settings, self.plan.full_budget, first if seed is None else seed, number
        )

    def _trial(self, runs: Sequence[Run]) -> Trial:
        """The trial of runs that differ in the tuning seed alone: the means over them."""
        scores, losses = zip(
            *(best_validation(self.finished[run], self._sign) for run in runs), strict=True
        )
        score, loss = (
            fmean(values) if all(map(math.isfinite, values)) else math.nan
            for values in (scores, losses)
        )
        return Trial(runs[0].settings, score, loss, by_seed=scores)

    # --- final runs

    def _next_look(self, arms: Sequence[Arm]) -> None:
        """Ask for the next look's runs of the open ones of these arms, with the baseline's; or stop
        at a cap.
        """
        plan, looks = self.plan, self.plan.design.looks
        open_arms = [arm for arm in arms if arm.candidate not in self.record.same_as]
        reached = [
            look for look in looks if any(not self._missing([arm], look) for arm in open_arms)
        ]
        if reached:  # an arm without the runs of the last look was stopped before
            unsettled = self._unsettled()
            open_arms = [
                arm
                for arm in open_arms
                if arm in unsettled and not self._missing([arm], reached[-1])
            ]
        # if the settings of all arms make them the baseline, only the baseline's runs of the first
        # look are needed
        if not arms or (not open_arms if reached else not self._missing(open_arms, looks[0])):
            return
        if len(reached) == len(looks):
            if len(looks) > 1:
                self._stop(
                    open_arms, f"max_seeds={looks[-1]}", looks[-1], []
                )  # more would be another design
            return
        look = looks[len(reached)]
        runs = self._missing(open_arms, look)
        begun = (
            self.record.reference in self.record.scores()
        )  # else there would be nothing to report
        if begun and self._spent + self._hours(runs) > (plan.max_hours or math.inf):
            self._stop(open_arms, f"max_hours={plan.max_hours:g}", look, runs)
        else:
            self.runs = runs

    def _unsettled(self) -> list[Arm]:
        """The arms that need more seeds."""
        current_findings = findings(self.record)
        # the one decision that depends on measured times; no verdict does
        cheaper = {row.arm for row in current_findings.rows if row.time.clearly_less}
        return still_open(current_findings.verdicts, cheaper=cheaper)

    def _missing(self, arms: Sequence[Arm], look: int) -> list[Run]:
        return [
            run
            for run in self._final_runs(arms, self.plan.seeds[:look])
            if run not in self.finished
        ]

    def _final_runs(self, arms: Sequence[Arm], seeds: Iterable[int]) -> list[Run]:
        """The final runs of arms, and of the baseline's arms that they are compared with."""
        bases = [
            Arm(self.plan.baseline, arm.budget)
            for arm in arms
            if arm.budget in self.plan.baseline_budgets
        ]
        needed = dict.fromkeys([self.record.reference, *bases, *arms])
        settings = self.record.settings
        return [
            Run("final", a.candidate, settings[a.candidate], a.budget, seed)
            for seed in seeds
            for a in needed
        ]

    def _stop(self, open_arms: Sequence[Arm], cap: str, look: int, runs: Sequence[Run]) -> None:
        """Record that a cap was reached, and the cost of the next look."""
        names = ", ".join(f"{arm.candidate} at budget {arm.budget:g}" for arm in open_arms)
        cost = f"; {look} seeds would take {len(runs)} more runs, {self._hours(runs):.2g} hours of training"
        note = f"{cap} was reached with {names} still open{cost if runs else ''}."
        self.record.stopped = f"{self.record.stopped} {note}".lstrip()

    @property
    def _spent(self) -> float:
        """The hours of all runs so far."""
        return sum(o.train_seconds for o in self.finished.values() if isinstance(o, Result)) / 3600

    def _hours(self, runs: Sequence[Run]) -> float:
        """The hours that runs will take, by the mean of their arm, or in proportion to that of the
        full budget.
        """
        seconds_of: dict[Arm, list[float]] = {}
        for run, outcome in self.finished.items():
            if isinstance(outcome, Result):
                seconds_of.setdefault(Arm(run.candidate, run.budget), []).append(
                    outcome.train_seconds
                )

        def seconds(run: Run) -> float:
            full = fmean(seconds_of.get(Arm(run.candidate, self.plan.full_budget), [0.0]))
            return fmean(
                seconds_of.get(
                    Arm(run.candidate, run.budget), [run.budget / self.plan.full_budget * full]
                )
            )

        return sum(map(seconds, runs)) / 3600

    def _gather(self) -> None:
        """Put the final runs into the record: budgets from the largest, candidates and seeds in
        their order.
        """
        record, plan = self.record, self.plan
        predictions: dict[tuple[Arm, int], Predictions] = {}
        budgets = sorted({*plan.baseline_budgets, *plan.candidate_budgets}, reverse=True)
        for budget, name, seed in product(budgets, record.settings, plan.seeds):
            source = record.same_as.get(name, name)
            run = Run("final", source, record.settings[source], budget, seed)
            outcome = self.finished.get(run) if budget in plan.budgets_of(name) else None
            if isinstance(outcome, Result) and not math.isfinite(
                score := outcome.metrics[outcome.score]
            ):
                score, baseline_outcome = (
                    self._worst(seed),
                    self.finished.get(self._run_of(record.reference, seed)),
                )
                if run != self._run_of(record.reference, seed) and _diverged(baseline_outcome):
                    outcome = "the baseline's run of this seed diverged too"
                    self._left_out += 1
                elif not math.isfinite(score):
                    outcome = "no run of this seed has a finite score"
            if isinstance(outcome, str):
                record.missing.append((name, budget, seed))
            if isinstance(outcome, Result):
                record.add(outcome, name, score)
                if run in self.predictions:
                    predictions[Arm(name, budget), seed] = self.predictions[run]
        record.compare_predictions(predictions, plan.examples)

    def _run_of(self, arm: Arm, seed: int) -> Run:
        return Run("final", arm.candidate, self.record.settings[arm.candidate], arm.budget, seed)

    def _worst(self, seed: int) -> float:
        """The score of a diverged run of a seed: the worst validation of the baseline's run, or
        else of any run of the seed, and at most 0 where larger is better; NaN where smaller is
        better and none is finite.
        """
        baseline_outcome = self.finished.get(self._run_of(self.record.reference, seed), "")
        seed_outcomes = [
            outcome
            for run, outcome in self.finished.items()
            if run.phase == "final" and run.seed == seed
        ]
        for outcomes in ([baseline_outcome], seed_outcomes):
            evaluations = [
                row
                for outcome in outcomes
                if isinstance(outcome, Result)
                for row in outcome.evaluations
            ]
            scores = [
                self._sign * row["score"] for row in evaluations if math.isfinite(row["score"])
            ]
            if scores:
                return self._sign * min([*scores, 0.0] if self._sign > 0 else scores)
        return 0.0 if self._sign > 0 else math.nan


def _diverged(outcome: Outcome | None) -> bool:
    return isinstance(outcome, Result) and not math.isfinite(outcome.metrics[outcome.score])


def best_validation(outcome: Outcome, sign: float) -> tuple[float, float]:
    """The best finite validation score of a run, and the lowest cross-entropy (at the best
    temperature) of the validations that had it; NaN for none.
    """
    evaluations = [] if isinstance(outcome, str) else outcome.evaluations
    scores = [
        evaluation["score"] for evaluation in evaluations if math.isfinite(evaluation["score"])
    ]
    best = max(scores, key=lambda score: sign * score, default=math.nan)
    losses = [e.get("cross_entropy", math.nan) for e in evaluations if e["score"] == best]
    return best, min((loss for loss in losses if math.isfinite(loss)), default=math.nan)
