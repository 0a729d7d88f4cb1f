"""A user's own texts in a table: what is read, and the file and line of what is not."""

from __future__ import annotations

import csv
import json
import sys
from functools import partial
from pathlib import Path

import pytest
from harness.data_settings import TEXT

from as_lightning.benchmark.data.base import collected_messages
from as_lightning.benchmark.data.text import text_file as module
from as_lightning.benchmark.data.text.text_file import read_table

TextFile = partial(module.TextFile, **TEXT)


def write_table(path: Path, sizes: dict[str, int]) -> Path:
    """A table with so many rows of each label."""
    rows = [f"text {index} of {label},{label}\n" for label, size in sizes.items() for index in range(size)]
    path.write_text("text,label\n" + "".join(rows))
    return path


def test_classes_that_are_too_small_are_counted_and_named_and_left_out_on_demand(tmp_path):
    path = write_table(tmp_path / "set.csv", {"a": 30, "b": 20, "c": 9, "d": 1})
    named = r"2 of 4 classes have fewer than 10 .*: 'c' has 9; 'd' has 1: leave them out \(data.min_per_class=10\)"
    with pytest.raises(ValueError, match=named):
        TextFile(path).setup()
    data = TextFile(path, min_per_class=10)
    with collected_messages() as messages:
        data.setup()
    assert data.class_names == ["a", "b"]
    assert messages == [
        f"{path}: 2 classes with fewer than 10 rows are left out: 'c' (9); 'd' (1)",
        "TextFile: 2 classes (a, b); train / validation / test 40 / 5 / 5",
    ]


def test_given_splits_lose_a_class_that_is_left_out_and_rows_of_train_that_lie_in_others_are_named(tmp_path):
    for split, texts in (("train", "abcdef"), ("validation", "ghijkl"), ("test", "axyzbc")):
        rows = "".join(f"text {text},{label}\n" for text, label in zip(texts, "010102", strict=True))
        (tmp_path / f"{split}.csv").write_text(f"text,label\n{rows}")
    data = TextFile("train.csv", "validation.csv", "test.csv", min_per_class=2, data_dir=tmp_path)
    with collected_messages() as messages:
        data.setup()
    assert data.class_names == ["0", "1"]
    assert {split: len(rows) for split, rows in data.splits.items()} == {"train": 5, "validation": 5, "test": 5}
    repeated = [message for message in messages if "in train too" in message]
    assert repeated == ["2 of 5 rows in test are in train too: 'text a'; 'text b'"]


@pytest.mark.parametrize(
    ("sizes", "arguments", "found"),
    [
        ({"a": 30}, {}, r"'a' \(30 rows\)"),
        ({"a": 30, "b": 5}, {"min_per_class": 10}, r"'a'"),
        ({"a": 5, "b": 5}, {"min_per_class": 10}, "none"),
    ],
)
def test_fewer_than_two_classes_are_refused_with_the_count(tmp_path, sizes, arguments, found):
    path = write_table(tmp_path / "set.csv", sizes)
    with pytest.raises(ValueError, match=rf"set.csv: expected at least 2 classes in column 'label', got {found}"):
        TextFile(path, **arguments).setup()


@pytest.mark.parametrize("rows", [10, 11, 14, 19])
def test_small_tables_are_split_with_every_class_in_every_split_and_columns_may_be_named_by_numbers(tmp_path, rows):
    path = write_table(tmp_path / "set.csv", {"a": rows, "b": 10, "c": 13})
    path.write_text(path.read_text().replace("text,label", "0,1"))
    data = TextFile(path, text_column=0, label_column=1)
    data.setup()
    for split in data.splits.values():
        assert split.targets.unique().tolist() == [0, 1, 2]


LONG = 200_000 * "x"
ROWS = [("plain words", "a"), (LONG, "a"), ('with, comma and "quotes"', "b"), ("with\ta tab", "a"), ("two\nlines", "b")]


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl"])
def test_a_table_gives_its_rows_back_in_every_format_and_blank_lines_are_none(tmp_path, ending):
    path = tmp_path / f"set.{ending}"
    with path.open("w", newline="") as file:
        if ending == "jsonl":
            file.writelines(json.dumps({"text": text, "label": label}) + "\n" for text, label in ROWS)
        else:
            writer = csv.writer(file, delimiter="," if ending == "csv" else "\t")
            writer.writerows([("text", "label"), *ROWS])
        file.write("\n")  # a blank last line
    assert read_table(path, "text", "label") == ROWS


