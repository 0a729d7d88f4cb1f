"""A user's own texts in a table: what is read, how it is split, and what is left out and said."""

import csv
import json
import sys
from functools import partial

import pytest
from harness.data_settings import TEXT
from harness.made_files import write_table

from as_lightning.bench.data.base import collected_messages
from as_lightning.bench.data.text import text_file as module
from as_lightning.bench.data.text.text_file import read_table

TextFile = partial(module.TextFile, **TEXT)


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


def test_given_splits_lose_a_class_that_is_left_out_and_rows_of_train_that_lie_in_others_are_named(
    tmp_path,
):
    for split, texts in (("train", "abcdef"), ("validation", "ghijkl"), ("test", "axyzbc")):
        rows = "".join(
            f"text {text},{label}\n" for text, label in zip(texts, "010102", strict=True)
        )
        (tmp_path / f"{split}.csv").write_text(f"text,label\n{rows}")
    data = TextFile("train.csv", "validation.csv", "test.csv", min_per_class=2, data_dir=tmp_path)
    with collected_messages() as messages:
        data.setup()
    assert data.class_names == ["0", "1"]
    assert {split: len(rows) for split, rows in data.splits.items()} == {
        "train": 5,
        "validation": 5,
        "test": 5,
    }
    repeated = [message for message in messages if "in train too" in message]
    assert repeated == ["2 of 5 rows in test are in train too: 'text a'; 'text b'"]


@pytest.mark.parametrize(
    ("sizes", "least", "found"),
    [
        ({"a": 30}, None, r"'a' \(30 rows\)"),
        ({"a": 30, "b": 5}, 10, "'a'"),
        ({"a": 5, "b": 5}, 10, "none"),
    ],
)
def test_fewer_than_two_classes_are_refused_with_the_count(tmp_path, sizes, least, found):
    path = write_table(tmp_path / "set.csv", sizes)
    with pytest.raises(
        ValueError, match=rf"set.csv: expected at least 2 classes in column 'label', got {found}"
    ):
        TextFile(path, min_per_class=least).setup()


@pytest.mark.parametrize("rows", [10, 11, 14, 19])
def test_small_tables_are_split_with_every_class_in_every_split_and_columns_may_be_named_by_numbers(
    tmp_path, rows
):
    path = write_table(tmp_path / "set.csv", {"a": rows, "b": 10, "c": 13})
    path.write_text(path.read_text().replace("text,label", "0,1"))
    data = TextFile(path, text_column=0, label_column=1)
    data.setup()
    assert [split.targets.unique().tolist() for split in data.splits.values()] == [[0, 1, 2]] * 3


LONG = 200_000 * "x"
ROWS = [
    ("plain words", "a"),
    (LONG, "a"),
    ('with, comma and "quotes"', "b"),
    ("with\ta tab", "a"),
    ("two\nlines", "b"),
]


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl"])
def test_a_table_gives_its_rows_back_in_every_format_and_blank_lines_are_none(tmp_path, ending):
    path = tmp_path / f"set.{ending}"
    with path.open("w", newline="") as file:
        if ending == "jsonl":
            file.writelines(
                json.dumps({"text": text, "label": label}) + "\n" for text, label in ROWS
            )
        else:
            csv.writer(file, delimiter="," if ending == "csv" else "\t").writerows(
                [("text", "label"), *ROWS]
            )
        file.write("\n")  # a blank last line
    assert read_table(path, "text", "label") == ROWS


@pytest.mark.parametrize("ending", ["csv", "tsv"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_the_one_that_makes_the_columns_of_the_first_line(
    tmp_path, ending, delimiter
):
    path = tmp_path / f"set.{ending}"
    with path.open("w", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows(
            [("id, or so", "text", "label"), (1, "a; b, c\td|e", "x")]
        )
    assert read_table(path, "text", "label") == [("a; b, c\td|e", "x")]


def test_quotation_marks_are_text_where_the_setting_says_so(tmp_path):
    (tmp_path / "set.tsv").write_text('text\tlabel\n"quoted" twice"\t"a"\nsaid "b\tb\n')
    found = read_table(tmp_path / "set.tsv", "text", "label", quotes=False)
    assert found == [('"quoted" twice"', '"a"'), ('said "b', "b")]


def test_a_parquet_table_gives_its_rows_and_names_the_row_of_what_is_missing_and_the_package(
    tmp_path, monkeypatch
):
    path = tmp_path / "set.Parquet"
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pyarrow", None)
        with pytest.raises(
            ValueError,
            match=r"set.Parquet: needs pyarrow: pip install pyarrow, or save the table as CS",
        ):
            read_table(path, "text", "label")
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"text": ["a", "b", None], "label": [1, None, 3]}), path)
    with pytest.raises(
        ValueError, match=r"set.Parquet:2: expected a text and a label; 2 of 3 rows lack one"
    ):
        read_table(path, "text", "label")
    assert read_table(path, "text", "label", drop_blank=True) == [("a", "1")]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"set.Parquet: "):
        read_table(path, "text", "label")


def test_blank_rows_are_left_out_on_demand_and_counted(tmp_path):
    (tmp_path / "set.csv").write_text("text,label\na,x\n,x\nb, \nc,y\nd\n")
    with collected_messages() as messages:
        assert read_table(tmp_path / "set.csv", "text", "label", drop_blank=True) == [
            ("a", "x"),
            ("c", "y"),
        ]
    assert messages == [
        f"{tmp_path}/set.csv: 3 rows without text or label are left out, the first in line 3"
    ]
