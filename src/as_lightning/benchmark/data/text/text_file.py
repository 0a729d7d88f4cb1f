"""A user's own texts, in a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

from as_lightning.benchmark.data.files import shortened
from as_lightning.benchmark.data.messages import say
from as_lightning.benchmark.data.text.data_module import TextDataModule
from as_lightning.benchmark.data.text.labelled_text import Sentence
from as_lightning.benchmark.data.text.stratified_split import split_sentences
from as_lightning.benchmark.data.text.table import read_table
from as_lightning.benchmark.data.user_path import find_path


class TextFile(TextDataModule):
    """A user's own texts: CSV, TSV or JSON Lines files with a column of texts and one of labels.

    Args:
        path: the training file; its ending (``.csv``, ``.tsv``, ``.jsonl``) is its format. The first line of CSV and
            TSV names the columns. A relative path is looked for in the working directory, then in ``data_dir``.
        validation_path: the validation file; with ``test_path``, or neither: then the training file is split 80 / 10 /
            10 %, stratified by label.
        test_path: the test file.
        text_column: the column of texts.
        label_column: the column of labels.
        drop_blank: leave rows without text or label out.
        min_per_class: leave classes with fewer training rows out (of a single file: fewer rows).
        encoding: of the files; None is UTF-8.
        split_seed: seeds the split, apart from the run's seed.
        **text: arguments of :class:`TextDataModule`.

    Raises:
        ValueError: if a file is malformed (the message names file and line), a column is missing, a row lacks text or
            label, there is one class alone, a class has too few rows to split, or one of ``validation_path`` and
            ``test_path`` is given without the other.
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
                f"give validation_path and test_path, or neither, got {validation_path=!s} and {test_path=!s}"
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
        return read_table(
            find_path(path, self.data_dir),
            self.text_column,
            self.label_column,
            known,
            drop_blank=self.drop_blank,
            encoding=self.encoding,
        )
