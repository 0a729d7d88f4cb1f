"""110,039 classes, the pictures of characters, by a fused head: softmax and AS-Softmax at tuned
rates.

    python results/glyphs/glyphs.py --train data   # makes the comparison, on one core in some two hours
    python results/glyphs/glyphs.py --cost data    # measures a step of each head
    python results/glyphs/glyphs.py                # writes README.md from what is committed

The data module is characters.py. A small network, trained on 5,000 of the classes, stays as it is
below the head of all, which starts at the features of the plain pictures: a class's logit falls
with the square of the distance to them.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from lightning.pytorch import seed_everything
from torch import Tensor, nn

from as_lightning import ASSoftmaxMixin
from as_lightning.functional import linear_cross_entropy
from as_lightning.report.record import ComparisonRecord

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [
    str(FOLDER),
    str(FOLDER.parent),
    str(FOLDER.parent / "where_it_pays"),
    str(FOLDER.parents[1] / "speed"),
]
from characters import Glyphs, distorted, pictures  # noqa: E402
from map import Cell, table  # noqa: E402
from prior import Scored  # noqa: E402
from written import written  # noqa: E402

README, COST = FOLDER / "README.md", FOLDER / "cost.json"
KEPT = (
    Path(tempfile.gettempdir()) / "as_lightning_glyphs"
)  # where an interrupted comparison goes on
ENCODER = KEPT / "encoder.pt"
WIDTH, ENCODER_CLASSES, BATCH = 64, 5000, 512
TRAINER = {
    "max_epochs": 3,
    "check_val_every_n_epoch": 3,
    "precision": "bf16-mixed",
    "log_every_n_steps": 50,
}
START = 0.5  # scale of the first logits


def encoder() -> nn.Sequential:
    """Three convolutions and a projection, normalised: ``(N, 1, 24, 24)`` to ``(N, 64)``."""
    layers: list[nn.Module] = []
    for before, width, stride in ((1, 32, 2), (32, 64, 2), (64, 128, 1)):
        layers += [
            nn.Conv2d(before, width, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
        ]
    return nn.Sequential(
        *layers,
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128 * 3 * 3, WIDTH),
        nn.BatchNorm1d(WIDTH, affine=False),
    )


def trained_encoder(images: Tensor, path: Path, epochs: int = 40, batch: int = 128) -> Path:
    """Train the encoder with softmax on some of the classes, once for all runs; keep it and its
    features of all.
    """
    if path.exists():
        return path
    seed_everything(0)
    everything, images = images, images[torch.randperm(len(images))[:ENCODER_CLASSES]]
    network, head = encoder(), nn.Linear(WIDTH, ENCODER_CLASSES)
    steps = epochs * (len(images) // batch)
    optimizer = torch.optim.AdamW([*network.parameters(), *head.parameters()], lr=5e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=steps)
    for _ in range(epochs):
        for rows in torch.randperm(len(images))[: len(images) // batch * batch].split(batch):
            F.cross_entropy(head(network(distorted(images[rows] / 255))), rows).backward()
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
    path.parent.mkdir(parents=True, exist_ok=True)
    network.eval()
    with torch.no_grad():
        features = torch.cat([network(part / 255) for part in everything.split(4096)])
    torch.save({"encoder": network.state_dict(), "features": features}, path)
    return path


class Head(Scored):
    """The head of all classes on the encoder; softmax."""

    def __init__(self, classes: int, weights: Path, lr: float = 2e-3) -> None:
        super().__init__(classes, "micro")
        self.save_hyperparameters()
        self.encoder = encoder().requires_grad_(False)
        found = torch.load(weights, weights_only=True)
        self.encoder.load_state_dict(found["encoder"])
        self.head = nn.Linear(WIDTH, classes)
        with torch.no_grad():
            self.head.weight.copy_(START * found["features"])
            self.head.bias.copy_(-START / 2 * found["features"].square().sum(1))

    def features(self, images: Tensor) -> Tensor:
        with torch.no_grad():
            return self.encoder.eval()(images)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images))

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.loss(self.features(batch[0]), batch[1])

    def loss(self, hidden: Tensor, target: Tensor) -> Tensor:
        return linear_cross_entropy(hidden, self.head.weight, target, linear_bias=self.head.bias)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(
            self.head.parameters(), lr=self.hparams["lr"], weight_decay=0.0, fused=True
        )
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(
            optimizer, int(self.trainer.estimated_stepping_batches)
        )
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


class ASSoftmaxHead(ASSoftmaxMixin, Head):
    """The same with AS-Softmax."""

    def loss(self, hidden: Tensor, target: Tensor) -> Tensor:
        return self.as_softmax_head_loss(hidden, self.head, target)


def data(folder: Path) -> Glyphs:
    """The data, in a folder to which the package is downloaded."""
    return Glyphs(data_dir=folder, batch_size=BATCH)


def train(folder: Path) -> None:
    """Make the comparison, and keep its record and the table of its final runs."""
    from as_lightning import compare

    _, images = pictures(data(folder).files()["pictures"])
    made = len(images), trained_encoder(images, ENCODER)
    margins = {"delta": {"low": 0.01, "high": 0.8, "default": 0.1}}
    compare(
        {
            "softmax": partial(Head, *made),
            "as_softmax": (partial(ASSoftmaxHead, *made), None, margins),
        },
        partial(data, folder),
        monitor="val/acc",
        trainer=TRAINER,
        half_epochs=False,
        trials=4,
        tuning_seeds=1,
        seeds=5,
        folder=KEPT,
        name="glyphs",
    )
    record = ComparisonRecord.read(KEPT)
    record.examples = []  # no text of an example is kept
    record.write(FOLDER)


def cost(folder: Path) -> None:
    """Measure a step of each head and loss, forward and backward, in turns, and its peak memory."""
    from interleaved import command, environment, interleaved_times, peak_memory

    glyphs = data(folder)
    _, images = pictures(glyphs.files()["pictures"])
    made = len(images), trained_encoder(images, ENCODER)
    plain, masked = Head(*made), ASSoftmaxHead(*made, delta=0.1)
    hidden, target = plain.features(distorted(images[:BATCH] / 255)), torch.arange(BATCH)

    def side(module: Head, loss: Callable[[Tensor], Tensor]) -> Callable[[], None]:
        def step() -> None:
            with torch.autocast("cpu", torch.bfloat16):
                found = loss(hidden)
            found.backward()
            module.head.zero_grad()

        return step

    sides = {
        "softmax, dense head": side(
            plain, lambda hidden: F.cross_entropy(plain.head(hidden), target)
        ),
        "softmax, fused head": side(plain, lambda hidden: plain.loss(hidden, target)),
        "AS-Softmax, dense head": side(
            masked, lambda hidden: masked.as_softmax_loss(masked.head(hidden), target)
        ),
        "AS-Softmax, fused head": side(masked, lambda hidden: masked.loss(hidden, target)),
    }
    device = torch.device("cpu")
    found: dict[str, Any] = interleaved_times(sides, "softmax, dense head", device, rounds=11)
    for name, one in sides.items():
        found[name]["peak"] = peak_memory(one, device)
    glyphs.setup()
    copies, rows = map(
        torch.as_tensor, (glyphs.splits["test"].inputs, glyphs.splits["test"].targets)
    )
    with torch.no_grad():
        parts = [plain(part / 255).argmax(1) for part in copies.split(BATCH)]
    start = float((torch.cat(parts) == rows).double().mean())
    report = {
        "command": command(),
        "environment": environment(device),
        "sides": found,
        "start": start,
    }
    COST.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def pages() -> dict[Path, str]:
    """What the committed runs make of the page."""
    from interleaved import machine_line, megabytes

    cell, report = Cell.read(FOLDER), json.loads(COST.read_text(encoding="utf-8"))
    of = cell.runs.groupby("candidate")[["score", "train_seconds"]].mean()
    rows = [["none: the head as it starts", "–", f"{100 * report['start']:.2f}", "–", "–"]]
    for name in of.index[::-1]:
        settings = ", ".join(
            f"{key} {value:g}" for key, value in cell.record.settings[name].items()
        )
        shown = "–" if name == cell.record.baseline else cell.shown(name)
        rows.append(
            [
                name,
                settings,
                f"{100 * of.score[name]:.2f}",
                shown,
                f"{of.train_seconds[name] / 60:.1f}",
            ]
        )
    runs = table(["loss", "tuned to", "accuracy, %", "difference, points [95%]", "minutes"], rows)
    sides = [
        [name, f"{one['milliseconds']:.0f}", f"{one['ratio']:.2f}", megabytes(one["peak"])]
        for name, one in report["sides"].items()
    ]
    steps = (
        table(["loss and head", "ms", "/ softmax, dense", "peak memory"], sides)
        + "\n\n"
        + machine_line(report)
    )
    return {README: written(README, "results/glyphs/glyphs.py", runs, steps)}


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--train", folder]:
            train(Path(folder))
        case ["--cost", folder]:
            cost(Path(folder))
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
