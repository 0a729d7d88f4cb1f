"""Tagged sentences in CoNLL's columns."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from as_lightning.benchmark.data.text.encoding import read_text
from as_lightning.benchmark.data.text.known_labels import check_known
from as_lightning.benchmark.data.text.labelled_text import TaggedSentence
from as_lightning.benchmark.data.text.tagging import TaggingDataModule
from as_lightning.benchmark.data.user_path import find_path


class Conll(TaggingDataModule):
    """A user's own tagged sentences: three files in CoNLL's columns.

    Args:
        path: the training file. A relative path is looked for in the working directory, then in ``data_dir``, as are
            the others.
        validation_path: the validation file.
        test_path: the test file.
        word_column: the column of the words; negative counts from the last.
        tag_column: the column of the tags.
        encoding: of the files; None is UTF-8.
        **text: arguments of :class:`TaggingDataModule`.

    Raises:
        ValueError: if a file is malformed; the message names the file and the line.
        FileNotFoundError: if a file does not exist.
    """

    def __init__(
        self,
        path: str | Path,
        validation_path: str | Path,
        test_path: str | Path,
        word_column: int = 0,
        tag_column: int = -1,
        encoding: str | None = None,
        **text: Any,
    ) -> None:
        super().__init__(**text)
        self.paths = {"train": path, "validation": validation_path, "test": test_path}
        self.word_column, self.tag_column, self.encoding = word_column, tag_column, encoding

    @property
    def user_paths(self) -> list[Path]:
        return [find_path(path, self.data_dir) for path in self.paths.values()]

    def read_splits(self) -> dict[str, list[TaggedSentence]]:
        splits: dict[str, list[TaggedSentence]] = {}
        known = None
        for split, path in self.paths.items():  # the training split first
            splits[split] = list(
                read_conll(
                    find_path(path, self.data_dir), self.word_column, self.tag_column, known, encoding=self.encoding
                )
            )
            known = known or {tag for sentence in splits[split] for tag in sentence.tags}
        return splits


def read_conll(
    path: Path,
    word_column: int = 0,
    tag_column: int = -1,
    known: Collection[str] | None = None,
    *,
    encoding: str | None = None,
) -> Iterator[TaggedSentence]:
    """Read CoNLL columns: one word with its tag on each line, columns parted by a tab or spaces.

    A blank line ends a sentence.
    Lines that start with ``-DOCSTART-`` are skipped.

    Args:
        path: the file.
        word_column: the column of the words; negative counts from the last.
        tag_column: the column of the tags.
        known: the tags that there may be, of a later split those of the training split; None for any.
        encoding: as of :func:`~as_lightning.benchmark.data.text.encoding.read_text`.

    Raises:
        ValueError: if a line lacks a column or a tag is not ``O``, ``B-...`` or ``I-...`` or not known, or there is no
            sentence; the message names the file and the line.
    """
    words: list[str] = []
    tags: list[str] = []
    empty = True
    for number, line in enumerate(read_text(path, encoding).split("\n"), start=1):
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
