"""Images: CIFAR and a user's own folders, held as bytes, augmented and normalised when they are taken."""

from __future__ import annotations

import io
import math
import random
import tempfile
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from PIL import Image, ImageOps
from sklearn.model_selection import train_test_split
from torch import Tensor
from torchvision import datasets
from torchvision.transforms import v2

from as_lightning.benchmark.data.base import BenchmarkDataModule
from as_lightning.benchmark.data.download import RemoteFile, fetch
from as_lightning.benchmark.data.files import CACHE_LIMIT, NAMED, FileTree, open_tree
from as_lightning.benchmark.data.folder_classes import SPLITS, check_validation_share, split_classes
from as_lightning.benchmark.data.labelled import LabelledDataset

SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")

Limit = int | None


def decode_image(content: bytes, image_size: int | None = None) -> Tensor:
    """The pixels of an image file, ``uint8`` of shape ``(3, H, W)``: RGB, upright as its EXIF orientation says.

    Args:
        content: a file in one of Pillow's formats; of 16-bit grey images the upper 8 bits are kept.
        image_size: scale to this height and width; what of the longer side then stands over is cut off on both ends.
            None keeps the size.

    Raises:
        ValueError: if that is no image, it is cut short, or its pixels are neither 8 nor 16 bits a channel.
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


def pixel_sums(images: Tensor) -> Tensor:
    """Number, sum and sum of squares of each channel's values, exact; ``int64`` of shape ``(3, C)``.

    Args:
        images: ``uint8`` of shape ``(..., C, H, W)``.
    """
    values = images.movedim(-3, 0).flatten(1).to(torch.int64)
    return torch.stack([torch.full((len(values),), values.shape[1]), values.sum(1), values.square().sum(1)])


def mean_and_std(sums: Tensor) -> tuple[list[float], list[float]]:
    r"""Each channel's mean and standard deviation, with pixels in [0, 1].

    .. math:: \mu = \frac{1}{255 n} \sum x, \qquad \sigma = \frac{1}{255} \sqrt{\frac{\sum x^2}{n} - (255 \mu)^2}

    A channel that is constant gets :math:`\sigma = 1`.

    Args:
        sums: of :func:`pixel_sums`.
    """
    number, total, squares = sums.double()
    mean = total / number
    std = (squares / number - mean.square()).clamp_min(0).sqrt()
    std[std == 0] = 255.0
    return (mean / 255).tolist(), (std / 255).tolist()


class ImageFiles(Sequence[Tensor]):
    """Image files, decoded when they are taken: ``uint8`` of shape ``(3, H, W)``.

    Args:
        tree: what holds the files.
        names: the files.
        image_size: as of :func:`decode_image`.

    Attributes:
        sums: the :func:`pixel_sums` over all of them, once they have been indexed.

    Raises:
        ValueError: on taking an image that cannot be decoded; the message names the file.
    """

    def __init__(self, tree: FileTree, names: Sequence[str], image_size: int | None = None) -> None:
        self.tree, self.names, self.image_size = tree, list(names), image_size
        self.sums: Tensor | None = None

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> Tensor:  # type: ignore[override]  # one at a time, no slices
        name = self.names[index]
        try:
            return decode_image(self.tree.read(name), self.image_size)
        except ValueError as error:
            raise ValueError(f"{self.tree.where(name)}: {error}") from error


class ImageSplit(NamedTuple):
    """Images, ``uint8`` of shape ``(3, H, W)`` each, and their class indices ``(N)``."""

    images: Tensor | ImageFiles
    targets: Tensor


class ImageDataModule(BenchmarkDataModule):
    """Image classification: images are held as bytes and normalised when they are taken; training ones are augmented.

    A batch is ``(images (N, 3, H, W) float32, class indices (N) int64)``, where pixels ``x`` in [0, 1] have become
    ``(x - mean) / std``. A subclass reads its images in :meth:`read_images`.

    Args:
        data_dir: where its files are, or are downloaded to.
        split_seed: seeds the splits that it makes, apart from the run's seed: every run sees the same.
        crop_padding: training images get a black border of so many pixels, and are cut to their size again at a
            random place; 0 leaves that out.
        horizontal_flip: mirror a training image, left to right, with probability 1/2.
        mean: of each channel, with pixels in [0, 1], e.g. what pretrained weights expect; by default that of the
            training split.
        std: as ``mean``; both are given, or neither.
        **loader: arguments of :class:`BenchmarkDataModule`.

    Attributes:
        mean, std: what the images are normalised with; if not given, known after ``setup``.

    Raises:
        ValueError: if an argument is out of range.
    """

    def __init__(
        self,
        data_dir: str | Path = "data",
        split_seed: int = 0,
        crop_padding: int = 4,
        horizontal_flip: bool = True,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        **loader: Any,
    ) -> None:
        super().__init__(**loader)
        if crop_padding < 0:
            raise ValueError(f"crop_padding must be at least 0, got {crop_padding}")
        if (mean is None) != (std is None):
            raise ValueError(f"give mean and std, or neither, got {mean=} and {std=}")
        for name, values in (("mean", mean), ("std", std)):
            if values is not None and len(values) != 3:
                raise ValueError(f"{name} must have 3 numbers, one a channel, got {list(values)}")
        if std is not None and min(std) <= 0:
            raise ValueError(f"std must be positive, got {list(std)}")
        self.data_dir, self.split_seed = Path(data_dir).expanduser(), split_seed
        self.crop_padding, self.horizontal_flip = crop_padding, horizontal_flip
        self.mean = None if mean is None else list(mean)
        self.std = None if std is None else list(std)

    @abstractmethod
    def read_images(self) -> dict[str, ImageSplit]:
        """Read the splits ``train``, ``validation`` and ``test``, and set :attr:`class_names`."""

    @property
    def input_spec(self) -> dict[str, Any]:
        return {"in_channels": 3}

    def load_splits(self) -> dict[str, LabelledDataset]:
        splits = self.read_images()
        images = splits["train"].images
        if self.mean is None or self.std is None:
            self.mean, self.std = mean_and_std(_sums(images))
        normalise = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(self.mean, self.std)]
        augment: list[Any] = []
        if self.crop_padding:
            augment.append(v2.RandomCrop(tuple(images[0].shape[-2:]), padding=self.crop_padding))
        if self.horizontal_flip:
            augment.append(v2.RandomHorizontalFlip())
        return {
            name: LabelledDataset(
                split.images, split.targets, v2.Compose([*(augment if name == "train" else []), *normalise])
            )
            for name, split in splits.items()
        }


def _sums(images: Tensor | ImageFiles) -> Tensor:
    if isinstance(images, ImageFiles):
        assert images.sums is not None
        return images.sums
    # in pieces, as the sums take eight bytes a value
    return torch.stack([pixel_sums(piece) for piece in images.split(64)]).sum(0)


class CIFAR10(ImageDataModule):
    """CIFAR-10: 32x32 photographs of 10 classes, 45,000 / 5,000 / 10,000.

    The archive stays as it was downloaded: each run unpacks it into a temporary folder and lets torchvision read that.

    Args:
        validation_size: how many of the 50,000 training images are for validation, stratified by class.
        **images: arguments of :class:`ImageDataModule`.

    Raises:
        ValueError: if the archive is damaged, or ``validation_size`` leaves one of its two splits without a class.
        RuntimeError: if it is not there and cannot be downloaded.

    Source: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009; ``cs.toronto.edu/~kriz``. The
    address and the checksums are those of :class:`torchvision.datasets.CIFAR10`. For research use.
    """

    published: ClassVar[type[datasets.CIFAR10]] = datasets.CIFAR10

    def __init__(self, validation_size: int = 5000, **images: Any) -> None:
        super().__init__(**images)
        if validation_size < 1:
            raise ValueError(f"validation_size must be at least 1, got {validation_size}")
        self.validation_size = validation_size

    def prepare_data(self) -> None:
        self.fetch_archive()

    def fetch_archive(self) -> Path:
        """The path of the archive, which is downloaded if it is not in ``data_dir``."""
        return fetch(
            RemoteFile(self.published.filename, self.published.url, f"md5:{self.published.tgz_md5}"), self.data_dir
        )

    def read_images(self) -> dict[str, ImageSplit]:
        archive = self.fetch_archive()
        with tempfile.TemporaryDirectory(prefix="as_lightning_") as folder:
            tree = open_tree(archive)
            for name in tree.names:
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(tree.read(name))
            try:
                train, test = (self.published(folder, train=is_train) for is_train in (True, False))
            except RuntimeError as error:  # a file that is missing or has another checksum
                raise ValueError(f"{archive}: the archive does not hold what it should: {error}") from error
        self.class_names = list(train.classes)
        images, targets = _channels_first(train.data), torch.tensor(train.targets)
        most = len(targets) - self.num_classes
        if not self.num_classes <= self.validation_size <= most:
            raise ValueError(
                f"validation_size must be between {self.num_classes} and {most}, for both splits to have each class, "
                f"got {self.validation_size}"
            )
        kept, held_out = train_test_split(
            range(len(targets)), test_size=self.validation_size, stratify=targets, random_state=self.split_seed
        )
        return {
            "train": ImageSplit(images[kept], targets[kept]),
            "validation": ImageSplit(images[held_out], targets[held_out]),
            "test": ImageSplit(_channels_first(test.data), torch.tensor(test.targets)),
        }


class CIFAR100(CIFAR10):
    """CIFAR-100: 32x32 photographs of 100 classes (the fine labels), 45,000 / 5,000 / 10,000; else as CIFAR-10."""

    published: ClassVar[type[datasets.CIFAR10]] = datasets.CIFAR100


def _channels_first(images: np.ndarray) -> Tensor:
    return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()


class ImageFolder(ImageDataModule):
    """A user's own images: ``train/<class>/*.jpg``, ``test/<class>/*.jpg`` and perhaps ``validation/<class>/*.jpg``.

    Without ``validation`` (or ``val``), ``validation_share`` of each class of ``train`` is for validation. Where class
    folders alone are found, without ``train`` and ``test`` above them, a tenth of each class is the test split too.
    A folder around all that, as archives tend to have, makes no difference.

    Each image is decoded once in ``setup``: one that is damaged stops the run before it starts.

    Args:
        path: a folder, or a tar or zip archive, which is read where it lies; a relative path is taken from
            ``data_dir``.
        image_size: height and width to which the images are brought (see :func:`decode_image`); None for images that
            are of one size already.
        max_per_class: how many images of each class to use at most, for quick runs: a number for every split, or one
            for some, e.g. ``{"train": 800, "test": 200}``. Which ones depends on ``split_seed`` alone, and a smaller
            number takes part of what a larger one takes.
        validation_share: see above, in (0, 1); of ``n`` images of a class it takes ``max(1, round(n * share))``.
        cache: keep the decoded images in memory (True), decode them each time they are taken (False), or ``"auto"``:
            keep them if they take less than 1 GiB.
        **images: arguments of :class:`ImageDataModule`.

    Raises:
        FileNotFoundError: if there is nothing at ``path``.
        ValueError: if an argument is out of range; the folders are not as described; there is one class alone; a class
            folder of the training split is empty; a class has too few images to split; a split has a class that the
            training split lacks; a file cannot be decoded (all are counted, the first five named); or with
            ``image_size=None`` there is more than one size.
    """

    def __init__(
        self,
        path: str | Path,
        image_size: int | None = None,
        max_per_class: int | Mapping[str, int | None] | None = None,
        validation_share: float = 0.1,
        cache: bool | Literal["auto"] = "auto",
        **images: Any,
    ) -> None:
        super().__init__(**images)
        if image_size is not None and image_size < 1:
            raise ValueError(f"image_size must be at least 1, got {image_size}")
        check_validation_share(validation_share)
        if cache not in (True, False, "auto"):
            raise ValueError(f"cache must be True, False or 'auto', got {cache!r}")
        self.path, self.image_size, self.validation_share, self.cache = path, image_size, validation_share, cache
        self.max_per_class = _limits(max_per_class)

    def read_images(self) -> dict[str, ImageSplit]:
        tree = open_tree(self.data_dir / Path(self.path).expanduser())
        rows = self._rows(tree)
        targets = self.encode_labels({split: [label for label, _ in pairs] for split, pairs in rows.items()})
        files = {split: ImageFiles(tree, [name for _, name in pairs], self.image_size) for split, pairs in rows.items()}
        images = index_images(files, self.cache)
        return {split: ImageSplit(images[split], targets[split]) for split in images}

    def _rows(self, tree: FileTree) -> dict[str, list[tuple[str, str]]]:
        """Label and file of each image to use, the classes of a split mixed (a loader may be cut short)."""
        splits = split_classes(
            tree, SUFFIXES, "images", validation_share=self.validation_share, split_seed=self.split_seed
        )
        rows = {}
        for split, classes in splits.items():
            limit = self.max_per_class[split]
            rows[split] = [(label, name) for label, names in classes.items() for name in names[:limit]]
            random.Random(self.split_seed).shuffle(rows[split])
        return rows


def _limits(max_per_class: int | Mapping[str, int | None] | None) -> dict[str, Limit]:
    if not isinstance(max_per_class, Mapping):
        max_per_class = dict.fromkeys(SPLITS, max_per_class)
    unknown = sorted(set(max_per_class) - set(SPLITS))
    if unknown:
        raise ValueError(f"max_per_class has the splits train, validation and test, got {unknown[0]!r}")
    for limit in max_per_class.values():
        if limit is not None and limit < 1:
            raise ValueError(f"max_per_class must be at least 1, got {limit}")
    return {split: max_per_class.get(split) for split in SPLITS}


def index_images(files: Mapping[str, ImageFiles], cache: bool | Literal["auto"]) -> dict[str, Tensor | ImageFiles]:
    """Decode each file once, on several threads, and keep the images (``uint8`` of shape ``(N, 3, H, W)``) or not.

    Args:
        files: the splits, ``train`` among them.
        cache: as of :class:`ImageFolder`.

    Raises:
        ValueError: if a file cannot be decoded, or is of another size than the first.
    """
    shape = next(_shapes(files["train"]), None)
    cached: dict[str, Tensor] = {}
    if shape is not None and (cache is True or (cache == "auto" and _total_bytes(files, shape) < CACHE_LIMIT)):
        cached = {split: torch.empty(len(images), *shape, dtype=torch.uint8) for split, images in files.items()}

    def index_one(split: str, index: int) -> tuple[Tensor | None, str, str]:
        """The image's sums, what is wrong with the file, and the image's size if that is another."""
        try:
            image = files[split][index]
        except ValueError as error:
            return None, str(error), ""
        if image.shape != shape:
            return None, "", f"{files[split].tree.where(files[split].names[index])} is {_size(image.shape)}"
        if split in cached:
            cached[split][index] = image
        return pixel_sums(image), "", ""

    damaged: list[str] = []
    odd: list[str] = []
    with ThreadPoolExecutor() as pool:  # Pillow lets go of the interpreter's lock while it decodes
        for split, images in files.items():
            images.sums = torch.zeros(3, 3, dtype=torch.int64)
            for sums, fault, other_size in pool.map(index_one, [split] * len(images), range(len(images))):
                if sums is not None:
                    images.sums += sums
                damaged += [fault] if fault else []
                odd += [other_size] if other_size else []
    if damaged:
        total = sum(len(images) for images in files.values())
        raise ValueError(
            f"{len(damaged)} of {total} images cannot be decoded: {'; '.join(sorted(damaged)[:NAMED])}"
            + ("; ..." if len(damaged) > NAMED else "")
        )
    if odd and shape is not None:
        raise ValueError(f"images must be of one size, {min(odd)}, others are {_size(shape)}: set image_size")
    return {split: cached.get(split, images) for split, images in files.items()}


def _shapes(images: ImageFiles) -> Iterator[torch.Size]:
    """The shapes of the images that can be decoded, in alphabetical order of their names."""
    for index in sorted(range(len(images)), key=images.names.__getitem__):
        try:
            yield images[index].shape
        except ValueError:
            continue


def _total_bytes(files: Mapping[str, ImageFiles], shape: torch.Size) -> int:
    return math.prod(shape) * sum(len(images) for images in files.values())


def _size(shape: torch.Size) -> str:
    """Width by height, as image programs say it."""
    return f"{shape[-1]}x{shape[-2]}"
