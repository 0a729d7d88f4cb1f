"""20 Newsgroups: posts without headers, footers and quotes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sklearn.datasets import fetch_20newsgroups

from as_lightning.bench.data.files import RemoteFile, fetch
from as_lightning.bench.data.tables import Sentence, read_table
from as_lightning.bench.data.text.text_file import TextFile

# Copies that may lie in the data directory: JSON lines of the posts and their groups.
COPIES = {
    "train": RemoteFile(
        "newsgroups20_train.jsonl.gz",
        "scikit-learn's fetch_20newsgroups",
        "4b62fc01fdf22df003950424fb77d8da27e6ef16c8a57873d7918bad11246860",
    ),
    "test": RemoteFile(
        "newsgroups20_test.jsonl.gz",
        "scikit-learn's fetch_20newsgroups",
        "75025bbccd0d5c6c418663a7a13e5604080cbfe32724091481c6a3c8efddccd4",
    ),
}
QUOTE = re.compile(r"(writes in|writes:|wrote:|says:|said:|^In article|^Quoted from|^\||^>)")


def body(post: str) -> str:
    r"""The post without its header, the block behind its last blank or dashed line, and quotes.

    Source: scikit-learn's ``fetch_20newsgroups(remove=("headers", "footers", "quotes"))``.

    >>> body("From: a\nSubject: b\n\nHello\n> you said\nBye\n\n-- \nme")
    'Hello\nBye'
    """
    text = post.partition("\n\n")[2]
    lines = text.strip().split("\n")
    dividers = [number for number, line in enumerate(lines) if not line.strip().strip("-")]
    if dividers and dividers[-1] > 0:
        lines = lines[: dividers[-1]]
    return "\n".join(line for line in lines if not QUOTE.search(line)).strip()


class Newsgroups20(TextFile):
    """20 Newsgroups, "bydate": 11,314 / 7,532 posts of 20 groups; a tenth of the former is for
    validation. For research use.

    scikit-learn downloads it and compares its checksum, unless ``data_dir`` holds the copies.

    Source: Lang, "Newsweeder: Learning to filter netnews", ICML 1995.
    """

    def __init__(self, **text: Any) -> None:
        super().__init__(path=None, clean=body, **text)
        self.paths, self.splits_by_seed = {}, False

    def read_rows(self) -> dict[str, list[Sentence]]:
        rows = {}
        for split, copy in COPIES.items():
            if (self.data_dir / copy.name).exists():
                rows[split] = read_table(fetch(copy, self.data_dir), "text", "label")
            else:
                rows[split] = downloaded(split, self.data_dir)
        return rows


def downloaded(split: str, data_dir: Path) -> list[Sentence]:
    """The posts of a split, as scikit-learn downloads them."""
    posts = fetch_20newsgroups(data_home=str(data_dir), subset=split, shuffle=False)
    groups = [posts.target_names[target] for target in posts.target]
    return [Sentence(*row) for row in zip(posts.data, groups, strict=True)]
