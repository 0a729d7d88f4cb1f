"""CIFAR-10 and CIFAR-100, in torchvision's format."""

from __future__ import annotations

from typing import Any

import torch
from sklearn.model_selection import train_test_split

from as_lightning.bench.data.base import LabelledDataset
from as_lightning.bench.data.image_folder import ImageFolder
from as_lightning.bench.packages import loading

with loading("torchvision"):
    from torchvision import datasets


class CIFAR(ImageFolder):
    """CIFAR: 32x32 photographs of 10 or 100 ``classes``, 45,000 / 5,000 / 10,000.

    torchvision downloads and unpacks it, and compares the checksum of every file; it raises a
    RuntimeError where it cannot. ``validation_share`` of the training images are for validation,
    stratified by class.

    Source: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009. For research
        use.
    """

    def __init__(self, classes: int = 10, horizontal_flip: bool = True, **images: Any) -> None:
        super().__init__(None, horizontal_flip=horizontal_flip, **images)
        self.published = getattr(datasets, f"CIFAR{classes}")

    def prepare_data(self) -> None:
        self.published(self.data_dir, download=True)

    def load_splits(self) -> dict[str, LabelledDataset]:
        train, test = (self.published(self.data_dir, train=is_train) for is_train in (True, False))
        self.class_names = list(train.classes)
        kept, held_out = train_test_split(
            range(len(train)),
            test_size=self.validation_share,
            stratify=train.targets,
            random_state=self.split_seed,
        )
        inputs, targets = {}, {}
        for split, part, rows in (
            ("train", train, kept),
            ("validation", train, held_out),
            ("test", test, slice(None)),
        ):
            inputs[split] = torch.from_numpy(part.data[rows]).permute(0, 3, 1, 2).contiguous()
            targets[split] = torch.tensor(part.targets)[rows]
        return self.transformed(inputs, targets)
