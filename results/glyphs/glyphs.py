"""110,039 classes, the pictures of characters, by a fused head: softmax and AS-Softmax at tuned rates.

    apt-get download fonts-cns11643-pixmaps && dpkg-deb -x fonts-cns11643-pixmaps_*.deb characters
    python results/glyphs/glyphs.py --train characters   # makes the comparison, on one core in some two hours
    python results/glyphs/glyphs.py --cost characters    # measures a step of each head
    python results/glyphs/glyphs.py                      # writes README.md from what is committed

A class is a picture of 24 by 24 pixels, and a sample is a distorted copy of it: turned by up to 10 degrees, moved by up
to 2 pixels, scaled by up to 10%, with noise and a hole. Of each class an epoch holds one copy, the validation split
5,000 copies and the test split 10,000, of classes drawn at random. A small network, trained on 5,000 of the classes,
stays as it is below the head of all, which starts at the features of the plain pictures: a class's logit falls with the
square of the distance to them.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from lightning.pytorch import LightningDataModule, seed_everything
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from as_lightning import ASSoftmaxMixin
from as_lightning.functional import linear_cross_entropy

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER.parent), str(FOLDER.parent / "where_it_pays"), str(FOLDER.parents[1] / "speed")]
from map import Cell, table, take  # noqa: E402
from prior import Scored  # noqa: E402
from written import written  # noqa: E402

README, COST = FOLDER / "README.md", FOLDER / "cost.json"
KEPT = Path(tempfile.gettempdir()) / "as_lightning_glyphs"  # where an interrupted comparison goes on
ENCODER = KEPT / "encoder.pt"
CHECKSUM = "74666d1ea0b27d9c3f6eaa01255977158862f752fad43e9bab5c8bdd0f8e7523"  # of all files, version 103.1+20181001-1
SIZE, WIDTH, ENCODER_CLASSES, BATCH = 24, 64, 5000, 512
DRAWN = {"val": 5000, "test": 10000}
TRAINER = {"max_epochs": 3, "check_val_every_n_epoch": 3, "precision": "bf16-mixed", "log_every_n_steps": 50}
START = 0.5  # scale of the first logits
TURN, MOVE, SCALE, NOISE, HOLE = math.radians(10), 2.0, 0.1, 0.15, 6


@cache
def pictures(folder: Path) -> Tensor:
    """The distinct pictures of the package, ``uint8 (C, 1, 24, 24)``, in the order of their files' names.

    A ValueError says that the folder holds other files.
    """
    found: dict[bytes, np.ndarray] = {}
    digest = hashlib.sha256()
    for file in sorted(folder.glob("**/cns11643/a*/*.png")):
        digest.update(file.read_bytes())
        with Image.open(file) as opened:
            if opened.size == (SIZE, SIZE):  # 13 are not
                picture = np.asarray(opened.convert("L"))
                found.setdefault(picture.tobytes(), picture)
    if digest.hexdigest() != CHECKSUM:
        raise ValueError(f"{folder} does not hold the pictures of fonts-cns11643-pixmaps 103.1+20181001-1")
    return torch.from_numpy(np.stack(list(found.values())))[:, None]


def distorted(images: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """A copy of each picture, turned, moved, scaled, with noise and a hole: ``float32``, ink is 1."""
    count = len(images)

    def uniform(*shape: int) -> Tensor:
        return 2 * torch.rand(count, *shape, generator=generator) - 1

    angle, scale = TURN * uniform(), 1 + SCALE * uniform()
    cosine, sine = scale * angle.cos(), scale * angle.sin()
    shift = MOVE / (SIZE / 2) * uniform(2)
    affine = torch.stack([torch.stack([cosine, -sine], 1), torch.stack([sine, cosine], 1), shift], 2)
    grid = F.affine_grid(affine, [count, 1, SIZE, SIZE], align_corners=False)
    moved = F.grid_sample(1 - images.float() / 255, grid, align_corners=False)
    moved += NOISE * torch.randn(moved.shape, generator=generator)
    corner = torch.randint(SIZE - HOLE + 1, (count, 2, 1), generator=generator)
    inside = (torch.arange(SIZE) >= corner) & (torch.arange(SIZE) < corner + HOLE)
    return moved.masked_fill((inside[:, 0, :, None] & inside[:, 1, None, :])[:, None], 0.0)


class Glyphs(LightningDataModule):
    """Pictures and their classes: plain ones to train on, which the module distorts, and distorted ones."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def setup(self, stage: str | None = None) -> None:
        images = pictures(self.folder)
        self.splits = {"train": TensorDataset(images, torch.arange(len(images)))}
        for seed, (split, size) in enumerate(DRAWN.items()):
            generator = torch.Generator().manual_seed(seed)
            rows = torch.randperm(len(images), generator=generator)[:size]
            self.splits[split] = TensorDataset(distorted(images[rows], generator), rows)

    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(self.splits["train"], BATCH, shuffle=True, drop_last=True)

    def val_dataloader(self) -> DataLoader[Any]:
        return DataLoader(self.splits["val"], BATCH)

    def test_dataloader(self) -> DataLoader[Any]:
        return DataLoader(self.splits["test"], BATCH)


