"""Runs a comparison: one search, all methods at the full budget look by look, then smaller budgets."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from as_lightning.benchmark.compare.plan import ComparisonPlan, Run
from as_lightning.benchmark.compare.search import RATE, Space, as_neutral, best_of, finalists, next_trials
from as_lightning.benchmark.report.findings import findings
from as_lightning.benchmark.report.record import ComparisonRecord, Trial
from as_lightning.benchmark.report.sweep_records import BASELINES
from as_lightning.benchmark.report.verdicts import Arm, Design, still_open
from as_lightning.benchmark.run.predictions import Predictions
from as_lightning.benchmark.run.result import RESULT_FILE, Result, whole_file

INPUTS_FILE = "inputs.json"
Outcome = tuple[Run, Result | str]  # in words the error that has ended a run
Execute = Callable[[Sequence[Run]], Iterable[Outcome]]


class Subject(NamedTuple):
    """What is compared, after a look at it that has refused what could only fail or mislead."""

    spaces: Mapping[str, Space]  # what is tuned of each method
    execute: Execute  # makes runs, and yields them in any order
    facts: dict[str, Any]  # of the record: ``name``, ``score``, ``split``, ``notes``, ...
    data: str = ""  # a digest of the data
    examples: Mapping[int, str] = {}  # the test examples by their ids: the text or the file
    settings: Mapping[str, str] = {}  # those that all runs share


def run_comparison(plan: ComparisonPlan, subject: Subject, directory: Path, console: Console) -> ComparisonRecord:
    """Make a comparison in a folder, and write its record there; refuses one with runs of other data or settings."""
    path = directory / INPUTS_FILE
    design = plan.design.stored()
    inputs: dict[str, Any] = {"data": subject.data, "settings": dict(subject.settings), "design": design}
    directory.mkdir(parents=True, exist_ok=True)
    before = inputs | (json.loads(path.read_text(encoding="utf-8")) if path.exists() else {})
    there, here = before["settings"], inputs["settings"]
    changed = sorted((k for k in there | here if there.get(k, "null") != here.get(k, "null")), key=len)
    if (before["data"] != subject.data or changed) and any(directory.rglob(RESULT_FILE)):
        others = f" and {len(changed) - 3} others" if len(changed) > 3 else ""
        settings = ", ".join(f"{name}={there.get(name, 'null')}" for name in changed[:3])
        found = f"with {settings}{others}" if changed else "of other data"
        raise ValueError(f"{directory} holds runs {found}: choose another name or folder, or delete it")
    first = plan.design
    if any(directory.rglob(RESULT_FILE)):
        first = Design.read(before["design"] | {"methods": before.get("first_methods", before["design"]["methods"])})
        if refused := plan.design.changed(Design.read(before["design"])):
            raise ValueError(
                f"{directory} was begun with {'; '.join(refused)}: a comparison keeps the design of its first run. Ask "
                "for the same, or choose another name or folder"
            )
    with whole_file(path) as unfinished:
        unfinished.write_text(json.dumps(inputs | {"first_methods": first.methods}) + "\n", encoding="utf-8")
    engine = Engine(plan, subject, directory, console)
    if added := [method for method in plan.methods if method not in first.methods]:
        engine.record.notes.append(
            f"{', '.join(added)} came to the comparison after its first runs: a new family of {len(plan.methods) - 1} "
            "methods begins, and all verdicts are its own."
        )
    record = engine.run()
    record.write(directory)
    return record


def one_by_one(run_one: Callable[[Run], Result]) -> Execute:
    """Make runs in this process, one after another; an exception is the run's failure."""

    def execute(runs: Sequence[Run]) -> Iterator[Outcome]:
        for run in runs:
            try:
                yield run, run_one(run)
            except Exception as error:
                yield run, f"{run}: {type(error).__name__}: {error}"

    return execute


