"""Tables of labelled texts or files, read by pandas: CSV, TSV, JSON Lines, Parquet."""

from __future__ import annotations

import csv
import inspect
import io
import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from as_lightning.bench.data.files import normal_form, read_text
from as_lightning.bench.data.reading import note

SEPARATORS = {".csv": ",", ".tsv": "\t", ".txt": "\t"}
TABLES = (*SEPARATORS, ".jsonl", ".parquet")
HINT = (
    "(see data.text_column or data.file_column, data.label_column, data.label_separator, "
    "data.separator, and data.quotes=false, with which quotation marks are text)"
)


class Sentence(NamedTuple):
    """A text (or a file's name) with its label, or with a tuple of its labels."""

    text: str
    label: Any


def read_table(
    path: Path,
    text_column: str = "text",
    label_column: str = "label",
    *,
    label_separator: str | None = None,
    columns: Sequence[str] | None = None,
    separator: str | None = None,
    drop_blank: bool = False,
    encoding: str | None = None,
    quotes: bool = True,
) -> list[Sentence]:
    """Return the texts and labels of a table; ``conf/data/text_file.yaml`` describes the settings.

    A ValueError names the file, and the line or row that is malformed.
    """
    # Hydra reads a column 0 as a number.
    names = [normal_form(str(text_column)), normal_form(str(label_column))]
    try:
        table = _frame(path, columns, separator, encoding, quotes)
        texts = _column(table, names[0])
        labels = _column(table, names[1]).str.removeprefix("__label__")  # as fastText writes them
    except (ValueError, pd.errors.ParserWarning) as error:
        said = str(error).removeprefix(f"{path}: ").strip()
        raise ValueError(f"{path}: {said} {HINT}") from error
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
    changes = {
        "repeat the header and are left out": is_header,
        "lack text or label and are left out (data.drop_blank)": is_blank,
    }
    if path.suffix.lower() in SEPARATORS:
        what = "hold several lines in quotation marks (data.quotes=false makes those text)"
        changes[what] = kept & texts.str.contains("\n")
    for what, rows in changes.items():
        note(f"rows of {path.name} {what}", list(map(repr, texts[rows])), len(table))
    if label_separator is not None:
        parts = labels.str.split(label_separator, regex=False)
        labels = parts.map(lambda names: tuple(filter(None, map(str.strip, names))))
    return list(map(Sentence, texts[kept], labels[kept]))


def _frame(
    path: Path,
    columns: Sequence[str] | None,
    separator: str | None,
    encoding: str | None,
    quotes: bool,
) -> pd.DataFrame:
    """Return the cells of a file, as text where the format has no types."""
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        return pd.read_parquet(path, dtype_backend="numpy_nullable")
    if suffix not in TABLES:
        raise ValueError(f"expected a file that ends in {', '.join(TABLES)}")
    content = read_text(path, encoding)
    if suffix == ".jsonl":  # as one list, so that an error names the line
        rows = ",\n".join(content.strip().split("\n"))
        return pd.DataFrame(json.loads(f"[{rows}]"), dtype=object)
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)  # of rows with too many fields
        cells = pd.read_csv(
            io.StringIO(content),
            sep=(separator or SEPARATORS[suffix]).replace("\\t", "\t"),  # as a shell hands it on
            header=None,  # pandas would rename columns of one name
            dtype=str,
            keep_default_na=False,
            index_col=False,
            quoting=csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE,
        )
    if columns is None:
        columns, cells = list(cells.iloc[0]), cells.iloc[1:]
    return cells.set_axis(list(columns), axis=1)


def _column(table: pd.DataFrame, name: str) -> pd.Series:
    """Return the cells of a column as text, without the spaces around it."""
    found = list(map(_stripped, table.columns))
    if found.count(name) != 1:
        raise ValueError(f"expected one column {name!r}, there are {', '.join(map(repr, found))}")
    return table.iloc[:, found.index(name)].map(_stripped).astype(object)


def _stripped(cell: Any) -> str:
    """Return a cell's text without the spaces around it; empty where the value is missing."""
    if isinstance(cell, (list, dict)):
        raise ValueError(f"expected one value, got {cell!r}")
    return "" if pd.isna(cell) else normal_form(str(cell).strip())


SETTINGS = tuple(inspect.signature(read_table).parameters)[1:]
