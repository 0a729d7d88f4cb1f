"""A user's own texts in a table: CSV, TSV and JSON Lines; what is malformed is named by file and line."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from as_lightning.benchmark.data.base import say
from as_lightning.benchmark.data.files import find_path, shortened
from as_lightning.benchmark.data.text.data_module import (
    Sentence,
    TextDataModule,
    check_known,
    read_text,
    split_sentences,
)

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

    The first line of ``.csv`` and ``.tsv`` names the columns; they are parted by commas, semicolons, tabs or ``|``.
    ``known`` are the labels that there may be, None for any. ``drop_blank`` leaves rows without text or label out.

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
    """What parts the columns of a table: the usual delimiter, unless ``columns`` are found with another."""

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


class TextFile(TextDataModule):
    """A user's own texts: CSV, TSV or JSON Lines files with a column of texts and one of labels.

    Args:
        path: the training file. A relative path is looked for in the working directory, then in ``data_dir``.
        validation_path: with ``test_path``, or neither: then the training file is split 80 / 10 / 10 %.
        test_path: the test file.
        text_column: the column of texts; ``label_column``: of labels.
        drop_blank: leave rows without text or label out.
        min_per_class: leave classes with fewer training rows out.
        encoding: of the files; None is UTF-8.
        split_seed: seeds the split, apart from the run's seed.

    Raises:
        ValueError: if a file is malformed (the message names file and line), or has fewer than two classes.
        FileNotFoundError: if a file does not exist.
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
        split_seed: int = 0,
        **text: Any,
    ) -> None:
        super().__init__(**text)
        if (validation_path is None) != (test_path is None):
            raise ValueError(
                f"give validation_path and test_path, or neither, got {validation_path=!s}, {test_path=!s}"
            )
        if min_per_class is not None and min_per_class < 1:
            raise ValueError(f"min_per_class must be at least 1, or null, got {min_per_class}")
        self.path, self.validation_path, self.test_path = path, validation_path, test_path
        self.text_column, self.label_column = text_column, label_column
        self.drop_blank, self.min_per_class, self.encoding = drop_blank, min_per_class, encoding
        self.split_seed = split_seed

    @property
    def user_paths(self) -> list[Path]:
        paths = (self.path, self.validation_path, self.test_path)
        return [find_path(path, self.data_dir) for path in paths if path is not None]

    @property
    def splits_by_seed(self) -> bool:
        return self.validation_path is None or self.test_path is None

    def read_splits(self) -> dict[str, list[Sentence]]:
        train = self._read(self.path)
        sizes = Counter(sentence.label for sentence in train)
        rare = {label for label, size in sizes.items() if size < (self.min_per_class or 0)}
        if rare:
            say(
                f"{self.path}: {len(rare)} classes with fewer than {self.min_per_class} rows are left out: "
                f"{shortened([f'{label!r} ({sizes[label]})' for label in sorted(rare)])}"
            )
        kept = sizes.keys() - rare
        if len(kept) < 2:
            found = ", ".join(f"{label!r} ({sizes[label]} rows)" for label in sorted(kept)) or "none"
            left_out = f"; data.min_per_class={self.min_per_class} leaves {len(rare)} out" if rare else ""
            raise ValueError(
                f"{self.path}: expected at least 2 classes in column {self.label_column!r}, got {found}{left_out}"
            )
        if self.validation_path is None or self.test_path is None:
            return split_sentences([sentence for sentence in train if sentence.label in kept], self.split_seed)
        later = {"validation": self.validation_path, "test": self.test_path}
        splits = {"train": train} | {split: self._read(path, sizes) for split, path in later.items()}
        return {split: [row for row in rows if row.label in kept] for split, rows in splits.items()}

    def _read(self, path: str | Path, known: Collection[str] | None = None) -> list[Sentence]:
        settings: dict[str, Any] = {"drop_blank": self.drop_blank, "encoding": self.encoding}
        return read_table(find_path(path, self.data_dir), self.text_column, self.label_column, known, **settings)
