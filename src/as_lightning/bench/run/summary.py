"""The result of a run in a few lines, and a table of its classes where some are rare."""

from __future__ import annotations

import math
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
from lightning.pytorch.utilities import rank_zero_only
from rich.console import Console
from rich.table import Table
from rich.text import Text

from as_lightning.bench.run.predictions import Predictions
from as_lightning.bench.run.result import Result
from as_lightning.functional.counts import masking_ratio
from as_lightning.statistics.printable import printable

SCORES = ("accuracy", "balanced_accuracy", "f1_macro")
LONG_TAIL = 5  # the largest class has more than so many times the rows of the smallest
GROUPS = ("many", "medium", "few")
SHOWN = 12  # of more classes the table has groups and the worst alone
WORST = 5
WIDTH = 80
# docs/which_loss.md, by score
TO_TRY = {
    "balanced_accuracy": "method=adjusted_after",
    "f1_macro": "method=class_weighted method.power=0.5",
}


def tensorboard_lines(directory: str | Path) -> list[str]:
    """Return how to see the curves below a folder; nothing if there are none."""
    if not any(Path(directory).rglob("events.out.tfevents.*")):
        return []
    command = f"tensorboard --logdir {shlex.quote(str(directory))}"
    return [command, "then open http://localhost:6006"]


def tail(result: Result) -> float:
    """Return the rows of the largest class over the smallest's; 1 where they are not known."""
    rows = result.class_rows.values()
    return max(rows) / max(1, min(rows)) if rows else 1.0


def summary(result: Result, directory: Path) -> list[tuple[str, str]]:
    """Return the name and the value of each line."""
    lines = [("run", f"{result.name}, {result.candidate}, seed {result.seed}")]
    scores = []
    for name in dict.fromkeys((result.score, *SCORES)):
        if name in result.metrics:
            scores.append(f"{name} {result.metrics[name]:.4f}")
    if scores:
        lines.append(("test", ", ".join(scores)))
    finite = [entry for entry in result.evaluations if math.isfinite(entry["score"])]
    if finite:
        best = max(finite, key=lambda evaluation: evaluation["score"])
        value = f"{result.score} {best['score']:.4f} at its best, in epoch {int(best['epoch']) + 1}"
        lines.append(("validation", value))
    if result.masking:
        last = result.masking[-1]
        ratio = float(masking_ratio(last["masked_samples"], last["samples"]))
        lines.append(("masked", f"{100 * ratio:.1f}% of the samples in the last epoch"))
    epochs = f"epochs {len(result.epoch_seconds)}, optimizer steps {result.optimizer_steps}"
    lines.append(("training", f"{result.train_seconds:.1f} s, {epochs}"))
    for score, settings in TO_TRY.items():
        if tail(result) > LONG_TAIL and result.candidate not in settings:
            lines.append(("try", f"{settings} data.score={score}"))
    if Path.cwd() in directory.parents:
        directory = directory.relative_to(Path.cwd())
    lines.append(("folder", str(directory)))
    return lines + list(zip(("curves", ""), tensorboard_lines(directory.parent), strict=False))


def class_table(result: Result, directory: Path) -> Table | None:
    """Return rows and recall of many, medium and few-row classes, and of each or the worst classes;
    None without a long tail or predictions of classes.
    """
    predictions = Predictions.read(directory)
    if tail(result) <= LONG_TAIL or predictions is None or not len(predictions.target):
        return None
    right = pd.Series(predictions.predicted == predictions.target).groupby(predictions.target)
    classes = pd.DataFrame({"train": result.class_rows, "test": right.size()})
    classes["recall"] = right.mean()
    classes = classes.sort_values("train", ascending=False)
    table = Table("classes", box=None, title=f"Largest to smallest class {tail(result):.0f}:1")
    for column in ("training rows", "test rows", "recall"):
        table.add_column(column, justify="right")
    if len(classes) > len(GROUPS):
        parts = np.array_split(np.arange(len(classes)), len(GROUPS))
        for group, part in zip(GROUPS, parts, strict=True):
            rows = classes.iloc[part]
            train, test = rows["train"].sum(), rows["test"].sum()
            add_row(table, f"{len(rows)} with {group} rows", train, test, rows["recall"].mean())
    shown = classes
    if len(classes) > SHOWN:
        shown = classes.nsmallest(WORST, "recall")
        table.add_row(f"the worst {WORST}")
    for name, row in shown.iterrows():
        add_row(table, str(name), row["train"], row["test"], row["recall"])
    return table


def add_row(table: Table, name: str, train: float, test: float, recall: float) -> None:
    """Add the rows and the recall of a class or a group; a class may lack test rows."""
    shown = Text(printable(name), overflow="ellipsis", no_wrap=True)
    if math.isnan(recall):
        table.add_row(shown, f"{train:,.0f}", "none", "")
    else:
        table.add_row(shown, f"{train:,.0f}", f"{test:,.0f}", f"{100 * recall:.1f}%")


@rank_zero_only
def print_summary(result: Result, directory: Path) -> None:
    """Print the table of classes, if there is one, and the lines of `summary`."""
    table = class_table(result, directory)
    if table is not None:
        Console(width=WIDTH).print("", table)
    print()
    for name, value in summary(result, directory):
        print(f"{name:<10}  {value}")
