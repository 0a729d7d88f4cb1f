"""A user's own files: which is of which class and split, decoded once before training."""

from __future__ import annotations

import hashlib
import math
import random
import re
import tempfile
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from as_lightning.bench.data.base import (
    SPLITS,
    BenchmarkDataModule,
    LabelledDataset,
    Limit,
    split_limits,
)
from as_lightning.bench.data.files import files_below, normal_form
from as_lightning.bench.data.reading import note, note_repeats, shortened
from as_lightning.bench.data.tables import read_table
from as_lightning.functional.argument_checks import check_number

TEST_SHARE = 0.1  # of each class, where there are no split folders
SPLIT_OF = {"train": "train", "validation": "validation", "val": "validation", "test": "test"}
LIKE_A_SPLIT = re.compile(
    r"(seg_)?(train|val|valid|dev|test)(ing|idation)?([_ -]?(set|data|images))?", re.IGNORECASE
)
MEMORY_LIMIT = 2**30  # bytes of a decoded split from which it is a temporary file
CONSTANT = 1e-9  # variance below which values count as all equal

ClassFiles = dict[str, list[str]]  # the files of each class
Transform = Callable[[Tensor], Tensor] | None


class LabelledFile(NamedTuple):
    """A file: its class or classes, its name in the data set, its reader, and its whole path."""

    label: Any
    name: str
    read: Callable[[], bytes]
    place: str


