"""GoEmotions: which emotions has a comment?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from as_lightning.benchmark.data.download import RemoteFile
from as_lightning.benchmark.data.text.data_module import LabelledText, MultilabelSentence, TextDataModule


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
            ones = [(number, label) for number, row in enumerate(rows) for label in row.label]
            targets[split] = torch.zeros(len(rows), len(self.class_names), dtype=torch.int64)
            targets[split][tuple(torch.tensor(ones).T)] = 1
        return targets


def read_goemotions(path: Path, num_classes: int) -> Iterator[MultilabelSentence]:
    """Read lines of ``text<TAB>label indices, with commas between<TAB>id``.

    A ValueError names the file and the line.
    """
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
        fields = line.rstrip("\r").split("\t")
        if fields == [""]:
            continue
        labels = fields[1].split(",") if len(fields) == 3 else []
        if len(fields) != 3 or not all(label.isdecimal() for label in labels):
            raise ValueError(f"{path}:{number}: expected 'text<TAB>label indices<TAB>id', got {line[:80]!r}")
        indices = tuple(int(label) for label in labels)
        if max(indices) >= num_classes:
            raise ValueError(f"{path}:{number}: expected labels from 0 to {num_classes - 1}, got {max(indices)}")
        yield MultilabelSentence(fields[0], indices)
