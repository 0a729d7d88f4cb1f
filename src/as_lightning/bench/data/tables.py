"""Tables of labelled texts or files, read by pandas: CSV, TSV, JSON Lines, Parquet."""

from __future__ import annotations

import csv
import gzip
import io
import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from as_lightning.bench.data.files import has_suffix, normal_form, read_text
from as_lightning.bench.data.reading import note

TABLES = (".csv", ".tsv", ".txt", ".jsonl", ".jsonl.gz", ".parquet")


class Sentence(NamedTuple):
    """A text (or a file's name) with its label, or with a tuple of its labels."""

    text: str
    label: Any


def read_table(
    path: Path,
    text_column: str,
    label_column: str,
    *,
    label_separator: str | None = None,
    columns: Sequence[str] | None = None,
    drop_blank: bool = False,
    encoding: str | None = None,
    quotes: bool = True,
) -> list[Sentence]:
    """Read the texts and labels of a table.

    ``columns`` names the columns of a file without a header. ``drop_blank`` leaves out rows without
    text or label. Without ``quotes`` quotation marks are text. With ``label_separator`` a sample
    has any number of labels. A ValueError names the file, and the line or row that is malformed.
    """
    names = [normal_form(text_column), normal_form(label_column)]
    try:
        table = _frame(path, names, columns, encoding, quotes)
        texts, labels = _columns(table, names)
    except (ValueError, pd.errors.ParserWarning) as error:
        hint = "; a quotation mark at its start opens a field: data.quotes=false makes it text"
        said = f"{path}: {str(error).removeprefix(f'{path}: ').strip()}"
        raise ValueError(said + hint * ("inside string" in said)) from error
    is_header = (texts == names[0]) & (labels == names[1])
    is_blank = (texts == "") | ((labels == "") & (label_separator is None))
    if is_blank.any() and not drop_blank:
        raise ValueError(
            f"{path}: {is_blank.sum()} of {len(table)} rows lack a text or a label, the first is "
            f"row {is_blank.argmax() + 1}: fill them in, or set data.drop_blank=true"
        )
    kept = ~is_header & ~is_blank
    if not kept.any():
        raise ValueError(f"{path}: expected rows of texts and labels, got none")
    joined = texts[kept & texts.str.contains("\n")]
    if has_suffix(path, (".csv", ".tsv", ".txt")):
        what = "hold several lines in quotation marks (data.quotes=false makes those text)"
        _note(path, what, joined, len(table))
    _note(path, "repeat the header and are left out", texts[is_header], len(table))
    _note(
        path, "lack text or label and are left out (data.drop_blank)", texts[is_blank], len(table)
    )
    rows = zip(texts[kept], labels[kept], strict=True)
    if label_separator is None:
        return [Sentence(*row) for row in rows]
    return [Sentence(text, _parts(label, label_separator)) for text, label in rows]


def _frame(
    path: Path, names: list[str], columns: Sequence[str] | None, encoding: str | None, quotes: bool
) -> pd.DataFrame:
    """The cells of a file, as text where the format has no types."""
    if has_suffix(path, (".parquet",)):
        return pd.read_parquet(path, dtype_backend="numpy_nullable")
    if has_suffix(path, (".jsonl.gz",)):
        content = gzip.decompress(path.read_bytes()).decode()
        return pd.DataFrame(_json_rows(content), dtype=object)
    if not has_suffix(path, TABLES):
        raise ValueError(f"expected a file that ends in {', '.join(TABLES)}")
    content = read_text(path, encoding)
    if has_suffix(path, (".jsonl",)):
        return pd.DataFrame(_json_rows(content), dtype=object)
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)  # of rows with too many fields
        cells = pd.read_csv(
            io.StringIO(content),
            sep=_separator(content.partition("\n")[0], columns or names),
            header=None,  # pandas would rename columns of one name
            dtype=str,
            keep_default_na=False,
            index_col=False,
            quoting=csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE,
        )
    if columns is None:
        columns, cells = list(cells.iloc[0]), cells.iloc[1:]
    return cells.set_axis(columns, axis=1)


def _columns(table: pd.DataFrame, names: list[str]) -> tuple[pd.Series, pd.Series]:
    """The columns of texts and labels, without the spaces around their cells."""
    found = [normal_form(str(name).strip()) for name in table.columns]
    for name in names:
        if found.count(name) != 1:
            there = ", ".join(map(repr, found))
            hint = "set data.text_column and data.label_column"
            raise ValueError(f"expected one column {name!r}, there are {there}: {hint}")
    texts, labels = (table.iloc[:, found.index(name)] for name in names)
    for text in texts:
        if not isinstance(text, str) and not pd.isna(text):
            raise ValueError(f"expected texts in column {names[0]!r}, got {text!r}")
    return texts.map(_stripped).astype(object), labels.map(_stripped).map(_class_name).astype(
        object
    )


def _separator(first_line: str, names: Sequence[str]) -> str:
    """The sign between the columns: the one that parts the first line by their names."""
    for sign in ",;\t|":
        fields = next(csv.reader([first_line], delimiter=sign), [])
        if set(names) <= {normal_form(field.strip()) for field in fields}:
            return sign
    return "\t" if "\t" in first_line else ","


def _json_rows(content: str) -> list[dict[str, Any]]:
    rows = []
    for number, line in enumerate(content.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise ValueError(f"line {number}: expected a JSON object, got {line[:80]!r}")
        rows.append(row)
    return rows


def _stripped(cell: Any) -> str:
    """A cell's text without the spaces around it; empty where the value is missing."""
    if isinstance(cell, (list, dict)):
        raise ValueError(f"expected one value, got {cell!r}: data.label_separator parts several")
    return "" if pd.isna(cell) else normal_form(str(cell).strip())


def _class_name(label: str) -> str:
    """A label without the prefix that fastText gives it."""
    return label.removeprefix("__label__")


def _parts(label: str, separator: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in label.split(separator) if part.strip())


def _note(path: Path, what: str, texts: pd.Series, total: int) -> None:
    if len(texts):
        note(f"rows of {path.name} {what}", len(texts), total, repr(texts.iloc[0]))
