"""The time left, as the progress bar of a comparison estimates it."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from as_lightning.benchmark.compare.plan import Run
from as_lightning.benchmark.compare.progress import ComparisonProgress
from as_lightning.benchmark.results import Result


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
