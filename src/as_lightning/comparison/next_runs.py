"""What a comparison does next: a pure function of its plan and of the runs that have finished."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from as_lightning.bench.run.predictions import Predictions
from as_lightning.bench.run.result import Result
from as_lightning.comparison.plan import ComparisonPlan, Run
from as_lightning.comparison.race import racing, still_open
from as_lightning.comparison.search import best_of, finalists, next_trial
from as_lightning.report.findings import findings
from as_lightning.report.record import ComparisonRecord, Trial

UNTUNED = "Each with its settings as they are: no advice, which needs several trials of settings."
Outcome = Result | str  # of a run; a text is the error that has ended it


def next_runs(
    plan: ComparisonPlan,
    finished: Mapping[Run, Outcome],
    predictions: Mapping[Run, Predictions] | None = None,
) -> list[Run]:
    """Return the runs that the plan asks for now; none where the comparison has ended."""
    return Replay(plan, finished, predictions or {}).runs


class Replay:
    """A comparison replayed from its finished runs: its ``record``, and the next ``runs``."""

    def __init__(
        self,
        plan: ComparisonPlan,
        finished: Mapping[Run, Outcome],
        predictions: Mapping[Run, Predictions],
    ) -> None:
        self.plan, self.finished, self.predictions = plan, finished, predictions
        self.record = ComparisonRecord(
            baseline=plan.baseline,
            candidates=list(plan.family),
            design=plan.design,
            trials=plan.trials,
            **plan.facts,
        )
        self.record.notes = list(self.record.notes)
        if not plan.tunes:
            self.record.untuned = UNTUNED
        self.results: dict[Run, Result] = {}
        for run, outcome in finished.items():
            if isinstance(outcome, Result):
                self.results[run] = outcome
            else:
                self.record.failures.append(outcome)
        self.runs: list[Run] = []
        self._sign = 1.0 if self.record.mode == "max" else -1.0
        self._diverged: set[Run] = set()
        self._tune()
        of_search = [run for run in self.results if run.phase == "tuning"]
        places = plan.candidates.index
        for run in sorted(of_search, key=lambda run: (places(run.candidate), run.trial, run.seed)):
            score = best_validation(self.results[run], self._sign)
            self.record.add(self.results[run], run.candidate, score, run.phase)
        if not self.runs and plan.baseline in self.record.settings:
            if plan.half is not None:
                self.record.settings[plan.half] = self.record.settings[plan.baseline]
            self._gather()
            self._next_look()

    @property
    def ended(self) -> ComparisonRecord:
        """The record of a comparison that has ended; a ValueError without a run of the baseline."""
        notes = self.record.notes
        if self._diverged:
            notes.append(f"{len(self._diverged)} final runs diverged and count as the worst score.")
        if failed := len(self.record.failures):
            notes.append(
                f"{failed} of {len(self.finished)} runs have failed and are not in these numbers."
            )
        findings(self.record)
        return self.record

    def _tune(self) -> None:
        plan, record = self.plan, self.record
        if not plan.tunes:
            for name in plan.candidates:
                dimensions = plan.spaces[name].items()
                record.settings[name] = {knob: d.default for knob, d in dimensions}
            return
        tried = {name: self._searched(name) for name in plan.candidates}
        if self.runs:
            return
        for name, trials in tried.items():
            self._race(name, trials)
        if not self.runs:
            for name, trials in tried.items():
                self._choose(name, trials)

    def _searched(self, name: str) -> list[Trial]:
        """Return the finished trials of the first tuning seed, and ask for the next one."""
        plan = self.plan
        trials: list[Trial] = []
        space = plan.spaces[name]
        while (settings := next_trial(space, trials, plan.trials, self._sign)) is not None:
            run = Run("tuning", name, settings, plan.tuning_seeds[0], len(trials))
            if run not in self.finished:
                self.runs.append(run)
                break
            trials.append(self._trial([run]))
        return trials

    def _race(self, name: str, trials: list[Trial]) -> None:
        """Put all tuning seeds into the trials of a candidate's finalists, or ask for these."""
        for trial in finalists(trials, self._sign) if len(trials) > 1 else ():
            number = trials.index(trial)
            runs = []
            for seed in self.plan.tuning_seeds:
                runs.append(Run("tuning", name, trial.settings, seed, number))
            missing = [run for run in runs if run not in self.finished]
            self.runs += missing
            if not missing:
                trials[number] = self._trial(runs)

    def _choose(self, name: str, trials: Sequence[Trial]) -> None:
        record = self.record
        if len(trials) > 1:
            record.tuning[name] = list(trials)
        for knob, dimension in self.plan.spaces[name].items():
            seen = [trial.settings.get(knob) for trial in trials]
            values = getattr(dimension, "values", ())
            if unseen := [str(value) for value in values if value not in seen]:
                untried = f"{name} was not tried with {knob}={' or '.join(unseen)}"
                record.notes.append(f"{untried}: ask for more trials.")
        best = best_of(trials, self._sign)
        if best is None:
            record.notes.append(f"{name} is left out: no trial of it has finished.")
        else:
            record.settings[name] = best.settings

    def _trial(self, runs: Sequence[Run]) -> Trial:
        scores = [best_validation(self.finished[run], self._sign) for run in runs]
        return Trial(runs[0].settings, fmean(scores), by_seed=scores)  # NaN if one is

    def _next_look(self) -> None:
        """Ask for the next look's runs of the candidates that go on, with the baseline's."""
        plan, record, looks = self.plan, self.record, self.plan.design.looks
        others = [name for name in record.settings if name != plan.baseline]
        passed = 0
        going = others
        for look in looks:
            if all(self._missing([name], look) for name in others):
                break
            passed += 1
            # a candidate without the runs of this look was stopped before
            going = [name for name in others if not self._missing([name], look)]
        if passed:
            going = self._going_on(going, looks[passed - 1])
        if not others or (passed and not going):
            return
        unsettled = f"was reached with {', '.join(going)} still open"
        if passed == len(looks):
            if len(looks) > 1:  # more would be another design
                record.stopped = f"max_seeds={looks[-1]} {unsettled}."
            return
        runs = self._missing(going, looks[passed])
        begun = plan.baseline in record.scores()  # else there would be nothing to report
        spent = sum(result.train_seconds for result in self.results.values()) / 3600
        hours = spent * len(runs) / max(len(self.results), 1)
        if begun and plan.max_hours is not None and spent + hours > plan.max_hours:
            cost = f"{looks[passed]} seeds would take {len(runs)} more runs, {hours:.2g} hours"
            record.stopped = f"max_hours={plan.max_hours:g} {unsettled}; {cost} of training."
        else:
            self.runs = runs

    def _going_on(self, candidates: Sequence[str], seeds: int) -> list[str]:
        """Return those of the candidates with so many seeds that get more."""
        found = findings(self.record)
        # the one decision that depends on measured times; no verdict does
        cheaper = {row.arm for row in found.rows if row.time.clearly_less}
        unsettled = still_open(found.verdicts, cheaper=cheaper)
        going = [name for name in candidates if name in unsettled]
        if self.plan.race:
            racers = racing(found.verdicts, [name for name in going if name not in cheaper], seeds)
            going = [name for name in going if name in cheaper or name in racers]
            self.record.behind = [name for name in unsettled if name not in going]
        return going

    def _missing(self, candidates: Iterable[str], look: int) -> list[Run]:
        runs = []
        for seed in self.plan.seeds[:look]:
            for name in dict.fromkeys([self.plan.baseline, *candidates]):
                run = self._final_run(name, seed)
                if run not in self.finished:
                    runs.append(run)
        return runs

    def _final_run(self, candidate: str, seed: int) -> Run:
        return Run("final", candidate, self.record.settings[candidate], seed)

    def _gather(self) -> None:
        record = self.record
        predictions: dict[tuple[str, int], Predictions] = {}
        for name in record.settings:
            for seed in self.plan.seeds:
                run = self._final_run(name, seed)
                if run not in self.finished:
                    continue
                score = self._score(run)
                if math.isnan(score):
                    record.rows.append({"candidate": name, "seed": seed, "phase": "final"})
                    continue
                record.add(self.results[run], name, score)
                if run in self.predictions:
                    predictions[name, seed] = self.predictions[run]
        record.compare_predictions(predictions)

    def _score(self, run: Run) -> float:
        """Return the score that a run counts by: if it diverged the worst validation of its seed,
        and at most 0 where larger is better; NaN if it counts for nothing.
        """
        if run not in self.results:
            return math.nan
        result = self.results[run]
        if math.isfinite(score := result.metrics[result.score]):
            return score
        self._diverged.add(run)
        scores = [0.0]
        if self._sign < 0:
            scores = []
        for other, of_other in self.results.items():
            if (other.phase, other.seed) == ("final", run.seed):
                scores += _validations(of_other)
        return min(scores, key=lambda score: self._sign * score, default=math.nan)


def best_validation(outcome: Outcome, sign: float) -> float:
    if isinstance(outcome, str):
        return math.nan
    return max(_validations(outcome), key=lambda score: sign * score, default=math.nan)


def _validations(result: Result) -> list[float]:
    scores = [evaluation["score"] for evaluation in result.evaluations]
    return [score for score in scores if math.isfinite(score)]
