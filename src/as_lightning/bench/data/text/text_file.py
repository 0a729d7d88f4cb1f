"""A user's own texts in a table: CSV, TSV, JSON Lines, Parquet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from as_lightning.bench.data.files import Place, read_text
from as_lightning.bench.data.tables import Sentence, read_table
from as_lightning.bench.data.text.data_module import TextDataModule, split_in_three, split_sentences

VALIDATION_SHARE = 0.1


class TextFile(TextDataModule):
    """Texts of a table with a column of texts and one of labels, a user's own or published.

    The settings are described in ``conf/data/text_file.yaml``. Without ``test_path`` the file is
    split by ``split_seed``, with it alone a tenth of the training rows are for validation. With
    ``classes_path``, a file of class names, labels are numbers of its lines, from 0. A ValueError
    names the file and the malformed line.
    """

    def __init__(
        self,
        path: Place,
        validation_path: Place = None,
        test_path: Place = None,
        classes_path: Place = None,
        text_column: str = "text",
        label_column: str = "label",
        label_separator: str | None = None,
        columns: Sequence[str] | None = None,
        separator: str | None = None,
        drop_blank: bool = False,
        encoding: str | None = None,
        quotes: bool = True,
        **text: Any,
    ) -> None:
        if label_separator is not None:
            self.task = "multilabel"
        super().__init__(**text)
        if validation_path is not None and test_path is None:
            raise ValueError("give test_path with validation_path, or neither")
        self.paths = {"train": path}
        if test_path is not None:
            self.paths["test"] = test_path
        if validation_path is not None:
            self.paths["validation"] = validation_path
        if classes_path is not None:
            self.paths["classes"] = classes_path
        self.table: dict[str, Any] = {
            "text_column": text_column,
            "label_column": label_column,
            "label_separator": label_separator,
            "columns": columns,
            "separator": separator,
            "drop_blank": drop_blank,
            "encoding": encoding,
            "quotes": quotes,
        }
        self.splits_by_seed = test_path is None
        self.order_by_seed = validation_path is None

    def read_rows(self) -> dict[str, list[Sentence]]:
        """Return the rows of the files that there are."""
        paths = self.files()
        classes = paths.pop("classes", None)
        rows = {split: read_table(path, **self.table) for split, path in paths.items()}
        if classes is None:
            return rows
        self.class_names = read_text(classes).strip().split("\n")
        for split, numbered in rows.items():
            rows[split] = [row._replace(label=self._named(row.label)) for row in numbered]
        return rows

    def _named(self, label: Any) -> Any:
        if isinstance(label, tuple):
            return tuple(map(self._named, label))
        return self.class_names[int(label)]

    def read_splits(self) -> dict[str, list[Sentence]]:
        splits = self.read_rows()
        if "test" not in splits:
            return split_in_three(splits["train"], self.split_seed)
        if "validation" not in splits:
            parts = split_sentences(splits["train"], VALIDATION_SHARE, self.split_seed)
            splits["train"], splits["validation"] = parts
        return splits
