"""A user's own images: in a folder for each class, or with a table of labels."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from as_lightning.bench.data.base import check_least
from as_lightning.bench.data.files import LabelledFile
from as_lightning.bench.data.folder_classes import ClassFolder
from as_lightning.bench.data.image.data_module import ImageDataModule

PHOTOMETRIC = 262  # the TIFF tag whose value 0 says that white is zero
Range = tuple[int, int]


def decode_image(
    content: bytes,
    changes: list[str] | None = None,
    *,
    image_size: int | None = None,
    grey_range: Range | None = None,
) -> Tensor:
    """The pixels of an image file, ``uint8`` of shape ``(3, H, W)``: RGB, upright as its EXIF
    orientation says.

    Of grey images of more than 8 bits the upper 8 bits are kept, or, where ``grey_range`` (without
    it the image's own) is narrower than 15 bits, the values are scaled by it. What is transparent
    shows white. With ``image_size`` the image is scaled to this height and width, and what stands
    over is cut off. ``changes`` gets what was done. A ValueError refuses what is no whole image of
    8 or 16 bits per channel.
    """
    changes = [] if changes is None else changes
    try:
        with Image.open(io.BytesIO(content)) as opened:
            if white_is_zero(opened):
                changes.append("are inverted, as white is zero in them")
            values = grey_values(opened)
            image = ImageOps.exif_transpose(opened)
        if values is not None:
            changes.append("have more than 8 bits, and are scaled by their range")
            image = Image.fromarray(as_bytes(values, grey_range))
        if image.mode in ("I", "F"):
            raise ValueError(f"pixels of mode {image.mode}, whose range is not known")
        if image.has_transparency_data:
            changes.append("are shown on white, where they are transparent")
            white = Image.new("RGBA", image.size, "white")
            image = Image.alpha_composite(white, image.convert("RGBA"))
        elif image.mode != "RGB":
            changes.append(f"are converted from {image.mode} to RGB")
        image = image.convert("RGB")
    except Exception as error:  # Pillow's decoders raise OSError, SyntaxError, struct.error, ...
        reason = "not an image" if isinstance(error, Image.UnidentifiedImageError) else str(error)
        raise ValueError(reason or type(error).__name__) from error
    if image_size is not None:
        if image.width != image.height:
            changes.append("are not square, and cropped (data.image_size)")
        image = ImageOps.fit(image, (image_size, image_size), Image.Resampling.BILINEAR)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()


def white_is_zero(image: Image.Image) -> bool:
    """Whether a TIFF file says so. Pillow inverts such images of 8 bits itself."""
    return getattr(image, "tag_v2", {}).get(PHOTOMETRIC) == 0


def grey_values(image: Image.Image) -> np.ndarray | None:
    """The values of a grey image of more than 8 bits, upright, 0 for black; None for any other.

    Pillow scales such an image in Netpbm's form (.pgm) to 16 bits.
    """
    if not image.mode.startswith("I;16") and (image.mode, image.format) != ("I", "PPM"):
        return None
    values = np.asarray(ImageOps.exif_transpose(image)).astype(np.int64)
    transparent = values == image.info.get("transparency")  # one value, or None
    if white_is_zero(image):
        values = 2**16 - 1 - values
    return np.where(transparent, 2**16 - 1, values)


def as_bytes(values: np.ndarray, grey_range: Range | None) -> np.ndarray:
    """Grey values as bytes: their upper 8 bits, or scaled by a narrow range."""
    low, high = grey_range or (int(values.min()), int(values.max()))
    if high - low >= 2**15:
        return (values >> 8).astype(np.uint8)
    scaled = (values - low) * (255.0 / max(high - low, 1))
    return scaled.round().clip(0, 255).astype(np.uint8)


def range_of(file: LabelledFile) -> Range | None:
    """The range of a grey image of more than 8 bits; None for any other file."""
    try:
        with Image.open(io.BytesIO(file.read())) as image:
            values = grey_values(image)
    except Exception:  # it is named when it is decoded
        return None
    return None if values is None else (int(values.min()), int(values.max()))


class ImageFolder(ClassFolder, ImageDataModule):
    """A user's own images; layouts as of `ClassFolder`.

    The settings are described in ``conf/data/image_folder.yaml``. A damaged image stops the run
    before it starts.

    Raises:
        ValueError: if the folders are not as described, files cannot be decoded, or
            ``image_size=None`` meets more than one size.
    """

    suffixes = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp", ".gif")

    def __init__(self, path: str | Path, image_size: int | None = None, **images: Any) -> None:
        super().__init__(path, **images)
        check_least(1, image_size=image_size)
        self.image_size = image_size

    def index(self) -> dict[str, list[LabelledFile]]:
        files = super().index()
        with ThreadPoolExecutor() as pool:
            found = pool.map(range_of, [file for rows in files.values() for file in rows])
        ranges = [grey_range for grey_range in found if grey_range is not None]
        whole = (min(low for low, _ in ranges), max(high for _, high in ranges)) if ranges else None
        self.decode = partial(decode_image, image_size=self.image_size, grey_range=whole)
        return files
