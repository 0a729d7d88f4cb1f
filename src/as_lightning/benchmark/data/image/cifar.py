"""CIFAR-10 and CIFAR-100, in torchvision's format."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.model_selection import train_test_split
from torch import Tensor

from as_lightning.benchmark.data.files import HINT, LabelledFile
from as_lightning.benchmark.data.image.data_module import ImageDataModule
from as_lightning.benchmark.packages import loading

with loading("torchvision"):
    from torchvision import datasets


class CIFAR10(ImageDataModule):
    """CIFAR-10: 32x32 photographs of 10 classes, 45,000 / 5,000 / 10,000, in torchvision's format.

    torchvision downloads and unpacks it, and compares the checksum of every file. ``validation_size`` of the 50,000
    training images are for validation, stratified by class.

    Raises:
        ValueError: if ``validation_size`` leaves one of its two splits without a class (scikit-learn's).
        RuntimeError: if it is not there and cannot be downloaded.

    Source: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009. For research use.
    """

    published: ClassVar[type[datasets.CIFAR10]] = datasets.CIFAR10

    def __init__(self, validation_size: int = 5000, **images: Any) -> None:
        super().__init__(**images)
        self.validation_size = validation_size

    def prepare_data(self) -> None:
        try:
            self.published(self.data_dir, train=False, download=True)  # where a file is missing or has another checksum
        except (OSError, RuntimeError, EOFError) as error:
            name = self.published.filename
            raise RuntimeError(f"{name} could not be downloaded to {self.data_dir}: {error}. {HINT}") from error

    @property
    def decode(self) -> Callable[[np.ndarray], Tensor]:
        return _channels_first

    def index(self) -> dict[str, list[LabelledFile]]:
        self.prepare_data()
        train, test = (self.published(self.data_dir, train=is_train) for is_train in (True, False))
        kept, held_out = train_test_split(
            range(len(train)), test_size=self.validation_size, stratify=train.targets, random_state=self.split_seed
        )
        rows = {"train": (train, kept), "validation": (train, held_out), "test": (test, range(len(test)))}
        return {
            split: [
                LabelledFile(
                    data.classes[data.targets[row]], f"{split} example {number}", partial(data.data.take, row, 0)
                )
                for number, row in enumerate(of_split)
            ]
            for split, (data, of_split) in rows.items()
        }


class CIFAR100(CIFAR10):
    """CIFAR-100: 32x32 photographs of 100 classes (the fine labels), 45,000 / 5,000 / 10,000; else as CIFAR-10."""

    published: ClassVar[type[datasets.CIFAR10]] = datasets.CIFAR100


def _channels_first(image: np.ndarray) -> Tensor:
    return torch.from_numpy(image).permute(2, 0, 1).contiguous()
