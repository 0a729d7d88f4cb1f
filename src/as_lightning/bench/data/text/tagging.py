"""Token-level data: sentences whose words are tagged, and a user's own in CoNLL's columns."""

from __future__ import annotations

from itertools import chain, pairwise
from typing import Any

import torch
from torch import Tensor

from as_lightning.bench.data.base import LabelledDataset
from as_lightning.bench.data.files import Place
from as_lightning.bench.data.reading import note, note_repeats
from as_lightning.bench.data.text.conll import TaggedSentence, read_conll
from as_lightning.bench.data.text.data_module import TokenizedDataModule
from as_lightning.functional.calling_convention import IGNORED

LOST_WORD = "?"


class Conll(TokenizedDataModule):
    """Tagged sentences, a user's own or published: three files in CoNLL's columns.

    Batches are ``(token ids (N, L) int64; tag indices (N, L) int64)``. A word's first token has its
    BIO tag, its other tokens and padding have -100. Words past ``max_length`` tokens are neither
    trained nor scored. A negative column counts from the last.
    """

    task = "token"

    def __init__(
        self,
        path: Place,
        validation_path: Place,
        test_path: Place,
        word_column: int = 0,
        tag_column: int = -1,
        encoding: str | None = None,
        **text: Any,
    ) -> None:
        super().__init__(**text)
        self.paths = {"train": path, "validation": validation_path, "test": test_path}
        self.columns = word_column, tag_column, encoding

    def read_splits(self) -> dict[str, list[TaggedSentence]]:
        return {split: read_conll(path, *self.columns) for split, path in self.files().items()}

    def load_splits(self) -> dict[str, LabelledDataset]:
        sentences = self.read_splits()
        words, labels = {}, {}
        for split, tagged in sentences.items():
            words[split] = [row.words for row in tagged]
            labels[split] = list(chain.from_iterable(row.tags for row in tagged))
            self.texts[split] = list(map(" ".join, words[split]))
        note_repeats(words, self.texts)
        tags = self.encode_labels(labels)
        self.make_tokenizer(words["train"])
        splits = {}
        for split, rows in words.items():
            inputs, targets = [], []
            cut: list[str] = []
            row_tags = tags[split].split(list(map(len, rows)))
            for row, word_tags in zip(rows, row_tags, strict=True):
                token_ids, token_tags = self._encode(row, word_tags)
                inputs.append(token_ids)
                targets.append(token_tags)
                cut += row[int((token_tags != IGNORED).sum()) :]
            what = f"words lie past data.max_length={self.max_length}, and are left out"
            note(what, cut, len(labels[split]), split)
            splits[split] = LabelledDataset(inputs, targets)
        return splits

    def _encode(self, words: tuple[str, ...], tags: Tensor) -> tuple[Tensor, Tensor]:
        assert self.tokenizer is not None
        # To a byte-level tokeniser a word without a space continues the one before.
        if "ByteLevel" in str(self.tokenizer.pre_tokenizer):
            words = tuple(f" {word}" for word in words)
        encoding = self.tokenizer.encode(list(words), is_pretokenized=True)
        lost = set(range(len(words))) - set(encoding.word_ids)
        # The normaliser removes these words, or they lie past max_length, and do so again.
        if lost:
            kept = [LOST_WORD if number in lost else word for number, word in enumerate(words)]
            encoding = self.tokenizer.encode(kept, is_pretokenized=True)
        targets = torch.full((len(encoding.ids),), IGNORED)
        for position, (previous, word) in enumerate(pairwise([None, *encoding.word_ids])):
            if word is not None and word != previous:
                targets[position] = tags[word]
        return torch.tensor(encoding.ids), targets
