"""What a run predicts for each test example: one compressed file beside `result.json`."""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor
from torch.utils.data import IterableDataset

from as_lightning.bench.run.result import whole_file
from as_lightning.callbacks.evaluation_logits import EvaluationLogits
from as_lightning.functional.calling_convention import IGNORED

PREDICTIONS_FILE = "predictions.npz"


class Predictions(NamedTuple):
    """The predictions of a test split, one row per example."""

    ids: np.ndarray  # `(N,)`: the same example has the same id in every run of the data set
    # classes `(N,)`, or counts `(N, 3)`: how many labels (tokens) of an example are right,
    # predicted and true
    predicted: np.ndarray
    target: np.ndarray  # classes `(N,)`; empty with several labels or tokens

    @classmethod
    def read(cls, folder: str | Path) -> Predictions | None:
        """The predictions in a run's folder; None if there are none. A ValueError names a file that
        cannot be read.
        """
        path = Path(folder) / PREDICTIONS_FILE
        if not path.exists():
            return None
        try:
            with np.load(path) as content:
                return cls(*(content[name] for name in cls._fields))
        except (OSError, ValueError, KeyError, EOFError, BadZipFile, zlib.error) as error:
            raise ValueError(f"{path} holds no predictions of as-lightning: {error}") from error

    def write(self, folder: str | Path) -> None:
        """Write the file in one move."""
        with whole_file(Path(folder) / PREDICTIONS_FILE) as partial, open(partial, "wb") as file:
            np.savez_compressed(file, **self._asdict())

    def differing(self, other: Predictions) -> np.ndarray | None:
        """Whether two runs differ on each example, boolean ``(N,)``; None if the examples differ or
        there are none.
        """
        comparable = (
            np.array_equal(self.ids, other.ids) and self.predicted.shape == other.predicted.shape
        )
        if not comparable or not len(self.ids):
            return None
        differences = self.predicted != other.predicted
        return np.asarray(differences.any(-1) if differences.ndim > 1 else differences)

    @property
    def score_parts(self) -> np.ndarray:
        """What each example adds ``(N, 2)`` to numerator and denominator of the score, the accuracy
        or the micro F1.
        """
        if self.predicted.ndim == 1:
            return np.stack(
                [self.predicted == self.target, np.ones(len(self.predicted), dtype=bool)], -1
            ).astype(float)
        right, predicted, true = self.predicted.T.astype(float)
        return np.stack([2 * right, predicted + true], -1)

    @property
    def score(self) -> float:
        """The accuracy, or the micro F1 of the labels; NaN where the denominator is 0."""
        numerator, denominator = self.score_parts.sum(0)
        return float(numerator / denominator) if denominator else math.nan


def example_ids(names: Sequence[str]) -> np.ndarray:
    """The ids of examples by their names: the same in every split and every process."""
    digests = [hashlib.blake2b(name.encode(), digest_size=8).digest() for name in names]
    return np.frombuffer(b"".join(digests), dtype=np.int64)


class PredictionRecorder(pl.Callback):
    """Records the `predictions` of a test on one process.

    They are None where the loader shuffles or streams, where a batch has more rows than examples,
    or where the module shows no logits.

    `ids` are those of the test examples, by default their numbers; examples of class
    ``ignore_index`` are left out.
    """

    def __init__(self, ids: np.ndarray | None = None, ignore_index: int = IGNORED) -> None:
        self.ids, self.ignore_index = ids, ignore_index
        self.predictions: Predictions | None = None
        self.source = EvaluationLogits(type(self).__name__, None, 0)
        self._rows: list[tuple[Tensor, Tensor]] = []
        self._order: np.ndarray | None = None  # None where no predictions can be recorded

    def on_test_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        loaders = trainer.test_dataloaders
        loader = loaders[0] if isinstance(loaders, list) else loaders
        self._rows, self._order = [], _order(loader) if trainer.world_size == 1 else None
        self.source.start(pl_module)

    def on_test_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        if self._order is None or not self.source.takes(dataloader_idx):
            return
        try:
            logits, target, multilabel = self.source.of(pl_module, batch)
        except MisconfigurationException:  # a module that shows no logits has no predictions
            self._order = None
            return
        self._rows.append(_rows(logits, target, multilabel, self.ignore_index))

    def on_test_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.source.stop()
        self.predictions = None
        if self._order is None or not self._rows:
            return
        predicted, target = (
            torch.cat(parts).cpu().numpy() for parts in zip(*self._rows, strict=True)
        )
        self._rows = []
        order = self._order[: len(predicted)]  # fewer where the test is cut short
        if len(predicted) > len(order):  # e.g. where one example gives several rows
            return
        labelled = target != self.ignore_index if len(target) else slice(None)
        order = order if self.ids is None else self.ids[order]
        self.predictions = Predictions(order[labelled], predicted[labelled], target[labelled])


def _order(loader: Any) -> np.ndarray | None:
    """The numbers of a loader's examples in its order; None for a stream, or if the order changes
    each time.
    """
    batches = getattr(loader, "batch_sampler", None)
    if batches is None or isinstance(loader.dataset, IterableDataset):
        return None
    order, next_order = ([number for batch in batches for number in batch] for _ in range(2))
    return np.array(order, dtype=np.int64) if order == next_order else None


def _rows(
    logits: Tensor, target: Tensor, multilabel: bool, ignore_index: int
) -> tuple[Tensor, Tensor]:
    labelled = target != ignore_index
    if multilabel:
        guess, truth = labelled & (logits > 0), labelled & (target > 0)
        return torch.stack(
            [(guess & truth).sum(-1), guess.sum(-1), truth.sum(-1)], -1
        ), target.new_zeros(0)
    guess = logits.argmax(-1)
    if target.dim() == 1:
        return guess, target
    right, length = (labelled & (guess == target)).flatten(1).sum(-1), labelled.flatten(1).sum(-1)
    return torch.stack([right, length, length], -1), target.new_zeros(0)
