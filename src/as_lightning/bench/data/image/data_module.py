"""The base of image data: images are held as bytes, and augmented and normalised when they are
read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from as_lightning.bench.data.base import check_least
from as_lightning.bench.data.decoded_files import DecodedDataModule, Transform, mean_and_std
from as_lightning.bench.packages import loading

with loading("torchvision"):
    from torchvision.transforms import v2


class ImageDataModule(DecodedDataModule):
    """Images, decoded to ``(3, H, W)`` ``uint8``; batches are ``(images (N, 3, H, W) float32,
    targets)``, normalised.

    The settings are described in ``conf/data/image_folder.yaml``. A training image gets a black
    border and is cropped at random to its size; with ``horizontal_flip`` it is mirrored with
    probability 1/2.
    """

    kind = "images"

    def __init__(
        self,
        *,
        crop_padding: int = 4,
        horizontal_flip: bool = False,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        **loader: Any,
    ) -> None:
        super().__init__(**loader)
        check_least(0, crop_padding=crop_padding)
        if [len(values) for values in (mean, std) if values is not None] not in ([], [3, 3]):
            raise ValueError(f"give mean and std, 3 numbers each, or neither, got {mean=}, {std=}")
        self.crop_padding, self.horizontal_flip = crop_padding, horizontal_flip
        self.mean, self.std = mean, std
        self.random_inputs = bool(crop_padding or horizontal_flip)

    @property
    def input_spec(self) -> dict[str, Any]:
        return {"in_channels": 3}

    def transforms(self, sums: Tensor, shape: torch.Size) -> tuple[Transform, Transform]:
        if self.mean is None or self.std is None:
            self.mean, self.std = mean_and_std(sums, scale=255.0)
        augment: list[Any] = []
        if self.crop_padding:
            augment.append(v2.RandomCrop(tuple(shape[-2:]), padding=self.crop_padding))
        if self.horizontal_flip:
            augment.append(v2.RandomHorizontalFlip())
        normalise = [
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(list(self.mean), list(self.std)),
        ]
        return v2.Compose([*augment, *normalise]), v2.Compose(normalise)
