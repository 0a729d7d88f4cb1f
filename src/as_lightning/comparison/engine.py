"""Makes the runs that `next_runs` asks for, keeps them in a folder, and shows the progress."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from pathlib import Path

from joblib.externals.loky import cpu_count, get_reusable_executor
from rich.console import Console
from rich.markup import escape
from rich.progress import MofNCompleteColumn, Progress

from as_lightning.bench.run.identity import RunIdentity
from as_lightning.bench.run.predictions import Predictions
from as_lightning.bench.run.result import RESULT_FILE, Result
from as_lightning.bench.run.runner import quiet_training
from as_lightning.comparison.make import CodeChanged, Recipe
from as_lightning.comparison.next_runs import Outcome, Replay
from as_lightning.comparison.plan import ComparisonPlan, Run
from as_lightning.comparison.search import RATE
from as_lightning.report.findings import findings
from as_lightning.report.page import write_report
from as_lightning.report.record import DESIGN_FILE, ComparisonRecord, read_design, write_design
from as_lightning.statistics.verdicts import Design

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# makes runs, wherever that is, and yields them in any order
Execute = Callable[[Sequence[Run]], Iterable[tuple[Run, Outcome]]]


def run_comparison(
    plan: ComparisonPlan,
    recipe: Recipe,
    subject: str,
    directory: Path,
    console: Console,
    execute: Execute,
) -> ComparisonRecord:
    """Make a comparison in a folder; its record is written there at each look, and at the end.

    A folder holds runs of one ``subject``, a digest, and keeps the design of its first final run: a
    ``ValueError`` refuses others.
    """
    directory.mkdir(parents=True, exist_ok=True)
    claim_folder(directory, plan, subject)
    finished: dict[Run, Outcome] = {}
    predictions: dict[Run, Predictions] = {}
    stored = stored_runs(directory, recipe, console)
    with Bar(plan, console) as bar:
        while (replay := Replay(plan, finished, predictions)).runs:
            missing = [run for run in replay.runs if run not in stored]
            made: Iterable[tuple[Run, Outcome]] = ()
            if missing:
                show_look(replay.record, directory, console)
                made = execute(missing)
            read = [(run, stored[run]) for run in replay.runs if run in stored]
            for run, outcome in itertools.chain(read, made):
                finished[run] = outcome
                refuse_what_training_shows(finished, recipe)
                if run.phase == "final" and isinstance(outcome, Result):
                    found = Predictions.read(directory / run.folder)
                    if found is not None:
                        predictions[run] = found
                bar.made(run, outcome)
    record = replay.ended
    record.write(directory)
    return record


def show_look(record: ComparisonRecord, directory: Path, console: Console) -> None:
    """Write the record and the report of a comparison that goes on, and print its verdicts."""
    if record.baseline not in set(record.final["candidate"]):
        return
    record.stopped = "Still running: these are the verdicts so far."
    record.write(directory)
    write_report(record, directory / "report")
    for verdict in findings(record).verdicts:
        interval = f"{verdict.difference:+.2f} ({verdict.low:+.2f} to {verdict.high:+.2f})"
        line = f"after {verdict.seeds} seeds {verdict.arm}: {interval}, {verdict.word}"
        console.print(line, markup=False, highlight=False)


def stored_runs(directory: Path, recipe: Recipe, console: Console) -> dict[Run, Result]:
    """Return the runs that are read again; say how many others are made anew, and why."""
    stored: dict[Run, Result] = {}
    anew: Counter[str] = Counter()
    for file in sorted(directory.rglob(RESULT_FILE)):
        result = Result.read(file)
        phase = result.phase or "final"
        run = Run(phase, result.candidate, result.settings, result.seed, result.trial)
        if result.candidate not in recipe.epochs or directory / run.folder != file.parent:
            continue
        read = RunIdentity.of(result.config, result.inputs)
        if changed := read.changed(recipe.identity(run)):
            anew[f"other {changed[0].removeprefix('inputs.')}"] += 1
        else:
            stored[run] = result
    if stored or anew:
        reasons = ", ".join(f"{count} with {reason}" for reason, count in anew.items())
        made_anew = f"; made anew: {reasons}" if anew else ""
        if "other code" in anew and not recipe.configs:
            made_anew += " (with version=, edited files make no run anew)"
        line = f"{len(stored)} finished runs are read from {directory}{made_anew}."
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return stored


def refuse_what_training_shows(finished: Mapping[Run, Outcome], recipe: Recipe) -> None:
    """Refuse what only trainings show: splits that vary, and a rate that changes nothing."""
    *earlier, (last, outcome) = finished.items()
    for run, other in earlier:
        if run.candidate != last.candidate or isinstance(other, str) or isinstance(outcome, str):
            continue
        targets = {result.inputs.get("validation") for result in (other, outcome)}
        if len(targets) > 1 and not recipe.split_per_seed:
            raise ValueError(
                "the data make another validation split each time they are set up, so that runs "
                "would be tested on examples that others were trained on: split by a generator "
                "with a seed of its own, as in random_split(dataset, lengths, "
                "torch.Generator().manual_seed(0)), or let a function data(seed) make them"
            )
        alike = (run.phase, run.seed) == (last.phase, last.seed)
        others = {key for key in run.settings if run.settings[key] != last.settings.get(key)}
        ends = [result.evaluations[-1] | {"train_seconds": 0} for result in (other, outcome)]
        if alike and others == {RATE} and ends[0] == ends[1]:
            raise ValueError(
                f"{run.candidate} trains the same whatever its lr is: configure_optimizers (or "
                "lr_scheduler, as by a max_lr of its own) must read the lr that is tuned; or tune "
                "none by lr_factor=None (in the command search.lr_factor=null)"
            )


def claim_folder(directory: Path, plan: ComparisonPlan, subject: str) -> None:
    """Refuse a folder of another subject or design, else write both there."""
    path = directory / DESIGN_FILE
    search = {"trials": plan.trials, "tuning_seeds": list(plan.tuning_seeds)}
    results = [file.relative_to(directory) for file in directory.rglob(RESULT_FILE)]
    if path.exists() and results:
        try:
            content = read_design(directory)
            begun, saved = content["design"], content["subject"]
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} cannot be read: delete it, or give another name") from error
        if saved != subject:
            raise ValueError(
                f"{directory} holds another comparison, of other data or shared settings: choose "
                "another folder (name=... in the command), or delete it"
            )
        changed = changes(plan.design, begun)
        for name, value in search.items():
            if content.get(name, value) != value:
                changed.append(f"{name} {content[name]} (now {value})")
        if changed and any(file.parts[0] != "tuning" for file in results):
            raise ValueError(
                f"{directory} was begun with {'; '.join(changed)}: a comparison keeps the design "
                "of its first final run. Ask for the same, or choose another name or folder"
            )
    write_design(directory, plan.design, {"subject": subject, **search})


def execution(make_run: Callable[[Run], Result], n_jobs: int = 1) -> Execute:
    """Return what makes runs on this machine, ``n_jobs`` at once in processes of their own."""

    def execute(runs: Sequence[Run]) -> Iterator[tuple[Run, Outcome]]:
        if n_jobs == 1:
            yield from (attempt(make_run, run) for run in runs)
            return
        threads = str(max(1, cpu_count() // n_jobs))
        env = {name: os.environ.get(name, threads) for name in THREADS}
        executor = get_reusable_executor(
            n_jobs, timeout=300, initializer=end_with, initargs=(os.getpid(),), env=env
        )
        waiting = [executor.submit(attempt, make_run, run) for run in runs]
        for future in as_completed(waiting):
            yield future.result()

    return execute


def end_with(parent: int) -> None:
    """Let this process end soon after the one that has started it, however that ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def end_processes() -> None:
    """End the processes of a comparison: they hold memory, and the code that they have imported."""
    # Called in any other way it would let them make all runs that wait.
    executor = get_reusable_executor(reuse=True, kill_workers=True)
    executor.shutdown(wait=False, kill_workers=True)


