"""A user's own files: which is of which class and split, decoded once before training."""

from __future__ import annotations

import hashlib
import random
import re
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from as_lightning.bench.data.base import SPLITS, BenchmarkDataModule, LabelledDataset, check_least
from as_lightning.bench.data.files import Place, files_below, normal_form
from as_lightning.bench.data.reading import note, note_repeats, shortened
from as_lightning.bench.data.tables import SETTINGS, read_table

SHARE = 0.1  # of each class, for each split without a folder
SPLIT_OF = {"train": "train", "validation": "validation", "val": "validation", "test": "test"}
LAYOUTS = (["test", "train"], ["test", "train", "validation"])
LIKE_A_SPLIT = re.compile(
    r"(seg_)?(train|val|valid|dev|test)(ing|idation)?([_ -]?(set|data|images))?", re.IGNORECASE
)
CONSTANT = 1e-9  # variance below which values count as all equal

ClassFiles = dict[str, list[str]]  # the files of each class
Transform = Callable[[Tensor], Tensor] | None


class LabelledFile(NamedTuple):
    """A file: its class or classes, its name in the data set, and its reader."""

    label: Any
    name: str
    read: Callable[[], bytes]


class ClassFolder(BenchmarkDataModule):
    """A user's own files in a folder for each class.

    The layout is ``train/<class>/...``, ``test/<class>/...`` and perhaps ``validation/<class>/...``
    (or ``val``), or ``<class>/...`` alone. With ``labels``, a table of files and their labels, the
    folders say at most the split, and other settings are those of the table. A missing split takes
    a tenth of each class's training files, at least one, in an order that ``split_seed`` decides
    (of files with several labels a tenth of all). All files are decoded before training.

    A ValueError names a file that cannot be decoded or differs in size from the first, what is not
    as described, and classes with too few files to split.
    """

    kind: ClassVar[str]  # what the files are, in the plural, for messages
    suffixes: ClassVar[tuple[str, ...]]
    order_by_seed = True

    def __init__(
        self,
        path: Place,
        max_per_class: Mapping[str, int | None] = MappingProxyType(dict.fromkeys(SPLITS)),
        labels: Place = None,
        file_column: str = "file",
        label_column: str = "label",
        label_separator: str | None = None,
        **settings: Any,
    ) -> None:
        if label_separator is not None:
            self.task = "multilabel"
        self.table = {name: settings.pop(name) for name in SETTINGS if name in settings}
        super().__init__(**settings)
        check_least(1, **max_per_class)
        self.max_per_class = max_per_class
        if labels is None and label_separator is not None:
            raise ValueError("label_separator is for a table of files: set data.labels too")
        self.paths = {"all": path}
        if labels is not None:
            self.paths["labels"] = labels
        self.table |= {"text_column": file_column, "label_column": label_column}
        self.table["label_separator"] = label_separator

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
        first, _ = self.decoded(min(files["train"], key=lambda file: file.name))
        inputs, digests = {}, {}
        for split, rows in files.items():
            inputs[split] = torch.empty(len(rows), *first.shape, dtype=first.dtype)
            digests[split] = self._decode_into(inputs[split], split, rows)
        note_repeats(digests, self.texts)
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
            for index, (decoded, changes) in enumerate(pool.map(self.decoded, files)):
                if decoded.shape != inputs.shape[1:]:
                    shapes = f"{tuple(decoded.shape)}, not {tuple(inputs.shape[1:])}"
                    raise ValueError(
                        f"{files[index].name}: its shape is {shapes}: set data.image_size"
                    )
                inputs[index] = decoded
                digests.append(hashlib.blake2b(decoded.numpy().tobytes()).digest())
                for change in changes:
                    changed[change].append(files[index].name)
        for change, names in changed.items():
            note(f"{self.kind} {change}", names, len(files), split)
        return digests

    def decoded(self, file: LabelledFile) -> tuple[Tensor, list[str]]:
        changes: list[str] = []
        try:
            return self.decode(file.read(), changes), changes
        except (OSError, ValueError) as error:
            raise ValueError(f"{file.name}: {error}") from error

    def index(self) -> dict[str, list[LabelledFile]]:
        """Return the files of the splits ``train``, ``validation`` and ``test``."""
        places = self.files()
        root = places["all"]
        label_of: dict[str, Any] = {}
        if "labels" in places:
            rows = read_table(places["labels"], **self.table)
            label_of = dict(rows)
            if len(set(rows)) > len(label_of):
                raise ValueError(f"{places['labels']}: a file has two rows: give its labels in one")
            missing = [name for name in label_of if not (root / name).is_file()]
            if missing:
                count = f"{len(missing)} of {len(label_of)} {self.kind} of the table are missing"
                raise ValueError(f"{root}: {count}: {shortened(missing)}")
        names = list(label_of) or files_below(root, self.suffixes)
        found = find_classes(root, names, label_of)
        self.splits_by_seed = "all" in found
        files: dict[str, list[LabelledFile]] = {}
        for split, classes in self.split_classes(found).items():
            files[split] = []
            for label, names in classes.items():
                for name in names[: self.max_per_class.get(split)]:
                    own = label_of.get(name, label)
                    file = LabelledFile(own, normal_form(name), (root / name).read_bytes)
                    files[split].append(file)
            # A loader that is cut short would miss classes.
            random.Random(self.split_seed).shuffle(files[split])
        return files

    def split_classes(self, found: Mapping[str, ClassFiles]) -> dict[str, ClassFiles]:
        """Return the three splits, from files by split and class, or all as the split ``"all"``."""
        splits: dict[str, ClassFiles] = {split: {} for split in SPLITS}
        missing = [split for split in ("validation", "test") if split not in found]
        for split, classes in found.items():
            for label, names in sorted(classes.items()):
                # A seed for each class: one that gains files does not reorder the others.
                order = random.Random(f"{self.split_seed}/{label}").sample(names, len(names))
                if split not in ("train", "all"):
                    splits[split][label] = order
                    continue
                count = max(1, round(SHARE * len(names)))
                for held_out in missing:
                    splits[held_out][label], order = order[:count], order[count:]
                splits["train"][label] = order
        emptied = [repr(label) for label, names in splits["train"].items() if not names]
        if emptied:
            wanted = ", ".join(["train", *missing])
            raise ValueError(
                f"too few {self.kind} for the splits {wanted} in class {shortened(emptied)}"
            )
        return splits


