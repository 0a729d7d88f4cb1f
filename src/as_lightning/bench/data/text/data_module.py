"""The base of text data: stratified splits, the tokeniser, and padded batches of similar length."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from sklearn.model_selection import train_test_split
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import RandomSampler, Sampler

from as_lightning.bench.data.base import SPLITS, BenchmarkDataModule, LabelledDataset, check_least
from as_lightning.bench.data.loaders import LengthBatchSampler
from as_lightning.bench.data.reading import note, note_repeats, shortened
from as_lightning.bench.data.tables import Sentence
from as_lightning.functional.calling_convention import IGNORED

SHARE = 0.1  # of validation, and of test
PADDING, UNKNOWN = "[PAD]", "[UNK]"


def split_sentences(
    sentences: Sequence[Sentence], share: float, split_seed: int
) -> tuple[list[Sentence], list[Sentence]]:
    """Hold out a share, by class unless they have several labels; refuse classes that are small."""
    labels = None
    if not isinstance(sentences[0].label, tuple):
        labels = [sentence.label for sentence in sentences]
        sizes, least = Counter(labels), round(1 / share)
        small = [f"{label!r} has {size}" for label, size in sorted(sizes.items()) if size < least]
        if small:
            raise ValueError(
                f"{len(small)} of {len(sizes)} classes have fewer than {least} texts, too few to "
                f"hold out {share:.0%}: {shortened(small)}: leave them out of the table, or give "
                "files for validation and test"
            )
    return train_test_split(sentences, test_size=share, stratify=labels, random_state=split_seed)


def with_missing_splits(
    splits: dict[str, list[Sentence]], split_seed: int
) -> dict[str, list[Sentence]]:
    """Return the three splits; a tenth of train, by class, is held out for each that is missing."""
    train = splits["train"]
    if "test" not in splits:
        split_sentences(train, SHARE, split_seed)  # refuses a class that is too small for a tenth
        train, held_out = split_sentences(train, 2 * SHARE, split_seed)
        validation, test = split_sentences(held_out, 0.5, split_seed)
        return {"train": train, "validation": validation, "test": test}
    if "validation" not in splits:
        train, validation = split_sentences(train, SHARE, split_seed)
        return {"train": train, "validation": validation, "test": splits["test"]}
    return splits


def fit_tokenizer(
    texts: Iterable[str] | Iterable[Sequence[str]], vocab_size: int, lowercase: bool = True
) -> Tokenizer:
    """Return a byte-pair tokeniser of ``vocab_size`` tokens, or all characters; padding is 0."""
    # Without a prefix of subwords: with one ties go by a hash map, and two fits differ.
    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN))
    # One form of each character, without control characters; accents stay.
    bert = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=False)
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), bert])
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=[PADDING, UNKNOWN], show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.encode_special_tokens = True  # a "[PAD]" of a text is text
    return tokenizer


def pretrained_tokenizer(name: str) -> tuple[Tokenizer, int]:
    """Return the fast tokeniser of a Hugging Face model or folder, and its padding token.

    A ValueError refuses what is none, or where the extra ``pretrained`` is not installed.
    """
    try:
        from transformers import AutoTokenizer

        pretrained = AutoTokenizer.from_pretrained(name, use_fast=True)
        # transformers makes an empty tokeniser for a folder without one.
        if len(pretrained) == len(pretrained.all_special_ids):
            raise ValueError("it has no tokens")
        return pretrained.backend_tokenizer, int(pretrained.pad_token_id)
    except (ImportError, OSError, ValueError, AttributeError, TypeError) as error:
        raise ValueError(
            f"tokenizer={name!r}: expected a Hugging Face model or folder with a fast tokeniser "
            f"and a padding token, and as-lightning[pretrained] installed: {error}"
        ) from None


def _pad_batch(
    samples: list[tuple[Tensor, Tensor]], padding_id: int, of_tokens: bool
) -> tuple[Tensor, Tensor]:
    token_ids, targets = zip(*samples, strict=True)
    padded = pad_sequence(list(token_ids), batch_first=True, padding_value=padding_id)
    if of_tokens:
        return padded, pad_sequence(list(targets), batch_first=True, padding_value=IGNORED)
    return padded, torch.stack(targets)


class TokenizedDataModule(BenchmarkDataModule):
    """Token ids, padded to the longest of a batch; validation and test are sorted by length.

    The settings are described in ``conf/data/text_base.yaml``.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        max_length: int,
        lowercase: bool,
        tokenizer: str | None = None,
        length_buckets: bool = True,
        **loader: Any,
    ) -> None:
        super().__init__(**loader)
        check_least(3, vocab_size=vocab_size)  # two tokens are special
        check_least(1, max_length=max_length)
        self.vocab_size, self.max_length = vocab_size, max_length
        self.lowercase, self.length_buckets = lowercase, length_buckets
        self.pretrained = tokenizer
        self.tokenizer: Tokenizer | None = None
        self.padding_id = 0

    @abstractmethod
    def read_splits(self) -> Mapping[str, Sequence[Any]]:
        """Return the sentences of the splits ``train``, ``validation`` and ``test``."""

    @property
    def input_spec(self) -> dict[str, Any]:
        assert self.tokenizer is not None, "call setup() first"
        size = self.tokenizer.get_vocab_size()
        return {"vocab_size": size, "max_length": self.max_length, "padding_id": self.padding_id}

    def make_tokenizer(self, texts: Iterable[str] | Iterable[Sequence[str]]) -> Tokenizer:
        """Set `tokenizer`: the pretrained one, or one fitted on the training split's ``texts``."""
        if self.pretrained is None:
            self.tokenizer = fit_tokenizer(texts, self.vocab_size, self.lowercase)
        else:
            self.tokenizer, self.padding_id = pretrained_tokenizer(self.pretrained)
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(self.max_length)
        of_tokens = self.task == "token"
        self.collate = partial(_pad_batch, padding_id=self.padding_id, of_tokens=of_tokens)
        return self.tokenizer

    def batching(self, dataset: Any, order: Sampler[int]) -> dict[str, Any]:
        if not self.length_buckets or not isinstance(dataset, LabelledDataset):
            return super().batching(dataset, order)
        lengths = [len(token_ids) for token_ids in dataset.inputs]
        bound = LengthBatchSampler.bound(lengths, shuffle=isinstance(order, RandomSampler))
        return {"batch_sampler": bound(order, self.batch_size, False)}