class ClassFolder(BenchmarkDataModule):
    """A user's own files in a folder for each class.

    The layout is ``train/<class>/...``, ``test/<class>/...`` and perhaps ``validation/<class>/...``
    (or ``val``), or ``<class>/...`` alone. Files may lie deeper. With ``labels``, a table of files
    and their labels, the folders say at most the split. A missing split takes
    ``max(1, round(n * share))`` of a class's ``n`` training files, in an order that ``split_seed``
    decides; the ``share`` is ``validation_share``, or a tenth for test.

    All files are decoded before training, on several threads, into a tensor for each split.

    A ValueError names a file that cannot be decoded or differs in size from the first, what is not
    as described, and classes with too few files to split.
    """

    kind: ClassVar[str]  # what the files are, in the plural, for messages
    suffixes: ClassVar[tuple[str, ...]]
    order_by_seed = True

    def __init__(
        self,
        path: str | Path | None,
        validation_share: float = 0.1,
        max_per_class: Limit = None,
        labels: str | Path | None = None,
        file_column: str = "file",
        label_column: str = "label",
        label_separator: str | None = None,
        **settings: Any,
    ) -> None:
        if label_separator is not None:
            self.task = "multilabel"
        super().__init__(**settings)
        share = "a share in (0, 1)"
        check_number("validation_share", validation_share, lambda value: 0 < value < 1, share)
        if labels is None and label_separator is not None:
            raise ValueError("label_separator is for a table of files: set data.labels too")
        if path is not None:
            self.paths = {"all": path}
        if labels is not None:
            self.paths = {"all": path, "labels": labels}
        self.validation_share = validation_share
        self.table: dict[str, Any] = {
            "text_column": file_column,
            "label_column": label_column,
            "label_separator": label_separator,
        }
        self.max_per_class = split_limits("max_per_class", max_per_class)

    @abstractmethod
    def decode(self, content: bytes, changes: list[str]) -> Tensor:
        """Return a file's input; ``changes`` gets what decoding did to it."""

    @abstractmethod
    def transforms(self, train: Tensor) -> tuple[Transform, Transform]:
        """Return the transforms of training inputs, which are given, and of others."""

    def load_splits(self) -> dict[str, LabelledDataset]:
        files = self.index()
        labels = {}
        for split, rows in files.items():
            labels[split] = [file.label for file in rows]
            self.texts[split] = [file.name for file in rows]
        targets = self.encode_labels(labels)
        first, _ = self._decoded(min(files["train"], key=lambda file: file.place))
        inputs, digests = {}, {}
        for split, rows in files.items():
            inputs[split] = empty((len(rows), *first.shape), first.dtype)
            digests[split] = self._decode_into(inputs[split], split, rows)
        note_repeats(digests, self.texts)
        return self.transformed(inputs, targets)

    def transformed(
        self, inputs: Mapping[str, Tensor], targets: Mapping[str, Tensor]
    ) -> dict[str, LabelledDataset]:
        """Return the splits with their `transforms`."""
        training, evaluation = self.transforms(inputs["train"])
        splits = {}
        for split, values in inputs.items():
            transform = training if split == "train" else evaluation
            splits[split] = LabelledDataset(values, targets[split], transform)
        return splits

    def _decode_into(
        self, inputs: Tensor, split: str, files: Sequence[LabelledFile]
    ) -> list[bytes]:
        """Fill in the inputs of a split, note what decoding changed, and return their digests."""
        digests, changed = [], defaultdict(list)
        # Pillow, libsndfile and PyTorch release the interpreter's lock.
        with ThreadPoolExecutor() as pool:
            for index, (decoded, changes) in enumerate(pool.map(self._decoded, files)):
                if decoded.shape != inputs.shape[1:]:
                    shapes = f"{tuple(decoded.shape)}, not {tuple(inputs.shape[1:])}"
                    raise ValueError(
                        f"{files[index].place}: its shape is {shapes}: set data.image_size"
                    )
                inputs[index] = decoded
                digests.append(hashlib.blake2b(decoded.numpy().tobytes()).digest())
                for change in changes:
                    changed[change].append(files[index].name)
        for change, names in changed.items():
            note(f"{self.kind} {change}", len(names), len(files), names[0], split)
        return digests

    def _decoded(self, file: LabelledFile) -> tuple[Tensor, list[str]]:
        changes: list[str] = []
        try:
            decoded = self.decode(file.read(), changes)
            # One such value would make the mean, and so every feature, NaN.
            if decoded.is_floating_point() and not decoded.isfinite().all():
                raise ValueError("features that are not finite: samples far outside [-1, 1]")
        except (OSError, ValueError) as error:
            raise ValueError(f"{file.place}: {error}") from error
        return decoded, changes

    def index(self) -> dict[str, list[LabelledFile]]:
        """Return the files of the splits ``train``, ``validation`` and ``test``."""
        places = self.files()
        root = places["all"]
        label_of: dict[str, Any] = {}
        if "labels" in places:
            label_of = dict(read_table(places["labels"], **self.table))
            missing = [name for name in label_of if not (root / name).is_file()]
            if missing:
                count = f"{len(missing)} of {len(label_of)} {self.kind} of the table are missing"
                raise ValueError(f"{root}: {count}: {shortened(missing)}")
            found = listed(label_of)
        else:
            found = find_classes(root, files_below(root, self.suffixes))
        self.splits_by_seed = "all" in found
        files: dict[str, list[LabelledFile]] = {}
        for split, classes in self.split_classes(found).items():
            files[split] = []
            for label, names in classes.items():
                for name in names[: self.max_per_class[split]]:
                    read, own = (root / name).read_bytes, label_of.get(name, label)
                    file = LabelledFile(own, normal_form(name), read, f"{root}/{name}")
                    files[split].append(file)
            # A loader that is cut short would miss classes.
            random.Random(self.split_seed).shuffle(files[split])
        return files

    def split_classes(self, found: Mapping[str, ClassFiles]) -> dict[str, ClassFiles]:
        """Return the three splits, from files by split and class, or all as the split ``"all"``."""
        splits: dict[str, ClassFiles] = {split: {} for split in SPLITS}
        shares = {"validation": self.validation_share, "test": TEST_SHARE}
        missing = [split for split in shares if split not in found]
        emptied = []
        for split, classes in found.items():
            for label, names in sorted(classes.items()):
                # A seed for each class: one that gains files does not reorder the others.
                order = random.Random(f"{self.split_seed}/{label}").sample(names, len(names))
                if split in shares:
                    splits[split][label] = order
                    continue
                for held_out in missing:
                    count = max(1, round(shares[held_out] * len(names)))
                    splits[held_out][label], order = order[:count], order[count:]
                splits["train"][label] = order
                if not order:
                    emptied.append(f"class {label!r} has {len(names)} {self.kind}")
        if emptied:
            wanted = ", ".join(["train", *missing])
            raise ValueError(f"{shortened(emptied)}: too few for the splits {wanted}")
        return splits


