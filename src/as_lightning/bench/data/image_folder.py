"""A user's own images: how they are decoded, augmented and normalised."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from as_lightning.bench.data.base import check_least
from as_lightning.bench.data.class_folder import ClassFolder, Transform, mean_and_std
from as_lightning.bench.data.files import Place
from as_lightning.bench.packages import loading

with loading("torchvision"):
    from torchvision.transforms import v2

PHOTOMETRIC = 262  # the TIFF tag whose value 0 says that white is zero


def decode_image(
    content: bytes, changes: list[str] | None = None, *, image_size: int | None = None
) -> Tensor:
    """Return the pixels of an image file, ``uint8`` of shape ``(3, H, W)``: RGB, upright as its
    EXIF orientation says.

    What is transparent shows white. With ``image_size`` the image is scaled to this height and
    width, and what stands over is cut off. ``changes`` gets what was done.
    """
    changes = [] if changes is None else changes
    try:
        with Image.open(io.BytesIO(content)) as opened:
            if getattr(opened, "tag_v2", {}).get(PHOTOMETRIC) == 0:
                changes.append("are inverted, as white is zero in them")
            image = ImageOps.exif_transpose(opened)
        if image.mode[0] in "IF":
            raise ValueError(f"more than 8 bits a pixel (mode {image.mode}): convert it to 8 bits")
        if image.has_transparency_data:
            changes.append("are shown on white, where they are transparent")
            white = Image.new("RGBA", image.size, "white")
            image = Image.alpha_composite(white, image.convert("RGBA"))
        elif image.mode != "RGB":
            changes.append(f"are converted from {image.mode} to RGB")
        image = image.convert("RGB")
    except Exception as error:  # Pillow's decoders raise OSError, SyntaxError, struct.error, ...
        raise ValueError(f"no readable image ({error})") from error
    if image_size is not None:
        if image.width != image.height:
            changes.append("are not square, and cropped (data.image_size)")
        image = ImageOps.fit(image, (image_size, image_size), Image.Resampling.BILINEAR)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()


class ImageFolder(ClassFolder):
    """A user's own images, decoded to ``(3, H, W)`` ``uint8``; layouts as of `ClassFolder`.

    Batches are ``(images (N, 3, H, W) float32, targets)``, normalised. The settings are described
    in ``conf/data/image_folder.yaml``.
    """

    kind = "images"
    suffixes = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp", ".gif")

    def __init__(
        self,
        path: Place,
        image_size: int | None = None,
        *,
        crop_padding: int = 4,
        horizontal_flip: bool = False,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(path, **settings)
        check_least(0, crop_padding=crop_padding)
        check_least(1, image_size=image_size)
        if [len(values) for values in (mean, std) if values is not None] not in ([], [3, 3]):
            raise ValueError(f"give mean and std, 3 numbers each, or neither, got {mean=}, {std=}")
        self.image_size = image_size
        self.crop_padding, self.horizontal_flip = crop_padding, horizontal_flip
        self.mean, self.std = mean, std
        self.random_inputs = bool(crop_padding or horizontal_flip)

    @property
    def input_spec(self) -> dict[str, Any]:
        return {"in_channels": 3}

    def decode(self, content: bytes, changes: list[str]) -> Tensor:
        return decode_image(content, changes, image_size=self.image_size)

    def transforms(self, train: Tensor) -> tuple[Transform, Transform]:
        if self.mean is None or self.std is None:
            self.mean, self.std = mean_and_std(train, scale=255.0)
        augment: list[Any] = []
        if self.crop_padding:
            augment.append(v2.RandomCrop(tuple(train.shape[-2:]), padding=self.crop_padding))
        if self.horizontal_flip:
            augment.append(v2.RandomHorizontalFlip())
        to_float = v2.ToDtype(torch.float32, scale=True)
        normalise = [to_float, v2.Normalize(list(self.mean), list(self.std))]
        return v2.Compose([*augment, *normalise]), v2.Compose(normalise)
