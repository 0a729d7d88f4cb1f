"""A user's own texts in a table: CSV, TSV, JSON Lines, Parquet; an error names the
malformed line.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from as_lightning.bench.data.base import check_least, say
from as_lightning.bench.data.files import SURROGATES, has_suffix, normal_form, read_text, shortened
from as_lightning.bench.data.text.data_module import Sentence, TextDataModule, split_sentences

TABLES = (".csv", ".tsv", ".jsonl", ".parquet")


def read_table(
    path: Path,
    text_column: str,
    label_column: str,
    *,
    drop_blank: bool = False,
    encoding: str | None = None,
    quotes: bool = True,
) -> list[Sentence]:
    """Read the texts and labels of a ``.csv``, ``.tsv``, ``.jsonl`` or ``.parquet`` file.

    A ValueError names the file and the line, or Parquet's row. The first line of ``.csv`` and
    ``.tsv`` names the columns, which commas, semicolons, tabs or ``|`` separate. ``drop_blank``
    leaves out rows without text or label. Without ``quotes`` quotation marks are text.
    """
    if not has_suffix(path, TABLES):
        raise ValueError(f"{path}: expected a file that ends in {', '.join(TABLES)}")
    columns = [normal_form(text_column), normal_form(label_column)]
    if has_suffix(path, (".parquet",)):
        rows = _parquet_rows(path)
    elif has_suffix(path, (".jsonl",)):
        rows = _json_rows(path, read_text(path, encoding))
    else:
        rows = _delimited_rows(path, read_text(path, encoding), {*columns}, quotes)
    sentences: list[Sentence] = []
    blank: list[int] = []
    for number, fields in rows:
        row = {normal_form(column): value for column, value in fields.items()}
        if missing := [column for column in columns if column not in row]:
            raise ValueError(
                f"{path}:{number}: no column {missing[0]!r}, there are "
                f"{', '.join(map(repr, row))}: set "
                "data.text_column and data.label_column"
            )
        # pandas writes NaN for a missing value
        text, label = (
            "" if row[column] is None or row[column] != row[column] else row[column]
            for column in columns
        )
        if not isinstance(text, str):
            raise ValueError(
                f"{path}:{number}: expected a text in column {text_column!r}, got {text!r}"
            )
        if isinstance(label, (list, dict)):
            raise ValueError(
                f"{path}:{number}: expected one label in column {label_column!r}, got {label!r}"
            )
        if SURROGATES.search(f"{text}{label}"):
            raise ValueError(
                f"{path}:{number}: half of a pair of surrogates is no character, got {text!r}, "
                f"{label!r}"
            )
        sentence = Sentence(text.strip(), normal_form(str(label).strip()))
        if all(sentence):
            sentences.append(sentence)
        else:
            blank.append(number)
    if blank and not drop_blank:
        raise ValueError(
            f"{path}:{blank[0]}: expected a text and a label; {len(blank)} of "
            f"{len(blank) + len(sentences)} rows lack "
            "one: fill them in, or set data.drop_blank=true to leave them out"
        )
    if blank:
        say(
            f"{path}: {len(blank)} rows without text or label are left out, the first in line "
            f"{blank[0]}"
        )
    if not sentences:
        raise ValueError(f"{path}: expected rows of texts and labels, got none")
    return sentences


QUOTES = "a quotation mark at its start opens a field: set data.quotes=false if it is text"


def _delimited_rows(
    path: Path, content: str, columns: set[str], quotes: bool
) -> Iterator[tuple[int, dict[str, Any]]]:
    csv.field_size_limit(max(csv.field_size_limit(), len(content)))
    quoting: Any = csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE
    header_line = content.partition("\n")[0]
    headers = {
        sign: next(csv.reader([header_line], delimiter=sign, quoting=quoting), [])
        for sign in ",;\t|"
    }
    delimiter = max(headers, key=lambda sign: columns <= set(map(normal_form, headers[sign])))
    reader = csv.DictReader(io.StringIO(content), delimiter=delimiter, quoting=quoting, strict=True)
    try:
        reader.fieldnames = names = list(map(normal_form, reader.fieldnames or ()))
        if repeated := [column for column in sorted(columns) if names.count(column) > 1]:
            raise ValueError(
                f"{path}:1: several columns are called {repeated[0]!r}: rename all but one"
            )
        for row in reader:
            if None in row:
                raise ValueError(
                    f"{path}:{reader.line_num}: more fields than the {len(row) - 1} of the first "
                    "line"
                )
            texts = [row[name] or "" for name in columns & row.keys()]
            if delimiter == "\t" and any("\t" in text and "\n" in text for text in texts):
                raise ValueError(
                    f"{path}:{reader.line_num}: a field holds tabs and line ends: {QUOTES}"
                )
            yield reader.line_num, row
    except csv.Error as error:  # line_num is of the row before
        raise ValueError(f"{path}:{reader.line_num + 1}: {error}: {QUOTES}") from error


def _json_rows(path: Path, content: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(content.split("\n"), start=1):
        if not line or line.isspace():  # skipped, as in a table
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            row = None
        if not isinstance(row, dict):
            raise ValueError(f"{path}:{number}: expected a JSON object, got {line.strip()[:80]!r}")
        yield number, row


def _parquet_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise ValueError(
            f"{path}: needs pyarrow: pip install pyarrow, or save the table as CSV"
        ) from error
    try:
        yield from enumerate(parquet.read_table(path).to_pylist(), start=1)
    except ArrowException as error:
        raise ValueError(f"{path}: {error}") from error


class TextFile(TextDataModule):
    """A user's own texts: CSV, TSV, JSON Lines or Parquet files with a column of texts and one of
    labels.

    The settings are described in ``conf/data/text_file.yaml``. A ValueError names the file and the
    malformed line.
    """

    def __init__(
        self,
        path: str | Path,
        validation_path: str | Path | None = None,
        test_path: str | Path | None = None,
        text_column: str = "text",
        label_column: str = "label",
        drop_blank: bool = False,
        min_per_class: int | None = None,
        encoding: str | None = None,
        quotes: bool = True,
        **text: Any,
    ) -> None:
        super().__init__(**text)
        if (validation_path is None) != (test_path is None):
            raise ValueError(
                f"give validation_path and test_path, or neither, got {validation_path} and "
                f"{test_path}"
            )
        check_least(1, min_per_class=1 if min_per_class is None else min_per_class)
        others = (
            {} if validation_path is None else {"validation": validation_path, "test": test_path}
        )
        self.paths = {"train": path} | others
        self.columns = str(text_column), str(label_column)  # Hydra reads 0 as a number
        self.reading: dict[str, Any] = {
            "drop_blank": drop_blank,
            "encoding": encoding,
            "quotes": quotes,
        }
        self.min_per_class = min_per_class
        self.splits_by_seed = validation_path is None

    def read_splits(self) -> dict[str, list[Sentence]]:
        splits = {
            split: read_table(path, *self.columns, **self.reading)
            for split, path in self.files().items()
        }
        sizes = Counter(row.label for row in splits["train"])
        rare = sorted(label for label, size in sizes.items() if size < (self.min_per_class or 0))
        place = self.paths["train"]
        if rare:
            rare_sizes = shortened([f"{label!r} ({sizes[label]})" for label in rare])
            say(
                f"{place}: {len(rare)} classes with fewer than {self.min_per_class} rows are left "
                f"out: {rare_sizes}"
            )
        labels = sorted(sizes.keys() - rare)
        if len(labels) < 2:
            label_sizes = (
                ", ".join(f"{label!r} ({sizes[label]} rows)" for label in labels) or "none"
            )
            raise ValueError(
                f"{place}: expected at least 2 classes in column {self.columns[1]!r}, got "
                f"{label_sizes}"
            )
        splits = {
            split: [row for row in rows if row.label not in rare] for split, rows in splits.items()
        }
        return split_sentences(splits["train"], self.split_seed) if self.splits_by_seed else splits
