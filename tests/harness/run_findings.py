"""What a run has found, apart from what differs between two runs of the same command."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from as_lightning.benchmark.run.result import RESULT_FILE, Result

OF_THIS_TIME = ("train_seconds", "epoch_seconds", "peak_memory", "resumed", "command", "session")


def found(folder: Path) -> dict[str, Any]:
    """The run's result without times, memory, the command, and whether it was interrupted."""
    content = asdict(Result.read(folder / RESULT_FILE))
    for evaluation in content["evaluations"]:
        del evaluation["train_seconds"]
    return {key: value for key, value in content.items() if key not in OF_THIS_TIME}
