"""Which file is of which class and split: every layout that is understood, and those that are
refused.
"""

import shutil
from pathlib import Path, PurePosixPath

import pytest

from as_lightning.bench.data.base import collected_messages
from as_lightning.bench.data.files import checksum
from as_lightning.bench.data.folder_classes import ClassFolder

SPLIT_COUNTS = {"train/cat": 20, "train/dog": 10, "test/cat": 4, "test/dog": 3}
FLAT_COUNTS = {"cat": 20, "dog": 10, "emu": 30}


def written(root: Path, counts: dict[str, int], packed: str = "") -> Path:
    """Write so many empty files into each folder, and files by their names; ``packed`` as "tar" or
    "zip around".
    """
    for name, count in counts.items():
        folder = root / name if count >= 0 else (root / name).parent
        folder.mkdir(parents=True, exist_ok=True)
        for index in range(count):
            (folder / f"{PurePosixPath(name).name}{index:03d}.txt").touch()
        if count < 0:
            (root / name).touch()
    kind, _, around = packed.partition(" ")
    base = root.parent if around else root
    return (
        Path(shutil.make_archive(str(base.parent / f"{base.name} packed"), kind, base))
        if packed
        else root
    )


class Files(ClassFolder):
    """Files that nobody reads."""

    suffixes, kind = (".txt",), "files"
    input_spec = transforms = None


def split(path: Path, validation_share: float = 0.1) -> dict[str, dict[str, list[str]]]:
    """The files of each class of each split."""
    splits = Files(path, validation_share, batch_size=1).index()
    found: dict[str, dict[str, list[str]]] = {name: {} for name in splits}
    for name, files in splits.items():
        for file in files:
            found[name].setdefault(file.label, []).append(file.name)
    return found


def names(path: Path, name: str) -> set[str]:
    """The files of a split, without the folders around them."""
    return {PurePosixPath(file).name for files in split(path)[name].values() for file in files}


@pytest.mark.parametrize(
    ("layout", "validation_share", "expected"),
    [
        (SPLIT_COUNTS, 0.1, {"train": {"cat": 18, "dog": 9}, "validation": {"cat": 2, "dog": 1}}),
        (SPLIT_COUNTS, 0.5, {"train": {"cat": 10, "dog": 5}, "validation": {"cat": 10, "dog": 5}}),
        (
            SPLIT_COUNTS | {"val/cat": 5},
            0.1,
            {"train": {"cat": 20, "dog": 10}, "validation": {"cat": 5}},
        ),
        (
            SPLIT_COUNTS | {"Validation/dog": 5},
            0.1,
            {"train": {"cat": 20, "dog": 10}, "validation": {"dog": 5}},
        ),
        (
            FLAT_COUNTS,
            0.1,
            {"train": {"cat": 16, "dog": 8, "emu": 24}, "test": {"cat": 2, "dog": 1, "emu": 3}},
        ),
        (
            {"bus": 10, "car": 10, "train": 10},
            0.2,
            {"test": {"bus": 1, "car": 1, "train": 1}},
        ),  # a class called train
    ],
)
def test_split_folders_are_the_splits_and_those_that_are_missing_take_their_share_of_each_class(
    tmp_path, layout, validation_share, expected
):
    found = split(written(tmp_path / "set", layout), validation_share)
    sizes = {
        name: {label: len(files) for label, files in classes.items()}
        for name, classes in found.items()
    }
    assert {name: sizes[name] for name in expected} == expected
    files = [
        (label, file)
        for classes in found.values()
        for label, names in classes.items()
        for file in names
    ]
    assert len({file for _, file in files}) == len(files) == sum(layout.values())
    assert all(PurePosixPath(file).parent.name == label for label, file in files)


def test_a_new_class_leaves_the_split_of_the_others_as_it_was(tmp_path):
    before, after = (
        names(written(tmp_path / "set", classes), "test") for classes in (FLAT_COUNTS, {"ape": 10})
    )
    assert before < after
    assert len(after) == len(before) + 1


