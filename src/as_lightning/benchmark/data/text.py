"""Text: a tokeniser fitted on the training split (or a pretrained one), batches of similar length, padded."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
from sklearn.model_selection import train_test_split
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler

from as_lightning.benchmark.data.base import BenchmarkDataModule
from as_lightning.benchmark.data.download import RemoteFile, fetch
from as_lightning.benchmark.data.labelled import LabelledDataset
from as_lightning.benchmark.data.length_batches import LengthBatchSampler
from as_lightning.benchmark.data.text_formats import (
    LabelledText,
    Sentence,
    read_clinc_json,
    read_fasttext,
    read_goemotions,
    read_table,
)

PADDING, UNKNOWN = "[PAD]", "[UNK]"
Text = TypeVar("Text")


def fit_tokenizer(texts: Iterable[str] | Iterable[Sequence[str]], vocab_size: int, lowercase: bool = True) -> Tokenizer:
    """A byte-pair tokeniser of at most ``vocab_size`` tokens; padding is token 0.

    With ``lowercase`` accents are stripped too.

    Byte-pair merges without a continuing-subword prefix: with one, as WordPiece has, the library breaks ties in the
    order of a hash map, and two fits on the same texts differ.
    """
    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=[PADDING, UNKNOWN], show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def pretrained_tokenizer(name: str) -> tuple[Tokenizer, int]:
    """The tokeniser of a Hugging Face model, by name or local path, and its padding token.

    Raises:
        ImportError: if transformers is not installed.
        ValueError: if there is no such model, or its tokeniser is not of the fast kind or pads with nothing.
    """
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise ImportError(
            'a pretrained tokenizer needs transformers: pip install "as-lightning[pretrained]"'
        ) from error
    try:
        found = AutoTokenizer.from_pretrained(name, use_fast=True)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"tokenizer={name!r} is no Hugging Face model or local folder with a tokeniser: {error}"
        ) from None
    if not found.is_fast or found.pad_token_id is None:
        raise ValueError(f"tokenizer={name!r}: expected a fast tokeniser with a padding token")
    return found.backend_tokenizer, int(found.pad_token_id)


def split_sentences(sentences: list[Sentence], split_seed: int) -> dict[str, list[Sentence]]:
    """80 / 10 / 10 % for training, validation and test, stratified by class.

    Raises:
        ValueError: if a class has fewer than 10 sentences, too few for all three splits.
    """
    smallest, size = min(Counter(sentence.label for sentence in sentences).items(), key=lambda item: item[1])
    if size < 10:
        raise ValueError(f"class {smallest!r} has {size} sentences: at least 10 are needed to split them in three")
    train, rest = train_test_split(
        sentences, test_size=0.2, stratify=[sentence.label for sentence in sentences], random_state=split_seed
    )
    validation, test = train_test_split(
        rest, test_size=0.5, stratify=[sentence.label for sentence in rest], random_state=split_seed
    )
    return {"train": train, "validation": validation, "test": test}


class TokenizedDataModule(BenchmarkDataModule):
    """What data of token ids share: the tokeniser, and batches of similar length, padded to the longest.

    Args:
        data_dir: where its files are, or are downloaded to.
        vocab_size: the fitted tokeniser's largest vocabulary, at least 3.
        max_length: tokens that are kept of a text, at least 1.
        tokenizer: a Hugging Face model (name or local path) whose tokeniser is used; None fits one on the training
            split.
        lowercase: fit the tokeniser on lower-cased texts.
        length_buckets: make batches of texts of similar length (:class:`LengthBatchSampler`); validation and test are
            sorted by length.
        **loader: arguments of :class:`BenchmarkDataModule`.

    Raises:
        ValueError: if an argument is out of range.
    """

    FILES: ClassVar[dict[str, RemoteFile]] = {}  # what a published data set consists of, by what a file holds

    def __init__(
        self,
        data_dir: str | Path = "data",
        vocab_size: int = 4000,
        max_length: int = 64,
        tokenizer: str | None = None,
        lowercase: bool = True,
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
        """The paths of :attr:`FILES`; what is not in ``data_dir`` is downloaded."""
        return {name: fetch(file, self.data_dir) for name, file in self.FILES.items()}

    @property
    def input_spec(self) -> dict[str, Any]:
        if self.tokenizer is None:
            raise RuntimeError("the vocabulary is known after setup()")
        size = self.tokenizer.get_vocab_size()
        return {"vocab_size": size, "max_length": self.max_length, "padding_id": self.padding_id}

    def make_tokenizer(self, texts: Iterable[str] | Iterable[Sequence[str]]) -> Tokenizer:
        """Set :attr:`tokenizer`: the pretrained one, or one fitted on the training split's ``texts``."""
        if self.pretrained is None:
            self.tokenizer, self.padding_id = fit_tokenizer(texts, self.vocab_size, self.lowercase), 0
        else:
            self.tokenizer, self.padding_id = pretrained_tokenizer(self.pretrained)
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(self.max_length)
        return self.tokenizer

    def pad(self, token_ids: Sequence[Tensor]) -> Tensor:
        """Token ids as one tensor ``(N, longest)``."""
        return pad_sequence(list(token_ids), batch_first=True, padding_value=self.padding_id)

    def loader(self, dataset: Any, *, shuffle: bool = False) -> DataLoader[Any]:
        if not self.length_buckets or not isinstance(dataset, LabelledDataset):
            return super().loader(dataset, shuffle=shuffle)
        sampler_of_lengths = LengthBatchSampler.bound(
            [len(token_ids) for token_ids in dataset.inputs],
            pool_batches=50 if shuffle else max(len(dataset), 1),
            shuffle=shuffle,
        )
        order = RandomSampler(dataset) if shuffle else SequentialSampler(dataset)
        batches = sampler_of_lengths(order, self.batch_size, False)
        return DataLoader(dataset, batch_sampler=batches, **self.loader_settings)


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


