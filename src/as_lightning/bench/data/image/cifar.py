"""CIFAR-10 and CIFAR-100, in torchvision's format."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.model_selection import train_test_split
from torch import Tensor

from as_lightning.bench.data.base import LabelledDataset
from as_lightning.bench.data.decoded_files import value_sums
from as_lightning.bench.data.files import HINT
from as_lightning.bench.data.image.data_module import ImageDataModule
from as_lightning.bench.packages import loading

with loading("torchvision"):
    from torchvision import datasets


class CIFAR10(ImageDataModule):
    """CIFAR-10: 32x32 photographs of 10 classes, 45,000 / 5,000 / 10,000, in torchvision's format.

    torchvision downloads and unpacks it, and compares the checksum of every file.
    ``validation_size`` of the 50,000 training images are for validation, stratified by class.

    Raises:
        ValueError: if ``validation_size`` leaves one of its two splits without a class
            (scikit-learn's).
        RuntimeError: if it is not there and cannot be downloaded.

    Source: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009. For research
        use.
    """

    published: ClassVar[type[datasets.CIFAR10]] = datasets.CIFAR10

    def __init__(
        self, validation_size: int = 5000, horizontal_flip: bool = True, **images: Any
    ) -> None:
        super().__init__(horizontal_flip=horizontal_flip, **images)
        self.validation_size = validation_size

    def prepare_data(self) -> None:
        try:
            # It downloads if a file is missing or has another checksum.
            self.published(self.data_dir, train=False, download=True)
        except (OSError, RuntimeError, EOFError) as error:
            raise RuntimeError(
                f"{self.published.filename} could not be downloaded to {self.data_dir}: {error}. "
                f"{HINT}"
            ) from error

    def load_splits(self) -> dict[str, LabelledDataset]:
        self.prepare_data()
        train, test = (self.published(self.data_dir, train=is_train) for is_train in (True, False))
        self.class_names = list(train.classes)
        images, targets = channels_first(train.data), torch.tensor(train.targets)
        rows = range(len(targets))
        sizes: dict[str, Any] = {"test_size": self.validation_size, "stratify": targets}
        kept, held_out = train_test_split(rows, random_state=self.split_seed, **sizes)
        inputs = {"train": images[kept], "validation": images[held_out]}
        labels = {"train": targets[kept], "validation": targets[held_out]}
        inputs["test"], labels["test"] = channels_first(test.data), torch.tensor(test.targets)
        # In pieces, as the sums take eight bytes per value.
        sums = torch.stack([value_sums(piece) for piece in inputs["train"].split(64)]).sum(0)
        return self.transformed(inputs, labels, sums)


class CIFAR100(CIFAR10):
    """CIFAR-100: 32x32 photographs of 100 classes (the fine labels), 45,000 / 5,000 / 10,000; else
    as CIFAR-10.
    """

    published: ClassVar[type[datasets.CIFAR10]] = datasets.CIFAR100


def channels_first(images: np.ndarray) -> Tensor:
    """Images ``(N, H, W, 3)`` as ``(N, 3, H, W)``."""
    return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()