def find_classes(root: Path, names: Iterable[str]) -> dict[str, ClassFiles]:
    """Return the files by split and class; without split folders all are of the split ``"all"``."""
    paths = {name: normal_form(name).split("/") for name in names}
    tops = sorted({path[0] for path in paths.values() if len(path) > 1})
    splits = split_folders(tops)
    alike = [top for top in tops if LIKE_A_SPLIT.fullmatch(top)]
    # A class of vehicles may be called train.
    if alike and not splits and (alike != ["train"] or len(tops) == 1):
        raise ValueError(
            f"{root}: expected the folders train, test and perhaps validation, or a folder for "
            f"each class, found {', '.join(tops)}: rename or move them"
        )
    found: dict[str, ClassFiles] = defaultdict(lambda: defaultdict(list))
    for name, path in paths.items():
        if len(path) < 2 + bool(splits):
            raise ValueError(f"{root}/{name} lies in no class folder")
        split = splits[path.pop(0)] if splits else "all"
        found[split][path[0]].append(name)
    return found


def listed(names: Iterable[str]) -> dict[str, ClassFiles]:
    """Return the files of a table, as one class, by the splits that all first folders name."""
    tops = {name: normal_form(name).split("/")[0] for name in names}
    splits = split_folders(sorted(set(tops.values())))
    found: dict[str, ClassFiles] = defaultdict(lambda: {"": []})
    for name, top in tops.items():
        found[splits.get(top, "all")][""].append(name)
    return found


def split_folders(tops: Iterable[str]) -> dict[str, str]:
    """Return the split of each folder; nothing unless they are train, test and perhaps validation.

    >>> split_folders(["TEST", "train", "val"]), split_folders(["test", "train", "extra"])
    ({'TEST': 'test', 'train': 'train', 'val': 'validation'}, {})
    """
    splits = {top: SPLIT_OF.get(top.lower(), "") for top in tops}
    if sorted(splits.values()) in (["test", "train"], ["test", "train", "validation"]):
        return splits
    return {}


def empty(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Return a tensor in memory, or from 1 GiB on in a temporary file, which ends with it."""
    if math.prod(shape) * dtype.itemsize < MEMORY_LIMIT:
        return torch.empty(*shape, dtype=dtype)
    kind = torch.empty(0, dtype=dtype).numpy().dtype
    return torch.from_numpy(np.memmap(tempfile.TemporaryFile(), kind, "w+", shape=tuple(shape)))


def mean_and_std(inputs: Tensor, scale: float = 1.0) -> tuple[list[float], list[float]]:
    """Return each channel's mean and standard deviation of ``inputs / scale`` ``(N, C, H, W)``.

    A constant channel has deviation 1.
    """
    number, sums = 0, torch.zeros(2, inputs.shape[1], dtype=torch.float64)
    for piece in inputs.split(64):
        channels = piece.transpose(0, 1).flatten(1).double()
        number += channels.shape[1]
        sums += torch.stack([channels.sum(1), channels.square().sum(1)])
    mean, squares = sums / number
    variance = squares - mean.square()
    std = torch.where(variance > CONSTANT, variance, scale**2).sqrt()
    return (mean / scale).tolist(), (std / scale).tolist()
