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


class Features(BenchmarkDataModule):
    """The arrays ``train_inputs (N, d)`` and ``train_labels (N)``, and those of validation and
    test, in an ``.npz``.

    Inputs become ``float32``; labels are integers or texts. Nothing pickled is read.

    Raises:
        ValueError: if an array is missing, has another shape or is not finite, or a row has no
            label; names the file.
    """

    def __init__(self, path: str | Path, batch_size: int = 256, **settings: Any) -> None:
        super().__init__(batch_size=batch_size, **settings)
        self.paths = {"all": path}

    @property
    def input_spec(self) -> dict[str, Any]:
        return {"in_features": self.splits["train"].inputs[0].numel()}

    def load_splits(self) -> dict[str, LabelledDataset]:
        path = self.files()["all"]
        try:
            with np.load(path, allow_pickle=False) as file:
                inputs, labels = (
                    {split: file[f"{split}_{kind}"] for split in SPLITS}
                    for kind in ("inputs", "labels")
                )
        except (
            KeyError,
            ValueError,
            OSError,
            EOFError,
            TypeError,
            BadZipFile,
        ) as error:  # TypeError: of an .npy
            expected = ", ".join(f"{split}_inputs, {split}_labels" for split in SPLITS)
            raise ValueError(
                f"{path}: expected an .npz with the arrays {expected}: {error}"
            ) from error
        width, classes = inputs["train"].shape[1:2], labels["train"].shape[1:]
        for split, values in inputs.items():
            rows, label_shape = (
                len(labels[split]),
                "(N, C) of one C" if self.task == "multilabel" else "(N)",
            )
            shapes_match = values.shape == (rows, *width) and labels[split].shape == (
                rows,
                *classes,
            )
            if not (shapes_match and width and values.dtype.kind in "biuf") or len(classes) != (
                label_shape != "(N)"
            ):
                raise ValueError(
                    f"{path}: expected numbers, {split}_inputs (N, d), with the d of train_inputs, "
                    f"and {split}_labels "
                    f"{label_shape}, got {values.shape} and {labels[split].shape}, {values.dtype}"
                )
            with np.errstate(over="ignore"):
                inputs[split] = values.astype(np.float32)
            if bad_rows := int((~np.isfinite(inputs[split])).any(1).sum()):
                bad_values = "NaN, infinity or more than float32 holds"
                raise ValueError(
                    f"{path}: {bad_rows} rows of {split}_inputs hold {bad_values}: leave them out"
                )
        targets = self.targets_of(labels)
        return {
            split: LabelledDataset(torch.from_numpy(inputs[split]), targets[split])
            for split in SPLITS
        }

    def targets_of(self, labels: dict[str, np.ndarray]) -> dict[str, Tensor]:
        """The targets of each split; sets `class_names`."""
        names = {
            split: [normal_form(str(label).strip()) for label in values]
            for split, values in labels.items()
        }
        for split, values in labels.items():
            # pandas writes NaN for a missing value
            if missing := sum(
                label != label or not name for label, name in zip(values, names[split], strict=True)
            ):
                raise ValueError(
                    f"{self.paths['all']}: {missing} rows of {split}_labels have no label: leave "
                    "them out"
                )
        return self.encode_labels(names)


class MultilabelFeatures(Features):
    """`Features` of samples that have several labels: ``train_labels (N, C)`` of 0 and 1.

    Raises:
        ValueError: also if a label is neither 0 nor 1.
    """

    task = "multilabel"

    def targets_of(self, labels: dict[str, np.ndarray]) -> dict[str, Tensor]:
        self.class_names = [str(number) for number in range(labels["train"].shape[1])]
        for split, values in labels.items():
            if len(other := np.setdiff1d(values, (0, 1))):
                raise ValueError(
                    f"{self.paths['all']}: expected {split}_labels of 0 and 1, got {other[0]}"
                )
        return {
            split: torch.from_numpy(values.astype(np.int64)) for split, values in labels.items()
        }
