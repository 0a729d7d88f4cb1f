"""CLINC150: which intent has a query?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

from as_lightning.benchmark.data.download import RemoteFile
from as_lightning.benchmark.data.text.data_module import Sentence, TextDataModule


class Clinc150(TextDataModule):
    """CLINC150 (full): 150 intents and out-of-scope, 15,100 / 3,100 / 5,500 queries, CC BY 3.0.

    Source: Larson et al., "An Evaluation Dataset for Intent Classification and Out-of-Scope Prediction", EMNLP 2019;
    ``github.com/clinc/oos-eval``.

    Args:
        out_of_scope: keep the queries that have none of the intents, as a class of their own: 100 of the 15,100 for
            training, 1,000 of the 5,500 for the test.
        **text: arguments of `TokenizedDataModule`.
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
        parts = read_clinc_json(self.fetch_files()["all"])
        return {
            split: parts[part] + (parts[f"oos_{part}"] if self.out_of_scope else [])
            for split, part in (("train", "train"), ("validation", "val"), ("test", "test"))
        }


def read_clinc_json(path: Path) -> dict[str, list[Sentence]]:
    """Read CLINC150's JSON object of lists of ``[text, label]``; a ValueError names the file and the entry."""
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
