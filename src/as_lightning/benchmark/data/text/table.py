"""Tables of texts and labels: CSV, TSV and JSON Lines; what is malformed is named by file and line."""

from __future__ import annotations

import csv
import json
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from as_lightning.benchmark.data.text.known_labels import check_known
from as_lightning.benchmark.data.text.labelled_text import Sentence


def read_table(
    path: Path, text_column: str, label_column: str, known: Collection[str] | None = None
) -> Iterator[Sentence]:
    """Read the texts and labels of a ``.csv``, ``.tsv`` or ``.jsonl`` file.

    Args:
        path: the file.
        text_column: the column of texts.
        label_column: the column of labels.
        known: the labels that there may be, of a later split those of the training split; None for any.

    Raises:
        ValueError: if the ending is another, a column is missing, or a row has no text, no label or one that is not
            known; the message names the file and the line.
    """
    if path.suffix not in (".csv", ".tsv", ".jsonl"):
        raise ValueError(f"{path}: expected a file that ends in .csv, .tsv or .jsonl")
    with path.open(encoding="utf-8", newline="") as lines:
        rows = _json_rows(path, lines) if path.suffix == ".jsonl" else _delimited_rows(path, lines)
        empty = True
        for number, row in rows:
            empty = False
            for column in (text_column, label_column):
                if column not in row:
                    raise ValueError(f"{path}:{number}: no column {column!r}, there are {', '.join(map(repr, row))}")
            text, label = row[text_column], row[label_column]
            if not isinstance(text, str) or not text.strip() or label is None or not str(label).strip():
                raise ValueError(f"{path}:{number}: expected a text and a label, got {text!r} and {label!r}")
            check_known(path, number, str(label).strip(), known)
            yield Sentence(text.strip(), str(label).strip())
    if empty:
        raise ValueError(f"{path}: expected rows of texts and labels, got none")


def _delimited_rows(path: Path, lines: Iterable[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    reader = csv.DictReader(lines, delimiter="," if path.suffix == ".csv" else "\t", strict=True)
    try:
        for row in reader:
            if None in row:
                raise ValueError(
                    f"{path}:{reader.line_num}: more fields than the {len(row) - 1} columns of the first line"
                )
            yield reader.line_num, row
    except csv.Error as error:
        raise ValueError(f"{path}:{reader.line_num + 1}: {error}") from error  # line_num is of the row before


def _json_rows(path: Path, lines: Iterable[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}:{number}: expected a JSON object, got {error}") from error
        if not isinstance(row, dict):
            raise ValueError(f"{path}:{number}: expected a JSON object, got {line.strip()[:80]!r}")
        yield number, row
