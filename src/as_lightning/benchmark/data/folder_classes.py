"""A user's own folders: which file is of which class and split, by the names of the folders around it."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from lightning.pytorch.utilities.rank_zero import rank_zero_warn

from as_lightning.benchmark.data.base import SPLITS, BenchmarkDataModule, say
from as_lightning.benchmark.data.files import FileTree, find_path, is_hidden, open_tree, shortened

SPLIT_FOLDERS = {"train": "train", "validation": "validation", "val": "validation", "test": "test"}
TEST_SHARE = 0.1  # of each class, where there are no split folders

ClassFiles = dict[str, list[str]]  # the files of each class


class ClassFolder(BenchmarkDataModule):
    """A user's own files in a folder for each class; comes before `ImageDataModule` or `AudioDataModule`.

    ``kind`` is what the files are, in the plural, for messages.
    """

    suffixes: ClassVar[tuple[str, ...]]
    kind: ClassVar[str]
    data_dir: Path
    split_seed: int

    def __init__(self, path: str | Path, validation_share: float, **settings: Any) -> None:
        super().__init__(**settings)
        check_validation_share(validation_share)
        self.path, self.validation_share = path, validation_share

    @property
    def user_paths(self) -> list[Path]:
        return [find_path(self.path, self.data_dir)]

    @property
    def splits_by_seed(self) -> bool:
        return "all" in find_classes(open_tree(*self.user_paths), self.suffixes, self.kind)

    def class_files(self) -> tuple[FileTree, dict[str, ClassFiles]]:
        """The folder or archive, and the files of each split by class."""
        tree = open_tree(*self.user_paths)
        share, seed = self.validation_share, self.split_seed
        return tree, split_classes(tree, self.suffixes, self.kind, validation_share=share, split_seed=seed)


def check_validation_share(validation_share: float) -> None:
    """Raise a ValueError unless ``validation_share`` is in (0, 1)."""
    if not 0.0 < validation_share < 1.0:
        raise ValueError(f"validation_share must be a share in (0, 1), got {validation_share}")


def split_classes(
    tree: FileTree, suffixes: tuple[str, ...], kind: str, *, validation_share: float, split_seed: int
) -> dict[str, ClassFiles]:
    """The files of the splits ``train``, ``validation`` and ``test`` by class, the classes in alphabetical order.

    The layout is ``train/<class>/...``, ``test/<class>/...`` and perhaps ``validation/<class>/...`` (or ``val``), or
    ``<class>/...`` alone. What is missing is taken from the other files, in an order that ``split_seed`` decides: of a
    class's ``n`` files ``max(1, round(n * validation_share))``, a tenth for test. Files may lie deeper, and folders
    around all that make no difference.

    Raises:
        ValueError: if the folders are not as described, or a class has too few files to split.
    """
    if tree.hidden:
        say(f"{tree.root}: hidden folders are left out: {shortened(sorted(tree.hidden))}")
    # a seed for each class: what one of them loses or gains does not reorder the others
    found = {
        split: {
            label: random.Random(f"{split_seed}/{label}").sample(names, len(names))
            for label, names in sorted(classes.items())
        }
        for split, classes in find_classes(tree, suffixes, kind).items()
    }
    if "all" in found:
        found = _split_off(found["all"], {"validation": validation_share, "test": TEST_SHARE}, kind)
    elif "validation" not in found:
        found |= _split_off(found["train"], {"validation": validation_share}, kind)
    labels = sorted({label for classes in found.values() for label in classes})
    if len(labels) < 2:
        raise ValueError(f"{tree.root}: expected a folder for each class, found one: {labels[0]!r}")
    return {split: found[split] for split in SPLITS}


def find_classes(tree: FileTree, suffixes: tuple[str, ...], kind: str) -> dict[str, ClassFiles]:
    """The files by split and class; of class folders without splits above them, all as the split ``"all"``."""
    files = {name: PurePosixPath(name).parts for name in tree.with_suffixes(suffixes)}
    wrapping = _wrapping(list(files.values()))
    parts_of = {name: parts[len(wrapping) :] for name, parts in files.items()}
    tops = {parts[0] for parts in parts_of.values() if len(parts) > 1}
    has_splits = bool(tops) and (tops <= SPLIT_FOLDERS.keys() or {"train", "test"} <= tops)
    if has_splits:
        _check_split_folders(tree, tops, kind)
    found: dict[str, ClassFiles] = {}
    holders: dict[str, set[str]] = {}  # the classes that hold a folder of this name
    for name, parts in parts_of.items():
        split, *rest = parts if has_splits else ("all", *parts)
        if len(rest) < 2:
            raise ValueError(f"{tree.where(name)} lies in no class folder")
        found.setdefault(SPLIT_FOLDERS.get(split, split), {}).setdefault(rest[0], []).append(name)
        if len(rest) > 2:
            holders.setdefault(rest[1], set()).add(rest[0])
    _warn_of_repeated_folders(tree, holders)
    class_level = (*wrapping, "train") if has_splits else wrapping
    for label, folder in sorted(_subfolders(tree, class_level).items()):
        if label not in found["train" if has_splits else "all"]:
            raise ValueError(f"{tree.where(folder)}: the class folder holds no {kind} ({', '.join(suffixes)})")
    return found


def _warn_of_repeated_folders(tree: FileTree, holders: Mapping[str, set[str]]) -> None:
    """Warn where class folders hold folders of the same names, which are more likely to be the classes."""
    repeated = sorted(name for name, labels in holders.items() if len(labels) > 1)
    if repeated:
        labels = sorted(set.union(*(holders[name] for name in repeated)))
        rank_zero_warn(
            f"{tree.root}: the classes are {shortened(labels)}, and these folders hold folders of the same names "
            f"({shortened(repeated)}). If those are the classes, put the files of each into one folder"
        )


def _wrapping(paths: list[tuple[str, ...]]) -> tuple[str, ...]:
    """The folders around all the files, above the split or class folders."""
    depth, first = 0, paths[0]
    while all(len(parts) >= depth + 3 and parts[depth] == first[depth] for parts in paths):
        if first[depth] in SPLIT_FOLDERS:
            break
        depth += 1
    return first[:depth]


def _check_split_folders(tree: FileTree, tops: set[str], kind: str) -> None:
    expected = f"{tree.root}: expected the folders train, test and perhaps validation (or val)"
    for name in ("train", "test"):
        if name not in tops:
            raise ValueError(f"{expected}, found no {kind} in {name}")
    if {"validation", "val"} <= tops:
        raise ValueError(f"{expected}, found both validation and val")
    if others := sorted(tops - SPLIT_FOLDERS.keys()):
        raise ValueError(f"{expected}, found {', '.join(others)} too")


def _subfolders(tree: FileTree, above: tuple[str, ...]) -> dict[str, str]:
    """The folders right below ``above``, by their last part; an archive's empty ones are not known."""
    found = {
        parts[len(above)]: "/".join(parts[: len(above) + 1])
        for parts in (PurePosixPath(name).parts for name in tree.names)
        if len(parts) > len(above) + 1 and parts[: len(above)] == above
    }
    folder = tree.root.joinpath(*above)
    if folder.is_dir():
        for entry in os.scandir(folder):
            if entry.is_dir() and not is_hidden(entry.name):
                found[entry.name] = "/".join((*above, entry.name))
    return found


def _split_off(classes: ClassFiles, shares: Mapping[str, float], kind: str) -> dict[str, ClassFiles]:
    """Of each class's ``n`` files ``max(1, round(n * share))`` for each split of ``shares``, the rest for train."""
    splits: dict[str, ClassFiles] = {split: {} for split in ("train", *shares)}
    too_small: list[str] = []
    for label, names in classes.items():
        start = 0
        for split, share in shares.items():
            end = start + max(1, round(share * len(names)))
            splits[split][label] = names[start:end]
            start = end
        if start >= len(names):
            too_small.append(f"class {label!r} has {len(names)} {kind}")
        splits["train"][label] = names[start:]
    if too_small:
        raise ValueError(f"{shortened(too_small)}: too few for the splits {', '.join(splits)}")
    return splits
