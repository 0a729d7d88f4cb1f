"""The next token of Python source code: the data module of ``experiment=python_code``.

PYTHONPATH=results/python_code as-lightning 'hydra.searchpath=[file://results/conf]'
experiment=python_code
"""

from __future__ import annotations

import random
import re
import sysconfig
import tokenize
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Sampler, SequentialSampler, default_collate

from as_lightning.bench.data.base import SPLITS, BenchmarkDataModule, LabelledDataset, check_least
from as_lightning.bench.data.reading import note
from as_lightning.bench.encoders.from_scratch import TextTransformer

UNKNOWN, END_OF_FILE = "[UNK]", "[EOF]"
LEFT_OUT = {"test", "tests", "idle_test", "site-packages"}
# the words, numbers and signs of source code, also in comments and strings; white space is no token
TOKEN = re.compile(r"[^\W\d]\w*|\d\w*(?:\.\d\w*)?|[^\w\s]")
HELD_OUT = 0.05  # share of the files for validation, and for test
LEAST_FILES = 10
LEAST_COUNT = 2  # of a token in the training files, to be a class of its own
EVALUATION_TOKENS = 1024  # per batch of validation and test at most, as they hold their logits


def token_blocks(tokens: Sequence[int], block_length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cut ``T`` token ids into blocks of ``L``, and give each token the next one as its target.

    Both are ``int64`` of shape ``((T - 1) // L, L)``; tokens that fill no block are left out.
    """
    stream = torch.tensor(tokens, dtype=torch.int64)
    end = max(len(stream) - 1, 0) // block_length * block_length
    return stream[:end].view(-1, block_length), stream[1 : end + 1].view(-1, block_length)


def flat_batch(samples: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Make a batch of blocks, with one target for each of its tokens."""
    inputs, target = default_collate(samples)
    return inputs, target.flatten()


class TokenTransformer(TextTransformer):
    """The app's transformer, whose tokens see themselves and those before them, with the features
    of all tokens of a batch, ``(N * L, width)``.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(padding_id=0, **settings)
        self.token_embedding.padding_idx = None  # no token pads

    def forward(self, token_ids: torch.Tensor) -> torch.Tensor:
        seen = token_ids.size(1)
        later = torch.ones(seen, seen, dtype=torch.bool, device=token_ids.device).triu(1)
        hidden = self.encoder(self.embedded(token_ids), mask=later, is_causal=True)
        return hidden.flatten(0, 1)


class PythonCode(BenchmarkDataModule):
    """Predict the next token of the standard library's source code; no download.

    The files are split 90 / 5 / 5 %. A token is a word, a number or a sign. The first two classes
    stand for any other token and for the end of a file; the other classes are the tokens that the
    training files have at least twice.

    Batches are ``(token ids (N, L) int64, the token after each (N * L) int64)``, for a causal
    network, as `TokenTransformer`; those of validation and test have at most 1,024 tokens. The
    settings are described in ``conf/data/python_code.yaml``.
    """

    splits_by_seed = True
    collate = staticmethod(flat_batch)

    def __init__(
        self,
        *,
        block_length: int,
        batch_tokens: int,
        max_tokens: Mapping[str, int | None],
        root: str | Path | None = None,
        **loader: Any,
    ) -> None:
        check_least(1, block_length=block_length, batch_tokens=batch_tokens)
        if batch_tokens % block_length:
            raise ValueError(
                f"batch_tokens must be a multiple of block_length={block_length}, got "
                f"{batch_tokens}"
            )
        super().__init__(batch_size=batch_tokens // block_length, **loader)
        self.block_length = block_length
        self.root = Path(root or sysconfig.get_path("stdlib")).expanduser()
        self.paths = {"root": self.root}
        check_least(1, **max_tokens)
        self.max_tokens = max_tokens

    def files(self) -> dict[str, Path]:
        files = {}
        for file in sorted(self.root.rglob("*.py")):
            if LEFT_OUT.isdisjoint(file.relative_to(self.root).parts):
                files[str(file)] = file
        return files

    @property
    def input_spec(self) -> dict[str, Any]:
        return {"vocab_size": self.num_classes, "max_length": self.block_length}

    def batching(self, dataset: Any, order: Sampler[int]) -> dict[str, Any]:
        blocks = self.batch_size
        if isinstance(order, SequentialSampler):
            blocks = min(blocks, max(1, EVALUATION_TOKENS // self.block_length))
        return {"batch_size": blocks, "sampler": order}

    def split_files(self) -> dict[str, list[Path]]:
        """The source files of each split, in random order."""
        files = list(self.files().values())
        if len(files) < LEAST_FILES:
            raise ValueError(
                f"{self.root}: expected at least {LEAST_FILES} files that end in .py, found "
                f"{len(files)}"
            )
        held_out = max(1, round(HELD_OUT * len(files)))
        random.Random(self.split_seed).shuffle(files)
        return {
            "train": files[2 * held_out :],
            "validation": files[:held_out],
            "test": files[held_out : 2 * held_out],
        }

    def load_splits(self) -> dict[str, LabelledDataset]:
        pairs = {
            split: [(file, _tokens_of(file)) for file in files]
            for split, files in self.split_files().items()
        }
        if unread := [
            str(file) for rows in pairs.values() for file, tokens in rows if tokens is None
        ]:
            files = sum(map(len, pairs.values()))
            note("files are not in the encoding they declare", unread, files)
        texts = {
            split: [tokens for _, tokens in rows if tokens is not None]
            for split, rows in pairs.items()
        }
        counts = Counter(token for text in texts["train"] for token in text)
        frequent = sorted(
            (-count, token) for token, count in counts.items() if count >= LEAST_COUNT
        )
        self.class_names = [UNKNOWN, END_OF_FILE, *(token for _, token in frequent)]
        index = {token: number for number, token in enumerate(self.class_names)}
        splits = {}
        for split in SPLITS:
            stream = chain.from_iterable([*text, END_OF_FILE] for text in texts[split])
            tokens = [index.get(token, 0) for token in islice(stream, self.max_tokens.get(split))]
            splits[split] = LabelledDataset(*token_blocks(tokens, self.block_length))
        return splits


def _tokens_of(file: Path) -> list[str] | None:
    try:
        with tokenize.open(file) as source:  # in the encoding that the file declares
            return TOKEN.findall(source.read())
    except (SyntaxError, UnicodeDecodeError):
        return None
