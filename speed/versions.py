"""What two versions of the project need for the same work, in turns.

    git worktree add --detach ../before 1fa95d7d  # 0.3.0
    python speed/versions.py ../before/src --output results/performance/versions

Two processes, of which each imports one version, do the same work by turns, in random order; the
clock is each process's own processor time, so that what else the machine does is not counted.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import as_lightning
from as_lightning import AdaptiveGradientAccumulation, ASSoftmaxMixin, MaskingMonitor
from as_lightning import functional as losses

Work = Callable[[], Any]
# what is freed stays with the process: pages that the system gives anew can cost more than a loss
# does
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "4000000000", "MALLOC_TRIM_THRESHOLD_": "4000000000"}


class Perceptron(ASSoftmaxMixin, pl.LightningModule):
    def __init__(self) -> None:
        super().__init__(delta=0.1)
        self.net = nn.Sequential(*(nn.Linear(256, 256) for _ in range(3)), nn.Linear(256, 32))

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        return self.as_softmax_loss(self.net(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1e-4)


def epoch(*callbacks: Callable[[], pl.Callback]) -> Work:
    """An epoch of 300 batches of 64 under the callbacks: what they cost weighs as much as the
    model.
    """
    data = TensorDataset(torch.randn(300 * 64, 256), torch.randint(32, (300 * 64,)))
    silent: dict[str, Any] = dict.fromkeys(
        ("logger", "enable_progress_bar", "enable_model_summary"), False
    )

    def fit() -> None:
        trainer = pl.Trainer(
            max_epochs=1,
            accelerator="cpu",
            enable_checkpointing=False,
            callbacks=[callback() for callback in callbacks],
            **silent,
        )
        trainer.fit(Perceptron(), DataLoader(data, batch_size=64))

    return fit


def loss(
    name: str, rows: int, classes: int, *, dtype: torch.dtype = torch.float32, calls: int = 10
) -> Work:
    """Forward and backward of a loss of logits."""
    generator = torch.Generator().manual_seed(0)
    logits = (5 * torch.randn(rows, classes, generator=generator)).to(dtype).requires_grad_()
    target = torch.randint(classes, (rows,), generator=generator)
    if name.startswith("multilabel"):
        target = torch.rand(rows, classes, generator=generator).lt(0.05).long()
    function = getattr(losses, name)

    def forward_and_backward() -> None:
        for _ in range(calls):
            function(logits, target).backward()

    return forward_and_backward


def head(name: str, rows: int, width: int, classes: int) -> Work:
    """Forward and backward of a fused linear head."""
    hidden, weight = (
        torch.randn(rows, width).requires_grad_(),
        (torch.randn(classes, width) / 8).requires_grad_(),
    )
    target = torch.randint(classes, (rows,))
    return lambda: getattr(losses, name)(hidden, weight, target).backward()


WORK: dict[str, Callable[[], Work]] = {
    "epoch without callbacks": epoch,
    "epoch, MaskingMonitor": lambda: epoch(MaskingMonitor),
    "epoch, AdaptiveGradientAccumulation": lambda: epoch(
        lambda: AdaptiveGradientAccumulation(max_steps=4)
    ),
    "epoch, both": lambda: epoch(lambda: AdaptiveGradientAccumulation(max_steps=4), MaskingMonitor),
    "as_cross_entropy, 64 x 10": lambda: loss("as_cross_entropy", 64, 10, calls=300),
    "as_cross_entropy, 2,048 x 1,000": lambda: loss("as_cross_entropy", 2048, 1000),
    "as_cross_entropy, bfloat16": lambda: loss(
        "as_cross_entropy", 2048, 1000, dtype=torch.bfloat16
    ),
    "multilabel_as_cross_entropy, 2,048 x 500": lambda: loss(
        "multilabel_as_cross_entropy", 2048, 500
    ),
    "sparse_softmax_loss, 2,048 x 1,000": lambda: loss("sparse_softmax_loss", 2048, 1000),
    "taylor_softmax_loss, 2,048 x 1,000": lambda: loss("taylor_softmax_loss", 2048, 1000),
    "as_linear_cross_entropy, 1,024 x 128 x 8,000": lambda: head(
        "as_linear_cross_entropy", 1024, 128, 8000
    ),
    "linear_cross_entropy, 1,024 x 128 x 8,000": lambda: head(
        "linear_cross_entropy", 1024, 128, 8000
    ),
}


def serve() -> None:
    """Do the work that each line of the input names, and answer with its seconds."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    made: dict[str, Work] = {}
    print(as_lightning.__version__, flush=True)
    for name in map(str.strip, sys.stdin):
        if name not in made:
            made[name] = WORK[name]()
            made[name]()  # warms up
        start = time.process_time()
        made[name]()
        print(time.process_time() - start, flush=True)


class Version:
    """A process that has imported the version in the folder."""

    def __init__(self, source: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, str(source), "--serve"],
            env=os.environ | KEEP_MEMORY | {"PYTHONPATH": str(source.resolve())},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.name = self.answer()

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def seconds(self, work: str) -> float:
        assert self.process.stdin is not None
        self.process.stdin.write(work + "\n")
        self.process.stdin.flush()
        return float(self.answer())


def table(report: dict[str, Any]) -> str:
    from interleaved import machine_line  # not at the top: it needs this version

    return "\n".join(
        [
            "# This version and the one before",
            "",
            f"Processor time of {report['now']} over that of {report['before']}, for the same work "
            "in two processes by",
            "turns: median over the rounds, with its quartiles. Losses: forward and backward. An "
            "epoch is one of 300",
            "batches of 64 through four small layers, so that a hook weighs much.",
            "",
            "| work | ms before | ms now | ratio |",
            "| --- | --- | --- | --- |",
            *(
                f"| {name} | {row['before']:.1f} | {row['now']:.1f} | **{row['ratio']:.3f}** "
                f"({row['first']:.3f}–{row['third']:.3f}) |"
                for name, row in report["work"].items()
            ),
            "",
            f"{report['rounds']} rounds. {machine_line(report)}",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("before", type=Path, help="the folder `src` of the other version")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--output", type=Path, help="where to write: <output>.json and <output>.md")
    arguments = parser.parse_args()
    if arguments.serve:
        serve()
        return
    from interleaved import command, environment, write_report

    versions = {
        "before": Version(arguments.before),
        "now": Version(Path(__file__).parents[1] / "src"),
    }
    draw, rows = random.Random(0), {}
    for name in WORK:
        taken: dict[str, list[float]] = {side: [] for side in versions}
        for _ in range(arguments.rounds):
            for side in draw.sample(sorted(versions), 2):
                taken[side].append(versions[side].seconds(name) * 1e3)
        ratios = [now / before for now, before in zip(taken["now"], taken["before"], strict=True)]
        first, middle, third = statistics.quantiles(ratios)
        own = {side: statistics.median(times) for side, times in taken.items()}
        rows[name] = own | {"ratio": middle, "first": first, "third": third}
    names = {side: version.name for side, version in versions.items()}
    report = names | {
        "work": rows,
        "rounds": arguments.rounds,
        "command": command(),
        "environment": environment(torch.device("cpu")),
    }
    write_report(report, table(report), arguments.output)


if __name__ == "__main__":
    main()
