"""A user's own texts in a table: CSV, TSV, JSON Lines, Parquet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from as_lightning.bench.data.base import check_least
from as_lightning.bench.data.files import Place
from as_lightning.bench.data.reading import note
from as_lightning.bench.data.tables import Sentence, read_table
from as_lightning.bench.data.text.data_module import (
    TextDataModule,
    split_in_three,
    split_sentences,
)

VALIDATION_SHARE = 0.1


class TextFile(TextDataModule):
    """Texts of a table with a column of texts and one of labels, a user's own or published.

    The settings are described in ``conf/data/text_file.yaml``. Without ``test_path`` the file is
    split by ``split_seed``, with it alone a tenth of the training rows are for validation.
    ``clean`` is called with each text. A ValueError names the file and the malformed line.
    """

    def __init__(
        self,
        path: Place,
        validation_path: Place = None,
        test_path: Place = None,
        text_column: str = "text",
        label_column: str = "label",
        label_separator: str | None = None,
        columns: Sequence[str] | None = None,
        drop_blank: bool = False,
        min_per_class: int | None = None,
        encoding: str | None = None,
        quotes: bool = True,
        clean: Callable[[str], str] | None = None,
        **text: Any,
    ) -> None:
        if label_separator is not None:
            self.task = "multilabel"
        super().__init__(**text)
        if validation_path is not None and test_path is None:
            raise ValueError("give test_path with validation_path, or neither")
        check_least(1, min_per_class=min_per_class)
        places = {"train": path, "validation": validation_path, "test": test_path}
        self.paths = {"train": path} | {
            split: place for split, place in places.items() if place is not None
        }
        # Hydra reads a column 0 as a number.
        self.table: dict[str, Any] = {
            "text_column": str(text_column),
            "label_column": str(label_column),
            "label_separator": label_separator,
            "columns": None if columns is None else list(columns),
            "drop_blank": drop_blank,
            "encoding": encoding,
            "quotes": quotes,
        }
        self.clean, self.min_per_class = clean, min_per_class
        self.splits_by_seed = test_path is None
        self.order_by_seed = validation_path is None

    def read_rows(self) -> dict[str, list[Sentence]]:
        """The rows of the files that there are."""
        return {split: read_table(path, **self.table) for split, path in self.files().items()}

    def read_splits(self) -> dict[str, list[Sentence]]:
        splits = self._without_rare_classes(self.read_rows())
        if self.clean is not None:
            for split, rows in splits.items():
                splits[split] = [Sentence(self.clean(row.text), row.label) for row in rows]
                empty = sum(not row.text for row in splits[split])
                note("texts are empty but for what is removed", empty, len(rows), split=split)
        if "test" not in splits:
            return split_in_three(splits["train"], self.split_seed)
        if "validation" not in splits:
            parts = split_sentences(splits["train"], VALIDATION_SHARE, self.split_seed)
            splits["train"], splits["validation"] = parts
        return splits

    def _without_rare_classes(self, splits: dict[str, list[Sentence]]) -> dict[str, list[Sentence]]:
        """Leave out the rows of classes with fewer than ``min_per_class`` training rows."""
        if self.min_per_class is None:
            return splits
        sizes = Counter(row.label for row in splits["train"])
        rare = {label for label, size in sizes.items() if size < self.min_per_class}
        kept = {}
        for split, rows in splits.items():
            kept[split] = [row for row in rows if row.label not in rare]
            left_out = len(rows) - len(kept[split])
            example = ", ".join(sorted(map(str, rare)))
            what = f"rows of classes below data.min_per_class={self.min_per_class} are left out"
            note(what, left_out, len(rows), example, split)
        if not kept["train"]:
            raise ValueError(f"no class has data.min_per_class={self.min_per_class} rows")
        return kept
