"""The formats in which texts come, read line by line; what is malformed is named by file and line."""

from __future__ import annotations

import csv
import json
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol


class LabelledText(Protocol):
    """A text with what it is labelled with."""

    @property
    def text(self) -> str: ...
    @property
    def label(self) -> Any: ...


class Sentence(NamedTuple):
    """A text and the name of its class."""

    text: str
    label: str


class MultilabelSentence(NamedTuple):
    """A text and the indices of its classes."""

    text: str
    label: tuple[int, ...]


class TaggedSentence(NamedTuple):
    """The words of a sentence and a tag for each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]


def read_clinc_json(path: Path) -> dict[str, list[Sentence]]:
    """Read a file in CLINC150's format: a JSON object of lists of ``[text, label]``.

    Raises:
        ValueError: if the file is not such an object; the message names the file and the line or the entry.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: expected JSON, got {error}") from error
    names = [prefix + name for prefix in ("", "oos_") for name in ("train", "val", "test")]
    missing = [name for name in names if not isinstance(content, dict) or not isinstance(content.get(name), list)]
    if missing:
        raise ValueError(f"{path}: expected a JSON object with the lists {', '.join(names)}; missing {missing[0]}")
    for name in names:
        for index, entry in enumerate(content[name]):
            if not (isinstance(entry, list) and len(entry) == 2 and all(isinstance(part, str) for part in entry)):
                raise ValueError(f"{path}: {name}[{index}]: expected [text, label], got {json.dumps(entry)[:200]}")
    return {name: [Sentence(*entry) for entry in content[name]] for name in names}


def read_fasttext(path: Path) -> Iterator[Sentence]:
    """Read lines of ``__label__NAME<TAB>text``.

    Raises:
        ValueError: if a line is malformed; the message names the file and the line.
    """
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        label, separator, text = line.partition("\t")
        if not (label.startswith("__label__") and separator and text.strip()):
            raise ValueError(f"{path}:{number}: expected '__label__NAME<TAB>text', got {line[:80]!r}")
        yield Sentence(text.strip(), label.removeprefix("__label__"))


def read_goemotions(path: Path, num_classes: int) -> Iterator[MultilabelSentence]:
    """Read lines of ``text<TAB>label indices, with commas between<TAB>id``.

    Raises:
        ValueError: if a line is malformed or an index is not among the classes; the message names the file and the
            line.
    """
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
        fields = line.rstrip("\r").split("\t")
        if fields == [""]:
            continue
        labels = fields[1].split(",") if len(fields) == 3 else []
        if len(fields) != 3 or not all(label.isdecimal() for label in labels):
            raise ValueError(f"{path}:{number}: expected 'text<TAB>label indices<TAB>id', got {line[:80]!r}")
        indices = tuple(int(label) for label in labels)
        if max(indices) >= num_classes:
            raise ValueError(f"{path}:{number}: expected labels from 0 to {num_classes - 1}, got {max(indices)}")
        yield MultilabelSentence(fields[0], indices)


def check_known(path: Path, number: int, label: str, known: Collection[str] | None) -> None:
    """Raise a ValueError that names the line if ``label`` is not among those of the training split."""
    if known is not None and label not in known:
        raise ValueError(
            f"{path}:{number}: the training split has no {label!r}, it has {', '.join(sorted(known)[:20])}"
        )


def read_conll(
    path: Path, word_column: int = 0, tag_column: int = -1, known: Collection[str] | None = None
) -> Iterator[TaggedSentence]:
    """Read CoNLL columns: a word a line with its tag, columns parted by a tab or spaces, a blank line after a sentence.

    Lines that start with ``-DOCSTART-`` are skipped.

    Args:
        path: the file.
        word_column: the column of the words; negative counts from the last.
        tag_column: the column of the tags.
        known: the tags that there may be, of a later split those of the training split; None for any.

    Raises:
        ValueError: if a line lacks a column or a tag is not ``O``, ``B-...`` or ``I-...`` or not known, or there is no
            sentence; the message names the file and the line.
    """
    words: list[str] = []
    tags: list[str] = []
    empty = True
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
        if line.startswith("-DOCSTART-") or not line.strip():
            if words:
                empty = False
                yield TaggedSentence(tuple(words), tuple(tags))
                words, tags = [], []
            continue
        columns = line.rstrip("\r").split("\t") if "\t" in line else line.split()
        try:
            word, tag = columns[word_column], columns[tag_column]
        except IndexError:
            raise ValueError(
                f"{path}:{number}: expected a word in column {word_column} and a tag in column {tag_column}, got "
                f"{line[:80]!r}"
            ) from None
        if len(columns) < 2 or not (tag == "O" or tag.startswith(("B-", "I-"))):
            raise ValueError(f"{path}:{number}: expected a tag O, B-... or I-..., got {line[:80]!r}")
        check_known(path, number, tag, known)
        words.append(word)
        tags.append(tag)
    if words:
        empty = False
        yield TaggedSentence(tuple(words), tuple(tags))
    if empty:
        raise ValueError(f"{path}: expected sentences in columns, found none")


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