@pytest.mark.parametrize("splits", [[""], ["train/", "test/"]])
def test_class_folders_that_hold_folders_of_the_same_names_are_warned_of_and_no_others(
    tmp_path, recwarn, splits
):
    folds = [
        f"{name}fold{number}/{colour}"
        for name in splits
        for number in (1, 2)
        for colour in ("Blue", "Red")
    ]
    root = written(tmp_path / "set", dict.fromkeys(folds, 5))
    with pytest.warns(
        UserWarning,
        match=r"the classes are fold1; fold2, .* folders of the same names \(Blue; Red\)",
    ):
        assert sorted(split(root)["train"]) == ["fold1", "fold2"]
    recwarn.clear()
    split(written(tmp_path / "other", {**FLAT_COUNTS, "dog/puppies": 10, "cat/kittens": 10}))
    assert not recwarn.list


@pytest.mark.parametrize("packed", ["", "tar", "zip around"])
@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (
            {"train/cat": 3, "train/dog": 3},
            r"expected folders train, test and perhaps .* with files, found train",
        ),
        ({"test/cat": 3, "val/cat": 3}, r": expected folders .*, found test, val"),
        (
            {**SPLIT_COUNTS, "val/cat": 1, "validation/cat": 1},
            r"found test, train, val, validation",
        ),
        ({**SPLIT_COUNTS, "extra/cat": 1}, r": expected folders .*, found extra, test, train"),
        ({**SPLIT_COUNTS, "train": 1}, r"/train/train000.txt lies in no class folder"),
        ({**FLAT_COUNTS, ".": 1}, r"/000.txt lies in no class folder"),
        (
            {"cat": 20, "dog": 2},
            r"class 'dog' has 2 files: too few for the splits train, validation, test",
        ),
        (
            {"cat": 20, "dog": 2, "emu": 1},
            r"class 'dog' has 2 files; class 'emu' has 1 files: too few for the splits",
        ),
        (
            {**SPLIT_COUNTS, "train/dog": 1},
            r"class 'dog' has 1 files: too few for the splits train, validation",
        ),
        ({**SPLIT_COUNTS, "train/cow": 0}, r"/train/cow: the class folder holds no files \(.txt\)"),
        (
            {**SPLIT_COUNTS, "train/cow/cow.gif": -1},
            r"/train/cow: the class folder holds no files \(.txt\)",
        ),
        ({**FLAT_COUNTS, "cow": 0}, r"/cow: the class folder holds no files"),
        ({"cat/1.gif": -1, "dog/1.gif": -1}, r"expected files that end in .txt, found none"),
        ({**FLAT_COUNTS, "cow/cow.gif": -1}, r"/cow: the class folder holds no files"),
    ],
)
def test_a_folder_of_another_layout_is_refused_with_what_is_wrong_also_packed(
    tmp_path, layout, message, packed
):
    packed = (
        packed if "." not in layout else packed.removesuffix(" around")
    )  # there the folder would be a class
    path = written(tmp_path / "around" / "set", layout, packed)
    with pytest.raises(ValueError, match=message):
        split(path)


@pytest.mark.parametrize("packed", ["", "tar"])
def test_a_name_that_is_not_utf8_is_refused_in_a_sentence(tmp_path, packed):
    path = written(tmp_path / "set", {**FLAT_COUNTS, "caf\udce9": 10}, packed)
    checksum([path])
    with pytest.raises(
        ValueError,
        match=r"names of files that are not UTF-8: 'caf\\udce9/caf.*; and 5 more: rename",
    ):
        split(path)


@pytest.mark.parametrize("packed", ["", "zip"])
def test_hidden_folders_those_of_macos_and_files_of_other_kinds_are_left_out_with_a_note(
    tmp_path, packed
):
    others = dict.fromkeys((".DS_Store", "cat/2.HEIC", "dog/4.heic", "dog/note"), -1)
    hidden = {"__MACOSX/cat": 3, ".cache": 2, "dog/.thumbs": 4}
    path = written(tmp_path / "set", {**FLAT_COUNTS, **hidden, **others}, packed)
    with collected_messages() as messages:
        found = split(path)
    assert {
        label: sum(len(found[name][label]) for name in found) for label in found["train"]
    } == FLAT_COUNTS
    assert messages == [
        f"{path}: files of other kinds are left out: 2 .heic, 1 without a suffix",
        f"{path}: hidden folders are left out: .cache; .thumbs; __MACOSX",
    ]
