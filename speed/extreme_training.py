"""Training with 100,000 classes: softmax with a dense head against AS-Softmax with the fused head,
epoch by epoch.

    python speed/extreme_training.py --output results/performance/extreme_training

The data are synthetic: noisy copies of one random vector per class, whose frequencies follow Zipf's
law. Both trainings start from the same weights, see the same batches in the same order and take
turns, an epoch each, so that both see the same machine. Peak memory is measured on a step of the
first epoch and on one of the last.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from interleaved import command, environment, machine_line, megabytes, peak_memory, write_report
from torch import Tensor, nn

from as_lightning.functional import MaskingCounts, as_linear_cross_entropy

DELTA = 0.1
DENSE, FUSED = "softmax, dense head", "AS-Softmax, fused head"
INPUT_SIZE, FEATURES = 64, 128


class WideClassifier(nn.Module):
    """Two layers and a head as wide as there are classes."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(INPUT_SIZE, 256), nn.GELU(), nn.Linear(256, FEATURES))
        self.head = nn.Linear(FEATURES, classes, bias=False)


def softmax_loss(
    model: WideClassifier, x: Tensor, target: Tensor
) -> tuple[Tensor, MaskingCounts | None]:
    return F.cross_entropy(model.head(model.body(x)), target), None


def as_softmax_loss(
    model: WideClassifier, x: Tensor, target: Tensor
) -> tuple[Tensor, MaskingCounts | None]:
    return as_linear_cross_entropy(
        model.body(x), model.head.weight, target, DELTA, return_counts=True
    )


class Training:
    """One model, its loss and its optimizer."""

    def __init__(
        self, loss: Callable[..., Any], classes: int, learning_rate: float, device: torch.device
    ) -> None:
        torch.manual_seed(0)
        self.model = WideClassifier(classes).to(device)
        self.loss = loss
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=learning_rate)

    def gradients(self, x: Tensor, target: Tensor) -> MaskingCounts | None:
        """Forward and backward of one batch."""
        self.optimizer.zero_grad()
        loss, counts = self.loss(self.model, x, target)
        loss.backward()
        return counts

    def epoch(self, batches: list[tuple[Tensor, Tensor]], device: torch.device) -> dict[str, Any]:
        """Train on the batches; the time of the loss's forward and backward is also taken alone."""
        counted: list[MaskingCounts] = []
        synchronize = torch.cuda.synchronize if device.type == "cuda" else lambda: None
        loss_seconds = 0.0
        synchronize()
        start = time.perf_counter()
        for x, target in batches:
            before = time.perf_counter()
            counts = self.gradients(x, target)
            synchronize()
            loss_seconds += time.perf_counter() - before
            if counts is not None:
                counted.append(counts)
            self.optimizer.step()
        synchronize()
        found: dict[str, Any] = {
            "seconds": time.perf_counter() - start,
            "forward_backward_seconds": loss_seconds,
        }
        if counted:
            masked = sum(int(counts.masked_samples) for counts in counted)
            found["masked_share"] = masked / sum(int(counts.samples) for counts in counted)
        return found

    @torch.no_grad()
    def accuracy(self, x: Tensor, target: Tensor) -> float:
        hits = [
            (self.model.head(self.model.body(part)).argmax(-1) == label).sum()
            for part, label in zip(x.split(256), target.split(256), strict=True)
        ]
        return int(torch.stack(hits).sum()) / target.numel()


def made_data(
    classes: int, sizes: tuple[int, int], device: torch.device
) -> list[tuple[Tensor, Tensor]]:
    """Inputs and targets of two splits: the vector of a class and noise; class c has the weight 1 /
    (c + 1).
    """
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(classes, INPUT_SIZE, generator=generator)
    prior = 1 / torch.arange(1, classes + 1, dtype=torch.float64)
    splits = []
    for size in sizes:
        targets = torch.multinomial(prior, size, replacement=True, generator=generator)
        inputs = vectors[targets] + 0.3 * torch.randn(size, INPUT_SIZE, generator=generator)
        splits.append((inputs.to(device), targets.to(device)))
    return splits


