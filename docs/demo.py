"""What always holds, shown in a minute: `make demo`. Every number is measured while you watch."""

from __future__ import annotations

import logging
import resource
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from as_lightning import (
    AccumulationSchedule,
    AdaptiveGradientAccumulation,
    ASSoftmaxLoss,
    MaskingMonitor,
)
from as_lightning.functional import as_cross_entropy, as_linear_cross_entropy

ROWS, WIDTH, CLASSES = 1024, 128, 131_072  # of the wide output layer
QUIET: dict[str, Any] = {
    "accelerator": "cpu",
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}


class Classifier(pl.LightningModule):
    """A module as anyone has it."""

    def __init__(self, inputs: int, classes: int, criterion: nn.Module, lr: float = 1e-2) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, classes))
        self.criterion, self.lr = criterion, lr

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        return self.criterion(self.net(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=self.lr, momentum=0.9)


def masking_and_accumulation() -> None:
    print(
        "1. ASSoftmaxLoss in the place of CrossEntropyLoss: samples that are learnt drop out of "
        "the loss."
    )
    print(
        "   With AdaptiveGradientAccumulation(max_steps=4) the optimizer then steps after more "
        "batches.\n"
    )
    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels))
    monitor, speed = MaskingMonitor(), AdaptiveGradientAccumulation(max_steps=4)
    trainer = pl.Trainer(max_epochs=10, callbacks=[monitor, speed], **QUIET)
    trainer.fit(
        Classifier(64, 10, ASSoftmaxLoss(delta=0.1), lr=0.08),
        DataLoader(data, batch_size=32, shuffle=True),
    )
    for epoch in monitor.history:
        share = epoch.masked_samples / epoch.samples
        lengths = [window.length for window in speed.history if window.epoch == epoch.epoch]
        bar = "#" * round(40 * share)
        mean = sum(lengths) / len(lengths)
        print(
            f"   epoch {epoch.epoch + 1:2}  masked {share:4.0%} |{bar:40}|  {mean:.1f} batches per "
            "optimizer step"
        )


def exact_windows() -> None:
    print(
        "\n2. Four batches of different sizes, accumulated, against the same samples as one large "
        "batch (float64):\n"
    )
    batches = [
        (torch.randn(size, 20).double(), torch.randint(5, (size,))) for size in (3, 40, 11, 26)
    ]
    whole = [tuple(torch.cat(parts) for parts in zip(*batches, strict=True))]

    def weights(data: Any, **settings: Any) -> Tensor:
        torch.manual_seed(0)
        module = Classifier(20, 5, ASSoftmaxLoss(delta=0.5)).double()
        pl.Trainer(max_epochs=20, **QUIET | settings).fit(module, DataLoader(data, batch_size=None))
        return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])

    large = weights(whole)
    by_items = AdaptiveGradientAccumulation(AccumulationSchedule({0: 4}), items="module")
    for name, settings in (
        ("Trainer(accumulate_grad_batches=4)", {"accumulate_grad_batches": 4}),
        ("AdaptiveGradientAccumulation(..., items=...)", {"callbacks": [by_items]}),
    ):
        print(
            f"   largest difference of a weight, {name:53} "
            f"{(weights(batches, **settings) - large).abs().max():.1e}"
        )


def head(kind: str) -> None:
    """Forward and backward of a wide output layer in a process of its own: prints the loss and the
    added memory.
    """
    torch.manual_seed(0)
    hidden = torch.randn(ROWS, WIDTH, requires_grad=True)
    weight = (torch.randn(CLASSES, WIDTH) / WIDTH**0.5).requires_grad_()
    weight.grad = torch.zeros_like(weight)
    target = torch.randint(CLASSES, (ROWS,))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if kind == "dense":
        loss = as_cross_entropy(F.linear(hidden, weight), target)
    else:
        loss = as_linear_cross_entropy(hidden, weight, target)
    loss.backward()
    unit = 1 if sys.platform == "darwin" else 1024  # bytes of ru_maxrss
    print(
        f"{loss.item():.5f} "
        f"{(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * unit / 2**20:.0f}"
    )


def wide_head() -> None:
    print(
        f"\n3. An output layer of {CLASSES:,} classes, {ROWS:,} rows: forward and backward, peak "
        "of added memory:\n"
    )
    for kind, name in (
        ("dense", "as_cross_entropy(linear(hidden))"),
        ("fused", "as_linear_cross_entropy(hidden)"),
    ):
        printed = subprocess.run(
            [sys.executable, __file__, kind], check=True, capture_output=True, text=True
        ).stdout
        loss, megabytes = printed.split()
        print(f"   {name:35} loss {loss}   {int(megabytes):6,} MB")


def comparison() -> None:
    print(
        "\n4. A fair comparison: digits with a long tail (the rarest class has two training "
        "images), on which logit"
    )
    print(
        "   adjustment is meant to help. Both losses are tuned with five trials each, then trained "
        "with five new seeds."
    )
    print(
        "   The score is the balanced accuracy, in which all classes count equally.\n", flush=True
    )
    settings = [
        "data.imbalance=50",
        "methods=softmax,logit_adjusted",
        "half_epochs=false",
        "seeds=5",
        "name=demo",
    ]
    command = str(Path(sys.executable).with_name("as-lightning-compare"))
    subprocess.run([command, "experiment=digits", *settings], check=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        head(sys.argv[1])
    else:
        warnings.simplefilter("ignore")
        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
        pl.seed_everything(0, verbose=False)
        masking_and_accumulation()
        exact_windows()
        wide_head()
        comparison()
        print("\nNext: make shell, then as-lightning-compare --help")
