"""A user's own texts in a table: CSV, TSV, JSON Lines, Parquet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from as_lightning.bench.data.files import Place
from as_lightning.bench.data.tables import SETTINGS, Sentence, read_table
from as_lightning.bench.data.text.data_module import TextDataModule, with_missing_splits


class TextFile(TextDataModule):
    """Texts of a table with a column of texts and one of labels, a user's own or published.

    The settings are described in ``conf/data/text_file.yaml``. Without ``test_path`` the file is
    split by ``split_seed``, with it alone a tenth of the training rows are for validation. With
    ``classes``, their names, labels are numbers, from 0. A ValueError names the file and the
    malformed line.
    """

    def __init__(
        self,
        path: Place,
        validation_path: Place = None,
        test_path: Place = None,
        classes: Sequence[str] | None = None,
        **settings: Any,
    ) -> None:
        self.table = {name: settings.pop(name) for name in SETTINGS if name in settings}
        if self.table.get("label_separator") is not None:
            self.task = "multilabel"
        super().__init__(**settings)
        if validation_path is not None and test_path is None:
            raise ValueError("give test_path with validation_path, or neither")
        paths = {"train": path, "test": test_path, "validation": validation_path}
        self.paths = {name: place for name, place in paths.items() if place is not None}
        self.classes = classes
        self.splits_by_seed = test_path is None
        self.order_by_seed = validation_path is None

    def read_rows(self) -> dict[str, list[Sentence]]:
        return {split: read_table(path, **self.table) for split, path in self.files().items()}

    def read_splits(self) -> dict[str, list[Sentence]]:
        return with_missing_splits(self.read_rows(), self.split_seed)

    def encode_labels(self, labels: Mapping[str, Sequence[Any]]) -> dict[str, Tensor]:
        if self.classes is None:
            return super().encode_labels(labels)
        self.class_names = list(map(str, range(len(self.classes))))
        targets = super().encode_labels(labels)
        self.class_names = list(self.classes)
        return targets
