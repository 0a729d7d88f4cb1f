"""Tables of texts and labels: every format and delimiter, and what is malformed."""

from __future__ import annotations

import csv
import json
import logging

import pytest

from as_lightning.benchmark.data.text.text_file import read_table

ROWS = [("plain words", "a"), ('with, comma and "quotes"', "b"), ("with\ta tab", "a"), ("two\nlines", "b")]


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl"])
def test_a_table_gives_its_rows_back_in_every_format(tmp_path, ending):
    path = tmp_path / f"set.{ending}"
    with path.open("w", newline="") as file:
        if ending == "jsonl":
            file.writelines(json.dumps({"text": text, "label": label}) + "\n" for text, label in ROWS)
        else:
            writer = csv.writer(file, delimiter="," if ending == "csv" else "\t")
            writer.writerows([("text", "label"), *ROWS])
    assert read_table(path, "text", "label") == ROWS


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "set.csv",
            "text,label\na,b\n,b\n ,b\n",
            r"set.csv:3: expected a text and a label; 2 of 3 rows lack one",
        ),
        ("set.csv", "text,label\na\n", r"set.csv:2: expected a text and a label; 1 of 1 rows lack one"),
        ("set.jsonl", '{"text": "a", "label": null}\n', r"set.jsonl:1: expected a text and a label; 1 of 1 rows"),
        ("set.jsonl", '{"text": 3, "label": "a"}\n', r"set.jsonl:1: expected a text in column 'text', got 3"),
        ("set.csv", "text,label\na,b,c\n", r"set.csv:2: more fields than the 2 columns"),
        ("set.csv", 'text,label\n"a,b\n', r"set.csv:2: unexpected end of data"),
        (
            "set.csv",
            "sentence;label\na;b\n",
            r"set.csv:2: no column 'text', there are .*: set data.text_column",
        ),
        (
            "set.tsv",
            "sentence\tlabel\na\tb\n",
            r"set.tsv:2: no column 'text', there are .*: set data.text_column",
        ),
        ("set.jsonl", '{"text": "a", "label": 1}\n{"text"\n', r"set.jsonl:2: expected a JSON object, got .*"),
        ("set.jsonl", '["a", 1]\n', r"set.jsonl:1: expected a JSON object, got"),
        ("set.csv", "text,label\n", r"set.csv: expected rows of texts and labels, got none"),
        ("set.txt", "", r"set.txt: expected a file that ends in .csv, .tsv or .jsonl"),
    ],
)
def test_a_malformed_table_is_refused_with_file_and_line(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        read_table(tmp_path / name, "text", "label")


@pytest.mark.parametrize("ending", ["csv", "tsv"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_the_one_that_makes_the_columns_of_the_first_line(tmp_path, ending, delimiter):
    path = tmp_path / f"set.{ending}"
    with path.open("w", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows([("id, or so", "text", "label"), (1, "a; b, c\td|e", "x")])
    assert read_table(path, "text", "label") == [("a; b, c\td|e", "x")]


def test_a_byte_order_mark_is_no_part_of_the_first_column(tmp_path):
    (tmp_path / "set.csv").write_text("text,label\nGrüße,a\n", encoding="utf-8-sig")
    assert read_table(tmp_path / "set.csv", "text", "label") == [("Grüße", "a")]


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_another_encoding_is_named_with_its_line_and_read_when_it_is_set(tmp_path, encoding):
    (tmp_path / "set.csv").write_text("text,label\nfine,a\nGrüße,a\n", encoding=encoding)
    line = {"latin-1": 3, "utf-16": 1}[encoding]
    with pytest.raises(ValueError, match=rf"set.csv:{line}: .* not UTF-8: set data.encoding \(perhaps {encoding}"):
        read_table(tmp_path / "set.csv", "text", "label")
    assert read_table(tmp_path / "set.csv", "text", "label", encoding=encoding) == [("fine", "a"), ("Grüße", "a")]


def test_an_encoding_that_is_none_is_refused(tmp_path):
    (tmp_path / "set.csv").write_text("text,label\nfine,a\n")
    with pytest.raises(ValueError, match=r"encoding='utf-9' is not known: expected one like"):
        read_table(tmp_path / "set.csv", "text", "label", encoding="utf-9")


def test_blank_rows_are_left_out_on_demand_and_counted(tmp_path, caplog):
    (tmp_path / "set.csv").write_text("text,label\na,x\n,x\nb, \nc,y\nd\n")
    with caplog.at_level(logging.INFO):
        assert read_table(tmp_path / "set.csv", "text", "label", drop_blank=True) == [("a", "x"), ("c", "y")]
    assert "3 rows without text or label are left out, the first in line 3" in caplog.text


def test_lines_may_end_as_on_an_old_mac(tmp_path):
    path = tmp_path / "mac.csv"
    path.write_bytes(b'text,label\rgood one,1\r"bad, or\rworse",0\r')
    assert read_table(path, "text", "label") == [("good one", "1"), ("bad, or\rworse", "0")]
