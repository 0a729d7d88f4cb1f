"""SST-5: how positive is a sentence of a film review?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from as_lightning.benchmark.data.download import RemoteFile
from as_lightning.benchmark.data.text.data_module import Sentence, TextDataModule


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


def read_fasttext(path: Path) -> Iterator[Sentence]:
    """Read lines of ``__label__NAME<TAB>text``; a ValueError names the file and the line."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        label, separator, text = line.partition("\t")
        if not (label.startswith("__label__") and separator and text.strip()):
            raise ValueError(f"{path}:{number}: expected '__label__NAME<TAB>text', got {line[:80]!r}")
        yield Sentence(text.strip(), label.removeprefix("__label__"))
