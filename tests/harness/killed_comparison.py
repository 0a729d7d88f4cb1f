"""A comparison on made-up data in a process of its own, which is killed after a number of Python calls."""

from __future__ import annotations

from pathlib import Path

from harness.killed_run import CALLS_FILE, counted_calls
from harness.own_modules import Points, WithCriterion

from as_lightning import compare


def run(folder: Path, kill_after: int | None = None) -> None:
    """Compare in ``folder``; write the number of calls there, or be killed when it is reached."""
    with counted_calls(folder.parent / CALLS_FILE, kill_after):
        compare(
            WithCriterion,
            Points(),
            monitor="val/acc",
            replaces="criterion",
            methods=["as_softmax"],
            trainer={"max_epochs": 2, "accelerator": "cpu"},
            trials=2,
            tuning_seeds=1,
            budgets=[1.0],
            max_seeds=8,
            folder=folder,
            progress=False,
        )
