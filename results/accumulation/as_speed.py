"""Compare AS-Speed with its rivals, each tuned: where a step costs a reduction, and with Adam's
half-life held.

    python results/accumulation/as_speed.py processes   # two processes (gloo): softmax, windows of 4, AS-Speed
    python results/accumulation/as_speed.py half_life   # one process: AS-Speed with beta2 and with beta2 ** k

A small CNN on scikit-learn's digits. Each writes design.json, runs.csv and the report into the
folder of its name.
"""

import shutil
import sys
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.utilities import rank_zero_only
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import TensorDataset, random_split

from as_lightning import AccumulationSchedule, AdaptiveGradientAccumulation, ASSoftmaxMixin, compare
from as_lightning.report.record import DESIGN_FILE, TABLE_FILE

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))

DELTA = {"delta": {"low": 0.05, "high": 1.0, "default": 0.5}}


class KeptHalfLife(AdaptiveGradientAccumulation):
    """Windows of k batches whose step uses ``beta2 ** k``: a squared gradient decays as fast by
    samples as before.
    """

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        super().on_before_optimizer_step(trainer, pl_module, optimizer)
        assert self.window is not None
        for group in optimizer.param_groups:
            group["betas"] = (0.9, 0.999**self.window.length)


class SmallCNN(ASSoftmaxMixin, pl.LightningModule):
    """Two convolutions and two linear layers; AS-Softmax, which at a margin of 1 is softmax."""

    def __init__(
        self, lr: float, delta: float = 1.0, accumulation: pl.Callback | None = None
    ) -> None:
        super().__init__(delta=delta)
        self.save_hyperparameters("lr", "delta")
        self.accumulation = accumulation
        convolutions = [
            nn.Conv2d(1, 32, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(),
        ]
        self.network = nn.Sequential(
            *convolutions,
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(1024, 512),
            nn.ReLU(),
            nn.Linear(512, 10),
        )

    def forward(self, images: Tensor) -> Tensor:
        """The logits."""
        return self.network(images)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """The loss of a batch."""
        return self.as_softmax_loss(self(batch[0]), batch[1])

    def _score(self, name: str, batch: tuple[Tensor, Tensor]) -> None:
        accuracy = (self(batch[0]).argmax(-1) == batch[1]).float().mean()
        self.log(name, accuracy, sync_dist=True, on_epoch=True, batch_size=len(batch[1]))

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Log the accuracy."""
        self._score("val/acc", batch)

    def test_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Log the accuracy."""
        self._score("test/acc", batch)

    def configure_callbacks(self) -> list[pl.Callback]:
        """What accumulates."""
        return [] if self.accumulation is None else [self.accumulation]

    def configure_optimizers(self) -> Any:
        """AdamW, whose rate falls linearly to 0."""
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams["lr"])
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def softmax(lr: float = 2e-3) -> SmallCNN:
    """A step at each batch."""
    return SmallCNN(lr)


def windows_of_4(lr: float = 2e-3) -> SmallCNN:
    """A step at each fourth batch, at twice the rate."""
    return SmallCNN(
        lr, accumulation=AdaptiveGradientAccumulation(AccumulationSchedule({0: 4}), lr_scale="sqrt")
    )


def as_speed(lr: float = 2e-3, delta: float = 0.5) -> SmallCNN:
    """Up to four batches a step, as samples are masked."""
    return SmallCNN(lr, delta, AdaptiveGradientAccumulation(lr_scale="sqrt"))


def as_speed_half_life(lr: float = 2e-3, delta: float = 0.5) -> SmallCNN:
    """The same, with Adam's half-life held."""
    return SmallCNN(lr, delta, KeptHalfLife(lr_scale="sqrt"))


def digits() -> pl.LightningDataModule:
    """Images of 8x8, split once; a batch holds 16."""
    found = load_digits()
    images = torch.tensor(found.images, dtype=torch.float32).unsqueeze(1) / 16
    data = TensorDataset(images, torch.tensor(found.target))
    train, validation, test = random_split(data, [0.6, 0.2, 0.2], torch.Generator().manual_seed(0))
    return pl.LightningDataModule.from_datasets(train, validation, test, batch_size=16)


def keep(folder: Path) -> None:
    """Keep of a finished comparison its design, the table of its runs, and the report."""
    for path in folder.iterdir():
        if path.name not in (DESIGN_FILE, TABLE_FILE, "report"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def main(what: str) -> None:
    """Make one of the two comparisons; started again before its end, it goes on."""
    trainer: dict[str, Any] = {"max_epochs": 12, "accelerator": "cpu", "check_val_every_n_epoch": 4}
    candidates: dict[str, Any] = {
        "as_speed": (as_speed, None, DELTA),
        "half_life": (as_speed_half_life, None, DELTA),
    }
    half_epochs = False
    if what == "processes":
        trainer |= {"strategy": "ddp", "devices": 2}
        candidates = {
            "softmax": softmax,
            "windows_of_4": windows_of_4,
            "as_speed": (as_speed, None, DELTA),
        }
        half_epochs = True
    folder = FOLDER / what
    compare(
        candidates,
        digits,
        monitor="val/acc",
        trainer=trainer,
        half_epochs=half_epochs,
        name=what,
        folder=folder,
    )
    rank_zero_only(keep)(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
