"""Which file is of which class and split: every layout that is understood, and those that are
refused.
"""

from pathlib import Path, PurePosixPath

import pytest

from as_lightning.bench.data.class_folder import ClassFolder

SPLIT_COUNTS = {"train/cat": 20, "train/dog": 10, "test/cat": 4, "test/dog": 3}
FLAT_COUNTS = {"cat": 20, "dog": 10, "emu": 30}


def written(root: Path, counts: dict[str, int]) -> Path:
    """Write so many files into each folder."""
    for name, count in counts.items():
        (root / name).mkdir(parents=True, exist_ok=True)
        for index in range(count):
            (root / name / f"{PurePosixPath(name).name}{index:03d}.txt").touch()
    return root


class Files(ClassFolder):
    """Files that nobody reads."""

    suffixes, kind = (".txt",), "files"
    input_spec = transforms = decode = None


def split(path: Path) -> dict[str, dict[str, list[str]]]:
    """Return the files of each class of each split."""
    splits = Files(path, batch_size=1).index()
    found: dict[str, dict[str, list[str]]] = {name: {} for name in splits}
    for name, files in splits.items():
        for file in files:
            found[name].setdefault(file.label, []).append(file.name)
    return found


@pytest.mark.parametrize(
    ("layout", "train", "validation", "test"),
    [
        (SPLIT_COUNTS, [18, 9], [2, 1], [4, 3]),
        (SPLIT_COUNTS | {"val/cat": 5}, [20, 10], [5], [4, 3]),
        (SPLIT_COUNTS | {"Validation/dog": 5}, [20, 10], [5], [4, 3]),
        (FLAT_COUNTS, [16, 8, 24], [2, 1, 3], [2, 1, 3]),
    ],
)
def test_missing_splits_take_a_tenth_of_each_class(tmp_path, layout, train, validation, test):
    found = split(written(tmp_path / "set", layout))
    for name, sizes in (("train", train), ("validation", validation), ("test", test)):
        assert [len(found[name][label]) for label in sorted(found[name])] == sizes
    files = [
        (label, file)
        for classes in found.values()
        for label, names in classes.items()
        for file in names
    ]
    assert len({file for _, file in files}) == len(files) == sum(layout.values())
    assert all(PurePosixPath(file).parent.name == label for label, file in files)


def test_a_new_class_leaves_the_split_of_the_others_as_it_was(tmp_path):
    tests = []
    for classes in (FLAT_COUNTS, {"ape": 10}):
        found = split(written(tmp_path / "set", classes))["test"]
        tests.append({file for names in found.values() for file in names})
    assert tests[0] < tests[1]
    assert len(tests[1]) == len(tests[0]) + 1


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ({"train/cat": 3, "train/dog": 3}, "expected the folders train, test .*, found train: ren"),
        ({"bus": 10, "train": 10}, "found bus; train: rename"),
        ({"cat": 20, "valid": 20}, "found cat; valid: rename"),
        ({"Training/cat": 20, "Testing/cat": 20}, "found Testing; Training: rename"),
        ({"seg_train/sea": 20, "seg_test/sea": 4}, "found seg_test; seg_train: rename"),
        ({"test/cat": 3, "val/cat": 3}, "found test; val: rename"),
        ({**SPLIT_COUNTS, "val/cat": 1, "validation/cat": 1}, "found test; train; val; validation"),
        ({**SPLIT_COUNTS, "extra/cat": 1}, "found extra; test; train"),
        ({**SPLIT_COUNTS, "train": 1}, "/train/train000.txt lies in no class folder"),
        ({**FLAT_COUNTS, ".": 1}, "/000.txt lies in no class folder"),
        ({"cat": 9, "dog": 2}, "too few files for .* train, validation, test in class 'dog'"),
        ({"cat": 9, "dog": 2, "emu": 1}, "too few files for .* in class 'dog'; 'emu'"),
        ({**SPLIT_COUNTS, "train/dog": 1}, "too few files for .* train, validation in class 'dog'"),
    ],
)
def test_a_folder_of_another_layout_is_refused_with_what_is_wrong(tmp_path, layout, message):
    path = written(tmp_path / "set", layout)
    if layout.get("train/dog") == 1:
        (path / "train" / "dog" / "dog001.txt").unlink(missing_ok=True)
    with pytest.raises(ValueError, match=message):
        split(path)


@pytest.mark.parametrize("separator", [None, "|"])
@pytest.mark.parametrize("splits", [("",), ("train/",), ("train/", "test/")])
def test_a_table_labels_files_and_first_folders_split_them(tmp_path, separator, splits):
    root = written(tmp_path / "set", {f"{split}x": 20 for split in splits} | {"train/other": 3})
    names = sorted(str(path.relative_to(root)) for path in root.glob("**/x*.txt"))
    rows = [f"{name},{'a' if number % 2 else 'b|a'}" for number, name in enumerate(names)]
    (tmp_path / "labels.csv").write_text("\n".join(["name,tags", *rows]))
    table = {"labels": tmp_path / "labels.csv", "file_column": "name", "label_column": "tags"}
    data = Files(root, label_separator=separator, batch_size=1, **table)
    found = data.index()
    sizes = {"train": 18, "validation": 2, "test": 20}
    if len(splits) == 1:
        sizes = {"train": 16, "validation": 2, "test": 2}
    assert {name: len(files) for name, files in found.items()} == sizes
    expected = dict(row.split(",") for row in rows)
    for file in (file for files in found.values() for file in files):
        label = expected[file.name]
        assert file.label == (label if separator is None else tuple(label.split("|")))
        assert len(splits) == 1 or file in found["test"] or file.name.startswith("train/")
    (root / names[3]).unlink()
    with pytest.raises(ValueError, match=f"1 of {len(names)} files of the table are missing"):
        data.index()
    (tmp_path / "labels.csv").write_text("\n".join(["name,tags", *rows, f"{names[0]},c"]))
    with pytest.raises(ValueError, match="a file has two rows: give its labels in one"):
        data.index()


def test_a_table_s_classes_are_split_each_and_its_folders_are_splits_by_their_names_alone(tmp_path):
    root = written(tmp_path / "set", {"x": 100})
    labels = tmp_path / "labels.csv"
    rows = [f"x/x{n:03d}.txt;{'rare' if n < 5 else 'common'}" for n in range(100)]
    labels.write_text("\n".join(["file;label", *rows]))
    for split in Files(root, labels=labels, separator=";", batch_size=1).index().values():
        assert {file.label for file in split} == {"rare", "common"}
    for folder in ("valid", "train"):
        (root / folder).mkdir()
        (root / folder / "y.txt").touch()
        rows.append(f"{folder}/y.txt;common")
    labels.write_text("\n".join(["file;label", *rows]))
    with pytest.raises(ValueError, match="found train; valid; x: rename or move them"):
        Files(root, labels=labels, separator=";", batch_size=1).index()
