"""20 Newsgroups: posts without headers, footers and quotes."""

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
        self.paths, self.splits_by_seed = {}, False

    def read_rows(self) -> dict[str, list[Sentence]]:
        rows = {}
        for split in ("train", "test"):
            posts = [Sentence(body(text), label) for text, label in self.posts(split)]
            empty = sum(not post.text for post in posts)
            note("texts are empty but for what is removed", empty, len(posts), split=split)
            rows[split] = posts
        return rows

    def posts(self, split: str) -> list[tuple[str, str]]:
        """Return the whole posts of a split and their groups."""
        copy = self.data_dir / f"newsgroups20_{split}.jsonl.gz"
        if copy.exists():
            posts = pd.read_json(copy, lines=True, dtype=False)
            return list(zip(posts["text"], posts["label"], strict=True))
        folder = str(self.data_dir)
        found = newsgroups.fetch_20newsgroups(data_home=folder, subset=split, shuffle=False)
        groups = [found.target_names[target] for target in found.target]
        return list(zip(found.data, groups, strict=True))


def body(post: str) -> str:
    """Return a post without its header, footer and quotes, as scikit-learn removes them."""
    text = newsgroups.strip_newsgroup_header(normal_form(post.strip()))
    text = newsgroups.strip_newsgroup_footer(text)
    return newsgroups.strip_newsgroup_quoting(text).strip()