def find_classes(root: Path, names: list[str], label_of: dict[str, Any]) -> dict[str, ClassFiles]:
    """Return files by split (``"all"`` without such folders) and class (``""``: several labels)."""
    paths = {name: normal_form(name).split("/") for name in names}
    tops = sorted({path[0] for path in paths.values()})
    splits = {top: SPLIT_OF.get(top.lower(), "") for top in tops}
    if sorted(splits.values()) not in LAYOUTS:
        splits = {}
    alone = label_of and len(tops) == 1  # the only folder of files in a table is no split
    if not splits and not alone and any(map(LIKE_A_SPLIT.fullmatch, tops)):
        raise ValueError(
            f"{root}: expected the folders train, test and perhaps validation, or a folder for "
            f"each class, found {shortened(tops)}: rename or move them"
        )
    found: dict[str, ClassFiles] = defaultdict(lambda: defaultdict(list))
    for name, path in paths.items():
        split = splits[path.pop(0)] if splits else "all"
        if len(path) < 2 and not label_of:
            raise ValueError(f"{root}/{name} lies in no class folder")
        own = label_of.get(name, path[0])
        found[split][own if isinstance(own, str) else ""].append(name)
    return found


def mean_and_std(inputs: Tensor, scale: float = 1.0) -> tuple[list[float], list[float]]:
    """Return mean and deviation (1 if constant) of each channel of ``inputs / scale``."""
    number, sums = 0, torch.zeros(2, inputs.shape[1], dtype=torch.float64)
    for piece in inputs.split(64):
        channels = piece.transpose(0, 1).flatten(1).double()
        number += channels.shape[1]
        sums += torch.stack([channels.sum(1), channels.square().sum(1)])
    mean, squares = sums / number
    variance = squares - mean.square()
    std = torch.where(variance > CONSTANT, variance, scale**2).sqrt()
    return (mean / scale).tolist(), (std / scale).tolist()
