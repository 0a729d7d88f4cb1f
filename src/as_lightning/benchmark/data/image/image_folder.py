"""A user's own images, in a folder for each class."""

from __future__ import annotations

import io
import random
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from as_lightning.benchmark.data.base import Limit, check_least, split_limits
from as_lightning.benchmark.data.decoded_files import Cache, DecodedFiles, decode_once
from as_lightning.benchmark.data.files import FileTree
from as_lightning.benchmark.data.folder_classes import ClassFolder
from as_lightning.benchmark.data.image.data_module import ImageDataModule, Images


def decode_image(content: bytes, image_size: int | None = None) -> Tensor:
    """The pixels of an image file, ``uint8`` of shape ``(3, H, W)``: RGB, upright as its EXIF orientation says.

    Of 16-bit grey images the upper 8 bits are kept. With ``image_size`` the image is scaled to this height and width,
    and what stands over is cut off. A ValueError says what is no whole image of 8 or 16 bits per channel.
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


def _decode_file(tree: FileTree, image_size: int | None, name: str) -> Tensor:
    return decode_image(tree.read(name), image_size)


class ImageFolder(ClassFolder, ImageDataModule):
    """A user's own images in a folder for each class; layouts as of `split_classes`.

    Each image is decoded once in ``setup``: one that is damaged stops the run before it starts.

    The settings are described in ``conf/data/image_folder.yaml``.

    Raises:
        ValueError: if the folders are not as described, files cannot be decoded, or ``image_size=None`` meets more than
            one size.
    """

    suffixes = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
    kind = "images"

    def __init__(
        self,
        path: str | Path,
        image_size: int | None = None,
        max_per_class: Limit = None,
        validation_share: float = 0.1,
        cache: Cache = "auto",
        **images: Any,
    ) -> None:
        super().__init__(path, validation_share, **images)
        if image_size is not None:
            check_least(1, image_size=image_size)
        self.image_size, self.cache = image_size, cache
        self.max_per_class = split_limits("max_per_class", max_per_class)

    def read_images(self) -> Images:
        tree, splits = self.class_files()
        rows = {}
        for split, classes in splits.items():
            limit = self.max_per_class[split]
            rows[split] = [(label, name) for label, names in classes.items() for name in names[:limit]]
            random.Random(self.split_seed).shuffle(rows[split])  # a loader may be cut short
        targets = self.encode_labels({split: [label for label, _ in pairs] for split, pairs in rows.items()})
        names = {split: [name for _, name in pairs] for split, pairs in rows.items()}
        self.texts = {split: [tree.where(name) for name in of_split] for split, of_split in names.items()}
        decode = partial(_decode_file, tree, self.image_size)
        files = {split: DecodedFiles(of_split, self.texts[split], decode) for split, of_split in names.items()}
        inputs, training_sums = decode_once(files, self.cache, kind="images", advice="set image_size")
        return Images(inputs, targets, training_sums)
