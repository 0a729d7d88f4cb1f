"""A user's own texts, in a table."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from as_lightning.benchmark.data.text.data_module import TextDataModule
from as_lightning.benchmark.data.text.labelled_text import Sentence
from as_lightning.benchmark.data.text.stratified_split import split_sentences
from as_lightning.benchmark.data.text.table import read_table


class TextFile(TextDataModule):
    """A user's own texts: CSV, TSV or JSON Lines files with a column of texts and one of labels.

    Args:
        path: the training file; its ending (``.csv``, ``.tsv``, ``.jsonl``) is its format. The first line of CSV and
            TSV names the columns. A relative path is taken from ``data_dir``.
        validation_path: the validation file; with ``test_path``, or neither: then the training file is split 80 / 10 /
            10 %, stratified by label.
        test_path: the test file.
        text_column: the column of texts.
        label_column: the column of labels.
        split_seed: seeds the split, apart from the run's seed.
        **text: arguments of :class:`TextDataModule`.

    Raises:
        ValueError: if a file is malformed (the message names file and line), a column is missing, or one of
            ``validation_path`` and ``test_path`` is given without the other.
        FileNotFoundError: if a file does not exist.
    """

    def __init__(
        self,
        path: str | Path,
        validation_path: str | Path | None = None,
        test_path: str | Path | None = None,
        text_column: str = "text",
        label_column: str = "label",
        split_seed: int = 0,
        **text: Any,
    ) -> None:
        super().__init__(**text)
        if (validation_path is None) != (test_path is None):
            raise ValueError(
                f"give validation_path and test_path, or neither, got {validation_path=!s} and {test_path=!s}"
            )
        self.path, self.validation_path, self.test_path = path, validation_path, test_path
        self.text_column, self.label_column, self.split_seed = text_column, label_column, split_seed

    def read_splits(self) -> dict[str, list[Sentence]]:
        train = self._read(self.path)
        if self.validation_path is None or self.test_path is None:
            return split_sentences(train, self.split_seed)
        known = {sentence.label for sentence in train}
        later = {"validation": self.validation_path, "test": self.test_path}
        return {"train": train} | {split: self._read(path, known) for split, path in later.items()}

    def _read(self, path: str | Path, known: Collection[str] | None = None) -> list[Sentence]:
        return list(read_table(self.data_dir / path, self.text_column, self.label_column, known))
