"""A user's own folders: which file is of which class and split, by the names of the folders around
it.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from lightning.pytorch.utilities.rank_zero import rank_zero_warn

from as_lightning.bench.data.base import SPLITS, Limit, say, split_limits
from as_lightning.bench.data.decoded_files import DecodedDataModule
from as_lightning.bench.data.files import FileTree, LabelledFile, normal_form, shortened
from as_lightning.functional.argument_checks import check_number

SPLIT_FOLDERS = {"train": "train", "validation": "validation", "val": "validation", "test": "test"}
TEST_SHARE = 0.1  # of each class, where there are no split folders

ClassFiles = dict[str, list[str]]  # the files of each class


class ClassFolder(DecodedDataModule):
    """A user's own files in a folder for each class; a base class before `ImageDataModule` or
    `AudioDataModule`.

    The layout is ``train/<class>/...``, ``test/<class>/...`` and perhaps ``validation/<class>/...``
    (or ``val``), or ``<class>/...`` alone. Files may lie deeper; folders around all of these and
    the case of a split's name make no difference. A missing split takes ``max(1, round(n *
    share))`` of a class's ``n`` training files, in an order that ``split_seed`` decides; the
    ``share`` is ``validation_share``, or a tenth for test.

    A ValueError says what is not as described, and names classes with too few files to split.
    """

    suffixes: ClassVar[tuple[str, ...]]
    order_by_seed = True

    def __init__(
        self,
        path: str | Path,
        validation_share: float = 0.1,
        max_per_class: Limit = None,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        check_number(
            "validation_share", validation_share, lambda share: 0 < share < 1, "a share in (0, 1)"
        )
        self.paths, self.validation_share = {"all": path}, validation_share
        self.max_per_class = split_limits("max_per_class", max_per_class)

    def index(self) -> dict[str, list[LabelledFile]]:
        tree = FileTree(self.files()["all"])
        files_by_split = self.find_classes(tree)
        self.splits_by_seed = "all" in files_by_split
        if tree.hidden:
            say(f"{tree.root}: hidden folders are left out: {shortened(sorted(tree.hidden))}")
        files = {
            split: [
                tree.labelled(name, label)
                for label, names in classes.items()
                for name in names[: self.max_per_class[split]]
            ]
            for split, classes in self.split_classes(files_by_split).items()
        }
        for split_files in files.values():
            random.Random(self.split_seed).shuffle(
                split_files
            )  # else a loader that is cut short misses classes
        return files

    def split_classes(self, found: dict[str, ClassFiles]) -> dict[str, ClassFiles]:
        """The three splits, from what `find_classes` returns."""
        # a seed for each class: a class that loses or gains files does not reorder the others
        splits = {
            split: {
                label: random.Random(f"{self.split_seed}/{label}").sample(names, len(names))
                for label, names in sorted(classes.items())
            }
            for split, classes in found.items()
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
        emptied = [label for label, names in splits["train"].items() if not names]
        if emptied:
            sizes = shortened(
                [f"class {label!r} has {len(train[label])} {self.kind}" for label in emptied]
            )
            raise ValueError(f"{sizes}: too few for the splits {', '.join(['train', *missing])}")
        return {split: splits[split] for split in SPLITS}

    def find_classes(self, tree: FileTree) -> dict[str, ClassFiles]:
        """The files by split and class, in alphabetical order; without split folders all are of the
        split ``"all"``.
        """
        files = {
            name: PurePosixPath(normal_form(name)).parts
            for name in tree.with_suffixes(self.suffixes)
        }
        if others := Counter(
            PurePosixPath(name).suffix.lower() for name in tree.names if name not in files
        ):
            counts = ", ".join(
                f"{number} {suffix or 'without a suffix'}"
                for suffix, number in others.most_common()
            )
            say(f"{tree.root}: files of other kinds are left out: {counts}")
        levels = zip(*(parts[:-2] for parts in files.values()), strict=False)
        shared = takewhile(
            lambda folders: len({*folders}) == 1 and folders[0].lower() not in SPLIT_FOLDERS, levels
        )
        depth = len(list(shared))  # of the folders that hold the split or class folders
        tops = {parts[depth].lower() for parts in files.values() if len(parts) > depth + 1}
        has_splits = bool(tops) and (tops <= SPLIT_FOLDERS.keys() or {"train", "test"} <= tops)
        is_whole = {"train", "test"} <= tops <= SPLIT_FOLDERS.keys() and not {
            "validation",
            "val",
        } <= tops
        if has_splits and not is_whole:
            expected = f"folders train, test and perhaps validation (or val) with {self.kind}"
            raise ValueError(f"{tree.root}: expected {expected}, found {', '.join(sorted(tops))}")
        files_by_split: dict[str, ClassFiles] = defaultdict(lambda: defaultdict(list))
        holders: dict[str, set[str]] = defaultdict(
            set
        )  # the classes that hold a folder of this name
        for name, parts in files.items():
            split, *inner = parts[depth:] if has_splits else ("all", *parts[depth:])
            if len(inner) < 2:
                raise ValueError(f"{tree.root}/{name} lies in no class folder")
            files_by_split[SPLIT_FOLDERS.get(split.lower(), split)][inner[0]].append(name)
            if len(inner) > 2:
                holders[inner[1]].add(inner[0])
        if repeated := sorted(name for name, labels in holders.items() if len(labels) > 1):
            outer = sorted(set().union(*(holders[name] for name in repeated)))
            rank_zero_warn(
                f"{tree.root}: the classes are {shortened(outer)}, and these folders hold folders "
                "of the same names "
                f"({shortened(repeated)}). If those are the classes, put the files of each into "
                "one folder"
            )
        parents = [
            *map(str.lower, next(iter(files.values()))[:depth]),
            *["train"] * has_splits,
        ]  # of a class folder
        for folder in sorted(tree.folders):
            *above, label = PurePosixPath(normal_form(folder)).parts
            if [*map(str.lower, above)] == parents and label not in files_by_split[
                "train" if has_splits else "all"
            ]:
                suffixes = ", ".join(self.suffixes)
                raise ValueError(
                    f"{tree.root}/{folder}: the class folder holds no {self.kind} ({suffixes})"
                )
        return files_by_split
