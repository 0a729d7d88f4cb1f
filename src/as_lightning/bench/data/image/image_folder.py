"""A user's own images, in a folder for each class."""

from __future__ import annotations

import io
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from as_lightning.bench.data.base import check_least
from as_lightning.bench.data.folder_classes import ClassFolder
from as_lightning.bench.data.image.data_module import ImageDataModule


def decode_image(content: bytes, image_size: int | None = None) -> Tensor:
    """The pixels of an image file, ``uint8`` of shape ``(3, H, W)``: RGB, upright as its EXIF
    orientation says.

    Of 16-bit grey images the upper 8 bits are kept; what is transparent shows white. With
    ``image_size`` the image is scaled to this height and width, and what stands over is cut off. A
    ValueError refuses what is no whole image of 8 or 16 bits per channel.
    """
    try:
        with Image.open(io.BytesIO(content)) as opened:
            image = ImageOps.exif_transpose(opened)
            # Pillow scales a grey image of more than 8 bits in Netpbm's form (.pgm) to 16
            if image.mode.startswith("I;16") or (image.mode, opened.format) == ("I", "PPM"):
                grey = np.asarray(image)
                grey = np.where(
                    grey == image.info.get("transparency"), 2**16 - 1, grey
                )  # one value, or None
                image = Image.fromarray((grey >> 8).astype(np.uint8))
            if image.mode in ("I", "F"):
                raise ValueError(f"pixels of mode {image.mode}, whose range is not known")
            if image.has_transparency_data:
                image = Image.alpha_composite(
                    Image.new("RGBA", image.size, "white"), image.convert("RGBA")
                )
            image = image.convert("RGB")
    except Exception as error:  # Pillow's decoders raise OSError, SyntaxError, struct.error, DecompressionBombError
        reason = "not an image" if isinstance(error, Image.UnidentifiedImageError) else str(error)
        raise ValueError(reason or type(error).__name__) from error
    if image_size is not None:
        image = ImageOps.fit(image, (image_size, image_size), Image.Resampling.BILINEAR)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()


class ImageFolder(ClassFolder, ImageDataModule):
    """A user's own images in a folder for each class; layouts as of `ClassFolder`.

    The settings are described in ``conf/data/image_folder.yaml``. A damaged image stops the run
    before it starts.

    Raises:
        ValueError: if the folders are not as described, files cannot be decoded, or
            ``image_size=None`` meets more than one size.
    """

    suffixes = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp", ".gif")

    def __init__(self, path: str | Path, image_size: int | None = None, **images: Any) -> None:
        super().__init__(path, **images)
        check_least(1, image_size=1 if image_size is None else image_size)
        self.decode = partial(decode_image, image_size=image_size)
