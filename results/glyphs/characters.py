"""Characters: the 110,039 distinct pictures of a Debian package, each a class whose samples are
distorted copies.
"""

from __future__ import annotations

import functools
import io
import math
import os
import tarfile
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from as_lightning.bench.data.base import BenchmarkDataModule, LabelledDataset, check_least

PACKAGE = "fonts-cns11643-pixmaps_103.1+20181001-1_all.deb"
SIZE = 24  # pixels; 13 of the pictures have another size, and are left out
DRAWN = {"validation": 5000, "test": 10000}  # of the classes, one copy each
TURN, SCALE, SHIFT, NOISE, HOLE = math.radians(10), 0.1, 2.0, 0.15, 6


class Glyphs(BenchmarkDataModule):
    """110,039 characters of 24x24 pixels; a sample is a copy of a class's picture, distorted anew
    each time it is seen.

    A copy is turned by up to 10 degrees, scaled by up to 10% and shifted by up to 2 pixels; noise
    of standard deviation 0.15 is added, and a square of 6 pixels erased. An epoch holds one copy of
    each class; of 5,000 classes one copy is for validation, and of 10,000 one for the test, the
    same ones in every run. Batches are ``(ink (N, 1, 24, 24) float32, 1 where it is black; classes
    (N) int64)``.

    Args:
        classes: take this many of the classes, drawn at random, the same ones in every run; None:
            all.

    Source: the package ``fonts-cns11643-pixmaps`` of Debian (Open Government Data License of
    Taiwan, version 1.0); of pictures that are equal the first is taken.
    """

    random_inputs = True

    def __init__(self, classes: int | None = None, **loader: Any) -> None:
        super().__init__(**loader)
        check_least(2, classes=classes)
        self.classes = classes
        self.paths = {
            "pictures": {
                "name": PACKAGE,
                "url": f"http://deb.debian.org/debian/pool/main/f/fonts-cns11643/{PACKAGE}",
                "checksum": "d2c1f53d1abf1a2610739f395b662b926ad5286883c76b1418dbaf00102c9289",
            }
        }

    @property
    def input_spec(self) -> dict[str, Any]:
        return {"in_channels": 1}

    def load_splits(self) -> dict[str, LabelledDataset]:
        names, ink = pictures(self.files()["pictures"])
        chosen = (
            torch.randperm(len(ink), generator=torch.Generator().manual_seed(0))[: self.classes]
            .sort()
            .values
        )
        self.class_names, ink = [names[row] for row in chosen], ink[chosen]
        splits = {"train": LabelledDataset(ink, torch.arange(len(ink)))}
        for seed, (split, size) in enumerate(DRAWN.items()):
            generator = torch.Generator().manual_seed(seed)
            rows = torch.randperm(len(ink), generator=generator)[:size]
            copies = distorted(ink[rows] / 255, generator).clamp(0, 1)
            splits[split] = LabelledDataset((255 * copies).round().to(torch.uint8), rows)
            self.texts[split] = [self.class_names[row] for row in rows]
        return splits

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """The ink of a batch, in training a distorted copy: made where the batch is, on a GPU if
        there is one.
        """
        ink, target = batch[0] / 255, batch[1]
        return (
            distorted(ink).clamp(0, 1) if self.trainer and self.trainer.training else ink
        ), target


@functools.lru_cache(1)  # reading takes ten seconds, else in each run of a comparison
def pictures(package: Path) -> tuple[list[str], Tensor]:
    """The names and the ink, ``uint8 (C, 1, 24, 24)``, of the distinct pictures of a Debian
    package.
    """
    images: dict[str, np.ndarray] = {}
    with (
        open(package, "rb") as file,
        tarfile.open(fileobj=_data_member(file), mode="r|xz") as archive,
    ):
        for member in archive:
            if member.name.lower().endswith(".png"):
                content = archive.extractfile(member)
                assert content is not None
                with Image.open(io.BytesIO(content.read())) as picture:
                    if picture.size == (SIZE, SIZE):
                        images[PurePosixPath(member.name).stem] = 255 - np.asarray(
                            picture.convert("L")
                        )
    distinct = {
        images[name].tobytes(): name for name in sorted(images, reverse=True)
    }  # the first one stays
    names = sorted(distinct.values())
    return names, torch.from_numpy(np.stack([images[name] for name in names]))[:, None]


def _data_member(package: BinaryIO) -> BinaryIO:
    """A Debian package, an archive of ``ar``, at the start of its member ``data.tar.xz``."""
    package.seek(8)
    while not (header := package.read(60)).startswith(b"data.tar.xz"):
        size = int(header[48:58])
        package.seek(size + size % 2, os.SEEK_CUR)
    return package


def distorted(ink: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """A copy of each picture ``(N, 1, 24, 24)``, turned, scaled, shifted, with noise and a hole."""
    count, device = len(ink), ink.device

    def uniform(*shape: int) -> Tensor:
        return 2 * torch.rand(count, *shape, generator=generator, device=device) - 1

    angle, scale = TURN * uniform(), 1 + SCALE * uniform()
    cosine, sine = scale * angle.cos(), scale * angle.sin()
    rows = torch.stack([torch.stack([cosine, -sine], 1), torch.stack([sine, cosine], 1)], 1)
    affine = torch.cat([rows, SHIFT / (SIZE / 2) * uniform(2, 1)], 2)
    grid = F.affine_grid(affine, [count, 1, SIZE, SIZE], align_corners=False)
    copies = F.grid_sample(ink, grid, align_corners=False)
    copies += NOISE * torch.randn(copies.shape, generator=generator, device=device)
    corner = torch.randint(SIZE - HOLE + 1, (count, 2, 1), generator=generator, device=device)
    pixel = torch.arange(SIZE, device=device)
    inside = (pixel >= corner) & (pixel < corner + HOLE)
    return copies.masked_fill((inside[:, 0, :, None] & inside[:, 1, None, :])[:, None], 0.0)
