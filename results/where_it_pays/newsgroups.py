"""20 Newsgroups, posts without headers, footers and quotes: the data module of
``experiment=newsgroups20``.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
from sklearn.datasets import _twenty_newsgroups as newsgroups

from as_lightning.bench.data.files import normal_form
from as_lightning.bench.data.reading import note
from as_lightning.bench.data.tables import Sentence
from as_lightning.bench.data.text.text_file import TextFile


class Newsgroups20(TextFile):
    """20 Newsgroups, "bydate": 11,314 / 7,532 posts of 20 groups; a tenth of the former is for
    validation. For research use.

    scikit-learn downloads it and compares its checksum, unless ``data_dir`` holds the whole posts
    in ``newsgroups20_train.jsonl.gz`` and ``newsgroups20_test.jsonl.gz``.

    Source: Lang, "Newsweeder: Learning to filter netnews", ICML 1995.
    """

    def __init__(self, **text: Any) -> None:
        super().__init__(path=None, **text)
        self.splits_by_seed = False

    def read_rows(self) -> dict[str, list[Sentence]]:
        rows = {}
        for split in ("train", "test"):
            copy = self.data_dir / f"newsgroups20_{split}.jsonl.gz"
            if copy.exists():
                posts = pd.read_json(copy, lines=True, dtype=False)
                texts, labels = posts["text"], posts["label"]
            else:
                settings = {"data_home": str(self.data_dir), "subset": split, "shuffle": False}
                posts = newsgroups.fetch_20newsgroups(**settings)
                texts, labels = posts.data, [posts.target_names[row] for row in posts.target]
            bodies = list(map(body, texts))
            empty = [text for text, left in zip(texts, bodies, strict=True) if not left]
            note("texts are empty but for what is removed", empty, len(bodies), split)
            rows[split] = list(map(Sentence, bodies, labels))
        return rows


def body(post: str) -> str:
    """Return a post without its header, footer and quotes, as scikit-learn removes them."""
    text = newsgroups.strip_newsgroup_header(normal_form(post.strip()))
    text = newsgroups.strip_newsgroup_footer(text)
    return newsgroups.strip_newsgroup_quoting(text).strip()
