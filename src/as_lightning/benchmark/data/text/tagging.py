"""Token-level data: sentences whose words are tagged."""

from __future__ import annotations

import logging
from abc import abstractmethod

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from as_lightning.benchmark.data.labelled import LabelledDataset
from as_lightning.benchmark.data.text.labelled_text import TaggedSentence
from as_lightning.benchmark.data.text.tokenized import TokenizedDataModule

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
