"""Tables of texts and labels: CSV, TSV and JSON Lines; what is malformed is named by file and line."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from as_lightning.benchmark.data.messages import say
from as_lightning.benchmark.data.text.encoding import read_text
from as_lightning.benchmark.data.text.known_labels import check_known
from as_lightning.benchmark.data.text.labelled_text import Sentence

DELIMITERS = {".csv": ",", ".tsv": "\t"}  # the usual one; others are tried where the columns are not found
OTHER_DELIMITERS = (",", ";", "\t", "|")


def read_table(
    path: Path,
    text_column: str,
    label_column: str,
    known: Collection[str] | None = None,
    *,
    drop_blank: bool = False,
    encoding: str | None = None,
) -> list[Sentence]:
    """Read the texts and labels of a ``.csv``, ``.tsv`` or ``.jsonl`` file.

    The first line of ``.csv`` and ``.tsv`` names the columns; they are parted by commas, semicolons, tabs or ``|``,
    whichever makes the two columns of it.

    Args:
        path: the file.
        text_column: the column of texts.
        label_column: the column of labels.
        known: the labels that there may be, of a later split those of the training split; None for any.
        drop_blank: leave rows without text or label out, and say how many there are.
        encoding: as of :func:`~as_lightning.benchmark.data.text.encoding.read_text`.

    Raises:
        ValueError: if the ending or the encoding is another, a column is missing, or a row has no text, no label or one
            that is not known; the message names the file and the line.
    """
    if path.suffix not in (*DELIMITERS, ".jsonl"):
        raise ValueError(f"{path}: expected a file that ends in .csv, .tsv or .jsonl")
    text = read_text(path, encoding)
    rows = _json_rows(path, text) if path.suffix == ".jsonl" else _delimited_rows(path, text, text_column, label_column)
    sentences: list[Sentence] = []
    blank: list[int] = []
    for number, row in rows:
        for column in (text_column, label_column):
            if column not in row:
                raise ValueError(
                    f"{path}:{number}: no column {column!r}, there are {', '.join(map(repr, row))}: set "
                    "data.text_column and data.label_column"
                )
        words, label = row[text_column], row[label_column]
        if words is not None and not isinstance(words, str):
            raise ValueError(f"{path}:{number}: expected a text in column {text_column!r}, got {words!r}")
        words, label = (words or "").strip(), "" if label is None else str(label).strip()
        if not words or not label:
            blank.append(number)
            continue
        check_known(path, number, label, known)
        sentences.append(Sentence(words, label))
    if blank and not drop_blank:
        raise ValueError(
            f"{path}:{blank[0]}: expected a text and a label; {len(blank)} of {len(blank) + len(sentences)} rows lack "
            "one: fill them in, or set data.drop_blank=true to leave them out"
        )
    if blank:
        say(f"{path}: {len(blank)} rows without text or label are left out, the first in line {blank[0]}")
    if not sentences:
        raise ValueError(f"{path}: expected rows of texts and labels, got none")
    return sentences


def find_delimiter(header: str, usual: str, columns: Collection[str]) -> str:
    """What parts the columns of a table: the usual, unless the columns asked for are found with another.

    Args:
        header: the first line.
        usual: the delimiter of files of this ending.
        columns: the columns asked for.

    Example:
        >>> find_delimiter("id;text;label", ",", ["text", "label"])
        ';'
    """

    def names(delimiter: str) -> list[str]:
        return next(csv.reader([header], delimiter=delimiter), [])

    candidates = (usual, *OTHER_DELIMITERS)
    fitting = [delimiter for delimiter in candidates if set(columns) <= set(names(delimiter))]
    return fitting[0] if fitting else max(candidates, key=lambda delimiter: len(names(delimiter)))


def _delimited_rows(path: Path, text: str, text_column: str, label_column: str) -> Iterator[tuple[int, dict[str, Any]]]:
    header = next(io.StringIO(text, newline=""), "")  # a line may end in \r alone
    delimiter = find_delimiter(header, DELIMITERS[path.suffix], (text_column, label_column))
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        for row in reader:
            if None in row:
                raise ValueError(
                    f"{path}:{reader.line_num}: more fields than the {len(row) - 1} columns of the first line"
                )
            yield reader.line_num, row
    except csv.Error as error:
        raise ValueError(f"{path}:{reader.line_num + 1}: {error}") from error  # line_num is of the row before


def _json_rows(path: Path, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(io.StringIO(text), start=1):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}:{number}: expected a JSON object, got {error}") from error
        if not isinstance(row, dict):
            raise ValueError(f"{path}:{number}: expected a JSON object, got {line.strip()[:80]!r}")
        yield number, row
