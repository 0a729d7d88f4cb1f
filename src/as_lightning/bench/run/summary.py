"""The result of a run in a few lines, and a table of its classes where some are rare."""

from __future__ import annotations

import math
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
from lightning.pytorch.utilities import rank_zero_only

from as_lightning.bench.run.predictions import Predictions
from as_lightning.bench.run.result import Result
from as_lightning.functional.counts import masking_ratio
from as_lightning.statistics.printable import printable

SCORES = ("accuracy", "balanced_accuracy", "f1_macro")
LONG_TAIL = 5  # the largest class has more than so many times the rows of the smallest
GROUPS = ("many rows", "medium", "few")  # thirds of the classes
SHOWN = 12  # of more classes the table has the worst alone
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


def has_long_tail(result: Result) -> bool:
    rows = result.class_rows.values()
    return len(rows) > 0 and max(rows) > LONG_TAIL * max(1, min(rows))


def class_table(result: Result, directory: Path) -> pd.DataFrame | None:
    """Return training rows and recall of many, medium and few-row classes, and of each class or the
    worst ones; None without a long tail or predictions of classes.
    """
    predictions = Predictions.read(directory)
    if predictions is None or not has_long_tail(result):
        return None
    right = pd.Series(predictions.predicted == predictions.target)
    recall = right.groupby(predictions.target).mean()
    classes = pd.DataFrame({"training rows": result.class_rows, "recall": recall})
    classes = classes.sort_values("training rows", ascending=False)
    table = classes.copy()
    if len(classes) > SHOWN:
        table = classes.nsmallest(5, "recall")
    table.index = [printable(str(name))[:40] for name in table.index]
    if len(classes) <= len(GROUPS):
        return table
    groups = {}
    for group, part in zip(GROUPS, np.array_split(np.arange(len(classes)), 3), strict=True):
        rows = classes.iloc[part]
        groups[group] = rows["training rows"].sum(), rows["recall"].mean()
    return pd.concat([pd.DataFrame.from_dict(groups, "index", columns=classes.columns), table])


def summary(result: Result, directory: Path) -> list[tuple[str, str]]:
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
        if has_long_tail(result) and result.candidate not in settings:
            lines.append(("try", f"{settings} data.score={score}"))
    if Path.cwd() in directory.parents:
        directory = directory.relative_to(Path.cwd())
    lines.append(("folder", str(directory)))
    return lines + list(zip(("curves", ""), tensorboard_lines(directory.parent), strict=False))


@rank_zero_only
def print_summary(result: Result, directory: Path) -> None:
    table = class_table(result, directory)
    if table is not None:
        print(f"\n{table.to_string(float_format='{:.3f}'.format)}")
    print()
    for name, value in summary(result, directory):
        print(f"{name:<10}  {value}")
