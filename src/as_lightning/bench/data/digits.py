"""Embedded images: the 1,797 handwritten digits of 8x8 pixels that scikit-learn carries."""

from __future__ import annotations

from typing import Any

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from as_lightning.bench.data.base import BenchmarkDataModule, LabelledDataset


class Digits(BenchmarkDataModule):
    """scikit-learn's digits: 10 classes, 1,257 / 180 / 360 images, stratified by class.

    Inputs are ``float32`` of shape ``(1, 8, 8)`` in [0, 1], targets ``int64``. ``split_seed`` seeds
    the split.

    Source: `sklearn.datasets.load_digits` (UCI Optical Recognition of Handwritten Digits, test
        part).
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
        self.class_names = [str(name) for name in digits.target_names]
        rest, test = train_test_split(
            range(len(targets)), test_size=360, stratify=targets, random_state=self.split_seed
        )
        train, validation = train_test_split(
            rest, test_size=180, stratify=targets[rest], random_state=self.split_seed
        )
        splits = {}
        for name, rows in (("train", train), ("validation", validation), ("test", test)):
            self.texts[name] = [f"image {row}" for row in rows]
            splits[name] = LabelledDataset(images[rows], targets[rows])
        return splits
