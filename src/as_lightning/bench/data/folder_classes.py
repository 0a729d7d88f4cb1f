"""A user's own folders: which file is of which class and split, by the folders around it or by a
table.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from as_lightning.bench.data.base import SPLITS, Limit, split_limits
from as_lightning.bench.data.decoded_files import DecodedDataModule
from as_lightning.bench.data.files import LabelledFile, files_below, labelled_file, normal_form
from as_lightning.bench.data.reading import shortened
from as_lightning.bench.data.tables import read_table
from as_lightning.functional.argument_checks import check_number

TEST_SHARE = 0.1  # of each class, where there are no split folders
SPLIT_NAMES = {
    "train": re.compile(r"(seg_)?train(ing)?([_ -]?(set|data|images))?", re.IGNORECASE),
    "validation": re.compile(
        r"(seg_)?(val|valid|validation|dev)([_ -]?(set|data|images))?", re.IGNORECASE
    ),
    "test": re.compile(r"(seg_)?test(ing)?([_ -]?(set|data|images))?", re.IGNORECASE),
}

ClassFiles = dict[str, list[str]]  # the files of each class


def split_of(folder: str) -> str | None:
    """The split that a folder's name stands for.

    >>> split_of("Training"), split_of("valid"), split_of("seg_test"), split_of("trainers")
    ('train', 'validation', 'test', None)
    """
    for split, names in SPLIT_NAMES.items():
        if names.fullmatch(folder):
            return split
    return None


class ClassFolder(DecodedDataModule):
    """A user's own files in a folder for each class; a base class before `ImageDataModule` or
    `AudioDataModule`.

    The layout is ``train/<class>/...``, ``test/<class>/...`` and perhaps ``validation/<class>/...``
    (or ``Training``, ``valid``, ...), or ``<class>/...`` alone. Files may lie deeper. With
    ``labels``, a table of files and their labels, the folders say at most the split. A missing
    split takes ``max(1, round(n * share))`` of a class's ``n`` training files, in an order that
    ``split_seed`` decides; the ``share`` is ``validation_share``, or a tenth for test.

    A ValueError says what is not as described, and names classes with too few files to split.
    """

    suffixes: ClassVar[tuple[str, ...]]
    order_by_seed = True

    def __init__(
        self,
        path: str | Path,
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
        self.paths = {"all": path}
        if labels is not None:
            self.paths["labels"] = labels
        self.validation_share = validation_share
        self.table: dict[str, Any] = {
            "text_column": str(file_column),
            "label_column": str(label_column),
            "label_separator": label_separator,
        }
        self.max_per_class = split_limits("max_per_class", max_per_class)

    def index(self) -> dict[str, list[LabelledFile]]:
        places = self.files()
        root = places["all"]
        label_of: dict[str, Any] = {}
        if "labels" in places:
            rows = read_table(places["labels"], **self.table)
            label_of = dict(rows)
            found = by_split(self.listed(root, label_of))
        else:
            found = self.find_classes(root, files_below(root, self.suffixes))
        self.splits_by_seed = "all" in found
        files = {}
        for split, classes in self.split_classes(found).items():
            limit = self.max_per_class[split]
            files[split] = [
                labelled_file(root, name, label_of.get(name, label))
                for label, names in classes.items()
                for name in names[:limit]
            ]
            # A loader that is cut short would miss classes.
            random.Random(self.split_seed).shuffle(files[split])
        return files

    def listed(self, root: Path, names: Iterable[str]) -> list[str]:
        """The files of a table; a ValueError counts those that are missing."""
        names = list(names)
        missing = [name for name in names if not (root / name).is_file()]
        if missing:
            count = f"{len(missing)} of {len(names)} {self.kind} of the table are missing"
            raise ValueError(f"{root}: {count}: {shortened(missing)}")
        return names

    def split_classes(self, found: dict[str, ClassFiles]) -> dict[str, ClassFiles]:
        """The three splits, from what `find_classes` returns."""
        splits: dict[str, ClassFiles] = {}
        for split, classes in found.items():
            # A seed for each class: one that gains files does not reorder the others.
            splits[split] = {
                label: random.Random(f"{self.split_seed}/{label}").sample(names, len(names))
                for label, names in sorted(classes.items())
            }
        train = splits.pop("all") if "all" in splits else splits["train"]
        shares = {"validation": self.validation_share, "test": TEST_SHARE}
        missing = [split for split in shares if split not in splits]
        splits |= {split: {} for split in ("train", *missing)}
        for label, names in train.items():
            remaining = names
            for split in missing:
                count = max(1, round(shares[split] * len(names)))
                splits[split][label], remaining = remaining[:count], remaining[count:]
            splits["train"][label] = remaining
        emptied = [
            f"class {label!r} has {len(train[label])} {self.kind}"
            for label, names in splits["train"].items()
            if not names
        ]
        if emptied:
            wanted = ", ".join(["train", *missing])
            raise ValueError(f"{shortened(emptied)}: too few for the splits {wanted}")
        return {split: splits[split] for split in SPLITS}

    def find_classes(self, root: Path, names: list[str]) -> dict[str, ClassFiles]:
        """The files by split and class; without split folders all are of the split ``"all"``."""
        parts = {name: PurePosixPath(normal_form(name)).parts for name in names}
        depth = shared_depth(parts.values())
        tops = sorted({path[depth] for path in parts.values() if len(path) > depth + 1})
        named = [top for top in tops if split_of(top)]
        # A class of vehicles may be called train.
        has_splits = bool(named) and not (named in (["train"], ["Train"]) and len(tops) > 1)
        if has_splits:
            roles = sorted(split_of(top) or top for top in tops)
            if roles not in (["test", "train"], ["test", "train", "validation"]):
                raise ValueError(
                    f"{root}: expected the folders train, test and perhaps validation with "
                    f"{self.kind}, found {', '.join(tops)}"
                )
        found: dict[str, ClassFiles] = defaultdict(lambda: defaultdict(list))
        for name, path in parts.items():
            inner, split = list(path[depth:]), "all"
            if has_splits:
                split = split_of(inner.pop(0)) or "all"
                # As in seg_train/seg_train/<class>.
                while len(inner) > 2 and split_of(inner[0]) == split:
                    inner.pop(0)
            if len(inner) < 2:
                raise ValueError(f"{root}/{name} lies in no class folder")
            found[split][inner[0]].append(name)
        return found


def shared_depth(paths: Iterable[tuple[str, ...]]) -> int:
    """How many folders are around all class and split folders."""
    depth = 0
    for folders in zip(*(path[:-2] for path in paths), strict=False):
        if len(set(folders)) > 1 or split_of(folders[0]):
            break
        depth += 1
    return depth


def by_split(names: Iterable[str]) -> dict[str, ClassFiles]:
    """The files of a table, as one class, by the split that their first folders name, if all do."""
    found: dict[str, ClassFiles] = defaultdict(lambda: {"": []})
    for name in names:
        found[split_of(PurePosixPath(name).parts[0]) or ""][""].append(name)
    if {"train", "test"} <= found.keys() and "" not in found:
        return found
    return {"all": {"": list(names)}}