HEAD = "text,label\n"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("set.csv", HEAD + "a,b\n,b\n ,b\n", "3: expected a text and a label; 2 of 3 rows lack one"),
        ("set.csv", HEAD + "a\n", "2: expected a text and a label; 1 of 1 rows lack one"),
        ("set.jsonl", '{"text": "a", "label": null}\n', "1: expected a text and a label; 1 of 1 rows"),
        ("set.jsonl", '{"text": "a", "label": NaN}\n', "1: expected a text and a label; 1 of 1 rows"),
        ("set.jsonl", '{"text": 3, "label": "a"}\n', "1: expected a text in column 'text', got 3"),
        ("set.jsonl", '{"text": "a", "label": ["b", "c"]}\n', "1: expected one label in column 'label', got"),
        ("set.jsonl", '{"text": "a \\ud800", "label": 1}\n', "1: half of a pair of surrogates is no char"),
        ("set.jsonl", '{"text": "a", "label": "\\udfff"}\n', "1: half of a pair of surrogates is no char"),
        ("set.jsonl", '{"text": "a", "label": 1}\n{"text"\n', "2: expected a JSON object, got .*"),
        ("set.jsonl", '["a", 1]\n', "1: expected a JSON object, got"),
        ("set.csv", "label,text,label\na,b,c\n", "1: several columns are called 'label': rename all but one"),
        ("set.csv", HEAD + "a,b,c\n", "2: more fields than the 2 of the first"),
        ("set.csv", HEAD + '"a,b\n', "2: unexpected end of data: a quotation mark at its start opens a field"),
        ("set.tsv", 'text\tlabel\n"a\tb\nc"\tb\n', "3: a field holds tabs and line ends: a quotation mark"),
        ("set.csv", "sentence;label\na;b\n", "2: no column 'text', there are .*: set data.text_column"),
        ("set.csv", HEAD, " expected rows of texts and labels, got none"),
        ("set.txt", "", " expected a file that ends in .csv, .tsv, .jsonl, .parquet"),
    ],
)
def test_a_malformed_table_is_refused_with_file_and_line(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=f"/{name}:{message}"):
        read_table(tmp_path / name, "text", "label")


@pytest.mark.parametrize("ending", ["csv", "tsv"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_the_one_that_makes_the_columns_of_the_first_line(tmp_path, ending, delimiter):
    path = tmp_path / f"set.{ending}"
    with path.open("w", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows([("id, or so", "text", "label"), (1, "a; b, c\td|e", "x")])
    assert read_table(path, "text", "label") == [("a; b, c\td|e", "x")]


def test_a_parquet_table_gives_its_rows_and_names_the_row_of_what_is_missing(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "set.Parquet"
    parquet.write_table(arrow.table({"text": ["a", "b", None], "label": [1, None, 3]}), path)
    with pytest.raises(ValueError, match=r"set.Parquet:2: expected a text and a label; 2 of 3 rows lack one"):
        read_table(path, "text", "label")
    assert read_table(path, "text", "label", drop_blank=True) == [("a", "1")]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"set.Parquet: "):
        read_table(path, "text", "label")


def test_without_pyarrow_a_parquet_table_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ValueError, match=r"set.parquet: needs pyarrow: pip install pyarrow, or save the table as CSV"):
        read_table(tmp_path / "set.parquet", "text", "label")


def test_blank_rows_are_left_out_on_demand_and_counted(tmp_path):
    (tmp_path / "set.csv").write_text("text,label\na,x\n,x\nb, \nc,y\nd\n")
    with collected_messages() as messages:
        assert read_table(tmp_path / "set.csv", "text", "label", drop_blank=True) == [("a", "x"), ("c", "y")]
    assert messages == [f"{tmp_path}/set.csv: 3 rows without text or label are left out, the first in line 3"]
