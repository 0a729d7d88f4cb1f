"""The base of text data: stratified splits, the tokeniser, and padded batches of similar length."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import torch
from sklearn.model_selection import train_test_split
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import RandomSampler, Sampler

from as_lightning.bench.data.base import BenchmarkDataModule, LabelledDataset, check_least, say
from as_lightning.bench.data.files import shortened
from as_lightning.bench.data.loaders import POOL_BATCHES, LengthBatchSampler
from as_lightning.functional.calling_convention import IGNORED

PADDING, UNKNOWN = "[PAD]", "[UNK]"
TOKENIZER_FILES = ("tokenizer.json", "vocab.*", "*.model")


class Sentence(NamedTuple):
    """A text with the name of its class, or with the indices of its classes."""

    text: str
    label: Any


class TaggedSentence(NamedTuple):
    """The words of a sentence and a tag for each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]


LEAST = 10  # texts of a class, which are split 8 / 1 / 1


def split_sentences(sentences: list[Sentence], split_seed: int) -> dict[str, list[Sentence]]:
    """Split 80 / 10 / 10 %, stratified by class; a ValueError names classes with fewer than 10
    texts.
    """
    sizes = Counter(sentence.label for sentence in sentences)
    small = [f"{label!r} has {size}" for label, size in sorted(sizes.items()) if size < LEAST]
    if small:
        hint = (
            f"leave them out (data.min_per_class={LEAST})"
            if len(small) < len(sizes) - 1
            else "add texts"
        )
        raise ValueError(
            f"{len(small)} of {len(sizes)} classes have fewer than {LEAST} texts, too few to split "
            "them in three: "
            f"{shortened(small)}: {hint}, or give files for validation and test"
        )
    labels = [sentence.label for sentence in sentences]
    train, held_out = train_test_split(
        sentences, test_size=0.2, stratify=labels, random_state=split_seed
    )
    labels = [sentence.label for sentence in held_out]
    validation, test = train_test_split(
        held_out, test_size=0.5, stratify=labels, random_state=split_seed
    )
    return {"train": train, "validation": validation, "test": test}


def say_of_repeats(splits: Mapping[str, Sequence[Sentence]]) -> None:
    """Report how many rows of validation and test are training rows too: a score counts them as if
    they were new.
    """
    training_texts = {row.text for row in splits["train"]}
    for split in ("validation", "test"):
        repeated = [row.text for row in splits[split] if row.text in training_texts]
        if repeated:
            examples = shortened([repr(text[:60]) for text in dict.fromkeys(repeated)])
            say(
                f"{len(repeated)} of {len(splits[split])} rows in {split} are in train too: "
                f"{examples}"
            )


def fit_tokenizer(
    texts: Iterable[str] | Iterable[Sequence[str]], vocab_size: int, lowercase: bool = True
) -> Tokenizer:
    """A byte-pair tokeniser of at most ``vocab_size`` tokens; padding is token 0; ``lowercase``
    strips accents too.
    """
    # without a continuing-subword prefix: with one, as WordPiece has, the library breaks ties in
    # the order of a hash map, and two fits on the same texts differ
    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    rows = list(texts)
    settings: dict[str, Any] = {
        "vocab_size": vocab_size,
        "special_tokens": [PADDING, UNKNOWN],
        "show_progress": False,
    }
    tokenizer.train_from_iterator(rows, trainers.BpeTrainer(**settings))
    if tokenizer.get_vocab_size() > vocab_size:  # the library keeps every character
        normalize = normalizers.BertNormalizer(lowercase=lowercase).normalize_str
        counts = Counter(chain.from_iterable(normalize("".join(row)) for row in rows))
        characters = sorted(
            filter(str.strip, counts), key=lambda character: (-counts[character], character)
        )
        # chosen here, as the library breaks ties in the order of a hash map
        settings |= {
            "initial_alphabet": characters[: vocab_size - 2],
            "limit_alphabet": vocab_size - 2,
        }
        tokenizer.train_from_iterator(rows, trainers.BpeTrainer(**settings))
    tokenizer.encode_special_tokens = True  # a "[PAD]" of a text is text
    return tokenizer


