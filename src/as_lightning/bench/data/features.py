"""Feature vectors that some encoder has made: a head on them trains in seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor

from as_lightning.bench.data.base import SPLITS, BenchmarkDataModule, LabelledDataset
from as_lightning.bench.data.files import normal_form

EXPECTED = ", ".join(f"{split}_inputs, {split}_labels" for split in SPLITS)


class Features(BenchmarkDataModule):
    """The arrays ``train_inputs (N, d)`` and ``train_labels (N)``, and those of validation and
    test, in an ``.npz``.

    Inputs become ``float32``; labels are integers or texts. Nothing pickled is read. A ValueError
    names the file, and what is missing, of another shape or not finite.
    """

    def __init__(self, path: str | Path, batch_size: int = 256, **settings: Any) -> None:
        super().__init__(batch_size=batch_size, **settings)
        self.paths = {"all": path}

    @property
    def input_spec(self) -> dict[str, Any]:
        return {"in_features": self.splits["train"].inputs[0].numel()}

    def load_splits(self) -> dict[str, LabelledDataset]:
        path = self.files()["all"]
        inputs, labels = {}, {}
        try:
            with np.load(path, allow_pickle=False) as file:
                for split in SPLITS:
                    inputs[split] = file[f"{split}_inputs"]
                    labels[split] = file[f"{split}_labels"]
        # A TypeError is that of an .npy.
        except (KeyError, ValueError, OSError, EOFError, TypeError, BadZipFile) as error:
            raise ValueError(f"{path}: expected an .npz with {EXPECTED}: {error}") from error
        try:
            vectors = self.vectors_of(inputs, labels)
            targets = self.targets_of(labels)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        return {split: LabelledDataset(vectors[split], targets[split]) for split in SPLITS}

    def vectors_of(
        self, inputs: dict[str, np.ndarray], labels: dict[str, np.ndarray]
    ) -> dict[str, Tensor]:
        """Return the vectors of each split; a ValueError says what is not as expected."""
        several = self.task == "multilabel"
        vectors = {}
        for split, values in inputs.items():
            shapes = values.shape, labels[split].shape
            width, classes = inputs["train"].shape[1:], labels["train"].shape[1:]
            alike = shapes == ((len(values), *width), (len(values), *classes))
            if not alike or (len(width), len(classes)) != (1, several):
                form = "(N, C) of one C" if several else "(N)"
                raise ValueError(
                    f"expected {split}_inputs (N, d), d as in train_inputs, and {split}_labels "
                    f"{form}, got {shapes[0]} and {shapes[1]}"
                )
            with np.errstate(over="ignore"):
                vectors[split] = torch.from_numpy(values.astype(np.float32))
            bad = int((~vectors[split].isfinite()).any(1).sum())
            if bad:
                found = "NaN, infinity or more than float32 holds"
                raise ValueError(f"{bad} rows of {split}_inputs hold {found}: leave them out")
        return vectors

    def targets_of(self, labels: dict[str, np.ndarray]) -> dict[str, Tensor]:
        """Return the targets of each split; sets `class_names`."""
        names = {}
        for split, values in labels.items():
            names[split] = [normal_form(str(label).strip()) for label in values]
            missing = names[split].count("") + names[split].count("nan")  # pandas writes NaN
            if missing:
                raise ValueError(f"{missing} rows of {split}_labels have no label: leave them out")
        return self.encode_labels(names)


class MultilabelFeatures(Features):
    """`Features` of samples that have several labels: ``train_labels (N, C)`` of 0 and 1."""

    task = "multilabel"

    def targets_of(self, labels: dict[str, np.ndarray]) -> dict[str, Tensor]:
        self.class_names = [str(number) for number in range(labels["train"].shape[1])]
        targets = {}
        for split, values in labels.items():
            other = np.setdiff1d(values, (0, 1))
            if len(other):
                raise ValueError(f"expected {split}_labels of 0 and 1, got {other[0]}")
            targets[split] = torch.from_numpy(values.astype(np.int64))
        return targets
