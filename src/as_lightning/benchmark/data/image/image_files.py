"""Image files, decoded by Pillow."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from as_lightning.benchmark.data.decoded_files import DecodableFiles
from as_lightning.benchmark.data.files import FileTree

SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def decode_image(content: bytes, image_size: int | None = None) -> Tensor:
    """The pixels of an image file, ``uint8`` of shape ``(3, H, W)``: RGB, upright as its EXIF orientation says.

    Args:
        content: a file in one of Pillow's formats; of 16-bit grey images the upper 8 bits are kept.
        image_size: scale to this height and width; what of the longer side then stands over is cut off on both ends.
            None keeps the size.

    Raises:
        ValueError: if that is no image, it is cut short, or its pixels are neither 8 nor 16 bits per channel.
    """
    try:
        with Image.open(io.BytesIO(content)) as opened:
            image = ImageOps.exif_transpose(opened)
            if image.mode.startswith("I;16"):
                image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
            if image.mode in ("I", "F"):
                raise ValueError(f"pixels of mode {image.mode}, whose range is not known")
            image = image.convert("RGB")
    except Exception as error:  # Pillow's decoders raise OSError, SyntaxError, struct.error, DecompressionBombError
        reason = "not an image" if isinstance(error, Image.UnidentifiedImageError) else str(error)
        raise ValueError(reason or type(error).__name__) from error
    if image_size is not None:
        image = ImageOps.fit(image, (image_size, image_size), Image.Resampling.BILINEAR)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()


class ImageFiles(DecodableFiles):
    """Image files, decoded when they are taken: ``uint8`` of shape ``(3, H, W)``.

    Args:
        tree: what holds the files.
        names: the files.
        image_size: as of :func:`decode_image`.

    Raises:
        ValueError: on taking an image that cannot be decoded; the message names the file.
    """

    def __init__(self, tree: FileTree, names: Sequence[str], image_size: int | None = None) -> None:
        self.tree, self.names, self.image_size = tree, list(names), image_size

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> Tensor:  # type: ignore[override]  # one at a time, no slices
        try:
            return decode_image(self.tree.read(self.names[index]), self.image_size)
        except (OSError, ValueError) as error:
            raise ValueError(f"{self.where(index)}: {error}") from error

    def where(self, index: int) -> str:
        return self.tree.where(self.names[index])
