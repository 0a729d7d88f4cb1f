"""Classification of texts: how files are read as texts, and what such data share."""

from __future__ import annotations

import codecs
from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from sklearn.model_selection import train_test_split
from torch import Tensor

from as_lightning.benchmark.data.base import LabelledDataset, say
from as_lightning.benchmark.data.files import shortened
from as_lightning.benchmark.data.text.tokenized import TokenizedDataModule


class Sentence(NamedTuple):
    """A text with the name of its class, or with the indices of its classes."""

    text: str
    label: Any


class TaggedSentence(NamedTuple):
    """The words of a sentence and a tag for each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]


def read_text(path: Path, encoding: str | None = None) -> str:
    """The characters of a file, its line ends as they are; without ``encoding`` UTF-8, byte-order mark or not.

    A ValueError names the file and the line whose bytes are of another encoding, and what to set.
    """
    content = path.read_bytes()
    try:
        return content.decode(encoding or "utf-8-sig")
    except LookupError:
        raise ValueError(f"encoding={encoding!r} is not known: expected one like utf-8, latin-1 or utf-16") from None
    except UnicodeDecodeError as error:
        likely = "utf-16" if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "latin-1"
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{path}:{line}: byte 0x{content[error.start]:02x} is not {encoding or 'UTF-8'}: set "
            f"data.encoding (perhaps {likely}), or save the file as UTF-8"
        ) from error


LEAST = 10  # texts of a class, for 8 / 1 / 1


def split_sentences(sentences: list[Sentence], split_seed: int) -> dict[str, list[Sentence]]:
    """80 / 10 / 10 %, stratified by class; a ValueError names classes with fewer than 10 texts."""
    sizes = Counter(sentence.label for sentence in sentences)
    small = [f"{label!r} has {size}" for label, size in sorted(sizes.items()) if size < LEAST]
    if small:
        leave_out = f"leave them out (data.min_per_class={LEAST})" if len(small) < len(sizes) - 1 else "add texts"
        raise ValueError(
            f"{len(small)} of {len(sizes)} classes have fewer than {LEAST} texts, too few to split them in three: "
            f"{shortened(small)}: {leave_out}, or give files for validation and test"
        )
    labels = [sentence.label for sentence in sentences]
    train, rest = train_test_split(sentences, test_size=0.2, stratify=labels, random_state=split_seed)
    labels = [sentence.label for sentence in rest]
    validation, test = train_test_split(rest, test_size=0.5, stratify=labels, random_state=split_seed)
    return {"train": train, "validation": validation, "test": test}


def say_of_repeats(splits: Mapping[str, Sequence[Sentence]]) -> None:
    """Say how many rows of validation and test are training rows too: a score counts these as if they were new."""
    seen = {row.text for row in splits["train"]}
    for split in ("validation", "test"):
        repeated = [row.text for row in splits[split] if row.text in seen]
        if repeated:
            named = shortened([repr(text[:60]) for text in dict.fromkeys(repeated)])
            say(f"{len(repeated)} of {len(splits[split])} rows in {split} are in train too: {named}")


class TextDataModule(TokenizedDataModule):
    """Classification of texts: batches ``(token ids (N, longest of the batch), class indices (N,))``, ``int64``."""

    @abstractmethod
    def read_splits(self) -> Mapping[str, Sequence[Sentence]]:
        """The splits ``train``, ``validation`` and ``test``."""

    def encode_targets(self, splits: Mapping[str, Sequence[Sentence]]) -> dict[str, Tensor]:
        """The targets of each split; sets `class_names`."""
        return self.encode_labels({split: [str(row.label) for row in rows] for split, rows in splits.items()})

    def load_splits(self) -> dict[str, LabelledDataset]:
        texts = self.read_splits()
        if self.user_paths:
            say_of_repeats(texts)
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
