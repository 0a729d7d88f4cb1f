"""Token-level data: sentences whose words are tagged, and a user's own in CoNLL's columns."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from as_lightning.bench.data.base import LabelledDataset, say
from as_lightning.bench.data.files import normal_form, read_text
from as_lightning.bench.data.text.data_module import TaggedSentence, TokenizedDataModule
from as_lightning.functional.calling_convention import IGNORED

LOST_WORD = "?"


class TaggingDataModule(TokenizedDataModule):
    """Tag words with BIO tags; a word's first token has its tag, its other tokens and padding have
    -100.

    Batches are ``(token ids (N, L) int64; tag indices (N, L) int64)``. Words past ``max_length``
    tokens are neither trained nor scored; a message says how many there are. A ValueError names a
    tag that the training split lacks.
    """

    task = "token"

    def load_splits(self) -> dict[str, LabelledDataset]:
        sentences = self.read_splits()
        labels = {
            split: [tag for row in rows for tag in row.tags] for split, rows in sentences.items()
        }
        tags = self.encode_labels(labels)
        self.texts = {
            split: [" ".join(row.words) for row in rows] for split, rows in sentences.items()
        }
        self.make_tokenizer(row.words for row in sentences["train"])
        splits = {}
        for split, rows in sentences.items():
            sentence_tags = tags[split].split([len(row.words) for row in rows])
            encoded = [
                self._encode(row.words, row_tags)
                for row, row_tags in zip(rows, sentence_tags, strict=True)
            ]
            cut = sum(len(row.words) for row in rows) - sum(
                int((targets != IGNORED).sum()) for _, targets in encoded
            )
            if cut:
                say(f"{cut} words of the {split} split lie past max_length={self.max_length}")
            splits[split] = LabelledDataset(
                [ids for ids, _ in encoded], [targets for _, targets in encoded]
            )
        return splits

    def _encode(self, words: tuple[str, ...], tags: Tensor) -> tuple[Tensor, Tensor]:
        assert self.tokenizer is not None
        if "ByteLevel" in str(
            self.tokenizer.pre_tokenizer
        ):  # to which a word without a space continues the one before
            words = tuple(f" {word}" for word in words)
        encoding = self.tokenizer.encode(list(words), is_pretokenized=True)
        lost = set(range(len(words))) - set(encoding.word_ids)
        if (
            lost
        ):  # the normaliser removes these words, or they lie past max_length (and do so again)
            encodable = [LOST_WORD if number in lost else word for number, word in enumerate(words)]
            encoding = self.tokenizer.encode(encodable, is_pretokenized=True)
        targets = torch.full((len(encoding.ids),), IGNORED)
        for position, (previous, word) in enumerate(pairwise([None, *encoding.word_ids])):
            if word is not None and word != previous:
                targets[position] = tags[word]
        return torch.tensor(encoding.ids), targets


class Conll(TaggingDataModule):
    """A user's own tagged sentences: three files in CoNLL's columns.

    A relative path is looked for in the working directory, then in ``data_dir``. A negative column
    counts from the last; ``encoding=None`` is UTF-8. A ValueError names the file and the line that
    is malformed.
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

    def read_splits(self) -> dict[str, list[TaggedSentence]]:
        settings = self.word_column, self.tag_column, self.encoding
        return {split: read_conll(path, *settings) for split, path in self.files().items()}


def read_conll(
    path: Path, word_column: int = 0, tag_column: int = -1, encoding: str | None = None
) -> list[TaggedSentence]:
    """Read CoNLL columns: one word with its tag on each line, columns separated by a tab or spaces.

    A blank line ends a sentence; lines that start with ``-DOCSTART-`` are left out. A ValueError
    names the line that lacks a column, or whose tag is not ``O``, ``B-...`` or ``I-...``.
    """
    sentences: list[TaggedSentence] = []
    rows: list[tuple[str, str]] = []
    for number, line in enumerate([*read_text(path, encoding).split("\n"), ""], start=1):
        if line.startswith("-DOCSTART-") or not line.strip():
            if rows:
                sentences.append(TaggedSentence(*zip(*rows, strict=True)))
                rows = []
            continue
        # at spaces alone: a no-break space, or an ideographic one, is part of its word
        columns = line.split("\t") if "\t" in line else re.findall("[^ ]+", line)
        try:
            word, tag = columns[word_column], normal_form(columns[tag_column])
        except IndexError:
            expected = f"a word in column {word_column} and a tag in column {tag_column}"
            raise ValueError(f"{path}:{number}: expected {expected}, got {line[:80]!r}") from None
        if len(columns) < 2 or not (tag == "O" or tag.startswith(("B-", "I-"))):
            raise ValueError(
                f"{path}:{number}: expected a tag O, B-... or I-..., got {line[:80]!r}"
            )
        rows.append((word, tag))
    if not sentences:
        raise ValueError(f"{path}: expected sentences in columns, found none")
    return sentences
