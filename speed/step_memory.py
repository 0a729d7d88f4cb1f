"""Peak memory over the whole step of a Lightning training, by the number of classes: dense and
fused head.

    python speed/step_memory.py --output results/performance/step_memory

Each training runs in a process of its own: ``Trainer.fit`` of a small body and a wide head with
AdamW, the loss through ``ASSoftmaxMixin`` (``F.cross_entropy`` for plain softmax). The peak is that
of whole steps: forward, backward and optimizer step, once the optimizer has its state. What the
process held before its model was made is left out. What no loss can save is included: weights,
gradients and the two moments of AdamW.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from interleaved import (
    command,
    environment,
    machine_line,
    megabytes,
    peak_resident_memory,
    reset_peak,
    resident_memory,
    write_report,
)
from torch import Tensor, nn
from torch.utils.data import DataLoader

from as_lightning import ASSoftmaxMixin

INPUT_SIZE, FEATURES, DELTA = 64, 128, 0.1
DENSE, DENSE_AS, FUSED = "softmax, dense head", "AS-Softmax, dense head", "AS-Softmax, fused head"
SIDES = (DENSE, DENSE_AS, FUSED)
# the optimizer makes its state in the first step; the steps after it are alike
STEPS, MEASURED_FROM = 3, 1
COPIES = 4  # of each parameter: itself, its gradient and the two moments of AdamW


class WideClassifier(pl.LightningModule):
    """Two layers and a head as wide as there are classes; plain softmax."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(INPUT_SIZE, 256), nn.GELU(), nn.Linear(256, FEATURES))
        self.head = nn.Linear(FEATURES, classes, bias=False)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        x, target = batch
        return self.loss(self.body(x), target)

    def loss(self, hidden: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(self.head(hidden), target)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class DenseHead(ASSoftmaxMixin, WideClassifier):
    def loss(self, hidden: Tensor, target: Tensor) -> Tensor:
        return self.as_softmax_loss(self.head(hidden), target)


class FusedHead(ASSoftmaxMixin, WideClassifier):
    def loss(self, hidden: Tensor, target: Tensor) -> Tensor:
        return self.as_softmax_head_loss(hidden, self.head, target)


MODULES: dict[str, Callable[[int], WideClassifier]] = {
    DENSE: WideClassifier,
    DENSE_AS: partial(DenseHead, delta=DELTA),
    FUSED: partial(FusedHead, delta=DELTA),
}


class PeakOfSteps(pl.Callback):
    """The most memory that the process holds in each step, its optimizer step included."""

    def __init__(self) -> None:
        self.peaks: list[int] = []

    def on_train_batch_start(self, *args: Any) -> None:
        if not reset_peak():
            raise OSError(
                "this system does not tell the peak of a process's memory: /proc/self/clear_refs "
                "is missing"
            )

    def on_train_batch_end(self, *args: Any) -> None:
        self.peaks.append(peak_resident_memory())


def measure(classes: int, rows: int, side: str) -> dict[str, Any]:
    """Train in this process; its peak beyond what it held before the model was made."""
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.manual_seed(0)
    before = resident_memory()
    module, callback = MODULES[side](classes), PeakOfSteps()
    batches = [
        (torch.randn(rows, INPUT_SIZE), torch.randint(classes, (rows,))) for _ in range(STEPS)
    ]
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=1,
        callbacks=[callback],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, DataLoader(batches, batch_size=None))  # type: ignore[arg-type]  # a list is a data set
    parameters = sum(
        parameter.numel() * parameter.element_size() for parameter in module.parameters()
    )
    return {
        "peak_bytes": max(callback.peaks[MEASURED_FROM:]) - before,
        "state_bytes": COPIES * parameters,
    }


def in_a_process_of_its_own(classes: int, rows: int, side: str) -> dict[str, Any]:
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as process:
        return process.submit(measure, classes, rows, side).result()


def table(report: dict[str, Any]) -> str:
    lines = [
        "# Peak memory of a training step",
        "",
        f"Whole steps of `Trainer.fit` with AdamW, batches of {report['rows']}, a head of width "
        f"{FEATURES}, float32,",
        f"`delta = {DELTA}`: what the process holds at its peak beyond what it held before the "
        "model was made.",
        "The state is what no loss can save: weights, gradients and the two moments of AdamW. The "
        "last column",
        "compares what lies beyond it.",
        "",
        machine_line(report),
        "",
        "| C | state | "
        + " | ".join(SIDES)
        + " | fused / dense softmax | the same beyond the state |",
        "| --- | --- |" + " --- |" * (len(SIDES) + 2),
    ]
    for row in report["cases"]:
        peaks, state = row["peak_bytes"], row["state_bytes"]
        beyond = f"1/{(peaks[DENSE] - state) / max(peaks[FUSED] - state, 1):.1f}"
        cells = [megabytes(state), *(megabytes(peaks[side]) for side in SIDES)]
        lines.append(
            f"| {row['classes']:,} | "
            + " | ".join(cells)
            + f" | {peaks[FUSED] / peaks[DENSE]:.2f} | {beyond} |"
        )
    lines += ["", "![Peak memory of a training step by the number of classes](step_memory.svg)", ""]
    return "\n".join([*lines, "On a GPU: not measured.", ""])


def figure(report: dict[str, Any], path: Path) -> None:
    """Peak memory against C, one line per side."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "as-lightning"  # the same numbers draw the same file
    from matplotlib import pyplot

    classes = [row["classes"] for row in report["cases"]]
    drawing, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")
    for side in SIDES:
        axes.plot(
            classes,
            [row["peak_bytes"][side] / 1e6 for row in report["cases"]],
            marker="o",
            label=side,
        )
    state = [row["state_bytes"] / 1e6 for row in report["cases"]]
    axes.plot(
        classes, state, color="grey", linestyle="--", label="weights, gradients and AdamW's moments"
    )
    axes.set(xscale="log", yscale="log", xlabel="classes C", ylabel="peak memory of a step, MB")
    axes.legend()
    drawing.savefig(path, metadata={"Date": None})
    pyplot.close(drawing)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--classes", nargs="+", type=int, default=[8192, 32768, 131072, 524288])
    parser.add_argument("--rows", type=int, default=512, help="samples per batch")
    parser.add_argument(
        "--output", type=Path, help="where to write: <output>.json, <output>.md and <output>.svg"
    )
    arguments = parser.parse_args()
    cases = []
    for classes in arguments.classes:
        found = {side: in_a_process_of_its_own(classes, arguments.rows, side) for side in SIDES}
        peaks = {side: one["peak_bytes"] for side, one in found.items()}
        cases.append(
            {"classes": classes, "state_bytes": found[DENSE]["state_bytes"], "peak_bytes": peaks}
        )
        print(classes, {side: megabytes(size) for side, size in peaks.items()}, flush=True)
    report = {
        "command": command(),
        "environment": environment(torch.device("cpu")),
        "rows": arguments.rows,
        "features": FEATURES,
        "delta": DELTA,
        "cases": cases,
    }
    write_report(report, table(report), arguments.output)
    if arguments.output is not None:
        figure(report, arguments.output.with_suffix(".svg"))


if __name__ == "__main__":
    main()
