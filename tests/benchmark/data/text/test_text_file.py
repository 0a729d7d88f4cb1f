"""A user's own texts: splits, classes that are too small, and what was understood."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

import pytest
import torch
from harness.data_settings import TEXT

from as_lightning.benchmark.data.text.data_module import Sentence, split_sentences
from as_lightning.benchmark.data.text.text_file import TextFile


def write_table(path: Path, sizes: dict[str, int]) -> Path:
    """A table with so many rows of each label."""
    rows = [f"text {index} of {label},{label}\n" for label, size in sizes.items() for index in range(size)]
    path.write_text("text,label\n" + "".join(rows))
    return path


def test_a_text_file_alone_is_split_the_same_whatever_the_runs_seed(tmp_path):
    with (tmp_path / "set.csv").open("w") as file:
        file.write("text,label\n" + "".join(f"text {index},{'ab'[index % 2]}\n" for index in range(100)))
    targets = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        data = partial(TextFile, **TEXT)("set.csv", data_dir=tmp_path)
        data.setup()
        assert [len(data.splits[split]) for split in ("train", "validation", "test")] == [80, 10, 10]
        targets.append([ids.tolist() for ids in data.splits["test"].inputs])
    assert targets[0] == targets[1]


def test_text_files_of_their_own_are_the_splits(tmp_path):
    for name in ("train", "validation", "test"):
        (tmp_path / f"{name}.csv").write_text(f"text,label\n{name},a\n{name},b\n")
    data = partial(TextFile, **TEXT)("train.csv", tmp_path / "validation.csv", "test.csv", data_dir=tmp_path)
    assert {split: rows[0].text for split, rows in data.read_splits().items()} == {
        "train": "train",
        "validation": "validation",
        "test": "test",
    }


def test_one_of_the_other_text_files_alone_is_refused():
    with pytest.raises(ValueError, match="give validation_path and test_path, or neither"):
        partial(TextFile, **TEXT)("train.csv", validation_path="validation.csv")


def test_a_class_too_small_to_split_is_refused_by_name():
    sentences = [Sentence("x", "large")] * 20 + [Sentence("y", "small")] * 9
    with pytest.raises(ValueError, match=r"1 of 2 classes have fewer .*: 'small' has 9: add texts, or give files"):
        split_sentences(sentences, 0)


def test_a_label_that_the_training_file_lacks_is_named_by_file_and_line(tmp_path):
    (tmp_path / "train.csv").write_text("text,label\n" + "some words,a\nother words,b\n" * 3)
    (tmp_path / "test.csv").write_text("text,label\nsome words,a\nodd words,c\n")
    data = partial(TextFile, **TEXT)("train.csv", "train.csv", "test.csv", data_dir=tmp_path)
    with pytest.raises(ValueError, match=r"test.csv:3: the training split has no 'c', it has a, b"):
        data.setup()


def test_classes_that_are_too_small_are_counted_and_named_and_left_out_on_demand(tmp_path, caplog):
    path = write_table(tmp_path / "set.csv", {"a": 30, "b": 20, "c": 9, "d": 1})
    named = r"2 of 4 classes have fewer than 10 .*: 'c' has 9; 'd' has 1: leave them out \(data.min_per_class=10\)"
    with pytest.raises(ValueError, match=named):
        partial(TextFile, **TEXT)(path).setup()
    data = partial(TextFile, **TEXT)(path, min_per_class=10)
    with caplog.at_level(logging.INFO):
        data.setup()
    assert data.class_names == ["a", "b"]
    assert "set.csv: 2 classes with fewer than 10 rows are left out: 'c' (9); 'd' (1)" in caplog.text
    assert "TextFile: 2 classes (a, b); train / validation / test 40 / 5 / 5" in caplog.text


def test_a_class_that_is_left_out_is_left_out_of_every_file(tmp_path):
    for split in ("train", "validation", "test"):
        write_table(tmp_path / f"{split}.csv", {"a": 5, "b": 5, "c": 2})
    data = partial(TextFile, **TEXT)("train.csv", "validation.csv", "test.csv", min_per_class=3, data_dir=tmp_path)
    assert {row.label for rows in data.read_splits().values() for row in rows} == {"a", "b"}


@pytest.mark.parametrize(
    ("sizes", "arguments", "found"),
    [
        ({"a": 30}, {}, r"'a' \(30 rows\)"),
        ({"a": 30, "b": 5}, {"min_per_class": 10}, r"'a'"),
        ({"a": 5, "b": 5}, {"min_per_class": 10}, "none; data.min_per_class=10 leaves 2 out"),
    ],
)
def test_fewer_than_two_classes_are_refused_with_the_count(tmp_path, sizes, arguments, found):
    path = write_table(tmp_path / "set.csv", sizes)
    with pytest.raises(ValueError, match=rf"set.csv: expected at least 2 classes in column 'label', got {found}"):
        partial(TextFile, **TEXT)(path, **arguments).setup()


def test_a_bad_min_per_class_is_refused():
    with pytest.raises(ValueError, match="min_per_class must be at least 1, or null, got 0"):
        partial(TextFile, **TEXT)("set.csv", min_per_class=0)


@pytest.mark.parametrize("rows", [10, 11, 14, 19])
def test_small_tables_are_split_with_every_class_in_every_split(tmp_path, rows):
    data = partial(TextFile, **TEXT)(write_table(tmp_path / "set.csv", {"a": rows, "b": 10, "c": 13}))
    data.setup()
    for split in data.splits.values():
        assert split.targets.unique().tolist() == [0, 1, 2]
