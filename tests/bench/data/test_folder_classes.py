"""Which file is of which class and split: every layout that is understood, and those that are
refused.
"""

from pathlib import Path, PurePosixPath

import pytest

from as_lightning.bench.data.folder_classes import ClassFolder

SPLIT_COUNTS = {"train/cat": 20, "train/dog": 10, "test/cat": 4, "test/dog": 3}
FLAT_COUNTS = {"cat": 20, "dog": 10, "emu": 30}


def written(root: Path, counts: dict[str, int]) -> Path:
    """Write so many files into each folder, and files by their names for -1."""
    for name, count in counts.items():
        folder = root / name if count >= 0 else (root / name).parent
        folder.mkdir(parents=True, exist_ok=True)
        for index in range(count):
            (folder / f"{PurePosixPath(name).name}{index:03d}.txt").touch()
        if count < 0:
            (root / name).touch()
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
            {"Training/cat": 20, "Testing/cat": 4, "valid/cat": 5},
            0.1,
            {"train": {"cat": 20}, "validation": {"cat": 5}, "test": {"cat": 4}},
        ),
        (
            {"seg_train/seg_train/sea": 20, "seg_test/seg_test/sea": 4},
            0.1,
            {"train": {"sea": 18}, "validation": {"sea": 2}, "test": {"sea": 4}},
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


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (
            {"train/cat": 3, "train/dog": 3},
            r"expected the folders train, test and perhaps .* with files, found train",
        ),
        ({"cat": 20, "valid": 20}, r": expected the folders .*, found cat, valid"),
        ({"test/cat": 3, "val/cat": 3}, r": expected the folders .*, found test, val"),
        (
            {**SPLIT_COUNTS, "val/cat": 1, "validation/cat": 1},
            r"found test, train, val, validation",
        ),
        ({**SPLIT_COUNTS, "extra/cat": 1}, r": expected the folders .*, found extra, test, train"),
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
        ({"cat/1.gif": -1, "dog/1.gif": -1}, r"expected files that end in .txt, found none"),
    ],
)
def test_a_folder_of_another_layout_is_refused_with_what_is_wrong(tmp_path, layout, message):
    path = written(tmp_path / "set", layout)
    with pytest.raises(ValueError, match=message):
        split(path)


class Labelled(Files):
    """Files whose labels are in a table; decoded to nothing."""


@pytest.mark.parametrize("separator", [None, "|"])
@pytest.mark.parametrize("splits", [("",), ("train/", "test/")])
def test_a_table_gives_files_their_labels_and_first_folders_their_split(
    tmp_path, separator, splits
):
    root = written(tmp_path / "set", {f"{split}x": 20 for split in splits} | {"train/other": 3})
    names = sorted(str(path.relative_to(root)) for path in root.glob("**/x*.txt"))
    rows = [f"{name},{'a' if number % 2 else 'b|a'}" for number, name in enumerate(names)]
    (tmp_path / "labels.csv").write_text("\n".join(["name,tags", *rows]))
    table = {"labels": tmp_path / "labels.csv", "file_column": "name", "label_column": "tags"}
    data = Labelled(root, label_separator=separator, batch_size=1, **table)
    found = data.index()
    assert {name: len(files) for name, files in found.items()} == (
        {"train": 18, "validation": 2, "test": 20}
        if len(splits) > 1
        else {"train": 16, "validation": 2, "test": 2}
    )
    expected = dict(row.split(",") for row in rows)
    for file in (file for files in found.values() for file in files):
        label = expected[file.name]
        assert file.label == (label if separator is None else tuple(label.split("|")))
        assert len(splits) == 1 or file in found["test"] or file.name.startswith("train/")
    (root / names[3]).unlink()
    with pytest.raises(ValueError, match=f"1 of {len(names)} files of the table are missing"):
        data.index()