def attempt(make_run: Callable[[Run], Result], run: Run) -> tuple[Run, Outcome]:
    """Return a run with its result, or its error in words; changed code ends the comparison."""
    try:
        with quiet_training():
            return run, make_run(run)
    except CodeChanged:
        raise
    except Exception as error:
        return run, f"{run}: {type(error).__name__}: {error}"


class Bar(Progress):
    """The progress of a comparison: runs, of the most that are due, and failures."""

    def __init__(self, plan: ComparisonPlan, console: Console) -> None:
        columns = *Progress.get_default_columns(), MofNCompleteColumn()
        super().__init__(*columns, console=console, redirect_stdout=False, redirect_stderr=False)
        header = f"{', '.join(plan.family)}: at most {plan.most_runs()} runs. "
        header += f"Equal means within {plan.design.equal_within:g}."
        console.print(header, markup=False, highlight=False)
        self._comparison = self.add_task("comparison", total=plan.most_runs())

    def made(self, run: Run, outcome: Outcome) -> None:
        if isinstance(outcome, str):
            self.console.print(f"failed: {outcome}", style="red", markup=False)
        self.update(self._comparison, advance=1, description=escape(str(run)))


def changes(design: Design, before: Design) -> list[str]:
    old, new = vars(before), vars(design)
    found = [f"{name} {old[name]} (now {new[name]})" for name in new if old[name] != new[name]]
    added = new["candidates"][:1] == old["candidates"][:1]
    if added and {*old["candidates"]} <= {*new["candidates"]}:
        found = [change for change in found if not change.startswith("candidates ")]
    return found
