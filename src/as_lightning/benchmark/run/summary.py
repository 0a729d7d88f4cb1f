"""What a run has found, in a few lines at its end."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from lightning.pytorch.utilities import rank_zero_only

from as_lightning.benchmark.run.result import RESULT_FILE, Result
from as_lightning.functional.counts import masking_ratio

DASHBOARD = "http://localhost:6006/#custom_scalars"


def tensorboard_lines(directory: str | Path) -> list[str]:
    """How to see the curves below a folder: the command, and the page that opens on the charts of the masking."""
    return [f"tensorboard --logdir {shlex.quote(str(directory))}", f"then open {DASHBOARD}"]


def lines_of_report(html: Path, markdown: Path, csv: Path) -> list[str]:
    """Where the report is, and one line that opens it."""
    opens = f"{Path(sys.executable).name} -m webbrowser -t {shlex.quote(html.resolve().as_uri())}"
    return [f"report:      {html}", f"             {markdown}", f"             {csv}", f"open it:     {opens}"]


def counted_runs(count: int) -> str:
    """`1 run`, `2 runs`."""
    return _counted(count, "run")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def has_events(directory: Path) -> bool:
    """Whether TensorBoard has something to show below a folder."""
    return any(directory.rglob("events.out.tfevents.*"))


def summary(result: Result, directory: str | Path) -> list[tuple[str, str]]:
    """Name and value of each line: score, masked share, time, and where the files are."""
    lines = [("run", f"{result.name}, {result.method}, seed {result.seed}")]
    best = max(result.evaluations, key=lambda evaluation: evaluation["score"], default=None)
    if result.score in result.metrics:
        lines.append((f"test {result.score}", f"{result.metrics[result.score]:.4f}"))
    if best is not None:
        epoch = int(best["epoch"]) + 1
        lines.append((f"validation {result.score}", f"{best['score']:.4f} at its best, in epoch {epoch}"))
    if result.masking:
        last = result.masking[-1]
        ratio = float(masking_ratio(last["masked_samples"], last["samples"]))
        lines.append(("masked samples", f"{100 * ratio:.1f}% in the last epoch"))
    epochs, steps = _counted(len(result.epoch_seconds), "epoch"), _counted(result.optimizer_steps, "optimizer step")
    lines.append(("training", f"{result.train_seconds:.1f} s, {epochs}, {steps}"))
    directory = Path(directory)
    if Path.cwd() in directory.parents:
        directory = directory.relative_to(Path.cwd())
    lines.append(("files", f"{directory / RESULT_FILE}, and the checkpoints beside it"))
    if has_events(directory):
        command, address = tensorboard_lines(directory)
        lines += [("curves", command), ("", address)]
    return lines


@rank_zero_only
def print_summary(result: Result, directory: str | Path) -> None:
    lines = summary(result, directory)
    width = max(len(name) for name, _ in lines)
    print("\n" + "\n".join(f"{name:<{width}}  {value}" for name, value in lines))
