"""Classification of texts: what such data share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from as_lightning.benchmark.data.labelled import LabelledDataset
from as_lightning.benchmark.data.text.labelled_text import LabelledText
from as_lightning.benchmark.data.text.tokenized import TokenizedDataModule


class TextDataModule(TokenizedDataModule):
    """Classification of texts.

    Batches are ``(token ids (N, longest of the batch) int64, padded; class indices (N,) int64)``. A subclass reads its
    splits.

    Args:
        **text: arguments of :class:`TokenizedDataModule`.

    Raises:
        ValueError: if an argument is out of range, a file is malformed, or a class of a later split is not among the
            training split's.
    """

    @abstractmethod
    def read_splits(self) -> Mapping[str, Sequence[LabelledText]]:
        """The splits ``train``, ``validation`` and ``test``."""

    def encode_targets(self, splits: Mapping[str, Sequence[LabelledText]]) -> dict[str, Tensor]:
        """The targets of each split; sets :attr:`class_names`."""
        return self.encode_labels({split: [str(row.label) for row in rows] for split, rows in splits.items()})

    def load_splits(self) -> dict[str, LabelledDataset]:
        texts = self.read_splits()
        targets = self.encode_targets(texts)
        self.texts = {split: [row.text for row in rows] for split, rows in texts.items()}
        tokenizer = self.make_tokenizer(row.text for row in texts["train"])
        splits = {}
        for split, rows in texts.items():
            encodings = tokenizer.encode_batch_fast([row.text for row in rows])
            # a text of unknown characters alone may leave no token: keep one, so that pooling has something to read
            token_ids = [torch.tensor(encoding.ids or [1]) for encoding in encodings]
            splits[split] = LabelledDataset(token_ids, targets[split])
        return splits

    def collate(self, samples: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        token_ids, targets = zip(*samples, strict=True)
        return self.pad(token_ids), torch.stack(targets)
