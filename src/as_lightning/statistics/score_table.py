"""A table of scores from a file: CSV, TSV, JSON, JSON lines or Parquet, and its numbers."""

from __future__ import annotations

import codecs
import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

EXPECTED = "CSV, TSV, JSON, JSON lines or Parquet, in UTF-8 or UTF-16"
NO_NUMBER = ("", "nan", "none", "null", "na", "n/a", "<na>", "inf", "+inf", "-inf")


def read_table(path: str | Path) -> tuple[pd.DataFrame, list[str]]:
    """Return the rows of a file, and sentences on what was left out.

    The cells of CSV stay text. The index has each row's line, or its place in a JSON list. A
    ValueError names the file and what is wrong with it.
    """
    path = Path(path)
    try:
        if path.suffix.lower() == ".parquet":
            return pd.read_parquet(path), []
        text = _decoded(path.read_bytes())
        if path.suffix.lower() in (".json", ".jsonl", ".ndjson"):
            return _json_rows(text), []
        return _csv_rows(text)
    except (ValueError, ImportError) as error:
        raise ValueError(f"{path} is no table of runs: {error}") from error


def _decoded(content: bytes) -> str:
    encoding = "utf-8-sig"
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        raise ValueError(f"expected {EXPECTED} (of a workbook, save the sheet as CSV)") from error
    if "\0" in text:
        raise ValueError(f"expected {EXPECTED}, with its byte-order mark if it is UTF-16")
    if not text.strip():
        raise ValueError("the file is empty")
    return text


def _json_rows(text: str) -> pd.DataFrame:
    rows: dict[int, Any] = {}
    if text.lstrip().startswith("["):
        rows = dict(enumerate(json.loads(text), 1))
    else:
        # lines end at \n alone: JSON may hold U+2028, which str.splitlines would split at
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                try:
                    rows[number] = json.loads(line)
                except ValueError as error:
                    raise ValueError(f"line {number}: {error}") from error
    for number, row in rows.items():
        if not isinstance(row, dict):
            raise ValueError(f"row {number}: expected an object with a run's cells, got {row!r}")
    table = pd.json_normalize(list(rows.values())).set_axis(list(rows), axis=0)
    return table.map(lambda cell: str(cell) if isinstance(cell, (list, dict)) else cell)


def _csv_rows(text: str) -> tuple[pd.DataFrame, list[str]]:
    first, _, rest = text.lstrip("\r\n").partition("\n")
    offset, delimiter = 0, max(",;\t", key=first.count)
    if first.strip().strip('"').startswith("sep="):  # as Excel writes it
        offset, text = 1, rest
        delimiter = first.strip().strip('"')[4:5] or "\t"
    lines = io.StringIO(text, newline="")
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)
    rows: dict[int, list[str]] = {}
    header: list[str] = []
    again = []
    try:
        for row in reader:
            cells, line = [cell.strip() for cell in row], offset + reader.line_num
            if not header:
                header = cells if any(cells) else []
            elif cells == header:
                again.append(line)
            elif any(cells):
                _check_cells(cells, header, line)
                rows[line] = cells
    except csv.Error as error:
        raise ValueError(f"line {offset + reader.line_num}: {error}") from error
    notes = []
    if again:
        notes.append(f"Left out: {named_rows(again)}, where the header comes again.")
    return pd.DataFrame.from_dict(rows, orient="index", columns=header), notes


def _check_cells(cells: list[str], header: list[str], line: int) -> None:
    if len(cells) != len(header):
        raise ValueError(f"line {line}: expected {len(header)} cells, as in the first line")
    if any("\n" in cell for cell in cells):
        raise ValueError(f"line {line}: a quotation mark joins lines to one cell")


def texts(cells: pd.Series) -> pd.Series:
    """Return cells as text without spaces at their ends; empty where there is none."""
    return cells.astype(object).where(cells.notna(), "").map(str).str.strip()


def named_rows(labels: Sequence[Any] | pd.Index) -> str:
    """Return the names of a few rows, as a part of a sentence."""
    names = list(dict.fromkeys(map(str, labels)))
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"row{'s' if len(names) > 1 else ''} {', '.join(names[:3])}{more}"


def numbers(cells: pd.Series) -> tuple[pd.Series, list[str]]:
    """Return a column's numbers, NaN where there is none, and sentences on how they were read.

    Percent signs and decimal commas are read where every cell has them.
    """
    column, written = cells.name, texts(cells)
    missing, notes = written.str.lower().isin(NO_NUMBER), []
    present = written[~missing]
    if len(present) and present.str.endswith("%").all():
        present = present.str[:-1].str.strip()
        notes.append(f"The percent signs of {column} were left out.")
    commas = present.str.count(",").eq(1) & ~present.str.contains(".", regex=False)
    if len(present) and commas.all():
        changed = present.str.replace(",", ".", regex=False)
        notes.append(
            f"{column} has decimal commas: {present.iloc[0]} was read as {changed.iloc[0]}."
        )
        present = changed
    values = pd.to_numeric(present, errors="coerce").astype(float)
    values = values.where(np.isfinite(values))
    if values.isna().any():
        row = values.index[values.isna().to_numpy()][0]
        cell = written[values.index[values.isna().to_numpy()]].iloc[0]
        raise ValueError(
            f"row {row}: expected a number in the column {column}, got {cell!r} (percent signs and "
            "decimal commas are read where every cell of a column has them)"
        )
    return values.reindex(written.index), notes