class Engine:
    """Makes the runs of a plan, whose folders lie below ``directory``, and gathers what they leave in a record.

    All that it decides is a function of the results: where finished runs are read and not made again, a comparison that
    was interrupted goes the same way.
    """

    def __init__(self, plan: ComparisonPlan, subject: Subject, directory: Path, console: Console | None = None) -> None:
        self.plan, self.execute, self.examples, self.directory = plan, subject.execute, subject.examples, directory
        self.spaces = {method: subject.spaces[method] for method in plan.methods}
        facts: dict[str, Any] = {"full_budget": plan.full_budget, "trials": plan.trials, **subject.facts}
        self.record = ComparisonRecord(baseline=plan.baseline, methods=list(plan.methods), design=plan.design, **facts)
        self._tunes = plan.trials > 1 and any(self.spaces.values())
        # those that contain the baseline begin at its best learning rate
        contain = [m for m in plan.methods[1:] if any(d.neutral is not None for d in self.spaces[m].values())]
        self._later = contain if self._tunes and plan.baseline in BASELINES else []
        self._sign = 1.0 if self.record.mode == "max" else -1.0
        self._finished: dict[Run, Result | str] = {}
        self._seconds: dict[Arm, list[float]] = {}
        shown = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.fields[left]}"))
        described = TextColumn("{task.description}", markup=False)
        console = console or Console(quiet=True)
        self._bar = Progress(described, *shown, console=console, redirect_stdout=False, redirect_stderr=False)

    def run(self) -> ComparisonRecord:
        """Make all runs, with a progress bar; a method none of whose trials has finished is left out and noted."""
        plan, record = self.plan, self.record
        trials = sum(plan.trials if space else 1 for space in self.spaces.values()) if self._tunes else 0
        tuned = sum(map(bool, self.spaces.values())) if self._tunes else 0
        least, most = plan.runs(trials, tuned, len(self._later))
        runs = f"{least} runs" if least == most else f"{least} to {most} runs"
        said = f"{', '.join(plan.methods)}: {runs}. Equal means within {plan.design.equal_within:g} points."
        self._bar.console.print(said, markup=False, highlight=False)
        self._task = self._bar.add_task("comparison", total=most, left="")
        with self._bar:
            self._tune()
            if plan.baseline in record.settings:
                self._looks([Arm(method, plan.full_budget) for method in record.settings if method != plan.baseline])
                worse = {verdict.arm.method for verdict in record.verdicts() if verdict.word == "worse"}
                rest = [Arm(m, b) for m in record.settings if m not in worse for b in reversed(plan.budgets_of(m))]
                self._looks([arm for arm in rest if arm.budget != plan.full_budget])
            self._bar.update(self._task, total=len(self._finished), left="")
        final = [o for run, o in self._finished.items() if run.phase == "final" and isinstance(o, Result)]
        if diverged := sum(not math.isfinite(result.metrics[result.score]) for result in final):
            record.notes.append(f"{diverged} final runs diverged and count as the worst score.")
        if failed := len(record.failures):
            record.notes.append(f"{failed} of {len(self._finished)} runs have failed and are not in these numbers.")
        findings(record)  # which refuses a comparison without a finished run of the baseline, and has the failures
        return record

    # --- tuning

    def _tune(self) -> None:
        plan, record, later = self.plan, self.record, self._later
        if not self._tunes:
            record.settings = {m: {name: d.default for name, d in self.spaces[m].items()} for m in plan.methods}
            return
        own: dict[str, list[Trial]] = {method: [] for method in plan.methods}
        self._search([method for method in plan.methods if method not in later], own, {})
        known = {method: [as_neutral(self.spaces[method], trial) for trial in own[plan.baseline]] for method in later}
        self._search(later, own, known)
        tried = {method: [*known.get(method, []), *own[method]] for method in plan.methods}  # of equal ones the first
        for method, trials in self._raced(tried, own).items():
            best = best_of(trials, self._sign)
            if len(trials) > 1:
                record.tuning[method] = trials
            if best is None:
                record.notes.append(f"{method} is left out: no trial of it has finished.")
                continue
            record.settings[method] = best.settings
            neutral = {name: d.neutral for name, d in self.spaces[method].items() if d.neutral is not None}
            if method in later and any(best.settings[name] == value for name, value in neutral.items()):
                record.same_as[method] = plan.baseline
                record.settings[method] = {**best.settings, **record.settings.get(plan.baseline, {})}
                knobs = ", ".join(f"{name}={value}" for name, value in best.settings.items() if name != RATE)
                said = f"Validation chose the setting at which {method} is {plan.baseline} ({knobs}): its runs are"
                record.notes.append(f"{said} those of {plan.baseline}.")

    def _search(self, methods: Sequence[str], own: dict[str, list[Trial]], shared: dict[str, list[Trial]]) -> None:
        """Let each method make its trials with the first tuning seed, added to ``own``."""
        plan = self.plan
        while True:
            proposed: list[Run] = []
            for m in methods:
                tried = next_trials(self.spaces[m], own[m], shared.get(m, ()), plan.trials, self._sign)
                proposed += [self._tuning_run(m, settings, n) for n, settings in enumerate(tried, start=len(own[m]))]
            if not proposed:
                return
            self._make(proposed)
            for run in proposed:
                own[run.method].append(self._trial([run]))

    def _raced(self, tried: dict[str, list[Trial]], own: dict[str, list[Trial]]) -> dict[str, list[Trial]]:
        """The trials of each method, the finalists with the means over all tuning seeds."""
        runs: dict[tuple[str, int], list[Run]] = {}
        for method, trials in tried.items():
            for trial in finalists(trials, self._sign) if len(trials) > 1 else ():
                owner, place = (self.plan.baseline if trial.shared else method), trials.index(trial)
                number = place if trial.shared else place - len(trials) + len(own[method])
                settings = own[owner][number].settings
                of_trial = [self._tuning_run(owner, settings, number, seed) for seed in self.plan.tuning_seeds]
                runs[method, place] = of_trial
        asked = dict.fromkeys(run for of_trial in runs.values() for run in of_trial)
        self._make([run for run in asked if run not in self._finished])
        raced = {method: list(trials) for method, trials in tried.items()}
        for (method, place), of_trial in runs.items():
            before = raced[method][place]
            raced[method][place] = self._trial(of_trial)._replace(settings=before.settings, shared=before.shared)
        return raced

    def _tuning_run(self, method: str, settings: Mapping[str, Any], number: int, seed: int | None = None) -> Run:
        first = self.plan.tuning_seeds[0]
        return Run("tuning", method, settings, self.plan.full_budget, first if seed is None else seed, number)

    def _trial(self, runs: Sequence[Run]) -> Trial:
        """The means over the tuning seeds of a trial."""
        scores, losses = zip(*(best_validation(self._finished[run], self._sign) for run in runs), strict=True)
        score, loss = (
            fmean(of_seeds) if all(map(math.isfinite, of_seeds)) else math.nan for of_seeds in (scores, losses)
        )
        return Trial(runs[0].settings, score, loss, by_seed=scores)

    # --- final runs

    def _looks(self, arms: Sequence[Arm]) -> None:
        """Give these arms, and the baseline's that they are compared with, seeds until all are decided."""
        if not arms:
            return
        plan, looks = self.plan, self.plan.design.looks
        open_arms = [arm for arm in arms if arm.method not in self.record.same_as]
        for look in looks:
            runs = [run for run in self._runs(open_arms, plan.seeds[:look]) if run not in self._finished]
            if self.record.results and self._spent + self._hours(runs) > (plan.max_hours or math.inf):
                self._stop(open_arms, f"max_hours={plan.max_hours:g}", look, runs)
                return
            later = self._runs(open_arms, plan.seeds[look:])
            self._bar.update(self._task, total=len(self._finished) + len(runs) + len(later))
            self._make(runs)
            self._gather()
            found = findings(self.record)
            # the one decision that rests on measured times, on which no word depends
            cheaper = {row.arm for row in found.rows if row.time.clearly_less}
            going = still_open(found.verdicts, plan.design, cheaper=cheaper)
            open_arms = [arm for arm in open_arms if arm in going]
            if not open_arms:
                return
        if len(looks) > 1:
            self._stop(open_arms, f"max_seeds={looks[-1]}", looks[-1], [])  # more would be another design

    def _runs(self, arms: Sequence[Arm], seeds: Iterable[int]) -> list[Run]:
        """The final runs of arms, and of the baseline's that they are compared with."""
        bases = [Arm(self.plan.baseline, arm.budget) for arm in arms if arm.budget in self.plan.baseline_budgets]
        needed = dict.fromkeys([self.record.reference, *bases, *arms])
        settings = self.record.settings
        return [Run("final", a.method, settings[a.method], a.budget, seed) for seed in seeds for a in needed]

    def _stop(self, open_arms: Sequence[Arm], cap: str, look: int, runs: Sequence[Run]) -> None:
        """Say that a cap was reached, and what it costs to lift."""
        names = ", ".join(f"{arm.method} at budget {arm.budget:g}" for arm in open_arms)
        price = f"; {look} seeds would take {len(runs)} more runs, {self._hours(runs):.2g} hours of training"
        said = f"{cap} was reached with {names} still open{price if runs else ''}."
        self.record.stopped = f"{self.record.stopped} {said}".lstrip()

    @property
    def _spent(self) -> float:
        """The hours of all runs so far."""
        return sum(map(sum, self._seconds.values())) / 3600

    def _hours(self, runs: Sequence[Run]) -> float:
        """The hours of runs that are not made yet, by the mean of their like, or of the full budget's."""

        def seconds(run: Run) -> float:
            full = fmean(self._seconds.get(Arm(run.method, self.plan.full_budget), [0.0]))
            return fmean(self._seconds.get(Arm(run.method, run.budget), [run.budget / self.plan.full_budget * full]))

        return sum(map(seconds, runs)) / 3600

    def _make(self, runs: Sequence[Run]) -> None:
        """Make runs. Failures are named at once; the time left is that of training, by the mean of all runs so far."""
        console = self._bar.console
        for made, (run, outcome) in enumerate(self.execute(runs), start=len(self._finished) + 1):
            self._finished[run] = outcome
            if isinstance(outcome, str):
                self.record.failures.append(outcome)
                console.print(f"failed: {outcome}", style="red", markup=False)
            else:
                self._seconds.setdefault(Arm(run.method, run.budget), []).append(outcome.train_seconds)
            self._bar.update(self._task, advance=1, description=str(run))
            seconds = 3600 * (self._bar.tasks[0].remaining or 0) * self._spent / made
            left = f"at most {f'{seconds / 60:.1f} min' if seconds >= 60 else f'{seconds:.0f} s'} of training left"
            self._bar.update(self._task, left=left)
            if made % 10 == 0 and not (console.is_terminal or console.is_jupyter):  # a log has no bar
                console.print(f"{made} runs made, {left}", highlight=False)

    def _gather(self) -> None:
        """Put the final runs into the record: budgets from the largest, methods and seeds in their order."""
        record, plan = self.record, self.plan
        record.results, record.missing, predictions = [], [], {}
        budgets = sorted({*plan.baseline_budgets, *plan.method_budgets}, reverse=True)
        for budget, method, seed in product(budgets, record.settings, plan.seeds):
            stands_for = record.same_as.get(method, method)
            run = Run("final", stands_for, record.settings[stands_for], budget, seed)
            outcome = self._finished.get(run) if budget in plan.budgets_of(method) else None
            if isinstance(outcome, Result):
                score = outcome.metrics[outcome.score]
                if not math.isfinite(score := score if math.isfinite(score) else self._worst(seed)):
                    outcome = "no run of this seed has a finite score"
            if isinstance(outcome, str):
                record.missing.append((method, budget, seed))
            if isinstance(outcome, Result):
                record.add(outcome, method, score)
                if (found := Predictions.read(self.directory / run.folder)) is not None:
                    predictions[Arm(method, budget), seed] = found
        record.compare_predictions(predictions, self.examples)

    def _worst(self, seed: int) -> float:
        """What a run without a finite score counts as: the worst that the baseline's run of the seed, or else any of
        them, has seen in validation, and 0 where a larger score is better and that is worse; NaN for none."""
        (baseline, budget), settings = self.record.reference, self.record.settings
        own = self._finished.get(Run("final", baseline, settings[baseline], budget, seed), "")
        of_seed = [outcome for run, outcome in self._finished.items() if run.phase == "final" and run.seed == seed]
        for outcomes in ([own], of_seed):
            evaluations = [each for outcome in outcomes if isinstance(outcome, Result) for each in outcome.evaluations]
            scores = [self._sign * each["score"] for each in evaluations if math.isfinite(each["score"])]
            if scores:
                return self._sign * min([*scores, 0.0] if self._sign > 0 else scores)
        return 0.0 if self._sign > 0 else math.nan


def best_validation(outcome: Result | str, sign: float) -> tuple[float, float]:
    """The best finite validation score of a run, and the lowest cross-entropy (at the best temperature) of the
    validations that had it; NaN for none."""
    evaluations = [] if isinstance(outcome, str) else outcome.evaluations
    scores = [evaluation["score"] for evaluation in evaluations if math.isfinite(evaluation["score"])]
    best = max(scores, key=lambda score: sign * score, default=math.nan)
    losses = [e.get("cross_entropy", math.nan) for e in evaluations if e["score"] == best]
    return best, min((loss for loss in losses if math.isfinite(loss)), default=math.nan)
