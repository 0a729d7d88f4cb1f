"""Published texts: their files' addresses and checksums, and how the files are read."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from as_lightning.bench.data.files import RemoteFile
from as_lightning.bench.data.tables import Sentence
from as_lightning.bench.data.text.data_module import TextDataModule


class Clinc150(TextDataModule):
    """CLINC150 (full): 150 intents and out-of-scope, 15,100 / 3,100 / 5,500 queries, CC BY 3.0.

    Source: Larson et al., "An Evaluation Dataset for Intent Classification and Out-of-Scope
    Prediction", EMNLP 2019; ``github.com/clinc/oos-eval``.

    ``out_of_scope`` keeps the queries that have none of the intents, as a class of their own: 100
    of the 15,100 for training, 1,000 of the 5,500 for the test.
    """

    FILES: ClassVar[dict[str, RemoteFile]] = {
        "all": RemoteFile(
            "clinc150.json",
            "https://raw.githubusercontent.com/clinc/oos-eval/master/data/data_full.json",
            "36923c3705a59e08fe9c3883d8bc2dd966ef93e22cb78ac41171782a698d56e0",
        )
    }

    def __init__(self, out_of_scope: bool = True, **text: Any) -> None:
        super().__init__(**text)
        self.out_of_scope = out_of_scope

    def read_splits(self) -> dict[str, list[Sentence]]:
        content = json.loads(self.files()["all"].read_text(encoding="utf-8"))
        splits = {}
        for split, part in (("train", "train"), ("validation", "val"), ("test", "test")):
            rows = content[part]  # lists of [text, label]
            if self.out_of_scope:
                rows = rows + content[f"oos_{part}"]
            splits[split] = [Sentence(*row) for row in rows]
        return splits


class GoEmotions(TextDataModule):
    """GoEmotions: comments with any of 27 emotions or neutral, 43,410 / 5,426 / 5,427, several
    labels a comment.

    Targets are ``(N, 28)`` ``int64`` in {0, 1}.

    Source: Demszky et al., "GoEmotions: A Dataset of Fine-Grained Emotions", ACL 2020;
    ``github.com/google-research/google-research``, Apache 2.0.
    """

    task = "multilabel"
    HOME = (
        "https://raw.githubusercontent.com/google-research/google-research/master/goemotions/data/"
    )
    FILES: ClassVar[dict[str, RemoteFile]] = {
        "train": RemoteFile(
            "goemotions_train.tsv",
            f"{HOME}train.tsv",
            "1c254a142be5c00e80d819b9ae1bbd36d94b2eeb8f4b1271846508d57e57d9c5",
        ),
        "validation": RemoteFile(
            "goemotions_dev.tsv",
            f"{HOME}dev.tsv",
            "575489c079c9de1097062a01738f998590d6b7ead66dd1c9fd1d2ba01fd8bc62",
        ),
        "test": RemoteFile(
            "goemotions_test.tsv",
            f"{HOME}test.tsv",
            "0587b2dd8b27b97352adbfc3fb083d46005c8946657fdc2b1ca8b1cc7f1f8be4",
        ),
        "labels": RemoteFile(
            "goemotions_labels.txt",
            f"{HOME}emotions.txt",
            "45c3ef86782d2a4d7fedcd6d8c111aa0d0e94720689bd164fac94fefb4495a89",
        ),
    }

    def read_splits(self) -> dict[str, list[Sentence]]:
        paths = self.files()
        self.class_names = paths.pop("labels").read_text(encoding="utf-8").split()
        splits: dict[str, list[Sentence]] = {}
        for split, path in paths.items():
            splits[split] = []
            for line in path.read_text(encoding="utf-8").strip("\n").split("\n"):
                text, labels, _ = line.split("\t")  # labels: indices with commas between them
                names = tuple(self.class_names[int(label)] for label in labels.split(","))
                splits[split].append(Sentence(text, names))
        return splits
