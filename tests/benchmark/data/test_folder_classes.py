"""Which file is of which class and split: every layout that is understood, and those that are refused."""

from __future__ import annotations

import shutil
from pathlib import Path, PurePosixPath

import pytest

from as_lightning.benchmark.data.base import collected_messages
from as_lightning.benchmark.data.files import checksum
from as_lightning.benchmark.data.folder_classes import ClassFolder

SPLIT_COUNTS = {"train/cat": 20, "train/dog": 10, "test/cat": 4, "test/dog": 3}
FLAT_COUNTS = {"cat": 20, "dog": 10, "emu": 30}


def write_files(root: Path, counts: dict[str, int]) -> Path:
    """Write so many empty files into each folder."""
    for folder, count in counts.items():
        (root / folder).mkdir(parents=True, exist_ok=True)
        for index in range(count):
            (root / folder / f"{PurePosixPath(folder).name}{index:03d}.txt").touch()
    return root


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


def names(path: Path, name: str, **arguments) -> set[str]:
    """The files of a split, without the folders around them."""
    return {PurePosixPath(file).name for files in split(path, **arguments)[name].values() for file in files}


@pytest.mark.parametrize(
    ("layout", "validation_share", "expected"),
    [
        (SPLIT_COUNTS, 0.1, {"train": {"cat": 18, "dog": 9}, "validation": {"cat": 2, "dog": 1}}),
        (SPLIT_COUNTS, 0.5, {"train": {"cat": 10, "dog": 5}, "validation": {"cat": 10, "dog": 5}}),
        (SPLIT_COUNTS | {"val/cat": 5}, 0.1, {"train": {"cat": 20, "dog": 10}, "validation": {"cat": 5}}),
        (SPLIT_COUNTS | {"Validation/dog": 5}, 0.1, {"train": {"cat": 20, "dog": 10}, "validation": {"dog": 5}}),
        (FLAT_COUNTS, 0.1, {"train": {"cat": 16, "dog": 8, "emu": 24}, "test": {"cat": 2, "dog": 1, "emu": 3}}),
        ({"bus": 10, "car": 10, "train": 10}, 0.2, {"test": {"bus": 1, "car": 1, "train": 1}}),  # a class called train
    ],
)
def test_split_folders_are_the_splits_and_those_that_are_missing_take_their_share_of_each_class(
    tmp_path, layout, validation_share, expected
):
    root = write_files(tmp_path / "set", layout)
    found = split(root, validation_share)
    sizes = {name: {label: len(files) for label, files in classes.items()} for name, classes in found.items()}
    assert {name: sizes[name] for name in expected} == expected
    files = [(label, file) for classes in found.values() for label, names in classes.items() for file in names]
    assert len({file for _, file in files}) == len(files) == sum(layout.values())
    assert all(PurePosixPath(file).parent.name == label for label, file in files)


@pytest.mark.parametrize("layout", [SPLIT_COUNTS, FLAT_COUNTS])
@pytest.mark.parametrize("kind", ["gztar", "zip"])
def test_an_archive_with_or_without_a_folder_around_is_split_as_the_folder(tmp_path, layout, kind):
    root = write_files(tmp_path / "around" / "set", layout)
    for base in (root, tmp_path / "around"):
        archive = Path(shutil.make_archive(str(tmp_path / base.name), kind, base))
        for name in ("train", "validation", "test"):
            assert names(archive, name) == names(root, name)


def test_a_new_class_leaves_the_split_of_the_others_as_it_was(tmp_path):
    root = write_files(tmp_path / "set", FLAT_COUNTS)
    before = names(root, "test")
    write_files(root, {"ape": 10})
    after = names(root, "test")
    assert before < after
    assert len(after) == len(before) + 1


