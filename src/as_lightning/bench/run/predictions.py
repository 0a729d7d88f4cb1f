"""What a run predicts for each test example: `predictions.csv` beside `result.json`."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import lightning.pytorch as pl
import numpy as np
import pandas as pd
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor
from torch.utils.data import IterableDataset

from as_lightning.bench.run.example_scores import class_score, ratio_score
from as_lightning.bench.run.result import whole_file
from as_lightning.callbacks.evaluation_logits import EvaluationLogits
from as_lightning.functional.calling_convention import IGNORED
from as_lightning.statistics.example_spread import ScoredExamples

PREDICTIONS_FILE = "predictions.csv"
TOKEN = "token"  # the column of tagged words
SEPARATOR = "|"  # of several labels


class Predictions(NamedTuple):
    """The predictions of a test split, one row per example."""

    ids: np.ndarray  # `(N,)`: the examples' names, the same in every run of the data set
    # names of classes `(N,)`, or counts `(N, 3)` of labels (tokens): right, predicted and true
    predicted: np.ndarray
    target: np.ndarray  # names of classes `(N,)`; empty with several labels or tokens
    # a row for each example, or each of its tokens: example, (token), target, predicted
    table: pd.DataFrame = pd.DataFrame()

    @classmethod
    def of(cls, table: pd.DataFrame) -> Predictions:
        """Return the predictions of a table with ``example``, ``target`` and ``predicted``.

        Several labels are ``targets``, joined by ``|``; each tagged word has a row, and ``token``.
        """
        if TOKEN in table:
            sentences = table.groupby("example", sort=False)
            right = (table["target"] == table["predicted"]).groupby(table["example"], sort=False)
            counts = np.stack([right.sum(), sentences.size(), sentences.size()], -1)
            ids = sentences[TOKEN].agg(" ".join).to_numpy()
            return cls(ids, counts, np.empty(0), table)
        ids = table["example"].to_numpy()
        if "targets" in table:
            pairs = zip(table["targets"], table["predicted"], strict=True)
            counts = np.array([_counts(true, predicted) for true, predicted in pairs])
            return cls(ids, counts, np.empty(0), table)
        return cls(ids, table["predicted"].to_numpy(), table["target"].to_numpy(), table)

    @classmethod
    def read(cls, folder: str | Path) -> Predictions | None:
        """Return a run's predictions, None for none; a ValueError names a file that is damaged."""
        path = Path(folder) / PREDICTIONS_FILE
        if not path.exists():
            return None
        try:
            return cls.of(pd.read_csv(path, dtype=str, keep_default_na=False))
        except (ValueError, KeyError) as error:
            raise ValueError(f"{path} holds no predictions of as-lightning: {error}") from error

    def write(self, folder: str | Path) -> None:
        write_table(self.table, Path(folder) / PREDICTIONS_FILE)

    def comparable(self, other: Predictions) -> bool:
        """Return whether two runs have predicted the same examples, of which there are some."""
        same_kind = self.predicted.shape == other.predicted.shape
        return len(self.ids) > 0 and same_kind and np.array_equal(self.ids, other.ids)

    def scored(self, score: str) -> ScoredExamples:
        """Return the balanced accuracy or the macro F1 if ``score`` is called so, else the accuracy
        or the micro F1, and what each example adds to it.
        """
        if self.predicted.ndim > 1:
            right, predicted, true = self.predicted.T.astype(float)
            parts = np.stack([2 * right, predicted + true], -1)
            return ScoredExamples(self.ids, *ratio_score(parts))
        right = self.predicted == self.target
        if score in ("balanced_accuracy", "f1_macro"):
            found = class_score(self.predicted, self.target, score)
            return ScoredExamples(self.ids, *found, right, self.target)
        parts = np.stack([right, np.ones_like(right)], -1).astype(float)
        return ScoredExamples(self.ids, *ratio_score(parts), right)

    @property
    def rare_classes(self) -> str:
        """A sentence on the classes with one or no test example; empty without such."""
        sizes = pd.Series(self.target).value_counts()
        untested = {*self.predicted} - {*self.target}
        parts = []
        for kind, names in (("one", sizes.index[sizes == 1]), ("no", untested)):
            if len(names):
                parts.append(f"{kind} test example: {', '.join(sorted(names))}")
        if not parts:
            return ""
        return (
            f"Classes with {'; with '.join(parts)}. The intervals know nothing of others of these."
        )


