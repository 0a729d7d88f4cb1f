"""A user's own texts in a table: what is read, how it is split, and what is left out and said."""

import csv
import json
from functools import partial

import pytest
from harness.data_settings import TEXT
from harness.made_files import write_table

from as_lightning.bench.data.text import text_file as module
from as_lightning.bench.data.text.text_file import read_table
from as_lightning.bench.run.train import train

TextFile = partial(module.TextFile, **TEXT)


def test_classes_that_are_too_small_are_counted_and_named(tmp_path):
    path = write_table(tmp_path / "set.csv", {"a": 30, "b": 20, "c": 9, "d": 1})
    named = "2 of 4 classes have fewer than 10 .*: 'c' has 9; 'd' has 1: leave them out"
    with pytest.raises(ValueError, match=named):
        TextFile(path).setup()


def test_a_test_file_alone_leaves_the_validation_split_to_the_split_seed(tmp_path):
    paths = [
        write_table(tmp_path / f"{name}.csv", {"a": 40, "b": 60}) for name in ("train", "test")
    ]

    def splits(split_seed: int, **settings: object) -> dict[str, list[str]]:
        data = TextFile(paths[0], test_path=paths[1], split_seed=split_seed, **settings)
        data.setup()
        return {split: data.example_names(split) for split in data.splits}

    first, second = splits(0), splits(1)
    assert [len(first[split]) for split in ("train", "validation", "test")] == [90, 10, 100]
    assert first["test"] == second["test"] == splits(0, label_noise=0.5)["test"]
    assert first["validation"] != second["validation"]
    with pytest.raises(ValueError, match="comes with its splits"):
        TextFile(*paths, test_path=paths[1], split_seed=1).setup()


def test_a_text_may_have_several_labels_or_none(tmp_path):
    rows = [f"text {number},{['x', 'x|y', 'z | x', ''][number % 4]}" for number in range(40)]
    (tmp_path / "set.csv").write_text("\n".join(["text,label", *rows]))
    data = TextFile(tmp_path / "set.csv", label_separator="|")
    data.setup()
    assert (data.task, data.class_names) == ("multilabel", ["x", "y", "z"])
    expected = [[1, 0, 0], [1, 1, 0], [1, 0, 1], [0, 0, 0]]
    for split, dataset in data.splits.items():
        for name, target in zip(data.example_names(split), dataset.targets, strict=True):
            assert target.tolist() == expected[int(name.split()[1]) % 4]
    with pytest.raises(ValueError, match=r"label_noise=0.5 is for data of one class per sample"):
        TextFile(tmp_path / "set.csv", label_separator="|", label_noise=0.5)


def test_several_labels_of_ones_own_texts_are_trained_and_scored(tmp_path, composed):
    rows = [f"{'xyz'[number % 3]} {number},{'xyz'[number % 3]}|all" for number in range(60)]
    (tmp_path / "set.csv").write_text("\n".join(["text,label", *rows]))
    result = train(
        composed(
            "experiment=text_file",
            f"data.path={tmp_path}/set.csv",
            "data.label_separator='|'",
            "data.score=f1_micro",
            "method=multilabel_as_softmax",
            "trainer.max_epochs=1",
        )
    )
    assert 0 < result.metrics["f1_micro"] <= 1


@pytest.mark.parametrize("rows", [10, 11, 14, 19])
def test_small_tables_have_every_class_in_every_split_and_columns_may_be_numbers(tmp_path, rows):
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


@pytest.mark.parametrize("separator", [";", "|"])
def test_another_sign_between_the_columns_is_given(tmp_path, separator):
    path = tmp_path / "set.csv"
    with path.open("w", newline="") as file:
        rows = [("id, or so", "text", "label"), (1, "a; b, c\td|e", "x")]
        csv.writer(file, delimiter=separator).writerows(rows)
    assert read_table(path, "text", "label", separator=separator) == [("a; b, c\td|e", "x")]


def test_quotation_marks_are_text_where_the_setting_says_so(tmp_path):
    (tmp_path / "set.tsv").write_text('text\tlabel\n"quoted" twice"\t"a"\nsaid "b\tb\n')
    found = read_table(tmp_path / "set.tsv", "text", "label", quotes=False)
    assert found == [('"quoted" twice"', '"a"'), ('said "b', "b")]


def test_a_parquet_table_gives_its_rows(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "set.Parquet"
    parquet.write_table(arrow.table({"text": ["a", "b", None], "label": [1, None, 3]}), path)
    with pytest.raises(ValueError, match=r"set.Parquet: 2 of 3 rows lack a text or a label"):
        read_table(path, "text", "label")
    assert read_table(path, "text", "label", drop_blank=True) == [("a", "1")]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"set.Parquet: "):
        read_table(path, "text", "label")


def test_a_table_without_a_header_has_the_columns_that_are_named(tmp_path):
    (tmp_path / "set.txt").write_text("x\tone, two\ny\tthree\n")
    found = read_table(tmp_path / "set.txt", "text", "label", columns=["label", "text"])
    assert found == [("one, two", "x"), ("three", "y")]


@pytest.mark.parametrize("separator", [None, "|"])
def test_labels_may_be_the_numbers_of_named_classes(tmp_path, separator):
    label = "2" if separator is None else "2|0"
    write_table(tmp_path / "set.csv", {label: 40, "1": 40})
    names = ["joy", "anger", "fear"]
    data = TextFile(tmp_path / "set.csv", classes=names, label_separator=separator)
    data.setup()
    assert data.class_names == names
    for text, target in zip(data.example_names("train"), data.splits["train"].targets, strict=True):
        numbers = [int(part) for part in text.split(" of ")[1].split("|")]
        if separator is None:
            assert [int(target)] == numbers
        else:
            assert target.nonzero().flatten().tolist() == sorted(numbers)
