"""Embedded images: the 1,797 handwritten digits of 8x8 pixels that scikit-learn carries."""

from __future__ import annotations

from typing import Any

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from as_lightning.bench.data.base import SPLITS, BenchmarkDataModule, LabelledDataset


class Digits(BenchmarkDataModule):
    """scikit-learn's digits: 10 classes, 1,257 / 180 / 360 images, stratified by class.

    Inputs are ``float32`` of shape ``(1, 8, 8)`` in [0, 1], targets ``int64``.

    Source: `sklearn.datasets.load_digits` (UCI Optical Recognition of Handwritten Digits, test).
    """

    splits_by_seed = True

    def __init__(self, batch_size: int = 32, **loader: Any) -> None:
        super().__init__(batch_size=batch_size, **loader)

    @property
    def input_spec(self) -> dict[str, Any]:
        return {"in_channels": 1}

    def load_splits(self) -> dict[str, LabelledDataset]:
        digits = load_digits()
        images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16.0
        targets = torch.tensor(digits.target, dtype=torch.int64)
        self.class_names = list(map(str, digits.target_names))
        seed, rows = self.split_seed, {}
        rest, rows["test"] = train_test_split(
            range(len(targets)), test_size=360, stratify=targets, random_state=seed
        )
        rows["train"], rows["validation"] = train_test_split(
            rest, test_size=180, stratify=targets[rest], random_state=seed
        )
        splits = {}
        for split in SPLITS:
            self.texts[split] = [f"image {row}" for row in rows[split]]
            splits[split] = LabelledDataset(images[rows[split]], targets[rows[split]])
        return splits
