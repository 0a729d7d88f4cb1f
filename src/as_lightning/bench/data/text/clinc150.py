"""CLINC150: queries with their intents, in one JSON file."""

from __future__ import annotations

import json
from typing import Any

from as_lightning.bench.data.files import Place
from as_lightning.bench.data.tables import Sentence
from as_lightning.bench.data.text.data_module import TextDataModule


class Clinc150(TextDataModule):
    """CLINC150 (full): 150 intents and out-of-scope, 15,100 / 3,100 / 5,500 queries, CC BY 3.0.

    ``out_of_scope`` keeps the queries that have none of the intents, as a class of their own: 100
    of the 15,100 for training, 1,000 of the 5,500 for the test.

    Source: Larson et al., "An Evaluation Dataset for Intent Classification and Out-of-Scope
    Prediction", EMNLP 2019; ``github.com/clinc/oos-eval``.
    """

    def __init__(self, path: Place, out_of_scope: bool = True, **text: Any) -> None:
        super().__init__(**text)
        self.paths, self.out_of_scope = {"all": path}, out_of_scope

    def read_splits(self) -> dict[str, list[Sentence]]:
        content = json.loads(self.files()["all"].read_text(encoding="utf-8"))
        splits = {}
        for split, part in (("train", "train"), ("validation", "val"), ("test", "test")):
            rows = content[part]  # lists of [text, label]
            if self.out_of_scope:
                rows = rows + content[f"oos_{part}"]
            splits[split] = [Sentence(*row) for row in rows]
        return splits
