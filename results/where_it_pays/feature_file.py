"""The data module of what features.py writes."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from as_lightning.bench.data.base import SPLITS, BenchmarkDataModule, LabelledDataset


class Features(BenchmarkDataModule):
    """The arrays ``train_inputs (N, d)`` and ``train_labels (N)``, and those of validation and
    test, in an ``.npz``.
    """

    def __init__(self, path: str | Path, batch_size: int = 256, **settings: Any) -> None:
        super().__init__(batch_size=batch_size, **settings)
        self.paths = {"all": path}

    @property
    def input_spec(self) -> dict[str, Any]:
        return {"in_features": self.splits["train"].inputs[0].numel()}

    def load_splits(self) -> dict[str, LabelledDataset]:
        with np.load(self.files()["all"], allow_pickle=False) as file:
            arrays = dict(file)
        targets = self.encode_labels(
            {split: [str(label) for label in arrays[f"{split}_labels"]] for split in SPLITS}
        )
        splits = {}
        for split in SPLITS:
            inputs = torch.from_numpy(arrays[f"{split}_inputs"].astype(np.float32))
            splits[split] = LabelledDataset(inputs, targets[split])
        return splits