def pretrained_tokenizer(name: str) -> tuple[Tokenizer, int]:
    """The fast tokeniser of a Hugging Face model, by name or local path, and its padding token;
    else a ValueError.
    """
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise ImportError(
            'a pretrained tokenizer needs transformers: install "as-lightning[pretrained]"'
        ) from error
    folder = Path(name)
    # transformers makes an empty tokeniser for a folder without one
    if folder.is_dir() and not any(any(folder.glob(pattern)) for pattern in TOKENIZER_FILES):
        files = ", ".join(TOKENIZER_FILES)
        raise ValueError(
            f"tokenizer={name!r}: the folder has no tokenizer ({files}): save the model's own there"
        )
    try:
        pretrained = AutoTokenizer.from_pretrained(name, use_fast=True)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"tokenizer={name!r} is no Hugging Face model or folder with a tokeniser: {error}"
        ) from None
    if not pretrained.is_fast or pretrained.pad_token_id is None:
        raise ValueError(f"tokenizer={name!r}: expected a fast tokeniser with a padding token")
    return pretrained.backend_tokenizer, int(pretrained.pad_token_id)


def _pad_batch(
    samples: list[tuple[Tensor, Tensor]], padding_id: int, of_tokens: bool
) -> tuple[Tensor, Tensor]:
    """Stack samples into a batch, padded to the longest."""
    token_ids, targets = zip(*samples, strict=True)
    # hidden states of frozen layers are padded with zeros
    padding = 0.0 if token_ids[0].is_floating_point() else padding_id
    padded = pad_sequence(list(token_ids), batch_first=True, padding_value=padding)
    if of_tokens:
        return padded, pad_sequence(list(targets), batch_first=True, padding_value=IGNORED)
    return padded, torch.stack(targets)


class TokenizedDataModule(BenchmarkDataModule):
    """Token ids, in batches of similar length, padded to the longest.

    The settings are described in ``conf/data/text_base.yaml``. Validation and test are sorted by
    length.
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
        self.pretrained, self.lowercase, self.length_buckets = tokenizer, lowercase, length_buckets
        self.tokenizer: Tokenizer | None = None
        self.padding_id = 0

    @abstractmethod
    def read_splits(self) -> Mapping[str, Sequence[Any]]:
        """The sentences of the splits ``train``, ``validation`` and ``test``."""

    @property
    def input_spec(self) -> dict[str, Any]:
        assert self.tokenizer is not None, "call setup() first"
        size = self.tokenizer.get_vocab_size()
        return {"vocab_size": size, "max_length": self.max_length, "padding_id": self.padding_id}

    def make_tokenizer(self, texts: Iterable[str] | Iterable[Sequence[str]]) -> Tokenizer:
        """Set `tokenizer`: the pretrained one, or one fitted on the training split's ``texts``."""
        if self.pretrained is None:
            self.tokenizer, self.padding_id = (
                fit_tokenizer(texts, self.vocab_size, self.lowercase),
                0,
            )
        else:
            self.tokenizer, self.padding_id = pretrained_tokenizer(self.pretrained)
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(self.max_length)
        self.collate = partial(
            _pad_batch, padding_id=self.padding_id, of_tokens=self.task == "token"
        )
        return self.tokenizer

    def batching(self, dataset: Any, order: Sampler[int]) -> dict[str, Any]:
        if not self.length_buckets or not isinstance(dataset, LabelledDataset):
            return super().batching(dataset, order)
        shuffle = isinstance(order, RandomSampler)
        lengths = [len(token_ids) for token_ids in dataset.inputs]
        pool_batches = POOL_BATCHES if shuffle else max(len(dataset), 1)
        sampler_class = LengthBatchSampler.bound(
            lengths, pool_batches=pool_batches, shuffle=shuffle
        )
        return {"batch_sampler": sampler_class(order, self.batch_size, False)}


class TextDataModule(TokenizedDataModule):
    """Classification of texts: batches ``(token ids (N, longest of the batch), class indices
    (N,))``, ``int64``.
    """

    def encode_targets(self, splits: Mapping[str, Sequence[Sentence]]) -> dict[str, Tensor]:
        """The targets of each split; sets `class_names`."""
        return self.encode_labels(
            {split: [str(row.label) for row in rows] for split, rows in splits.items()}
        )

    def load_splits(self) -> dict[str, LabelledDataset]:
        texts = self.read_splits()
        if self.paths:
            say_of_repeats(texts)
        targets = self.encode_targets(texts)
        self.texts = {split: [row.text for row in rows] for split, rows in texts.items()}
        tokenizer = self.make_tokenizer(row.text for row in texts["train"])
        splits = {}
        for split, rows in self.texts.items():
            encodings = tokenizer.encode_batch_fast(rows)
            # a text of unknown characters alone may leave no token: keep one, so that pooling has
            # something to read
            token_ids = [torch.tensor(encoding.ids or [1]) for encoding in encodings]
            splits[split] = LabelledDataset(token_ids, targets[split])
        return splits
