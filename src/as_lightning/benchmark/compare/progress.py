"""One progress bar over all runs of a comparison, with the time left."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from as_lightning.benchmark.compare.engine import Execute, Outcome
from as_lightning.benchmark.compare.plan import Run
from as_lightning.benchmark.run.result import RESULT_FILE, Result
from as_lightning.benchmark.run.summary import counted_runs


class ComparisonProgress:
    """Shows how many runs are done, and the minutes left, estimated from the seconds that the budgets so far took.

    Runs that an earlier call has finished take no part in the estimate.

    Args:
        runs: how many there are.
        budget: the sum of their budgets.
        console: where to; standard output by default.
        directory: of the runs' folders; None where none are kept.
    """

    def __init__(self, runs: int, budget: float, console: Console | None = None, directory: Path | None = None) -> None:
        self.console = console or Console()
        self.budget = budget
        self.directory = directory
        self.started = time.time()
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=self.console,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self.task = self.progress.add_task("comparison", total=runs, left="time left: known after the first run")
        self.spent = 0.0  # budgets of the runs that are done
        self.made = 0.0  # of these, budgets of the runs that this call has made
        self.taken = 0  # runs that an earlier call has finished
        self.anew = 0  # runs that an earlier call has finished, but with other settings or other data

    def __enter__(self) -> ComparisonProgress:
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()
        if self.taken:
            self.console.print(f"{counted_runs(self.taken)} taken from another call.", highlight=False)
        if self.anew:
            about = "the settings or the data have changed since an earlier call"
            self.console.print(f"{counted_runs(self.anew)} made anew: {about}.", highlight=False)

    def finished(self, run: Run) -> None:
        """Count a run."""
        self.spent += run.budget
        if self._found_finished(run):
            self.progress.update(self.task, advance=1, description=str(run))
            return
        first = self.made == 0.0
        self.made += run.budget
        seconds = self.progress.tasks[self.task].elapsed or 0.0
        left = seconds / self.made * max(self.budget - self.spent, 0.0)
        self.progress.update(self.task, advance=1, description=str(run), left=f"{_minutes(left)} left")
        if first:
            self.console.print(f"The first run took {_minutes(seconds)}: about {_minutes(left)} for the others.")

    def _found_finished(self, run: Run) -> bool:
        """Whether the run's result was there before this call."""
        written = self._written(run)
        return written is not None and written < self.started

    def _written(self, run: Run) -> float | None:
        """When the run's result was written; None if there is none."""
        path = None if self.directory is None else self.directory / run.folder / RESULT_FILE
        return path.stat().st_mtime if path is not None and path.exists() else None

    def watch(self, execute: Execute) -> Execute:
        """The same executor, which counts its runs here and names failures at once."""

        def watched(runs: Sequence[Run]) -> Iterator[Outcome]:
            earlier = {run.folder: self._written(run) for run in runs}
            for run, outcome in execute(runs):
                self.finished(run)
                if isinstance(outcome, Result):
                    self.taken += self._found_finished(run)
                    self.anew += earlier[run.folder] not in (None, self._written(run))
                else:
                    self.console.print(f"failed: {outcome}", style="red", markup=False)
                yield run, outcome

        return watched


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
