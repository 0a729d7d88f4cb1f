"""The result of a run in a few lines."""

from __future__ import annotations

import math
import shlex
from pathlib import Path

from lightning.pytorch.utilities import rank_zero_only

from as_lightning.bench.run.result import Result
from as_lightning.functional.counts import masking_ratio

SCORES = ("accuracy", "balanced_accuracy", "f1_macro")


def tensorboard_lines(directory: str | Path) -> list[str]:
    """Return how to see the curves below a folder; nothing if there are none."""
    if not any(Path(directory).rglob("events.out.tfevents.*")):
        return []
    command = f"tensorboard --logdir {shlex.quote(str(directory))}"
    return [command, "then open http://localhost:6006"]


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
    if Path.cwd() in directory.parents:
        directory = directory.relative_to(Path.cwd())
    lines.append(("folder", str(directory)))
    return lines + list(zip(("curves", ""), tensorboard_lines(directory.parent), strict=False))


@rank_zero_only
def print_summary(result: Result, directory: Path) -> None:
    """Print the lines of `summary`."""
    print()
    for name, value in summary(result, directory):
        print(f"{name:<10}  {value}")