@pytest.mark.parametrize("splits", [[""], ["train/", "test/"]])
def test_class_folders_that_hold_folders_of_the_same_names_are_warned_of_and_no_others(tmp_path, recwarn, splits):
    folds = [f"{name}fold{number}/{colour}" for name in splits for number in (1, 2) for colour in ("Blue", "Red")]
    root = write_files(tmp_path / "set", dict.fromkeys(folds, 5))
    with pytest.warns(UserWarning, match=r"the classes are fold1; fold2, .* folders of the same names \(Blue; Red\)"):
        assert list(split(root)["train"]) == ["fold1", "fold2"]
    recwarn.clear()
    split(write_files(tmp_path / "other", {**FLAT_COUNTS, "dog/puppies": 10, "cat/kittens": 10}))
    assert not recwarn.list


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ({"train/cat": 3, "train/dog": 3}, r"set: expected folders train, test and perhaps .* with files, found train"),
        ({"test/cat": 3, "val/cat": 3}, r"set: expected folders .*, found test, val"),
        ({**SPLIT_COUNTS, "val/cat": 1, "validation/cat": 1}, r"found test, train, val, validation"),
        ({**SPLIT_COUNTS, "extra/cat": 1}, r"set: expected folders .*, found extra, test, train"),
        ({**SPLIT_COUNTS, "train": 1}, r"set/train/train000.txt lies in no class folder"),
        ({**FLAT_COUNTS, ".": 1}, r"set/000.txt lies in no class folder"),
        ({"cat": 20, "dog": 2}, r"class 'dog' has 2 files: too few for the splits train, validation, test"),
        ({"cat": 20, "dog": 2, "emu": 1}, r"class 'dog' has 2 files; class 'emu' has 1 files: too few for the splits"),
        ({**SPLIT_COUNTS, "train/dog": 1}, r"class 'dog' has 1 files: too few for the splits train, validation"),
        ({**SPLIT_COUNTS, "train/cow": 0}, r"set/train/cow: the class folder holds no files \(.txt\)"),
        ({**FLAT_COUNTS, "cow": 0}, r"set/cow: the class folder holds no files"),
    ],
)
def test_folders_of_another_layout_are_refused_with_what_is_wrong(tmp_path, layout, message):
    write_files(tmp_path / "set", layout)
    with pytest.raises(ValueError, match=message):
        split(tmp_path / "set")


@pytest.mark.parametrize("kind", ["tar", "zip"])
@pytest.mark.parametrize("layout", [SPLIT_COUNTS, FLAT_COUNTS])
@pytest.mark.parametrize("empty", [False, True])
def test_a_class_without_a_file_of_the_right_kind_is_refused_in_an_archive_too(tmp_path, layout, kind, empty):
    root = write_files(tmp_path / "around" / "set", {**layout, "train/cow" if layout is SPLIT_COUNTS else "cow": 0})
    if not empty:
        (next(root.rglob("cow")) / "cow.gif").touch()
    for base in (root, tmp_path / "around"):
        with pytest.raises(ValueError, match=r"/cow: the class folder holds no files \(.txt\)"):
            split(Path(shutil.make_archive(str(tmp_path / base.name), kind, base)))


@pytest.mark.parametrize("packed", [False, True])
def test_a_name_that_is_not_utf8_is_refused_in_a_sentence(tmp_path, packed):
    root = write_files(tmp_path / "set", {**FLAT_COUNTS, "caf\udce9": 10})
    checksum([root])
    with pytest.raises(ValueError, match=r"names of files that are not UTF-8: 'caf\\udce9/caf.*; and 5 more: rename"):
        split(Path(shutil.make_archive(str(tmp_path / "set"), "tar", root)) if packed else root)


@pytest.mark.parametrize("packed", [False, True])
def test_hidden_folders_those_of_macos_and_files_of_other_kinds_are_left_out_with_a_note(tmp_path, packed):
    root = write_files(tmp_path / "set", {**FLAT_COUNTS, "__MACOSX/cat": 3, ".cache": 2, "dog/.thumbs": 4})
    for name in (".DS_Store", "cat/2.HEIC", "dog/4.heic", "dog/note"):
        (root / name).touch()
    path = Path(shutil.make_archive(str(tmp_path / "set"), "zip", root)) if packed else root
    with collected_messages() as messages:
        found = split(path)
    assert {label: sum(len(found[name][label]) for name in found) for label in found["train"]} == FLAT_COUNTS
    assert messages == [
        f"{path}: files of other kinds are left out: 2 .heic, 1 without a suffix",
        f"{path}: hidden folders are left out: .cache; .thumbs; __MACOSX",
    ]
