"""The time left, as the progress bar of a comparison estimates it."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rich.console import Console

from as_lightning.benchmark.compare.engine import Failure, Outcome
from as_lightning.benchmark.compare.plan import Run
from as_lightning.benchmark.compare.progress import ComparisonProgress
from as_lightning.benchmark.run.result import Result


def test_runs_that_an_earlier_call_has_finished_take_no_part_in_the_estimate(
    result: Callable[..., Result], tmp_path: Path
) -> None:
    runs = [Run("final", "softmax", {}, 1.0, seed) for seed in range(3)]
    console = Console(file=io.StringIO(), width=200)
    with ComparisonProgress(len(runs), 3.0, console, tmp_path) as bar:
        for run in runs[:2]:
            (tmp_path / run.folder).mkdir(parents=True)
            result("softmax", run.seed, 0.5).write(tmp_path / run.folder)
        earlier = tmp_path / runs[0].folder / "result.json"
        os.utime(earlier, (bar.started - 60, bar.started - 60))
        bar.finished(runs[0])
        assert "The first run took" not in console.file.getvalue()  # type: ignore[attr-defined]
        bar.finished(runs[1])
        assert "The first run took" in console.file.getvalue()  # type: ignore[attr-defined]
        assert (bar.spent, bar.made) == (2.0, 1.0)


def test_it_says_how_many_runs_are_taken_from_an_earlier_call_and_how_many_are_made_anew(
    result: Callable[..., Result], tmp_path: Path
) -> None:
    runs = [Run("final", "softmax", {}, 1.0, seed) for seed in range(4)]
    console = Console(file=io.StringIO(), width=200)
    for run in runs[:3]:
        (tmp_path / run.folder).mkdir(parents=True)
        os.utime(result("softmax", run.seed, 0.5).write(tmp_path / run.folder), (1, 1))

    def execute(runs: Sequence[Run]) -> Iterator[Outcome]:
        for run in runs:
            made = result("softmax", run.seed, 0.5)
            if run.seed == 2:
                made.write(tmp_path / run.folder)  # its settings were others
            yield run, Failure(run, "out of memory") if run.seed == 1 else made

    with ComparisonProgress(len(runs), 4.0, console, tmp_path) as bar:
        assert len(list(bar.watch(execute)(runs))) == 4
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert "1 run taken from another call." in printed
    assert "1 run made anew: the settings or the data have changed since an earlier call." in printed
