"""A table of scores from a file: CSV, TSV, JSON, JSON lines or Parquet, and its numbers."""

from __future__ import annotations

import codecs
import io
import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

EXPECTED = "CSV, TSV, JSON, JSON lines or Parquet, in UTF-8 or UTF-16; save a sheet as CSV"
NO_NUMBER = ("", "nan", "none", "null", "na", "n/a", "<na>", "inf", "+inf", "-inf")


def read_table(path: str | Path) -> pd.DataFrame:
    """Return the rows of a file; the cells of CSV stay text.

    A ValueError names the file and what is wrong with it.
    """
    path = Path(path)
    kind = path.suffix.lower()
    try:
        if kind == ".parquet":
            return pd.read_parquet(path)
        text = _decoded(path.read_bytes())
        if kind in (".json", ".jsonl", ".ndjson"):
            return _json_rows(text)
        return _csv_rows(text)
    except (ValueError, TypeError, AttributeError, ImportError, Warning) as error:
        raise ValueError(f"{path} is no table of runs ({EXPECTED}): {error}") from error


def _decoded(content: bytes) -> str:
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return content.decode("utf-16")
    return content.decode("utf-8-sig")


def _json_rows(text: str) -> pd.DataFrame:
    """A column for each setting of nested objects."""
    if not text.lstrip().startswith("["):
        # lines end at \n alone: JSON may hold U+2028, which str.splitlines would split at
        lines = filter(str.strip, text.split("\n"))
        text = f"[{','.join(lines)}]"
    return pd.json_normalize(json.loads(text))


def _csv_rows(text: str) -> pd.DataFrame:
    text = text.lstrip("\r\n")
    first, _, rest = text.partition("\n")
    separator = max(",;\t", key=first.count)
    if first.strip('"').startswith("sep="):  # as Excel writes it
        text, separator = rest, first.strip('"')[4]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # pandas cuts a row that is longer than the header
        frame = pd.read_csv(
            io.StringIO(text),
            sep=separator,
            dtype=str,
            keep_default_na=False,
            skipinitialspace=True,
            index_col=False,
        )
    frame = frame.rename(columns=str.strip).fillna("").map(str.strip)
    if frame.map(lambda cell: "\n" in cell).to_numpy().any():
        raise ValueError("a quotation mark joins lines to one cell")
    # the index that pandas writes, and lines of separators alone
    frame = frame.loc[:, ~frame.columns.str.startswith("Unnamed: ")]
    return frame[frame.ne("").any(axis=1)]


def texts(cells: pd.Series) -> pd.Series:
    """Return cells as text without spaces at their ends; empty where there is none."""
    return cells.astype(object).where(cells.notna(), "").map(str).str.strip()


def numbers(cells: pd.Series, notes: list[str]) -> pd.Series:
    """Return a column's numbers, NaN where there is none; a note tells of decimal commas.

    Percent signs and decimal commas are read where every cell has them.
    """
    written = texts(cells)
    present = written[~written.str.lower().isin(NO_NUMBER)]
    if present.str.endswith("%").all():
        present = present.str.removesuffix("%").str.strip()
    commas = present.str.count(",").eq(1) & ~present.str.contains(".", regex=False)
    if len(present) and commas.all():
        notes.append(f"The commas of {cells.name} are decimal ones, as in {present.iloc[0]}.")
        present = present.str.replace(",", ".", regex=False)
    values = pd.to_numeric(present, errors="coerce").astype(float)
    wrong = values.index[~np.isfinite(values)]
    if len(wrong):
        raise ValueError(
            f"row {wrong[0]}: expected a number in the column {cells.name}, got "
            f"{written[wrong[0]]!r} (percent signs and decimal commas are read where every cell of "
            "a column has them)"
        )
    return values.reindex(written.index)
