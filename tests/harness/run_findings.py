"""What a run has found, apart from what differs between two runs of the same command."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from as_lightning.bench.run.result import RESULT_FILE, Result

OF_THIS_TIME = ("train_seconds", "epoch_seconds", "peak_memory", "resumed", "command", "session")


def found(folder: Path) -> dict[str, Any]:
    """The run's result without times, memory, the command, and whether it was interrupted."""
    content = asdict(Result.read(folder / RESULT_FILE))
    for evaluation in content["evaluations"]:
        del evaluation["train_seconds"]
    return {key: value for key, value in content.items() if key not in OF_THIS_TIME}


def written(folder: Path) -> dict[Path, int]:
    """The results below a folder, and when each was written."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob(RESULT_FILE)}


def reported(report: Path) -> list[tuple[str, int]]:
    """Candidate and number of seeds of each row of a report's table."""
    rows = pd.read_csv(report / "report.csv")
    return list(zip(rows["candidate"], rows["seeds"], strict=True))


def stored(run: Result, folder: Path) -> Result:
    """Write a result into a folder that may have to be made."""
    folder.mkdir(parents=True, exist_ok=True)
    run.write(folder)
    return run
