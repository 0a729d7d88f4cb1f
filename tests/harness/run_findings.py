"""What a run has found, apart from what differs between two runs of the same command."""

from dataclasses import asdict
from math import isnan
from pathlib import Path
from typing import Any

import pandas as pd

from as_lightning.bench.run.result import RESULT_FILE, Result
from as_lightning.report.record import ComparisonRecord

OF_THIS_TIME = ("train_seconds", "epoch_seconds", "peak_memory", "resumed", "session")


def found(folder: Path) -> dict[str, Any]:
    """The run's result without times, memory, the command, and whether it was interrupted."""
    content = asdict(Result.read(folder / RESULT_FILE))
    for evaluation in content["evaluations"]:
        del evaluation["train_seconds"]
    return {key: value for key, value in content.items() if key not in OF_THIS_TIME}


def written(folder: Path) -> dict[Path, int]:
    """The results below a folder, and when each was written."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob(RESULT_FILE)}


def reported(sweep: Path) -> dict[str, int]:
    """The candidates of a sweep's table, and how many runs each has."""
    return dict(pd.read_csv(sweep / "runs.csv").groupby("candidate").size())


def failed_runs(record: ComparisonRecord) -> list[tuple[str, int]]:
    """Candidate and seed of the final runs that have ended in an error."""
    scores = record.scores()
    return [(name, seed) for name in scores for seed in scores[name] if isnan(scores[name][seed])]


def stored(run: Result, folder: Path) -> Result:
    """Write a result into a folder that may have to be made."""
    folder.mkdir(parents=True, exist_ok=True)
    run.write(folder)
    return run