class TextDataModule(TokenizedDataModule):
    """Classification of texts: batches ``(token ids (N, longest of the batch), targets)``,
    ``int64``; targets are class indices ``(N,)``, or ``(N, C)`` of 0 and 1 for several labels.
    """

    def load_splits(self) -> dict[str, LabelledDataset]:
        rows = self.read_splits()
        labels = {}
        for split in SPLITS:
            labels[split] = [row.label for row in rows[split]]
            self.texts[split] = [row.text for row in rows[split]]
        targets = self.encode_labels(labels)
        note_repeats(self.texts, self.texts)
        tokenizer = self.make_tokenizer(self.texts["train"])
        splits = {}
        for split, texts in self.texts.items():
            encodings = tokenizer.encode_batch(texts)
            # A text of unknown characters alone may leave no token: keep one for the pooling.
            token_ids = [torch.tensor(encoding.ids or [1]) for encoding in encodings]
            splits[split] = LabelledDataset(token_ids, targets[split])
            cut = [text for text, row in zip(texts, encodings, strict=True) if row.overflowing]
            what = f"texts are cut at data.max_length={self.max_length}"
            note(what, list(map(repr, cut)), len(texts), split)
            if self.pretrained is None and self.lowercase:
                lowered = [repr(text) for text in texts if text != text.lower()]
                note("texts are lower-cased (data.lowercase)", lowered, len(texts), split)
        return splits
