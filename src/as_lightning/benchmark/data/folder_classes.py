"""A user's own folders: which file is of which class and split, by the names of the folders around it."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from lightning.pytorch.utilities.rank_zero import rank_zero_warn

from as_lightning.benchmark.data.base import SPLITS, BenchmarkDataModule, say
from as_lightning.benchmark.data.files import FileTree, find_path, is_hidden, shortened

SPLIT_FOLDERS = {"train": "train", "validation": "validation", "val": "validation", "test": "test"}
TEST_SHARE = 0.1  # of each class, where there are no split folders

ClassFiles = dict[str, list[str]]  # the files of each class


class ClassFolder(BenchmarkDataModule):
    """A user's own files in a folder for each class; comes before `ImageDataModule` or `AudioDataModule`."""

    suffixes: ClassVar[tuple[str, ...]]
    kind: ClassVar[str]  # what the files are, in the plural, for messages
    split_seed: int

    def __init__(self, path: str | Path, validation_share: float, **settings: Any) -> None:
        super().__init__(**settings)
        if not 0.0 < validation_share < 1.0:
            raise ValueError(f"validation_share must be a share in (0, 1), got {validation_share}")
        self.path, self.validation_share = path, validation_share

    @property
    def user_paths(self) -> list[Path]:
        return [find_path(self.path, self.data_dir)]

    def class_files(self) -> tuple[FileTree, dict[str, ClassFiles]]:
        """The folder or archive, and the files of each split by class."""
        tree = FileTree(*self.user_paths)
        found = find_classes(tree, self.suffixes, self.kind)
        self.splits_by_seed = "all" in found
        return tree, split_classes(tree, found, self.kind, self.validation_share, self.split_seed)


def split_classes(
    tree: FileTree, found: Mapping[str, ClassFiles], kind: str, validation_share: float, split_seed: int
) -> dict[str, ClassFiles]:
    """The three splits of what `find_classes` has found; a ValueError names classes with too few files to split.

    What is missing is taken from the other files, in an order that ``split_seed`` decides: of a class's ``n`` files
    ``max(1, round(n * validation_share))``, a tenth for test.
    """
    if tree.hidden:
        say(f"{tree.root}: hidden folders are left out: {shortened(sorted(tree.hidden))}")
    # a seed for each class: what one of them loses or gains does not reorder the others
    splits = {
        split: {
            label: random.Random(f"{split_seed}/{label}").sample(names, len(names))
            for label, names in sorted(classes.items())
        }
        for split, classes in found.items()
    }
    if "all" in splits:
        splits = _split_off(splits["all"], {"validation": validation_share, "test": TEST_SHARE}, kind)
    elif "validation" not in splits:
        splits |= _split_off(splits["train"], {"validation": validation_share}, kind)
    labels = sorted({label for classes in splits.values() for label in classes})
    if len(labels) < 2:
        raise ValueError(f"{tree.root}: expected a folder for each class, found one: {labels[0]!r}")
    return {split: splits[split] for split in SPLITS}


def find_classes(tree: FileTree, suffixes: tuple[str, ...], kind: str) -> dict[str, ClassFiles]:
    """The files by split and class, in alphabetical order.

    The layout is ``train/<class>/...``, ``test/<class>/...`` and perhaps ``validation/<class>/...`` (or ``val``), or
    ``<class>/...`` alone, whose files are all of the split ``"all"``. Files may lie deeper, and folders around all that
    make no difference. A ValueError says what is not as described.
    """
    files = {name: PurePosixPath(name).parts for name in tree.with_suffixes(suffixes)}
    around = _folders_around(list(files.values()))
    tops = {parts[len(around)] for parts in files.values() if len(parts) > len(around) + 1}
    has_splits = bool(tops) and (tops <= SPLIT_FOLDERS.keys() or {"train", "test"} <= tops)
    if has_splits:
        _check_split_folders(tree, tops, kind)
    found: dict[str, ClassFiles] = {}
    holders: dict[str, set[str]] = defaultdict(set)  # the classes that hold a folder of this name
    for name, parts in files.items():
        split, *rest = parts[len(around) :] if has_splits else ("all", *parts[len(around) :])
        if len(rest) < 2:
            raise ValueError(f"{tree.where(name)} lies in no class folder")
        found.setdefault(SPLIT_FOLDERS.get(split, split), {}).setdefault(rest[0], []).append(name)
        if len(rest) > 2:
            holders[rest[1]].add(rest[0])
    if repeated := sorted(name for name, labels in holders.items() if len(labels) > 1):
        labels = sorted(set.union(*(holders[name] for name in repeated)))
        rank_zero_warn(
            f"{tree.root}: the classes are {shortened(labels)}, and these folders hold folders of the same names "
            f"({shortened(repeated)}). If those are the classes, put the files of each into one folder"
        )
    above = (*around, "train") if has_splits else around
    for label in sorted(_subfolders(tree, above) - found["train" if has_splits else "all"].keys()):
        place = tree.where("/".join((*above, label)))
        raise ValueError(f"{place}: the class folder holds no {kind} ({', '.join(suffixes)})")
    return found


def _folders_around(paths: list[tuple[str, ...]]) -> tuple[str, ...]:
    """The folders around all the files, above the split or class folders."""
    depth, first = 0, paths[0]
    while first[depth] not in SPLIT_FOLDERS and all(
        len(parts) >= depth + 3 and parts[depth] == first[depth] for parts in paths
    ):
        depth += 1
    return first[:depth]


def _check_split_folders(tree: FileTree, tops: set[str], kind: str) -> None:
    found = [f"no {kind} in {name}" for name in ("train", "test") if name not in tops]
    found += ["both validation and val"] if {"validation", "val"} <= tops else []
    found += [f"{name} too" for name in sorted(tops - SPLIT_FOLDERS.keys())]
    if found:
        expected = "expected the folders train, test and perhaps validation (or val)"
        raise ValueError(f"{tree.root}: {expected}, found {' and '.join(found)}")


def _subfolders(tree: FileTree, above: tuple[str, ...]) -> set[str]:
    """The names of the folders right below ``above``; an archive's empty ones are not known."""
    depth = len(above)
    names = (PurePosixPath(name).parts for name in tree.names)
    found = {parts[depth] for parts in names if len(parts) > depth + 1 and parts[:depth] == above}
    folder = tree.root.joinpath(*above)
    entries = folder.iterdir() if folder.is_dir() else ()
    return found | {entry.name for entry in entries if entry.is_dir() and not is_hidden(entry.name)}


def _split_off(classes: ClassFiles, shares: Mapping[str, float], kind: str) -> dict[str, ClassFiles]:
    """Of each class's ``n`` files ``max(1, round(n * share))`` for each split of ``shares``, the rest for train."""
    splits: dict[str, ClassFiles] = {split: {} for split in ("train", *shares)}
    too_small: list[str] = []
    for label, names in classes.items():
        rest = names
        for split, share in shares.items():
            count = max(1, round(share * len(names)))
            splits[split][label], rest = rest[:count], rest[count:]
        splits["train"][label] = rest
        if not rest:
            too_small.append(f"class {label!r} has {len(names)} {kind}")
    if too_small:
        raise ValueError(f"{shortened(too_small)}: too few for the splits {', '.join(splits)}")
    return splits
