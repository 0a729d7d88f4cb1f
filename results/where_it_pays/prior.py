"""AS-Softmax with the class frequencies in its logits, against logit adjustment: ``prior/``, a
table of a page.

    python results/where_it_pays/prior.py --train    # makes the comparison (its features below AS_LIGHTNING_DATA)
    python results/where_it_pays/prior.py            # from what is committed

A linear head on features of CLINC150 with a tail of 50:1. The log of each class's share of the
training data is added to the logits that decide the margin, to those of the loss, or to both. The
table stands in docs/which_loss.md.
"""

from __future__ import annotations

import os
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from lightning.pytorch import LightningModule
from map import FOLDER, PAGE, Cell, table
from torch import Tensor
from torchmetrics.classification import MulticlassAccuracy
from written import written

from as_lightning.functional import as_softmax_mask

KEPT = FOLDER / "prior"
CLASSES, WIDTH = 150, 384
# of a candidate: whether the prior is in the logits that decide the margin (None: no margin) and in
# those of the loss
CANDIDATES = {
    "logit adjustment": (None, True),
    "AS-Softmax, no prior": (False, False),
    "AS-Softmax, margin and loss on adjusted logits": (True, True),
    "AS-Softmax, margin on adjusted, loss on plain logits": (True, False),
    "AS-Softmax, margin on plain, loss on adjusted logits": (False, True),
}


class Scored(LightningModule):
    """Logs the accuracy of its logits in validation and test."""

    def __init__(self, classes: int, average: Literal["micro", "macro"]) -> None:
        super().__init__()
        splits = ("val", "test")
        self.scores = torch.nn.ModuleDict(
            {split: MulticlassAccuracy(classes, average=average) for split in splits}
        )

    def score(self, batch: Any, split: str) -> None:
        self.scores[split](self(batch[0]), batch[1])
        self.log(f"{split}/acc", self.scores[split], on_epoch=True)  # type: ignore[arg-type]

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.score(batch, "val")

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self.score(batch, "test")


class Head(Scored):
    """A linear head; ``margin`` and ``loss`` say whose logits get the prior, and no margin is plain
    cross-entropy.
    """

    def __init__(
        self, margin: bool | None, loss: bool, lr: float = 1e-2, delta: float = 0.1
    ) -> None:
        super().__init__(CLASSES, "macro")
        self.save_hyperparameters()
        self.head = torch.nn.Linear(WIDTH, CLASSES)

    def forward(self, features: Tensor) -> Tensor:
        return self.head(features)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        inputs, target = batch[0], batch[1]
        logits, counts = self(inputs), self.trainer.datamodule.class_counts  # type: ignore[attr-defined]
        prior = (counts.clamp(min=1) / counts.sum()).log()
        of_loss = logits + prior * self.hparams["loss"]
        if self.hparams["margin"] is not None:
            kept = as_softmax_mask(
                logits + prior * self.hparams["margin"], target, self.hparams["delta"]
            )
            of_loss = of_loss.masked_fill(~kept, -torch.inf)
        return F.cross_entropy(of_loss, target)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams["lr"])
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(
            optimizer, int(self.trainer.estimated_stepping_batches)
        )
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


def train() -> None:
    """Make the comparison, and keep its record and the table of its final runs."""
    from feature_file import Features

    from as_lightning import compare
    from as_lightning.report.record import ComparisonRecord

    margins = {"delta": {"low": 0.01, "high": 0.8, "default": 0.1}}
    candidates = {
        name: (partial(Head, *where), None, {} if where[0] is None else margins)
        for name, where in CANDIDATES.items()
    }
    folder = (
        Path(tempfile.gettempdir()) / "as_lightning_prior"
    )  # where an interrupted comparison goes on
    compare(
        candidates,
        partial(
            Features, Path(os.environ["AS_LIGHTNING_DATA"]) / "clinc150_minilm.npz", imbalance=50
        ),
        monitor="val/acc",
        trainer={"max_epochs": 10, "check_val_every_n_epoch": 10, "log_every_n_steps": 1},
        half_epochs=False,
        trials=5,
        seeds=8,
        folder=folder,
        name="prior",
    )
    record = ComparisonRecord.read(folder)
    record.examples = []
    KEPT.mkdir(parents=True, exist_ok=True)
    record.write(KEPT)


def pages() -> dict[Path, str]:
    """What the committed runs make of the page."""
    cell = Cell.read(KEPT)
    means = 100 * cell.runs.groupby("candidate")["score"].mean()
    rows = [[name, f"{means[name]:.1f}", cell.shown(name)] for name in CANDIDATES]
    text = table(
        ["loss", "balanced accuracy", "difference to logit adjustment, points [95%]"], rows
    )
    return {PAGE: written(PAGE, "results/where_it_pays/prior.py", text)}


if __name__ == "__main__":
    if sys.argv[1:] == ["--train"]:
        train()
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
