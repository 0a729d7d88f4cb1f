"""Text: sentences cut by a tokeniser that is fitted on the training split, padded batch by batch."""

from __future__ import annotations

import csv
import json
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from sklearn.model_selection import train_test_split
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from as_lightning.data.base import BenchmarkDataModule
from as_lightning.data.download import RemoteFile, fetch

PADDING, UNKNOWN = "[PAD]", "[UNK]"


class Sentence(NamedTuple):
    """A text and the name of its class."""

    text: str
    label: str


def fit_tokenizer(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """A byte-pair tokeniser (lower-cased, accents stripped) of at most ``vocab_size`` tokens; padding is token 0.

    Byte-pair merges without a continuing-subword prefix: with one, as WordPiece has, the library breaks ties in the
    order of a hash map, and two fits on the same texts differ.
    """
    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=[PADDING, UNKNOWN], show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


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


class TokenizedSentences(Dataset[tuple[Tensor, int]]):
    """Sentences as ``(token ids of shape (length,), class index)``."""

    def __init__(self, token_ids: list[Tensor], targets: list[int]) -> None:
        self.token_ids, self.targets = token_ids, targets

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.token_ids[index], self.targets[index]


class TextDataModule(BenchmarkDataModule):
    """Sentence classification with a tokeniser fitted on the training split.

    Batches are ``(token ids (N, longest of the batch) int64, padded with 0; class indices (N,) int64)``. A subclass
    reads its splits.

    Args:
        data_dir: where its files are, or are downloaded to.
        vocab_size: the tokeniser's largest vocabulary, at least 3.
        max_length: tokens that are kept of a sentence, at least 1.
        **loader: arguments of :class:`BenchmarkDataModule`.

    Raises:
        ValueError: if an argument is out of range, a file is malformed, or a class of a later split is not among the
            training split's.
    """

    def __init__(
        self, data_dir: str | Path = "data", vocab_size: int = 4000, max_length: int = 64, **loader: Any
    ) -> None:
        super().__init__(**loader)
        if vocab_size < 3:
            raise ValueError(f"vocab_size must be at least 3 (two tokens are special), got {vocab_size}")
        if max_length < 1:
            raise ValueError(f"max_length must be at least 1, got {max_length}")
        self.data_dir, self.vocab_size, self.max_length = Path(data_dir), vocab_size, max_length
        self.tokenizer: Tokenizer | None = None

    @abstractmethod
    def read_splits(self) -> dict[str, list[Sentence]]:
        """The splits ``train``, ``validation`` and ``test``."""

    @property
    def input_spec(self) -> dict[str, Any]:
        if self.tokenizer is None:
            raise RuntimeError("the vocabulary is known after setup()")
        return {"vocab_size": self.tokenizer.get_vocab_size(), "max_length": self.max_length}

    def setup(self, stage: str | None = None) -> None:
        if self.splits:
            return
        sentences = self.read_splits()
        self.class_names = sorted({sentence.label for sentence in sentences["train"]})
        class_index = {name: index for index, name in enumerate(self.class_names)}
        self.tokenizer = fit_tokenizer((sentence.text for sentence in sentences["train"]), self.vocab_size)
        for split, rows in sentences.items():
            unknown = sorted({row.label for row in rows} - class_index.keys())
            if unknown:
                raise ValueError(f"the {split} split has classes that the train split lacks: {', '.join(unknown)}")
            encodings = self.tokenizer.encode_batch_fast([row.text for row in rows])
            # a text of unknown characters alone may leave no token: keep one, so that pooling has something to read
            token_ids = [torch.tensor(encoding.ids[: self.max_length] or [1]) for encoding in encodings]
            self.splits[split] = TokenizedSentences(token_ids, [class_index[row.label] for row in rows])

    def collate(self, samples: list[tuple[Tensor, int]]) -> tuple[Tensor, Tensor]:
        token_ids, targets = zip(*samples, strict=True)
        return pad_sequence(list(token_ids), batch_first=True), torch.tensor(targets)


class Clinc150(TextDataModule):
    """CLINC150 (full): 150 intents and out-of-scope, 15,100 / 3,100 / 5,500 queries, CC BY 3.0.

    Source: Larson et al., "An Evaluation Dataset for Intent Classification and Out-of-Scope Prediction", EMNLP 2019;
    ``github.com/clinc/oos-eval``.
    """

    FILE = RemoteFile(
        "clinc150.json",
        "https://raw.githubusercontent.com/clinc/oos-eval/master/data/data_full.json",
        "36923c3705a59e08fe9c3883d8bc2dd966ef93e22cb78ac41171782a698d56e0",
    )

    def prepare_data(self) -> None:
        fetch(self.FILE, self.data_dir)

    def read_splits(self) -> dict[str, list[Sentence]]:
        path = fetch(self.FILE, self.data_dir)
        parts = read_clinc_json(path)
        return {
            split: parts[part] + parts[f"oos_{part}"]
            for split, part in (("train", "train"), ("validation", "val"), ("test", "test"))
        }


def read_clinc_json(path: Path) -> dict[str, list[Sentence]]:
    """Read a file in CLINC150's format: a JSON object of lists of ``[text, label]``.

    Raises:
        ValueError: if the file is not such an object; the message names the file and the line or the entry.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: expected JSON, got {error}") from error
    names = [prefix + name for prefix in ("", "oos_") for name in ("train", "val", "test")]
    missing = [name for name in names if not isinstance(content, dict) or not isinstance(content.get(name), list)]
    if missing:
        raise ValueError(f"{path}: expected a JSON object with the lists {', '.join(names)}; missing {missing[0]}")
    for name in names:
        for index, entry in enumerate(content[name]):
            if not (isinstance(entry, list) and len(entry) == 2 and all(isinstance(part, str) for part in entry)):
                raise ValueError(f"{path}: {name}[{index}]: expected [text, label], got {json.dumps(entry)[:200]}")
    return {name: [Sentence(*entry) for entry in content[name]] for name in names}


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

    def prepare_data(self) -> None:
        for file in self.FILES.values():
            fetch(file, self.data_dir)

    def read_splits(self) -> dict[str, list[Sentence]]:
        return {split: list(read_fasttext(fetch(file, self.data_dir))) for split, file in self.FILES.items()}


def read_fasttext(path: Path) -> Iterator[Sentence]:
    """Read lines of ``__label__NAME<TAB>text``.

    Raises:
        ValueError: if a line is malformed; the message names the file and the line.
    """
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        label, separator, text = line.partition("\t")
        if not (label.startswith("__label__") and separator and text.strip()):
            raise ValueError(f"{path}:{number}: expected '__label__NAME<TAB>text', got {line[:80]!r}")
        yield Sentence(text.strip(), label.removeprefix("__label__"))


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
        return {"train": train, "validation": self._read(self.validation_path), "test": self._read(self.test_path)}

    def _read(self, path: str | Path) -> list[Sentence]:
        return list(read_table(self.data_dir / path, self.text_column, self.label_column))


def read_table(path: Path, text_column: str, label_column: str) -> Iterator[Sentence]:
    """Read the texts and labels of a ``.csv``, ``.tsv`` or ``.jsonl`` file.

    Raises:
        ValueError: if the ending is another, a column is missing, or a row has no text or no label; the message names
            the file and the line.
    """
    if path.suffix not in (".csv", ".tsv", ".jsonl"):
        raise ValueError(f"{path}: expected a file that ends in .csv, .tsv or .jsonl")
    with path.open(encoding="utf-8", newline="") as lines:
        rows = _json_rows(path, lines) if path.suffix == ".jsonl" else _delimited_rows(path, lines)
        empty = True
        for number, row in rows:
            empty = False
            for column in (text_column, label_column):
                if column not in row:
                    raise ValueError(f"{path}:{number}: no column {column!r}, there are {', '.join(map(repr, row))}")
            text, label = row[text_column], row[label_column]
            if not isinstance(text, str) or not text.strip() or label is None or not str(label).strip():
                raise ValueError(f"{path}:{number}: expected a text and a label, got {text!r} and {label!r}")
            yield Sentence(text.strip(), str(label).strip())
    if empty:
        raise ValueError(f"{path}: expected rows of texts and labels, got none")


def _delimited_rows(path: Path, lines: Iterable[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    reader = csv.DictReader(lines, delimiter="," if path.suffix == ".csv" else "\t", strict=True)
    try:
        for row in reader:
            if None in row:
                raise ValueError(
                    f"{path}:{reader.line_num}: more fields than the {len(row) - 1} columns of the first line"
                )
            yield reader.line_num, row
    except csv.Error as error:
        raise ValueError(f"{path}:{reader.line_num + 1}: {error}") from error  # line_num is of the row before


def _json_rows(path: Path, lines: Iterable[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}:{number}: expected a JSON object, got {error}") from error
        if not isinstance(row, dict):
            raise ValueError(f"{path}:{number}: expected a JSON object, got {line.strip()[:80]!r}")
        yield number, row
