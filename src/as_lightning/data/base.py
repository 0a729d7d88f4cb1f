"""What every data module of the benchmark offers to the app: splits, loaders, and what a model must know."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, Dataset


class BenchmarkDataModule(pl.LightningDataModule):
    """A ``LightningDataModule`` with train, validation and test splits of ``(input, class index)`` pairs.

    A subclass sets :attr:`class_names` and :attr:`splits` in ``setup``, and says in :attr:`input_spec` what an encoder
    must know of the inputs.

    Args:
        batch_size: samples a batch, at least 1.
        num_workers: loader processes (0 loads in the main one).
        pin_memory: page-locked batches, for copies to a GPU.

    Raises:
        ValueError: if ``batch_size`` or ``num_workers`` is out of range.
    """

    def __init__(self, batch_size: int = 32, num_workers: int = 0, pin_memory: bool = False) -> None:
        super().__init__()
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        if num_workers < 0:
            raise ValueError(f"num_workers must be at least 0, got {num_workers}")
        self.batch_size, self.num_workers, self.pin_memory = batch_size, num_workers, pin_memory
        self.class_names: list[str] = []
        self.splits: dict[str, Dataset[Any]] = {}

    @property
    @abstractmethod
    def input_spec(self) -> dict[str, Any]:
        """Keyword arguments that the data gives to the encoder, e.g. ``{"in_channels": 1}``; known after ``setup``."""

    @property
    def num_classes(self) -> int:
        """The number of classes; known after ``setup``."""
        return len(self.class_names)

    def collate(self, samples: list[Any]) -> Any:
        """Make a batch of samples."""
        return torch.utils.data.default_collate(samples)

    def _loader(self, split: str, shuffle: bool = False) -> DataLoader[Any]:
        return DataLoader(
            self.splits[split],
            batch_size=self.batch_size,
            shuffle=shuffle,
            num_workers=self.num_workers,
            pin_memory=self.pin_memory,
            persistent_workers=self.num_workers > 0,
            collate_fn=self.collate,
        )

    def train_dataloader(self) -> DataLoader[Any]:
        return self._loader("train", shuffle=True)

    def val_dataloader(self) -> DataLoader[Any]:
        return self._loader("validation")

    def test_dataloader(self) -> DataLoader[Any]:
        return self._loader("test")
