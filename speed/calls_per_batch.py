"""How many Python functions of as-lightning a training batch calls, and in how many of its files.

    python speed/calls_per_batch.py --output results/performance/calls_per_batch

The mixin alone, in a new module and in the place of an existing module's loss; and a new module
with ``MaskingMonitor`` and ``AdaptiveGradientAccumulation``. The first batches are left out: checks
run there that end with them.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import lightning.pytorch as pl
import torch
from interleaved import command, environment, machine_line, write_report
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import as_lightning
from as_lightning import AdaptiveGradientAccumulation, ASSoftmaxMixin, MaskingMonitor

PACKAGE = str(Path(as_lightning.__file__).parent)
FIRST, BATCHES = 8, 40
SIDES = {
    "the mixin alone, new module": "as_softmax_loss",
    "the mixin alone, existing module": "as_softmax_replaces",
    "with monitor and accumulation": "callbacks",
}


class Batches(Dataset[tuple[Tensor, Tensor]]):
    """Random batches of ten classes."""

    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return torch.randn(32, 20), torch.randint(10, (32,))


class Existing(pl.LightningModule):
    """Calls its own loss."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(20, 10)
        self.criterion = nn.CrossEntropyLoss()

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        return self.criterion(self.net(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Replaced(ASSoftmaxMixin, Existing):
    as_softmax_replaces = "criterion"


class New(ASSoftmaxMixin, Existing):
    """Calls the mixin's loss."""

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        return self.as_softmax_loss(self.net(batch[0]), batch[1])


class CountsCalls(pl.Callback):
    """Counts the calls between the same hook of one batch and the next."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()

    def _count(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE):
            self.calls[code.co_filename, code.co_name] += 1

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        if batch_idx == FIRST:
            sys.setprofile(self._count)
        if batch_idx == BATCHES - 1:
            sys.setprofile(None)


def measure(side: str) -> dict[str, Any]:
    """Return the calls of a batch, on average, and the files that they are in."""
    torch.manual_seed(0)
    counts = CountsCalls()
    callbacks: list[pl.Callback] = [counts]
    if side == "callbacks":
        callbacks += [MaskingMonitor(), AdaptiveGradientAccumulation(max_steps=4)]
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=1,
        callbacks=callbacks,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    module = Replaced() if side == "as_softmax_replaces" else New()
    trainer.fit(module, DataLoader(Batches(), batch_size=None))
    batches = BATCHES - 1 - FIRST
    per_function = {
        f"{Path(file).relative_to(PACKAGE)}: {name}": calls / batches
        for (file, name), calls in counts.calls.most_common()
    }
    return {
        "calls": sum(per_function.values()),
        "files": len({file for file, _ in counts.calls}),
        "functions": per_function,
    }


def table(report: dict[str, Any]) -> str:
    lines = [
        "# Python calls of a training batch",
        "",
        "Functions of as-lightning that a batch calls in `Trainer.fit`, on average over "
        f"{BATCHES - 1 - FIRST} batches.",
        "",
        machine_line(report),
        "",
        "| | calls | files |",
        "| --- | --- | --- |",
    ]
    for name, found in report["cases"].items():
        lines.append(f"| {name} | {found['calls']:.1f} | {found['files']} |")
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, help="where to write: <output>.json and <output>.md")
    arguments = parser.parse_args()
    report = {
        "command": command(),
        "environment": environment(torch.device("cpu")),
        "cases": {name: measure(side) for name, side in SIDES.items()},
    }
    write_report(report, table(report), arguments.output)


if __name__ == "__main__":
    main()
