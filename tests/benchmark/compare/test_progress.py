"""The runs and the time left, as the progress bar of a comparison says them."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rich.console import Console

from as_lightning.benchmark.compare.engine import Outcome
from as_lightning.benchmark.compare.plan import Run
from as_lightning.benchmark.compare.progress import ComparisonProgress
from as_lightning.benchmark.run.result import Result

RUNS = [Run("final", "softmax", {}, 1.0, seed) for seed in range(4)]


def test_it_counts_runs_of_earlier_calls_apart_and_prints_no_markup(
    result: Callable[..., Result], tmp_path: Path
) -> None:
    output = io.StringIO()
    for run in RUNS[:3]:
        (tmp_path / run.folder).mkdir(parents=True)
        os.utime(result("softmax", run.seed, 0.5).write(tmp_path / run.folder), (1, 1))

    def execute(runs: Sequence[Run]) -> Iterator[Outcome]:
        for run in runs:
            made = result("softmax", run.seed, 0.5)
            if run.seed == 2:
                made.write(tmp_path / run.folder)  # its settings were others
            yield run, f"{run}: the class [/b] is empty" if run.seed == 3 else made

    with ComparisonProgress(4, 4.0, tmp_path, Console(file=output, width=200)) as bar:
        list(bar.watch(execute)(RUNS[:2]))
        assert "The first run took" not in output.getvalue()
        assert (bar.left, bar.made) == (2.0, 0.0)
        list(bar.watch(execute)(RUNS[2:]))
        assert "The first run took" in output.getvalue()
    assert "2 runs taken from another call." in output.getvalue()
    assert "1 run made anew: the settings or the data have changed since an earlier call." in output.getvalue()
    assert "failed: softmax, final, budget 1, seed 3: the class [/b] is empty" in output.getvalue()


def test_arms_that_stop_shorten_the_bar(result: Callable[..., Result], tmp_path: Path) -> None:
    def execute(runs: Sequence[Run]) -> Iterator[Outcome]:
        return ((run, result("softmax", run.seed, 0.5)) for run in runs)

    with ComparisonProgress(10, 10.0, tmp_path, Console(file=io.StringIO(), width=200)) as bar:
        list(bar.watch(execute)(RUNS[:1]))
        bar.remaining(2, 1.5)
        assert bar.progress.tasks[bar.task].total == 3
        assert bar.left == 1.5