def table(report: dict[str, Any]) -> str:
    setting = report["setting"]
    lines = [
        f"# Training with {setting['classes']:,} classes",
        "",
        "Softmax with a dense head (`F.linear`, `F.cross_entropy`) against "
        "`as_linear_cross_entropy` at",
        f"`delta = {DELTA}`, epoch by epoch: {setting['samples']:,} samples of synthetic vectors,",
        f"batches of {setting['batch_size']}, head of width {FEATURES}, AdamW. Seconds of a whole "
        "epoch, and of the",
        "forward and backward passes alone; the optimizer's step over the head is the same on both "
        "sides.",
        "",
        machine_line(report),
        "",
        f"| epoch | masked samples | {DENSE}: epoch | {FUSED}: epoch | ratio | forward and "
        "backward | ratio |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for number, epoch in enumerate(report["epochs"], 1):
        base, own = epoch[DENSE], epoch[FUSED]
        passes = base["forward_backward_seconds"], own["forward_backward_seconds"]
        lines.append(
            f"| {number} | {own['masked_share']:.0%} | {base['seconds']:.2f} | "
            f"{own['seconds']:.2f} | "
            f"{own['seconds'] / base['seconds']:.2f} | {passes[0]:.2f}, {passes[1]:.2f} | "
            f"{passes[1] / passes[0]:.2f} |"
        )
    total = {
        side: sum(epoch[side]["seconds"] for epoch in report["epochs"]) for side in (DENSE, FUSED)
    }
    lines += [
        "",
        f"All epochs: {total[DENSE]:.1f} s against {total[FUSED]:.1f} s, a ratio of "
        f"{total[FUSED] / total[DENSE]:.2f}.",
        "",
        f"| | {DENSE} | {FUSED} |",
        "| --- | --- | --- |",
    ]
    for when, peaks in report["peak_bytes"].items():
        lines.append(
            f"| peak memory of a step's passes, {when} | {megabytes(peaks[DENSE])} | "
            f"{megabytes(peaks[FUSED])} |"
        )
    accuracy = report["test_accuracy"]
    lines.append(f"| test accuracy, one seed | {accuracy[DENSE]:.1%} | {accuracy[FUSED]:.1%} |")
    lines += [
        "",
        f"The head's gradient, {megabytes(report['head_bytes'])}, is part of the fused head's "
        "peak. The accuracy is",
        "one run on made-up data: it shows that both trainings learn, not which learns better.",
    ]
    others = (
        ""
        if report["environment"]["device"] == "cuda"
        else "\nOn a GPU: [one](extreme_training_gpu.md).\n"
    )
    return "\n".join([*lines, others])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--classes", type=int, default=100_000)
    parser.add_argument("--samples", type=int, default=6144)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--output", type=Path, help="where to write: <output>.json and <output>.md")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    generator = torch.Generator().manual_seed(0)
    (x, target), (test_x, test_target) = made_data(
        arguments.classes, (arguments.samples, 2048), device
    )
    trainings = {
        name: Training(loss, arguments.classes, arguments.learning_rate, device)
        for name, loss in ((DENSE, softmax_loss), (FUSED, as_softmax_loss))
    }

    first = slice(0, arguments.batch_size)

    def peaks() -> dict[str, int | None]:
        found = {}
        for name, training in trainings.items():
            training.optimizer.zero_grad()
            found[name] = peak_memory(partial(training.gradients, x[first], target[first]), device)
            training.optimizer.zero_grad()
        return found

    peak_bytes = {"before training": peaks()}
    epochs = []
    for epoch in range(arguments.epochs):
        order = (
            torch.randperm(arguments.samples, generator=generator)
            .to(device)
            .split(arguments.batch_size)
        )
        batches = [(x[index], target[index]) for index in order]
        epochs.append(
            {name: training.epoch(batches, device) for name, training in trainings.items()}
        )
        own, base = epochs[-1][FUSED], epochs[-1][DENSE]
        print(
            f"epoch {epoch + 1}: {own['masked_share']:.0%} masked, {base['seconds']:.2f} s and "
            f"{own['seconds']:.2f} s",
            flush=True,
        )
    peak_bytes["after the last epoch"] = peaks()
    report = {
        "command": command(),
        "environment": environment(device),
        "setting": {
            "classes": arguments.classes,
            "samples": arguments.samples,
            "batch_size": arguments.batch_size,
            "features": FEATURES,
            "learning_rate": arguments.learning_rate,
            "delta": DELTA,
        },
        "epochs": epochs,
        "peak_bytes": peak_bytes,
        "head_bytes": arguments.classes * FEATURES * 4,
        "test_accuracy": {
            name: training.accuracy(test_x, test_target) for name, training in trainings.items()
        },
    }
    write_report(report, table(report), arguments.output)


if __name__ == "__main__":
    main()
