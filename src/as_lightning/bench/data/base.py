"""The base of every data module: splits, conditions, loaders, and the encoder's arguments."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import lightning.pytorch as pl
import torch
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    Dataset,
    Sampler,
    SequentialSampler,
    Subset,
    default_collate,
)

from as_lightning.bench.data.conditions import Conditions, check_least
from as_lightning.bench.data.files import Place, find_file
from as_lightning.bench.data.labels import note_alike, note_small, targets_of
from as_lightning.bench.data.loaders import EpochOrder
from as_lightning.bench.data.reading import Reading, collected_readings, said_of, say, shortened
from as_lightning.functional.variants.class_counts import class_counts_of


@dataclass(eq=False)
class LabelledDataset(Dataset[tuple[Any, Tensor]]):
    """Pairs of ``(transform(input), target)``; ``transform`` is called when an input is read."""

    inputs: Sequence[Any] | Tensor
    targets: Tensor | Sequence[Tensor]
    transform: Callable[[Any], Any] | None = None

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Any, Tensor]:
        raw_input = self.inputs[index]
        if self.transform is not None:
            raw_input = self.transform(raw_input)
        return raw_input, self.targets[index]


SPLITS = ("train", "validation", "test")

# The target: one class for a sample, any number of classes, or one class per token.
Task = Literal["multiclass", "multilabel", "token"]

SHOWN = 10  # classes that the summary names


class BenchmarkDataModule(pl.LightningDataModule):
    """Train, validation and test splits of ``(input, target)`` pairs.

    A subclass reads its splits in `load_splits` and gives the encoder's arguments in `input_spec`.
    ``setup`` fills in `class_names`, `splits` and `readings`.

    The settings are described in ``conf/data/base.yaml``. ``split_seed`` does not follow the run's
    seed: every method and every run sees the same splits.
    """

    task: Task = "multiclass"
    paths: Mapping[str, Place] = {}  # the files and folders to read, by split or content
    splits_by_seed: bool = False  # whether `split_seed` decides the test split
    order_by_seed: bool = False  # whether `split_seed` decides anything else
    random_inputs: bool = False  # whether a training input changes each time it is read
    # Makes a batch. A method would send the module and its trainer to the loader's processes.
    collate: Callable[[list[Any]], Any] = staticmethod(default_collate)

    def __init__(
        self,
        *,
        batch_size: int,
        split_seed: int | None = None,
        data_dir: str | Path = "data",
        num_workers: int = 0,
        first: int | None = None,
        **conditions: Any,
    ) -> None:
        super().__init__()
        check_least(0, num_workers=num_workers, split_seed=split_seed)
        check_least(1, batch_size=batch_size, first=first)
        self.conditions = Conditions(**conditions)
        if self.conditions.asked and self.task != "multiclass":
            raise ValueError(
                f"{self.conditions.asked} is for data of one class per sample, not for {self.task} "
                "data, whose samples belong to several classes at once"
            )
        self.data_dir = Path(data_dir).expanduser()
        self.split_seed: Any = split_seed or 0
        self.first = first
        self.batch_size, self.num_workers = batch_size, num_workers
        self.class_names: list[str] = []
        self.splits: dict[str, LabelledDataset] = {}
        self.readings: list[Reading] = []
        # By split: the samples' texts or files' names, if they have any.
        self.texts: dict[str, Sequence[str]] = {}

    @abstractmethod
    def load_splits(self) -> dict[str, LabelledDataset]:
        """Return the splits ``train``, ``validation`` and ``test``; set `class_names`."""

    @property
    @abstractmethod
    def input_spec(self) -> dict[str, Any]:
        """Return the encoder's arguments that the data give, e.g. ``{"in_channels": 1}``."""

    def prepare_data(self) -> None:
        self.files()

    def files(self) -> dict[str, Path]:
        """Return the files to read, downloaded where they are public and missing."""
        return {name: find_file(place, self.data_dir) for name, place in self.paths.items()}

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @property
    def class_counts(self) -> Tensor:
        """Return how often each class, label or token is trained on, ``int64`` ``(C)``."""
        targets = self.splits["train"].targets
        if self.task == "multilabel":
            return torch.stack(list(targets)).sum(0)
        return class_counts_of(targets, self.num_classes)

    @property
    def summary(self) -> str:
        """Return the first classes, the splits' sizes, and a line for each change by reading."""
        classes = ", ".join(self.class_names[:SHOWN])
        if self.num_classes > SHOWN:
            classes += ", ..."
        sizes = " / ".join(f"{len(self.splits[split]):,}" for split in SPLITS)
        counts = f"{self.num_classes:,} classes ({classes}); train / validation / test {sizes}"
        lines = [f"{type(self).__name__}: {counts}"]
        if self.task == "multiclass":
            rows = self.class_counts
            most, fewest = int(rows.argmax()), int(rows.argmin())
            largest = f"largest class {self.class_names[most]}: {int(rows[most]):,} rows"
            lines.append(f"{largest}; smallest {self.class_names[fewest]}: {int(rows[fewest]):,}")
        return "\n  ".join([*lines, *said_of(self.readings)])

    def setup(self, stage: str | None = None) -> None:
        if self.splits:
            return
        name = type(self).__name__
        if self.split_seed and not (self.splits_by_seed or self.order_by_seed):
            raise ValueError(f"{name} comes with its splits: leave data.split_seed out")
        with collected_readings() as self.readings:
            splits = self.load_splits()
            sizes = [len(splits[split]) for split in SPLITS]
            if self.num_classes < 2 or not all(sizes):
                raise ValueError(
                    f"{name}: expected at least 2 classes, found {shortened(self.class_names)}, "
                    f"and samples for train, validation and test, found {sizes}"
                )
            self.splits = splits
            note_alike(self.class_names)
            self._select_rows()
        say(self.summary)
        train = self.splits["train"]
        if self.conditions.label_noise and isinstance(train.targets, Tensor):
            train.targets = self.conditions.noisy(train.targets, self.num_classes)

    def example_names(self, split: str) -> list[str]:
        """Return a name of each example of a split: its text, its file's name, or its number."""
        if split in self.texts:
            return list(self.texts[split])
        numbers = range(len(self.splits[split]))
        return [f"{split} example {number} of split {self.split_seed}" for number in numbers]

    def _select_rows(self) -> None:
        """Keep the first training samples, and of these what the conditions draw."""
        if self.first is not None:
            self._keep(range(min(self.first, len(self.splits["train"]))))
        if self.task == "multiclass":
            note_small(self.class_counts, self.class_names)
        if self.conditions.shots or self.conditions.imbalance:
            targets = torch.as_tensor(list(self.splits["train"].targets))
            self._keep(self.conditions.drawn(targets, self.class_counts, self.class_names))

    def _keep(self, rows: Sequence[int]) -> None:
        train = self.splits["train"]
        inputs, targets = rows_of(train.inputs, rows), rows_of(train.targets, rows)
        self.splits["train"] = LabelledDataset(inputs, targets, train.transform)
        if "train" in self.texts:
            self.texts["train"] = [self.texts["train"][row] for row in rows]

    def encode_labels(self, labels: Mapping[str, Sequence[Any]]) -> dict[str, Tensor]:
        """Return the targets of each split; without `class_names` take the training labels."""
        several = self.task == "multilabel"
        self.class_names, targets = targets_of(labels, self.class_names, several)
        return targets

    def train_dataloader(self) -> DataLoader[Any]:
        return self.loader(self.splits["train"], shuffle=True)

    def val_dataloader(self) -> DataLoader[Any]:
        return self.loader(self.splits["validation"])

    def test_dataloader(self) -> DataLoader[Any]:
        return self.loader(self.splits["test"])

    def loader(self, dataset: Any, *, shuffle: bool = False) -> DataLoader[Any]:
        """Return a loader whose order the run's seed and epoch decide, not the random state."""
        order: Sampler[int] = SequentialSampler(dataset)
        if shuffle:
            # for trainer.overfit_batches Lightning repeats samples, but not with a batch sampler
            fixed = bool(getattr(self.trainer, "overfit_batches", 0))
            order = EpochOrder(dataset, torch.initial_seed(), fixed)
        return DataLoader(
            dataset,
            **self.batching(dataset, order),
            num_workers=self.num_workers,
            pin_memory=torch.cuda.is_available(),
            persistent_workers=self.num_workers > 0,
            collate_fn=self.collate,
            generator=torch.Generator(),
        )

    def batching(self, dataset: Any, order: Sampler[int]) -> dict[str, Any]:
        """Return the ``DataLoader`` arguments that cut the sampler's samples into batches."""
        return {"batch_size": self.batch_size, "sampler": order}


def rows_of(values: Any, rows: Sequence[int]) -> Any:
    return values[rows] if isinstance(values, Tensor) else Subset(values, rows)


def check_processes_of_test(trainer: pl.Trainer, samples: int) -> None:
    """Raise a ValueError for a test whose samples cannot be dealt out evenly to all processes."""
    # Lightning's sampler gives each process as many, and repeats the first ones to that end.
    repeated = -samples % trainer.world_size
    if repeated:
        raise ValueError(
            f"{trainer.world_size} processes would score {repeated} of the {samples} test samples "
            "twice: train with test=false, and test in one process (trainer.devices=1)"
        )