class Clinc150(TextDataModule):
    """CLINC150 (full): 150 intents and out-of-scope, 15,100 / 3,100 / 5,500 queries, CC BY 3.0.

    Source: Larson et al., "An Evaluation Dataset for Intent Classification and Out-of-Scope Prediction", EMNLP 2019;
    ``github.com/clinc/oos-eval``.
    """

    FILES: ClassVar[dict[str, RemoteFile]] = {
        "all": RemoteFile(
            "clinc150.json",
            "https://raw.githubusercontent.com/clinc/oos-eval/master/data/data_full.json",
            "36923c3705a59e08fe9c3883d8bc2dd966ef93e22cb78ac41171782a698d56e0",
        )
    }

    def read_splits(self) -> dict[str, list[Sentence]]:
        parts = read_clinc_json(self.fetch_files()["all"])
        return {
            split: parts[part] + parts[f"oos_{part}"]
            for split, part in (("train", "train"), ("validation", "val"), ("test", "test"))
        }


class SST5(TextDataModule):
    """Stanford Sentiment Treebank, sentences of 5 classes from very negative to very positive: 8,544 / 1,101 / 2,210.

    Source: Socher et al., "Recursive Deep Models for Semantic Compositionality Over a Sentiment Treebank", EMNLP 2013;
    the files are those of ``github.com/prrao87/fine-grained-sentiment``. For research use.
    """

    HOME = "https://raw.githubusercontent.com/prrao87/fine-grained-sentiment/master/data/sst"
    FILES: ClassVar[dict[str, RemoteFile]] = {
        "train": RemoteFile(
            "sst5_train.txt",
            f"{HOME}/sst_train.txt",
            "1e30d2895f7b1569f9faa42a5e7b0da03dab41439cff08c65b6eb11c8f9ba707",
        ),
        "validation": RemoteFile(
            "sst5_dev.txt", f"{HOME}/sst_dev.txt", "ba0d66e70e51daca3b371a5b3da3d0d0534f03d935d0570fb43fa3ae117bd773"
        ),
        "test": RemoteFile(
            "sst5_test.txt", f"{HOME}/sst_test.txt", "ae78588874d7653eb416992014ccc9ead5d3540e3f83158186202c9a5bf9461b"
        ),
    }

    def read_splits(self) -> dict[str, list[Sentence]]:
        return {split: list(read_fasttext(path)) for split, path in self.fetch_files().items()}


class GoEmotions(TextDataModule):
    """GoEmotions: comments with any of 27 emotions or neutral, 43,410 / 5,426 / 5,427, several labels a comment.

    Targets are ``(N, 28)`` ``int64`` in {0, 1}.

    Source: Demszky et al., "GoEmotions: A Dataset of Fine-Grained Emotions", ACL 2020;
    ``github.com/google-research/google-research``, Apache 2.0.
    """

    task = "multilabel"
    HOME = "https://raw.githubusercontent.com/google-research/google-research/master/goemotions/data"
    FILES: ClassVar[dict[str, RemoteFile]] = {
        "train": RemoteFile(
            "goemotions_train.tsv",
            f"{HOME}/train.tsv",
            "1c254a142be5c00e80d819b9ae1bbd36d94b2eeb8f4b1271846508d57e57d9c5",
        ),
        "validation": RemoteFile(
            "goemotions_dev.tsv", f"{HOME}/dev.tsv", "575489c079c9de1097062a01738f998590d6b7ead66dd1c9fd1d2ba01fd8bc62"
        ),
        "test": RemoteFile(
            "goemotions_test.tsv",
            f"{HOME}/test.tsv",
            "0587b2dd8b27b97352adbfc3fb083d46005c8946657fdc2b1ca8b1cc7f1f8be4",
        ),
        "labels": RemoteFile(
            "goemotions_labels.txt",
            f"{HOME}/emotions.txt",
            "45c3ef86782d2a4d7fedcd6d8c111aa0d0e94720689bd164fac94fefb4495a89",
        ),
    }

    def read_splits(self) -> dict[str, list[LabelledText]]:
        paths = self.fetch_files()
        self.class_names = paths.pop("labels").read_text(encoding="utf-8").split()
        return {split: list(read_goemotions(path, len(self.class_names))) for split, path in paths.items()}

    def encode_targets(self, splits: Mapping[str, Sequence[LabelledText]]) -> dict[str, Tensor]:
        targets = {}
        for split, rows in splits.items():
            targets[split] = torch.zeros(len(rows), len(self.class_names), dtype=torch.int64)
            for number, row in enumerate(rows):
                targets[split][number, list(row.label)] = 1
        return targets


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
