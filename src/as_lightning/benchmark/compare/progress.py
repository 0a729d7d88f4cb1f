"""One progress bar over all runs of a comparison, with the time left."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from as_lightning.benchmark.compare.engine import Execute, Outcome
from as_lightning.benchmark.compare.plan import Run
from as_lightning.benchmark.run.result import RESULT_FILE
from as_lightning.benchmark.run.summary import counted


class ComparisonProgress:
    """Shows how many runs are done, of how many at most, and the time left at most.

    Runs that an earlier call has finished take no part in the estimate. ``left`` is the sum of the budgets of the runs
    that may be left; the runs' folders lie below ``directory``.
    """

    def __init__(self, runs: int, left: float, directory: Path, console: Console) -> None:
        self.left, self.directory, self.console = left, directory, console
        self.started = time.time()
        self.progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self.task = self.progress.add_task("comparison", total=runs, left="time left: known after the first run")
        self.made = 0.0  # budgets of the runs that this call has made
        self.taken = 0  # runs that an earlier call has finished
        self.anew = 0  # runs that an earlier call has finished, but with other settings or other data

    def __enter__(self) -> ComparisonProgress:
        self.progress.start()
        return self

    def __exit__(self, kind: Any, *error: Any) -> None:
        if kind is None:
            self.progress.update(self.task, total=self.progress.tasks[self.task].completed, left="")
        self.progress.stop()
        if self.taken:
            self.console.print(f"{counted(self.taken, 'run')} taken from another call.", highlight=False)
        if self.anew:
            about = "the settings or the data have changed since an earlier call"
            self.console.print(f"{counted(self.anew, 'run')} made anew: {about}.", highlight=False)

    def remaining(self, runs: int, left: float) -> None:
        """At most so many runs are left, so long together: some methods are decided, or left out."""
        self.left = left
        self.progress.update(self.task, total=self.progress.tasks[self.task].completed + runs)

    def watch(self, execute: Execute) -> Execute:
        """The same executor, which counts its runs here and names failures at once."""

        def watched(runs: Sequence[Run]) -> Iterator[Outcome]:
            earlier = {run for run in runs if self._written(run)}
            for run, outcome in execute(runs):
                self.left = max(self.left - run.budget, 0.0)
                self.progress.update(self.task, advance=1, description=str(run))
                if isinstance(outcome, str):
                    self.console.print(f"failed: {outcome}", style="red", markup=False)
                if 0.0 < self._written(run) < self.started:
                    self.taken += 1
                else:
                    self.anew += run in earlier
                    self._estimate(run)
                yield run, outcome

        return watched

    def _estimate(self, run: Run) -> None:
        seconds, first = self.progress.tasks[self.task].elapsed or 0.0, self.made == 0.0
        self.made += run.budget
        left = _minutes(seconds / self.made * self.left)
        self.progress.update(self.task, left=f"at most {left} left")
        if first:
            self.console.print(f"The first run took {_minutes(seconds)}: at most {left} for the others.")

    def _written(self, run: Run) -> float:
        """When the run's result was written; 0 if there is none."""
        path = self.directory / run.folder / RESULT_FILE
        return path.stat().st_mtime if path.exists() else 0.0


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
