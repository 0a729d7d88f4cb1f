"""A user's own folders: which file is of which class and split, by the names of the folders around it."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from lightning.pytorch.utilities.rank_zero import rank_zero_warn

from as_lightning.benchmark.data.base import SPLITS, Limit, say, split_limits
from as_lightning.benchmark.data.decoded_files import DecodedDataModule
from as_lightning.benchmark.data.files import FileTree, LabelledFile, normal_form, shortened
from as_lightning.functional.argument_checks import check_number

SPLIT_FOLDERS = {"train": "train", "validation": "validation", "val": "validation", "test": "test"}
TEST_SHARE = 0.1  # of each class, where there are no split folders

ClassFiles = dict[str, list[str]]  # the files of each class


class ClassFolder(DecodedDataModule):
    """A user's own files in a folder for each class; comes before `ImageDataModule` or `AudioDataModule`.

    The layout is ``train/<class>/...``, ``test/<class>/...`` and perhaps ``validation/<class>/...`` (or ``val``), or
    ``<class>/...`` alone. Files may lie deeper, and folders around all that make no difference, nor does the case of a
    split's name. A split that is missing takes of a class's ``n`` training files ``max(1, round(n * share))``, in an
    order that ``split_seed`` decides; the ``share`` is ``validation_share``, or a tenth for test.

    A ValueError says what is not as described, and names classes with too few files to split.
    """

    suffixes: ClassVar[tuple[str, ...]]
    order_by_seed = True

    def __init__(
        self, path: str | Path, validation_share: float = 0.1, max_per_class: Limit = None, **settings: Any
    ) -> None:
        super().__init__(**settings)
        check_number("validation_share", validation_share, lambda share: 0 < share < 1, "a share in (0, 1)")
        self.paths, self.validation_share = {"all": path}, validation_share
        self.max_per_class = split_limits("max_per_class", max_per_class)

    def index(self) -> dict[str, list[LabelledFile]]:
        tree = FileTree(self.files()["all"])
        found = self.find_classes(tree)
        self.splits_by_seed = "all" in found
        if tree.hidden:
            say(f"{tree.root}: hidden folders are left out: {shortened(sorted(tree.hidden))}")
        return {
            split: [
                tree.labelled(name, label)
                for label, names in classes.items()
                for name in names[: self.max_per_class[split]]
            ]
            for split, classes in self.split_classes(found).items()
        }

    def split_classes(self, found: dict[str, ClassFiles]) -> dict[str, ClassFiles]:
        """The three splits of what `find_classes` has found."""
        # a seed for each class: what one of them loses or gains does not reorder the others
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
            rest = names
            for split in missing:
                count = max(1, round(shares[split] * len(names)))
                splits[split][label], rest = rest[:count], rest[count:]
            splits["train"][label] = rest
        lost = [label for label, names in splits["train"].items() if not names]
        if lost:
            small = shortened([f"class {label!r} has {len(train[label])} {self.kind}" for label in lost])
            raise ValueError(f"{small}: too few for the splits {', '.join(['train', *missing])}")
        return {split: splits[split] for split in SPLITS}

    def find_classes(self, tree: FileTree) -> dict[str, ClassFiles]:
        """The files by split and class, in alphabetical order; without split folders all are of the split ``"all"``."""
        files = {name: PurePosixPath(normal_form(name)).parts for name in tree.with_suffixes(self.suffixes)}
        if others := Counter(PurePosixPath(name).suffix.lower() for name in tree.names if name not in files):
            named = ", ".join(f"{number} {suffix or 'without a suffix'}" for suffix, number in others.most_common())
            say(f"{tree.root}: files of other kinds are left out: {named}")
        levels = zip(*(parts[:-2] for parts in files.values()), strict=False)
        shared = takewhile(lambda folders: len({*folders}) == 1 and folders[0].lower() not in SPLIT_FOLDERS, levels)
        depth = len(list(shared))  # of the folders that hold the split or class folders
        tops = {parts[depth].lower() for parts in files.values() if len(parts) > depth + 1}
        has_splits = bool(tops) and (tops <= SPLIT_FOLDERS.keys() or {"train", "test"} <= tops)
        is_whole = {"train", "test"} <= tops <= SPLIT_FOLDERS.keys() and not {"validation", "val"} <= tops
        if has_splits and not is_whole:
            expected = f"folders train, test and perhaps validation (or val) with {self.kind}"
            raise ValueError(f"{tree.root}: expected {expected}, found {', '.join(sorted(tops))}")
        found: dict[str, ClassFiles] = defaultdict(lambda: defaultdict(list))
        holders: dict[str, set[str]] = defaultdict(set)  # the classes that hold a folder of this name
        for name, parts in files.items():
            split, *rest = parts[depth:] if has_splits else ("all", *parts[depth:])
            if len(rest) < 2:
                raise ValueError(f"{tree.root}/{name} lies in no class folder")
            found[SPLIT_FOLDERS.get(split.lower(), split)][rest[0]].append(name)
            if len(rest) > 2:
                holders[rest[1]].add(rest[0])
        if repeated := sorted(name for name, labels in holders.items() if len(labels) > 1):
            outer = sorted(set().union(*(holders[name] for name in repeated)))
            rank_zero_warn(
                f"{tree.root}: the classes are {shortened(outer)}, and these folders hold folders of the same names "
                f"({shortened(repeated)}). If those are the classes, put the files of each into one folder"
            )
        around = [*map(str.lower, next(iter(files.values()))[:depth]), *["train"] * has_splits]  # a class folder
        for folder in sorted(tree.folders):
            *above, label = PurePosixPath(normal_form(folder)).parts
            if [*map(str.lower, above)] == around and label not in found["train" if has_splits else "all"]:
                suffixes = ", ".join(self.suffixes)
                raise ValueError(f"{tree.root}/{folder}: the class folder holds no {self.kind} ({suffixes})")
        return found
