"""The result of a run in a few lines, printed at its end."""

from __future__ import annotations

import math
import shlex
from pathlib import Path

from lightning.pytorch.utilities import rank_zero_only

from as_lightning.bench.run.result import RESULT_FILE, Result
from as_lightning.functional.counts import masking_ratio


def tensorboard_lines(directory: str | Path) -> list[str]:
    """The command that shows the curves below a folder, and the page that opens on the masking;
    none without curves.
    """
    if not any(Path(directory).rglob("events.out.tfevents.*")):
        return []
    return [
        f"tensorboard --logdir {shlex.quote(str(directory))}",
        "then open http://localhost:6006/#custom_scalars",
    ]


def summary(result: Result, directory: Path) -> list[tuple[str, str]]:
    """The name and the value of each line."""
    lines = [("run", f"{result.name}, {result.candidate}, seed {result.seed}")]
    if result.score in result.metrics:
        lines.append((f"test {result.score}", f"{result.metrics[result.score]:.4f}"))
    if evaluations := [each for each in result.evaluations if math.isfinite(each["score"])]:
        best = max(evaluations, key=lambda evaluation: evaluation["score"])
        value = f"{best['score']:.4f} at its best, in epoch {int(best['epoch']) + 1}"
        lines.append((f"validation {result.score}", value))
    if result.masking:
        ratio = float(
            masking_ratio(result.masking[-1]["masked_samples"], result.masking[-1]["samples"])
        )
        lines.append(("masked samples", f"{100 * ratio:.1f}% in the last epoch"))
    epochs, steps = len(result.epoch_seconds), result.optimizer_steps
    if Path.cwd() in directory.parents:
        directory = directory.relative_to(Path.cwd())
    lines.append(
        ("training", f"{result.train_seconds:.1f} s, epochs {epochs}, optimizer steps {steps}")
    )
    lines.append(("files", f"{directory / RESULT_FILE}, and the checkpoints beside it"))
    return lines + list(zip(("curves", ""), tensorboard_lines(directory), strict=False))


@rank_zero_only
def print_summary(result: Result, directory: Path) -> None:
    lines = summary(result, directory)
    width = max(len(name) for name, _ in lines)
    print("\n" + "\n".join(f"{name:<{width}}  {value}" for name, value in lines))
