"""Makes the runs that `next_runs` asks for, keeps them in a folder, and shows the progress."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from joblib import Parallel, delayed
from joblib.externals.loky import get_reusable_executor
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from as_lightning.bench.run.identity import RunIdentity
from as_lightning.bench.run.predictions import Predictions
from as_lightning.bench.run.result import RESULT_FILE, Result, whole_file
from as_lightning.bench.run.runner import quiet_training
from as_lightning.compare.next_runs import Outcome, Replay
from as_lightning.compare.plan import ComparisonPlan, Run
from as_lightning.report.record import ComparisonRecord
from as_lightning.statistics.verdicts import Design

INPUTS_FILE = "inputs.json"
# makes runs, wherever that is, and yields them in any order
Execute = Callable[[Sequence[Run]], Iterable[tuple[Run, Outcome]]]


class Subject(NamedTuple):
    """What is compared, after the look that refuses what could only fail or mislead."""

    plan: ComparisonPlan
    execute: Execute
    identity: RunIdentity  # of what all runs share: settings, and the data


def run_comparison(subject: Subject, directory: Path, console: Console) -> ComparisonRecord:
    """Make a comparison in a folder, and write its record there.

    A folder keeps the design of its first run, and holds runs of one subject: a ValueError refuses
    others.
    """
    directory.mkdir(parents=True, exist_ok=True)
    plan, notes = subject.plan, _claim_folder(directory, subject)
    finished: dict[Run, Outcome] = {}
    predictions: dict[Run, Predictions] = {}
    with Bar(plan, console) as bar:
        while runs := (replay := Replay(plan, finished, predictions)).runs:
            for run, outcome in subject.execute(runs):
                finished[run] = outcome
                if run.phase == "final" and isinstance(outcome, Result):
                    try:
                        run_predictions = Predictions.read(directory / run.folder)
                    except ValueError as error:
                        notes.append(
                            f"{error}. They are not compared: delete the run's folder to make it "
                            "anew."
                        )
                    else:
                        predictions |= {} if run_predictions is None else {run: run_predictions}
                bar.made(run, outcome)
    record = replay.ended
    record.notes += notes
    record.write(directory)
    return record


def _claim_folder(directory: Path, subject: Subject) -> list[str]:
    """Refuse a folder with runs of another subject or design, else write both there; returns notes
    for the record.
    """
    path, design = directory / INPUTS_FILE, subject.plan.design
    first = design
    if path.exists() and any(directory.rglob(RESULT_FILE)):
        try:
            content = json.loads(path.read_bytes())
            saved = RunIdentity(content["settings"], {"data": content["data"]})
            changed, saved_design = (
                saved.changed(subject.identity),
                Design.read(content.get("design", asdict(design))),
            )
            first = replace(
                saved_design,
                candidates=tuple(content.get("first_candidates", saved_design.candidates)),
            )
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{path} cannot be read ({error}): choose another name or folder, or delete it"
            ) from None
        if changed:
            others = f" and {len(changed) - 3} others" if len(changed) > 3 else ""
            settings = ", ".join(f"{name}={saved.config.get(name, 'null')}" for name in changed[:3])
            difference = (
                "of other data" if changed[0].startswith("inputs.") else f"with {settings}{others}"
            )
            raise ValueError(
                f"{directory} holds another comparison: choose another folder (name=... in the "
                "command), or delete it; "
                f"its runs are {difference}"
            )
        if changes := design.changed(saved_design):
            raise ValueError(
                f"{directory} was begun with {'; '.join(changes)}: a comparison keeps the design "
                "of its first run. Ask "
                "for the same, or choose another name or folder"
            )
    with whole_file(path) as unfinished:
        content = {
            "data": subject.identity.inputs.get("data", ""),
            "settings": dict(subject.identity.config),
        }
        content |= {"design": asdict(design), "first_candidates": first.candidates}
        unfinished.write_text(json.dumps(content) + "\n", encoding="utf-8")
    if added_candidates := [name for name in design.candidates if name not in first.candidates]:
        note = f"{', '.join(added_candidates)} came to the comparison after its first runs: a new family of "
        return [
            f"{note}{len(design.candidates) - 1} candidates begins, and all verdicts are its own."
        ]
    return []


def execution(make: Callable[[Run], Result], n_jobs: int = 1) -> Execute:
    """A function that makes runs one after another in this process, or ``n_jobs`` at once in
    processes of this machine.

    It yields an exception as the failure of its run.
    """

    def execute(runs: Sequence[Run]) -> Iterator[tuple[Run, Outcome]]:
        if n_jobs == 1:
            return (_attempt(make, run) for run in runs)
        processes = Parallel(n_jobs=n_jobs, return_as="generator_unordered", pre_dispatch=n_jobs)
        return processes(delayed(_attempt)(make, run) for run in runs)

    return execute


def end_processes() -> None:
    """End the processes of an earlier call, which would keep their imported code and their
    directory.
    """
    get_reusable_executor().shutdown()


def _attempt(make: Callable[[Run], Result], run: Run) -> tuple[Run, Outcome]:
    try:
        with quiet_training():
            return run, make(run)
    except Exception as error:
        return run, f"{run}: {type(error).__name__}: {error}"


class Bar(Progress):
    """The progress of a comparison: its runs, its failures as they happen, and the most training
    time left.
    """

    def __init__(self, plan: ComparisonPlan, console: Console) -> None:
        columns = (
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
        )
        description = TextColumn("{task.description}", markup=False)
        super().__init__(
            description, *columns, console=console, redirect_stdout=False, redirect_stderr=False
        )
        least, self._most = plan.runs()
        runs = f"{least} runs" if least == self._most else f"{least} to {self._most} runs"
        header = f"{', '.join(plan.family)}: {runs}. Equal means within {plan.design.equal_within:g} points."
        console.print(header, markup=False, highlight=False)
        self._comparison = self.add_task("comparison", total=self._most, left="")
        self._made, self._seconds = 0, 0.0

    def made(self, run: Run, outcome: Outcome) -> None:
        """Count a run; the time left is that of training, by the mean of all runs so far."""
        self._made += 1
        if isinstance(outcome, str):
            self.console.print(f"failed: {outcome}", style="red", markup=False)
        else:
            self._seconds += outcome.train_seconds
        seconds = (self._most - self._made) * self._seconds / self._made
        time_left = f"at most {f'{seconds / 60:.1f} min' if seconds >= 60 else f'{seconds:.0f} s'} of training left"
        self.update(self._comparison, advance=1, description=str(run), left=time_left)
        if self._made % 10 == 0 and not (
            self.console.is_terminal or self.console.is_jupyter
        ):  # a log has no bar
            self.console.print(f"{self._made} runs made, {time_left}", highlight=False)

    def __exit__(self, *error: Any) -> None:
        self.update(self._comparison, total=self._made, left="")
        super().__exit__(*error)