def write_table(table: pd.DataFrame, path: Path) -> None:
    """Write a table of texts as CSV, in one move."""
    with whole_file(path) as partial:
        # all in quotes, also a text with a carriage return
        table.to_csv(partial, index=False, quoting=csv.QUOTE_ALL, errors="backslashreplace")


def _counts(targets: str, predicted: str) -> tuple[int, int, int]:
    true = set(filter(None, targets.split(SEPARATOR)))
    guessed = set(filter(None, predicted.split(SEPARATOR)))
    return len(true & guessed), len(guessed), len(true)


def predicted_classes(logits: Tensor, multilabel: bool) -> Tensor:
    """Return the classes ``(N,)`` or ``(N, L)``; of several labels whether each is, ``(N, C)``."""
    return logits > 0 if multilabel else logits.argmax(-1)


class PredictionRecorder(pl.Callback):
    """Records the `predictions` of a test on one process.

    They are None where the loader shuffles or streams, where a batch has more rows than examples,
    or where the module shows no logits. Examples and tokens of class -100 are left out. ``names``
    are the test examples' (of a tagged sentence its words), by default their numbers.
    """

    def __init__(
        self, names: Sequence[str] | None = None, class_names: Sequence[str] | None = None
    ) -> None:
        self.names, self.class_names = names, class_names
        self.predictions: Predictions | None = None
        self.source = EvaluationLogits(type(self).__name__, None)
        self._rows: list[tuple[np.ndarray, np.ndarray]] = []  # target and prediction
        self._multilabel = False
        self._order: list[int] | None = None  # None where no predictions can be recorded

    def on_test_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        loaders = trainer.test_dataloaders
        self._rows, self._order = [], None
        if trainer.world_size == 1:
            self._order = _order(loaders[0] if isinstance(loaders, list) else loaders)
        self.source.start(pl_module)

    def on_test_batch_start(self, *_: Any) -> None:
        self.source.drop()

    def on_test_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        if self._order is None or dataloader_idx > 0:
            return
        try:
            logits, target, self._multilabel = self.source.of(pl_module, batch)
        except MisconfigurationException:  # a module that shows no logits has no predictions
            self._order = None
            return
        predicted = predicted_classes(logits, self._multilabel)
        self._rows += zip(target.cpu().numpy(), predicted.cpu().numpy(), strict=True)

    def on_test_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.source.stop()
        self.predictions = None
        # fewer rows than examples where the test is cut short; more where one gives several
        if self._order is None or not 0 < len(self._rows) <= len(self._order):
            return
        names = [f"test example {number}" for number in self._order]
        if self.names is not None:
            names = [self.names[number] for number in self._order]
        table = predictions_table(self._rows, self._multilabel, names, self.class_names)
        self._rows, self.predictions = [], Predictions.of(table)


def predictions_table(
    rows: Sequence[tuple[np.ndarray, np.ndarray]],
    multilabel: bool,
    names: Sequence[str],
    class_names: Sequence[str] | None,
) -> pd.DataFrame:
    """Return the table of `Predictions.of`, of a target and a prediction for each example."""

    def named(classes: np.ndarray) -> list[str]:
        if class_names is None:
            return classes.astype(str).tolist()
        return [class_names[number] for number in classes]

    columns = ["example", "target", "predicted"]
    table: list[tuple[str, ...]] = []
    for number, (target, predicted) in enumerate(rows):
        name = names[number]
        labelled = target != IGNORED
        if multilabel:
            columns[1] = "targets"
            true = named(np.flatnonzero(labelled & (target > 0)))
            guessed = named(np.flatnonzero(labelled & predicted))
            table.append((name, SEPARATOR.join(true), SEPARATOR.join(guessed)))
            continue
        true, guessed = named(target[labelled]), named(predicted[labelled])
        if target.ndim == 0:
            table += zip([name], true, guessed, strict=False)  # none where the class is ignored
            continue
        columns = ["example", TOKEN, "target", "predicted"]
        tokens = name.split(" ")
        if len(tokens) < len(true):  # the name is no sentence
            tokens = list(map(str, range(len(true))))
        table += zip([str(number)] * len(true), tokens, true, guessed, strict=False)
    return pd.DataFrame(table, columns=columns, dtype=str)


def _order(loader: Any) -> list[int] | None:
    """The numbers of a loader's examples in its order; None if they are not known."""
    batches = getattr(loader, "batch_sampler", None)
    if batches is None or isinstance(loader.dataset, IterableDataset):
        return None
    order = list(chain.from_iterable(batches))
    if order != list(chain.from_iterable(batches)):
        return None
    return order
