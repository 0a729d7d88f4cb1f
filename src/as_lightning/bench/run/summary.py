"""The result of a run in a few lines, printed at its end."""

from __future__ import annotations

import math
import shlex
from pathlib import Path

from lightning.pytorch.utilities import rank_zero_only

from as_lightning.bench.run.result import RESULT_FILE, Result
from as_lightning.functional.counts import masking_ratio


def tensorboard_lines(directory: str | Path) -> list[str]:
    """Return the command that shows the curves below a folder, and the page that opens on the
    masking; none without curves.
    """
    if not any(Path(directory).rglob("events.out.tfevents.*")):
        return []
    command = f"tensorboard --logdir {shlex.quote(str(directory))}"
    return [command, "then open http://localhost:6006/#custom_scalars"]


def summary(result: Result, directory: Path) -> list[tuple[str, str]]:
    """Return the name and the value of each line."""
    lines = [("run", f"{result.name}, {result.candidate}, seed {result.seed}")]
    if result.score in result.metrics:
        lines.append((f"test {result.score}", f"{result.metrics[result.score]:.4f}"))
    finite = [entry for entry in result.evaluations if math.isfinite(entry["score"])]
    if finite:
        best = max(finite, key=lambda evaluation: evaluation["score"])
        value = f"{best['score']:.4f} at its best, in epoch {int(best['epoch']) + 1}"
        lines.append((f"validation {result.score}", value))
    if result.masking:
        last = result.masking[-1]
        ratio = float(masking_ratio(last["masked_samples"], last["samples"]))
        lines.append(("masked samples", f"{100 * ratio:.1f}% in the last epoch"))
    epochs = f"epochs {len(result.epoch_seconds)}, optimizer steps {result.optimizer_steps}"
    lines.append(("training", f"{result.train_seconds:.1f} s, {epochs}"))
    if Path.cwd() in directory.parents:
        directory = directory.relative_to(Path.cwd())
    lines.append(("files", f"{directory / RESULT_FILE}, and the checkpoints beside it"))
    return [*lines, *zip(("curves", ""), tensorboard_lines(directory), strict=False)]


@rank_zero_only
def print_summary(result: Result, directory: Path) -> None:
    """Print the lines of `summary`."""
    lines = summary(result, directory)
    width = max(len(name) for name, _ in lines)
    print("\n" + "\n".join(f"{name:<{width}}  {value}" for name, value in lines))
