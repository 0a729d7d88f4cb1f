"""Token-level data: sentences whose words are tagged, in CoNLL's columns."""

from __future__ import annotations

import logging
from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from as_lightning.benchmark.data.download import RemoteFile
from as_lightning.benchmark.data.labelled import LabelledDataset
from as_lightning.benchmark.data.text import TokenizedDataModule
from as_lightning.benchmark.data.text_formats import TaggedSentence, read_conll

log = logging.getLogger(__name__)
IGNORED = -100
STAND_IN = "?"


class TaggingDataModule(TokenizedDataModule):
    """Tag words with BIO tags; the first piece of a word carries its tag, the others -100.

    Batches are ``(token ids (N, L) int64, padded; tag indices (N, L) int64)``, with -100 on padding and on what is no
    first piece of a word. A subclass reads its splits. Words past ``max_length`` tokens are neither trained nor scored;
    a warning says how many there are.

    Args:
        **text: arguments of :class:`TokenizedDataModule`.

    Raises:
        ValueError: if an argument is out of range, a file is malformed, or a tag of a later split is not among the
            training split's.
    """

    task = "token"

    @abstractmethod
    def read_splits(self) -> dict[str, list[TaggedSentence]]:
        """The splits ``train``, ``validation`` and ``test``."""

    def load_splits(self) -> dict[str, LabelledDataset]:
        sentences = self.read_splits()
        tags = self.encode_labels(
            {split: [tag for row in rows for tag in row.tags] for split, rows in sentences.items()}
        )
        self.make_tokenizer(row.words for row in sentences["train"])
        splits = {}
        for split, rows in sentences.items():
            of_words = tags[split].split([len(row.words) for row in rows])
            encoded = [self._encode(row.words, row_tags) for row, row_tags in zip(rows, of_words, strict=True)]
            cut = sum(len(row.words) for row in rows) - sum(int((targets != IGNORED).sum()) for _, targets in encoded)
            if cut:
                log.warning("%d words of the %s split lie past max_length=%d", cut, split, self.max_length)
            splits[split] = LabelledDataset([ids for ids, _ in encoded], [targets for _, targets in encoded])
        return splits

    def _encode(self, words: tuple[str, ...], tags: Tensor) -> tuple[Tensor, Tensor]:
        assert self.tokenizer is not None
        encoding = self.tokenizer.encode(list(words), is_pretokenized=True)
        lost = set(range(len(words))) - set(encoding.word_ids)
        if lost:  # words that the normaliser leaves nothing of, or that lie past max_length (and do so again)
            stood_in = [STAND_IN if number in lost else word for number, word in enumerate(words)]
            encoding = self.tokenizer.encode(stood_in, is_pretokenized=True)
        targets = torch.full((len(encoding.ids),), IGNORED)
        before = None
        for position, word in enumerate(encoding.word_ids):
            if word is not None and word != before:
                targets[position] = tags[word]
            before = word
        return torch.tensor(encoding.ids), targets

    def collate(self, samples: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        token_ids, targets = zip(*samples, strict=True)
        return self.pad(token_ids), pad_sequence(list(targets), batch_first=True, padding_value=IGNORED)


class WNUT17(TaggingDataModule):
    """WNUT-17, emerging entities of 6 types in social media: 3,394 / 1,009 / 1,287 sentences, 13 tags.

    Source: Derczynski et al., "Results of the WNUT2017 Shared Task on Novel and Emerging Entity Recognition", W-NUT
    2017; ``github.com/leondz/emerging_entities_17``, CC BY 4.0.
    """

    HOME = "https://raw.githubusercontent.com/leondz/emerging_entities_17/master"
    FILES: ClassVar[dict[str, RemoteFile]] = {
        "train": RemoteFile(
            "wnut17_wnut17train.conll",
            f"{HOME}/wnut17train.conll",
            "731820e13f71af324c6b55a1575ec2ce59fbaa2a0806f8f0400b98d56cd6a7a5",
        ),
        "validation": RemoteFile(
            "wnut17_emerging.dev.conll",
            f"{HOME}/emerging.dev.conll",
            "e053b752b8155113ca66e7db08af5f2f5f43ab993694e4774f1ec5bad42312d8",
        ),
        "test": RemoteFile(
            "wnut17_emerging.test.annotated",
            f"{HOME}/emerging.test.annotated",
            "2aa79b764e56ec9264a1b30fdd9b70195bd00ff400b62edd8f399d5f13c178f0",
        ),
    }

    def read_splits(self) -> dict[str, list[TaggedSentence]]:
        return {split: list(read_conll(path)) for split, path in self.fetch_files().items()}


class Conll(TaggingDataModule):
    """A user's own tagged sentences: three files in CoNLL's columns.

    Args:
        path: the training file. A relative path is taken from ``data_dir``, as for the others.
        validation_path: the validation file.
        test_path: the test file.
        word_column: the column of the words; negative counts from the last.
        tag_column: the column of the tags.
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
        **text: Any,
    ) -> None:
        super().__init__(**text)
        self.paths = {"train": path, "validation": validation_path, "test": test_path}
        self.word_column, self.tag_column = word_column, tag_column

    def read_splits(self) -> dict[str, list[TaggedSentence]]:
        splits: dict[str, list[TaggedSentence]] = {}
        known = None
        for split, path in self.paths.items():  # the training split first
            splits[split] = list(read_conll(self.data_dir / path, self.word_column, self.tag_column, known))
            known = known or {tag for sentence in splits[split] for tag in sentence.tags}
        return splits
