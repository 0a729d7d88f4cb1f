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
    """Shows how many runs are done, of how many at most, and the minutes left at most.

    Runs that an earlier call has finished take no part in the estimate.

    Args:
        runs: the most that there may be.
        budget: the sum of their budgets.
        directory: of the runs' folders.
        console: where to; standard output by default.
    """

    def __init__(self, runs: int, budget: float, directory: Path, console: Console | None = None) -> None:
        self.console = console or Console()
        self.directory = directory
        self.started = time.time()
        self.progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=self.console,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self.task = self.progress.add_task("comparison", total=runs, left="time left: known after the first run")
        self.left = budget  # budgets of the runs that may be left
        self.made = 0.0  # budgets of the runs that this call has made
        self.taken = 0  # runs that an earlier call has finished
        self.anew = 0  # runs that an earlier call has finished, but with other settings or other data

    def __enter__(self) -> ComparisonProgress:
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.progress.update(self.task, total=self.progress.tasks[self.task].completed, left="")
        self.progress.stop()
        if self.taken:
            self.console.print(f"{counted_runs(self.taken)} taken from another call.", highlight=False)
        if self.anew:
            about = "the settings or the data have changed since an earlier call"
            self.console.print(f"{counted_runs(self.anew)} made anew: {about}.", highlight=False)

    def remaining(self, runs: int, budget: float) -> None:
        """At most so many runs are left, so long together: some methods are decided, or left out."""
        self.left = budget
        self.progress.update(self.task, total=self.progress.tasks[self.task].completed + runs)

    def finished(self, run: Run) -> None:
        """Count a run."""
        self.left = max(self.left - run.budget, 0.0)
        written = self._written(run)
        if written is not None and written < self.started:
            self.progress.update(self.task, advance=1, description=str(run))
            return
        first = self.made == 0.0
        self.made += run.budget
        seconds = self.progress.tasks[self.task].elapsed or 0.0
        left = _minutes(seconds / self.made * self.left)
        self.progress.update(self.task, advance=1, description=str(run), left=f"at most {left} left")
        if first:
            self.console.print(f"The first run took {_minutes(seconds)}: at most {left} for the others.")

    def _written(self, run: Run) -> float | None:
        """When the run's result was written; None if there is none."""
        path = self.directory / run.folder / RESULT_FILE
        return path.stat().st_mtime if path.exists() else None

    def watch(self, execute: Execute) -> Execute:
        """The same executor, which counts its runs here and names failures at once."""

        def watched(runs: Sequence[Run]) -> Iterator[Outcome]:
            earlier = {run.folder: self._written(run) for run in runs}
            for run, outcome in execute(runs):
                self.finished(run)
                if isinstance(outcome, Result):
                    written = self._written(run)
                    self.taken += written is not None and written < self.started
                    self.anew += earlier[run.folder] not in (None, written)
                else:
                    self.console.print(f"failed: {outcome}", style="red", markup=False)
                yield run, outcome

        return watched


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
