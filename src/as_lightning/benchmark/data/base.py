"""What every data module of the benchmark offers to the app: splits, loaders, and what a model must know."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import lightning.pytorch as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler, SequentialSampler, Subset

from as_lightning.benchmark.data.decoded_files import DecodableFiles
from as_lightning.benchmark.data.epoch_order import EpochOrder
from as_lightning.benchmark.data.label_noise import check_label_noise, corrupt_labels
from as_lightning.benchmark.data.labelled import LabelledDataset
from as_lightning.benchmark.data.messages import say
from as_lightning.benchmark.data.resumable_loader import ResumableLoader
from as_lightning.functional.argument_checks import check_count

Task = Literal["multiclass", "multilabel", "token", "next_token"]

SHOWN = 10  # classes that the summary names


class BenchmarkDataModule(pl.LightningDataModule):
    """A ``LightningDataModule`` with train, validation and test splits of ``(input, target)`` pairs.

    A subclass reads its splits in :meth:`load_splits` and says in :attr:`input_spec` what an encoder must know of the
    inputs.

    Args:
        batch_size: samples per batch, at least 1.
        num_workers: loader processes (0 loads in the main one).
        pin_memory: page-locked batches, for copies to a GPU.
        label_noise: share of the training labels that are replaced by another class, in [0, 1]. Validation and test
            keep theirs.
        label_noise_seed: seeds which ones, apart from the run's seed: every method and every run sees the same.

    Attributes:
        task: what a target is: ``"multiclass"`` one class for each sample, ``"multilabel"`` any number of classes,
            ``"token"`` one class per token, ``"next_token"`` the class of the token after each.
        from_standard_library: whether the samples come from the standard library, which differs between Pythons.
        class_names: the names of the classes, known after ``setup``.
        splits: the data sets ``train``, ``validation`` and ``test``, known after ``setup``.
        true_targets: of the training split before label noise; None without noise.
        texts: of each split the texts, or the files; empty where the data have neither.

    Raises:
        ValueError: if an argument is out of range.
    """

    task: ClassVar[Task] = "multiclass"
    from_standard_library: bool = False

    def __init__(
        self,
        *,
        batch_size: int,
        num_workers: int = 0,
        pin_memory: bool = False,
        label_noise: float = 0.0,
        label_noise_seed: int = 0,
    ) -> None:
        super().__init__()
        check_count("batch_size", batch_size, least=1)
        check_count("num_workers", num_workers, least=0)
        if check_label_noise(label_noise) and self.task != "multiclass":
            raise ValueError(f"label_noise={label_noise} is for data of one class per sample, not for {self.task} data")
        self.batch_size, self.num_workers, self.pin_memory = batch_size, num_workers, pin_memory
        self.label_noise, self.label_noise_seed = label_noise, label_noise_seed
        self.class_names: list[str] = []
        self.splits: dict[str, LabelledDataset] = {}
        self.true_targets: Tensor | None = None
        self.texts: dict[str, Sequence[str] | DecodableFiles] = {}

    @abstractmethod
    def load_splits(self) -> dict[str, LabelledDataset]:
        """Read the splits ``train``, ``validation`` and ``test``, and set :attr:`class_names`."""

    @property
    @abstractmethod
    def input_spec(self) -> dict[str, Any]:
        """Keyword arguments that the data gives to the encoder, e.g. ``{"in_channels": 1}``; known after ``setup``."""

    @property
    def user_paths(self) -> list[Path]:
        """The user's own files and folders that the splits are read from; none for data that come with a checksum.

        Raises:
            FileNotFoundError: if one of them does not exist.
        """
        return []

    @property
    def num_classes(self) -> int:
        """The number of classes; known after ``setup``."""
        return len(self.class_names)

    @property
    def summary(self) -> str:
        """What was understood, in words: the classes, and the samples of each split; known after ``setup``."""
        named = ", ".join(self.class_names[:SHOWN]) + (", ..." if self.num_classes > SHOWN else "")
        sizes = " / ".join(f"{len(self.splits[split]):,}" for split in ("train", "validation", "test"))
        return f"{type(self).__name__}: {self.num_classes:,} classes ({named}); train / validation / test {sizes}"

    def setup(self, stage: str | None = None) -> None:
        if self.splits:
            return
        self.splits = self.load_splits()
        say(self.summary)
        train = self.splits["train"]
        if self.label_noise and isinstance(train.targets, Tensor):
            self.true_targets = train.targets
            train.targets = corrupt_labels(train.targets, self.num_classes, self.label_noise, self.label_noise_seed)

    @property
    def splits_by_seed(self) -> bool:
        """Whether the test split follows an argument ``split_seed``: False where there is an official one."""
        return False

    def example_names(self, split: str) -> list[str]:
        """The text of each example of a split, the name of its file, or its number; known after ``setup``."""
        texts = self.texts.get(split)
        if texts is None:
            seed = f" of split {getattr(self, 'split_seed', None)}" if self.splits_by_seed else ""
            return [f"{split} example {number}{seed}" for number in range(len(self.splits[split]))]
        return [texts.where(n) if isinstance(texts, DecodableFiles) else texts[n] for n in range(len(texts))]

    def encode_labels(self, labels: Mapping[str, Sequence[str]]) -> dict[str, Tensor]:
        """Set :attr:`class_names` to the training split's labels, sorted, and number all splits' labels by it.

        Raises:
            ValueError: if another split has a label that the training split lacks.
        """
        self.class_names = sorted(set(labels["train"]))
        index = {name: number for number, name in enumerate(self.class_names)}
        for split, names in labels.items():
            unknown = sorted(set(names) - index.keys())
            if unknown:
                raise ValueError(f"the {split} split has classes that the train split lacks: {', '.join(unknown)}")
        return {split: torch.tensor([index[name] for name in names]) for split, names in labels.items()}

    def collate(self, samples: list[Any]) -> Any:
        """Make a batch of samples."""
        return torch.utils.data.default_collate(samples)

    def train_dataloader(self) -> DataLoader[Any]:
        return self.loader(self.splits["train"], shuffle=True)

    def val_dataloader(self) -> DataLoader[Any]:
        return self.loader(self.splits["validation"])

    def test_dataloader(self) -> DataLoader[Any]:
        return self.loader(self.splits["test"])

    def corrupted_dataloader(self) -> DataLoader[Any]:
        """The training samples with wrong labels, without augmentation; targets ``(N, 2)``: the wrong and the true one.

        Raises:
            RuntimeError: if there is no label noise.
        """
        if self.true_targets is None:
            raise RuntimeError("there are no corrupted labels: set label_noise, and call setup() first")
        train = self.splits["train"]
        assert isinstance(train.targets, Tensor)
        pairs = torch.stack([train.targets, self.true_targets], dim=-1)
        both = LabelledDataset(train.inputs, pairs, self.splits["test"].transform)
        corrupted = (pairs[:, 0] != pairs[:, 1]).nonzero().squeeze(-1)
        return self.loader(Subset(both, corrupted.tolist()))

    def loader(self, dataset: Any, *, shuffle: bool = False) -> DataLoader[Any]:
        """A loader of ``dataset`` with this module's settings.

        With ``shuffle`` the order is a function of the run's seed (``torch.initial_seed()``) and the epoch, and the
        loader's place in the epoch goes into checkpoints: a run that is resumed sees the batches that it would have
        seen. No loader draws from the global random state.
        """
        order = EpochOrder(dataset, torch.initial_seed()) if shuffle else SequentialSampler(dataset)
        return (ResumableLoader if shuffle else DataLoader)(
            dataset,
            **self.batching(dataset, order),
            num_workers=self.num_workers,
            pin_memory=self.pin_memory,
            persistent_workers=self.num_workers > 0,
            collate_fn=self.collate,
            generator=torch.Generator(),
        )

    def batching(self, dataset: Any, order: Sampler[int]) -> dict[str, Any]:
        """The arguments that tell a ``DataLoader`` how to make batches of an order of samples."""
        return {"batch_size": self.batch_size, "sampler": order}
