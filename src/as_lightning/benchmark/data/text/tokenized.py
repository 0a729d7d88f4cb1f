"""What data of token ids share: the tokeniser, and batches of similar length, padded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from tokenizers import Tokenizer
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import RandomSampler, Sampler

from as_lightning.benchmark.data.base import BenchmarkDataModule, LabelledDataset
from as_lightning.benchmark.data.download import RemoteFile, fetch
from as_lightning.benchmark.data.loaders import POOL_BATCHES, LengthBatchSampler
from as_lightning.benchmark.data.text.tokenizer import fit_tokenizer, pretrained_tokenizer


class TokenizedDataModule(BenchmarkDataModule):
    """What data of token ids share: the tokeniser, and batches of similar length, padded to the longest.

    Args:
        data_dir: where its files are, or are downloaded to.
        vocab_size: the fitted tokeniser's largest vocabulary, at least 3.
        max_length: tokens that are kept of a text, at least 1.
        tokenizer: a Hugging Face model (name or local path) whose tokeniser is used; None fits one on the training
            split.
        lowercase: fit the tokeniser on lower-cased texts.
        length_buckets: make batches of texts of similar length (`LengthBatchSampler`); validation and test are
            sorted by length.
        **loader: arguments of `BenchmarkDataModule`.

    Raises:
        ValueError: if an argument is out of range.
    """

    FILES: ClassVar[dict[str, RemoteFile]] = {}  # what a published data set consists of, by what a file holds

    def __init__(
        self,
        *,
        vocab_size: int,
        max_length: int,
        lowercase: bool,
        data_dir: str | Path = "data",
        tokenizer: str | None = None,
        length_buckets: bool = True,
        **loader: Any,
    ) -> None:
        super().__init__(**loader)
        if vocab_size < 3:
            raise ValueError(f"vocab_size must be at least 3 (two tokens are special), got {vocab_size}")
        if max_length < 1:
            raise ValueError(f"max_length must be at least 1, got {max_length}")
        self.data_dir, self.vocab_size, self.max_length = Path(data_dir), vocab_size, max_length
        self.pretrained, self.lowercase, self.length_buckets = tokenizer, lowercase, length_buckets
        self.tokenizer: Tokenizer | None = None
        self.padding_id = 0

    def prepare_data(self) -> None:
        self.fetch_files()

    def fetch_files(self) -> dict[str, Path]:
        """The paths of `FILES`; what is not in ``data_dir`` is downloaded."""
        return {name: fetch(file, self.data_dir) for name, file in self.FILES.items()}

    @property
    def input_spec(self) -> dict[str, Any]:
        if self.tokenizer is None:
            raise RuntimeError("the vocabulary is known after setup()")
        size = self.tokenizer.get_vocab_size()
        return {"vocab_size": size, "max_length": self.max_length, "padding_id": self.padding_id}

    def make_tokenizer(self, texts: Iterable[str] | Iterable[Sequence[str]]) -> Tokenizer:
        """Set `tokenizer`: the pretrained one, or one fitted on the training split's ``texts``."""
        if self.pretrained is None:
            self.tokenizer, self.padding_id = fit_tokenizer(texts, self.vocab_size, self.lowercase), 0
        else:
            self.tokenizer, self.padding_id = pretrained_tokenizer(self.pretrained)
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(self.max_length)
        return self.tokenizer

    def pad(self, token_ids: Sequence[Tensor]) -> Tensor:
        """Token ids as one tensor ``(N, longest)``; hidden states of frozen layers are padded with zeros."""
        padding = 0.0 if token_ids[0].is_floating_point() else self.padding_id
        return pad_sequence(list(token_ids), batch_first=True, padding_value=padding)

    def batching(self, dataset: Any, order: Sampler[int]) -> dict[str, Any]:
        if not self.length_buckets or not isinstance(dataset, LabelledDataset):
            return super().batching(dataset, order)
        shuffle = isinstance(order, RandomSampler)
        sampler_of_lengths = LengthBatchSampler.bound(
            [len(token_ids) for token_ids in dataset.inputs],
            pool_batches=POOL_BATCHES if shuffle else max(len(dataset), 1),
            shuffle=shuffle,
        )
        return {"batch_sampler": sampler_of_lengths(order, self.batch_size, False)}
