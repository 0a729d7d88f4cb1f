"""The base of every data module: splits, loaders, label noise, and the encoder's arguments."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import lightning.pytorch as pl
import torch
from lightning.pytorch.utilities import rank_zero_only
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    Dataset,
    Sampler,
    SequentialSampler,
    Subset,
    default_collate,
)

from as_lightning.bench.data.conditions import (
    NoiseKind,
    corrupt_labels,
    drawn_rows,
    long_tail_sizes,
    thirds_by_count,
)
from as_lightning.bench.data.files import RemoteFile, fetch, find_path, shortened
from as_lightning.bench.data.loaders import EpochOrder
from as_lightning.functional.argument_checks import check_choice, check_count, check_number
from as_lightning.functional.variants.class_counts import class_counts_of

log = logging.getLogger(__name__)


COLLECTORS: list[list[str]] = []  # a list for each open block of `collected_messages`


@rank_zero_only
def say(message: str) -> None:
    """Log a message about the data, or add it to the messages of the innermost block of
    `collected_messages`.
    """
    if COLLECTORS:
        COLLECTORS[-1].append(message)
    else:
        log.info(message)


@contextmanager
def collected_messages() -> Iterator[list[str]]:
    """Collect the messages of `say` in a list, in the place of a log; for a command whose log is
    off.
    """
    messages: list[str] = []
    COLLECTORS.append(messages)
    try:
        yield messages
    finally:
        COLLECTORS.pop()


@dataclass(eq=False)
class LabelledDataset(Dataset[tuple[Any, Tensor]]):
    """Pairs of ``(transform(input), target)``; ``transform`` is called each time an
    input is read.
    """

    inputs: Sequence[Any] | Tensor
    targets: Tensor | Sequence[Tensor]
    transform: Callable[[Any], Any] | None = None

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Any, Tensor]:
        raw_input = self.inputs[index]
        return (raw_input if self.transform is None else self.transform(raw_input)), self.targets[
            index
        ]


def check_least(least: int, **values: int) -> None:
    """Raise a TypeError for an argument that is no integer, a ValueError for one below ``least``;
    both name it.
    """
    for name, value in values.items():
        check_count(name, value, least=least)


SPLITS = ("train", "validation", "test")

Limit = int | Mapping[str, int | None] | None


def split_limits(name: str, limit: Limit) -> dict[str, int | None]:
    """The limit of each split, from one for all or a mapping; a ValueError for one below 1 or an
    unknown split.
    """
    limits = limit if isinstance(limit, Mapping) else dict.fromkeys(SPLITS, limit)
    unknown = sorted(set(limits) - set(SPLITS))
    if unknown:
        raise ValueError(f"{name} has the splits train, validation and test, got {unknown[0]!r}")
    for number in limits.values():
        check_least(1, **{name: 1 if number is None else number})
    return {split: limits.get(split) for split in SPLITS}


# the target: one class for a sample, any number of classes, one class per token, or the next token
# after each
Task = Literal["multiclass", "multilabel", "token", "next_token"]

SHOWN = 10  # classes that the summary names


class BenchmarkDataModule(pl.LightningDataModule):
    """A ``LightningDataModule`` with train, validation and test splits of ``(input, target)``
    pairs.

    A subclass reads its splits in `load_splits` and gives the encoder's arguments in `input_spec`.
    ``setup`` fills in `class_names` and `splits`.

    The settings are described in ``conf/data/base.yaml``. ``label_noise_seed`` and ``split_seed``
    do not follow the run's seed: every method and every run sees the same labels and splits.
    """

    task: ClassVar[Task] = "multiclass"
    FILES: ClassVar[dict[str, RemoteFile]] = {}  # a published data set's files, by split or content
    paths: Mapping[
        str, str | Path | None
    ] = {}  # the user's own files and folders, by split or content
    from_standard_library: bool = False  # the data differ between versions of Python
    splits_by_seed: bool = (
        False  # whether `split_seed` decides the test split, as there is no official one
    )
    order_by_seed: ClassVar[bool] = False  # whether `split_seed` decides anything else
    # makes a batch; a method would send the module and its trainer to the loader processes
    collate: Callable[[list[Any]], Any] = staticmethod(default_collate)

    def __init__(
        self,
        *,
        batch_size: int,
        split_seed: int | None = None,
        data_dir: str | Path = "data",
        num_workers: int = 0,
        pin_memory: bool = False,
        label_noise: float = 0.0,
        label_noise_kind: NoiseKind | None = None,
        label_noise_seed: int = 0,
        shots: int | None = None,
        imbalance: float | None = None,
        first: int | None = None,
    ) -> None:
        super().__init__()
        check_least(
            0,
            num_workers=num_workers,
            split_seed=split_seed or 0,
            label_noise_seed=label_noise_seed,
        )
        check_least(
            1,
            batch_size=batch_size,
            shots=1 if shots is None else shots,
            first=1 if first is None else first,
        )
        check_number("label_noise", label_noise, lambda share: 0 <= share <= 1, "a share in [0, 1]")
        label_noise_kind = label_noise_kind or "uniform"
        check_choice("label_noise_kind", label_noise_kind, get_args(NoiseKind))
        expected = "a number of at least 1, largest to smallest class"
        check_number(
            "imbalance", 1 if imbalance is None else imbalance, lambda number: number >= 1, expected
        )
        for name, value in (
            ("label_noise", label_noise),
            ("shots", shots),
            ("imbalance", imbalance),
        ):
            if value and self.task != "multiclass":
                raise ValueError(
                    f"{name}={value} is for data of one class per sample, not for {self.task} "
                    "data, whose samples "
                    "belong to several classes at once"
                )
        if shots is not None and imbalance is not None:
            raise ValueError(
                f"shots={shots} and imbalance={imbalance} both set how many samples a class has: "
                "give one"
            )
        self.data_dir = Path(data_dir).expanduser()
        self.split_seed: Any = split_seed or 0
        self.shots, self.imbalance, self.first = shots, imbalance, first
        self.batch_size, self.num_workers, self.pin_memory = batch_size, num_workers, pin_memory
        self.label_noise, self.label_noise_kind, self.label_noise_seed = (
            label_noise,
            label_noise_kind,
            label_noise_seed,
        )
        self.class_names: list[str] = []
        self.splits: dict[str, LabelledDataset] = {}
        self.true_targets: Tensor | None = None  # of the training split before label noise
        self.texts: dict[
            str, Sequence[str]
        ] = {}  # by split: the samples' texts or files' names, if any

    @abstractmethod
    def load_splits(self) -> dict[str, LabelledDataset]:
        """Read the splits ``train``, ``validation`` and ``test``, and set `class_names`."""

    @property
    @abstractmethod
    def input_spec(self) -> dict[str, Any]:
        """Keyword arguments that the data gives to the encoder, e.g. ``{"in_channels": 1}``."""

    def prepare_data(self) -> None:
        self.files()

    def files(self) -> dict[str, Path]:
        """The files to read the splits from: `FILES`, downloaded if not in ``data_dir``, and the
        user's own `paths`.

        A FileNotFoundError names a file of the user's that is missing.
        """
        fetched = {name: fetch(file, self.data_dir) for name, file in self.FILES.items()}
        return fetched | {name: find_path(path, self.data_dir) for name, path in self.paths.items()}

    @property
    def random_inputs(self) -> bool:
        """Whether a training sample's input changes each time it is read, as with random
        augmentation.
        """
        return False

    @property
    def num_classes(self) -> int:
        """The number of classes."""
        return len(self.class_names)

    @property
    def class_counts(self) -> Tensor:
        """How often each class, label or token is in the training split as it is trained on,
        ``int64`` ``(C)``.
        """
        targets = self.splits["train"].targets
        if self.task == "multilabel":
            return torch.stack(list(targets)).sum(0)
        return class_counts_of(targets, self.num_classes)

    @property
    def class_groups(self) -> dict[str, list[int]]:
        """The classes with many, medium and few training samples, which are scored apart; none
        without ``imbalance``.

        Samples are counted by their true classes, not by wrong labels.
        """
        if self.imbalance is None:
            return {}
        targets = self.splits["train"].targets if self.true_targets is None else self.true_targets
        return thirds_by_count(class_counts_of(targets, self.num_classes))

    @property
    def summary(self) -> str:
        """A line that names the first classes and counts the samples of each split."""
        classes = ", ".join(self.class_names[:SHOWN]) + (
            ", ..." if self.num_classes > SHOWN else ""
        )
        sizes = " / ".join(f"{len(self.splits[split]):,}" for split in SPLITS)
        return f"{type(self).__name__}: {self.num_classes:,} classes ({classes}); train / validation / test {sizes}"

    def setup(self, stage: str | None = None) -> None:
        if self.splits:
            return
        if self.split_seed and not (self.splits_by_seed or self.order_by_seed):
            raise ValueError(
                f"{type(self).__name__} has an official test split: leave data.split_seed out"
            )
        splits, name = self.load_splits(), type(self).__name__
        if empty := [split for split in SPLITS if not len(splits[split])]:
            raise ValueError(
                f"{name}: nothing is left for {' and '.join(empty)}: give more data, or limit them "
                "less"
            )
        if self.num_classes < 2:
            raise ValueError(
                f"{name}: expected at least 2 classes, found {', '.join(self.class_names)} alone"
            )
        self.splits = splits
        if self.first is not None:
            targets = splits["train"].targets
            self._select_rows(list(range(len(targets)))[: self.first])
            lost = (
                set(map(int, targets)) - set(map(int, targets[: self.first]))
                if self.task == "multiclass"
                else ()
            )
            if names := [self.class_names[label] for label in sorted(lost)]:
                gap = f"{len(names)} of {self.num_classes} classes have no example among them"
                say(
                    f"the first {self.first} training rows: {gap}: {shortened(names)}; data.shots "
                    "takes some of each"
                )
        if self.shots is not None or self.imbalance is not None:
            self._draw_samples()
        say(self.summary)
        train = self.splits["train"]
        if self.label_noise and isinstance(train.targets, Tensor):
            self.true_targets = train.targets
            noise = (self.label_noise, self.label_noise_seed, self.label_noise_kind)
            train.targets = corrupt_labels(train.targets, self.num_classes, *noise)

    def example_names(self, split: str) -> list[str]:
        """A name of each example of a split: its text, its file's name, or its number."""
        if split in self.texts:
            return list(self.texts[split])
        suffix = f" of split {self.split_seed}" if self.splits_by_seed else ""
        return [f"{split} example {number}{suffix}" for number in range(len(self.splits[split]))]

    def _draw_samples(self) -> None:
        """Draw the training samples that stay: ``shots`` of each class, or a long tail by
        ``imbalance``.
        """
        train, counts = self.splits["train"], self.class_counts
        assert isinstance(train.targets, Tensor)
        fewest, most = int(counts.min()), int(counts.max())
        smallest = f"class {self.class_names[int(counts.argmin())]!r} has {fewest} training samples"
        generator = torch.Generator().manual_seed(torch.initial_seed())
        if self.shots is not None:
            if fewest < self.shots:
                raise ValueError(
                    f"data.shots is {self.shots}, but {smallest}: set data.shots to that or less"
                )
            sizes = [self.shots] * self.num_classes
        else:
            assert self.imbalance is not None
            sizes = long_tail_sizes(counts, self.imbalance, generator).tolist()
            if not min(sizes):
                hint = f"the largest class has {most}: set data.imbalance to that or less"
                reason = hint if fewest else f"{smallest}: leave it out of the data"
                raise ValueError(
                    f"data.imbalance={self.imbalance} leaves a class without a training sample; "
                    f"{reason}"
                )
            say(
                f"data.imbalance={self.imbalance}: a class has {max(sizes)} to {min(sizes)} "
                "training samples"
            )
        self._select_rows(drawn_rows(train.targets, sizes, generator))

    def _select_rows(self, rows: list[int]) -> None:
        """Keep only these rows of the training split; files that are decoded when they are read
        stay undecoded.
        """
        train = self.splits["train"]
        pair: tuple[Any, Any] = (train.inputs, train.targets)
        selected: list[Any] = [
            values[rows] if isinstance(values, Tensor) else Subset(values, rows) for values in pair
        ]
        self.splits["train"] = LabelledDataset(selected[0], selected[1], train.transform)
        if "train" in self.texts:
            self.texts["train"] = [self.texts["train"][row] for row in rows]

    def encode_labels(self, labels: Mapping[str, Sequence[str]]) -> dict[str, Tensor]:
        """Set `class_names` to the sorted training labels, and index all by it; a ValueError names
        other labels.
        """
        self.class_names = sorted(set(labels["train"]))
        index = {name: number for number, name in enumerate(self.class_names)}
        for split, names in labels.items():
            unknown = sorted(set(names) - index.keys())
            if unknown:
                raise ValueError(
                    f"the {split} split has classes that the train split lacks: "
                    f"{', '.join(unknown)}"
                )
        return {
            split: torch.tensor([index[name] for name in names]) for split, names in labels.items()
        }

    def train_dataloader(self) -> DataLoader[Any]:
        return self.loader(self.splits["train"], shuffle=True)

    def val_dataloader(self) -> DataLoader[Any]:
        return self.loader(self.splits["validation"])

    def test_dataloader(self) -> DataLoader[Any]:
        return self.loader(self.splits["test"])

    def corrupted_dataloader(self) -> DataLoader[Any]:
        """The training samples with wrong labels, without augmentation; targets ``(N, 2)``: the
        wrong and the true.
        """
        train = self.splits["train"]
        assert isinstance(train.targets, Tensor)
        assert self.true_targets is not None, "set label_noise, and call setup() first"
        pairs = torch.stack([train.targets, self.true_targets], dim=-1)
        dataset = LabelledDataset(train.inputs, pairs, self.splits["test"].transform)
        corrupted = (pairs[:, 0] != pairs[:, 1]).nonzero().squeeze(-1)
        return self.loader(Subset(dataset, corrupted.tolist()))

    def loader(self, dataset: Any, *, shuffle: bool = False) -> DataLoader[Any]:
        """A loader of ``dataset`` with this module's settings; it does not draw from the global
        random state.

        With ``shuffle`` the run's seed (``torch.initial_seed()``) and the epoch decide the order.
        """
        # for trainer.overfit_batches: Lightning repeats the same samples in each epoch, but not
        # with a batch sampler
        fixed = bool(getattr(self.trainer, "overfit_batches", 0))
        order = (
            EpochOrder(dataset, torch.initial_seed(), fixed)
            if shuffle
            else SequentialSampler(dataset)
        )
        return DataLoader(
            dataset,
            **self.batching(dataset, order),
            num_workers=self.num_workers,
            pin_memory=self.pin_memory,
            persistent_workers=self.num_workers > 0,
            collate_fn=self.collate,
            generator=torch.Generator(),
        )

    def batching(self, dataset: Any, order: Sampler[int]) -> dict[str, Any]:
        """The ``DataLoader`` arguments that cut the samples, in the order of a sampler, into
        batches.
        """
        return {"batch_size": self.batch_size, "sampler": order}