def encoder() -> nn.Sequential:
    """Three convolutions and a projection, normalised: ``(N, 1, 24, 24)`` to ``(N, 64)``."""
    layers: list[nn.Module] = []
    for before, width, stride in ((1, 32, 2), (32, 64, 2), (64, 128, 1)):
        layers += [nn.Conv2d(before, width, 3, stride, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(
        *layers,
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128 * (SIZE // 8) ** 2, WIDTH),
        nn.BatchNorm1d(WIDTH, affine=False),
    )


def trained_encoder(images: Tensor, path: Path, epochs: int = 40, batch: int = 128) -> Path:
    """Train the encoder with softmax on some of the classes, once for all runs; keep it and its features of all."""
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
            F.cross_entropy(head(network(distorted(images[rows]))), rows).backward()
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
    path.parent.mkdir(parents=True, exist_ok=True)
    network.eval()
    with torch.no_grad():
        features = torch.cat([network(1 - part.float() / 255) for part in everything.split(4096)])
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
        return self.loss(self.features(distorted(batch[0])), batch[1])

    def loss(self, hidden: Tensor, target: Tensor) -> Tensor:
        return linear_cross_entropy(hidden, self.head.weight, target, linear_bias=self.head.bias)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.head.parameters(), lr=self.hparams["lr"], weight_decay=0.0, fused=True)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, int(self.trainer.estimated_stepping_batches))
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


class ASSoftmaxHead(ASSoftmaxMixin, Head):
    """The same with AS-Softmax."""

    def loss(self, hidden: Tensor, target: Tensor) -> Tensor:
        return self.as_softmax_head_loss(hidden, self.head, target)


def train(folder: Path) -> None:
    """Make the comparison, and keep its record and the table of its final runs."""
    from as_lightning import compare

    images = pictures(folder)
    made = len(images), trained_encoder(images, ENCODER)
    margins = {"delta": {"low": 0.01, "high": 0.8, "default": 0.1}}
    compare(
        {"softmax": partial(Head, *made), "as_softmax": (partial(ASSoftmaxHead, *made), None, margins)},
        partial(Glyphs, folder),
        monitor="val/acc",
        trainer=TRAINER,
        budgets=1,
        trials=4,
        tuning_seeds=1,
        seeds=5,
        folder=KEPT,
        name="glyphs",
    )
    take(KEPT, FOLDER)


def cost(folder: Path) -> None:
    """Measure a step of each head and loss, forward and backward, in turns, and its peak memory."""
    from interleaved import command, environment, interleaved_times, peak_memory

    images = pictures(folder)
    made = len(images), trained_encoder(images, ENCODER)
    plain, masked = Head(*made), ASSoftmaxHead(*made, delta=0.1)
    hidden, target = plain.features(distorted(images[:BATCH])), torch.arange(BATCH)

    def side(module: Head, loss: Callable[[Tensor], Tensor]) -> Callable[[], None]:
        def step() -> None:
            with torch.autocast("cpu", torch.bfloat16):
                found = loss(hidden)
            found.backward()
            module.head.zero_grad()

        return step

    sides = {
        "softmax, dense head": side(plain, lambda hidden: F.cross_entropy(plain.head(hidden), target)),
        "softmax, fused head": side(plain, lambda hidden: plain.loss(hidden, target)),
        "AS-Softmax, dense head": side(masked, lambda hidden: masked.as_softmax_loss(masked.head(hidden), target)),
        "AS-Softmax, fused head": side(masked, lambda hidden: masked.loss(hidden, target)),
    }
    device = torch.device("cpu")
    found: dict[str, Any] = interleaved_times(sides, "softmax, dense head", device, rounds=11)
    for name, one in sides.items():
        found[name]["peak"] = peak_memory(one, device)
    data = Glyphs(folder)
    data.setup()
    copies, rows = data.splits["test"].tensors
    with torch.no_grad():
        parts = [plain.head(part).argmax(1) for part in plain.features(copies).split(BATCH)]
    start = float((torch.cat(parts) == rows).double().mean())
    report = {"command": command(), "environment": environment(device), "sides": found, "start": start}
    COST.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def pages() -> dict[Path, str]:
    """What the committed runs make of the page."""
    from interleaved import machine_line, megabytes

    cell, report = Cell.read(FOLDER), json.loads(COST.read_text(encoding="utf-8"))
    of = cell.runs.groupby("candidate")[["score", "seconds"]].mean()
    rows = [["none: the head as it starts", "–", f"{100 * report['start']:.2f}", "–", "–"]]
    for name in of.index[::-1]:
        settings = ", ".join(f"{key} {value:g}" for key, value in cell.record["settings"][name].items())
        shown = "–" if name == cell.record["baseline"] else cell.shown(name)
        rows.append([name, settings, f"{100 * of.score[name]:.2f}", shown, f"{of.seconds[name] / 60:.1f}"])
    runs = table(["loss", "tuned to", "accuracy, %", "difference, points [95%]", "minutes"], rows)
    sides = [
        [name, f"{one['milliseconds']:.0f}", f"{one['ratio']:.2f}", megabytes(one["peak"])]
        for name, one in report["sides"].items()
    ]
    steps = table(["loss and head", "ms", "/ softmax, dense", "peak memory"], sides) + "\n\n" + machine_line(report)
    return {README: written(README, "results/glyphs/glyphs.py", runs, steps)}


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--train", folder]:
            train(Path(folder))
        case ["--cost", folder]:
            cost(Path(folder))
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
