"""A loader that knows the sample numbers of the batch that it has handed over last."""

from __future__ import annotations

import copy
from array import array
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch.utils.data import DataLoader, IterableDataset

from as_lightning.callbacks.epoch_batches import Batches, sample_numbers


class NumberedLoader:
    """Stands before a ``DataLoader``, gives it the batches of the epoch, and notes the numbers of each.

    A ``DataLoader`` hands over its batches in the order in which it has taken their numbers from the batch sampler,
    with any number of worker processes. Each pass over the data has a queue of its own, so that the numbers stay with
    their batches after a pass that was stopped early, or while someone else passes over the data too.

    The user's loader stays unchanged: a copy of it has another batch sampler. Other attributes are those of the user's
    loader. Lightning takes no part in how its batches are made, because it is no ``DataLoader``.

    Args:
        loader: the user's loader, of a map-style data set.

    Attributes:
        loader: the user's loader.
        numbers: the numbers of the samples of the batch handed over last; None before the first.
        largest_batch: the samples of the largest batch handed over so far.

    Raises:
        MisconfigurationException: if the samples of the loader have no numbers, or its batches no fixed order.
    """

    def __init__(self, loader: Any) -> None:
        self.loader: DataLoader[Any] = check_numbered(loader)
        self.numbers: array[int] | None = None
        self.largest_batch = 0
        self._planned = _PlannedBatches(self.loader)
        self._handed_over_from: _Pass | None = None  # the pass that gave the latest batch
        self._numbered = copy.copy(self.loader)
        self._numbered._iterator = None
        # DataLoader refuses the assignment; it is safe before the workers start, which are sent their indices anyway
        object.__setattr__(self._numbered, "batch_sampler", self._planned)

    def plan(self, batches: Iterable[Any], length: int) -> None:
        """Give the batches of the next passes over the data.

        Args:
            batches: lists of sample numbers; iterated anew for each pass.
            length: what ``len`` says: the batches of the whole epoch. More than there are ``batches`` where an epoch is
                resumed.
        """
        self._planned.batches, self._planned.length = batches, length
        self._handed_over_from = None

    def rest_of_pass(self) -> Batches:
        """The batches that are left of the pass that has handed over the latest batch, or of the latest pass."""
        return (self._handed_over_from or self._planned.latest).rest()

    def __len__(self) -> int:
        return self._planned.length

    def __iter__(self) -> Iterator[Any]:
        # not a generator: like a DataLoader's, this iterator starts the workers and draws their seed at once
        return _NumberedBatches(iter(self._numbered), self._planned, self._hand_over)

    def _hand_over(self, numbers: array[int], handed_over_from: _Pass) -> None:
        self.numbers, self._handed_over_from = numbers, handed_over_from
        self.largest_batch = max(self.largest_batch, len(numbers))

    def __getattr__(self, name: str) -> Any:
        if "loader" not in vars(self) or (name.startswith("__") and name.endswith("__")):
            # a copy that is being made, or a protocol of Python's, of which this class has those that it needs
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.loader, name)

    # What Lightning sets on a loader: the seeding of workers, and None for the iterator when it shuts these down.

    @property
    def worker_init_fn(self) -> Callable[[int], None] | None:
        return self._numbered.worker_init_fn

    @worker_init_fn.setter
    def worker_init_fn(self, function: Callable[[int], None] | None) -> None:
        self._numbered.worker_init_fn = function

    @property
    def _iterator(self) -> Any:
        return self._numbered._iterator

    @_iterator.setter
    def _iterator(self, iterator: Any) -> None:
        self._numbered._iterator = iterator

    # Lightning takes a loader with these two for one that can be resumed inside an epoch.

    def state_dict(self) -> dict[str, Any]:
        """Empty: the callback saves the batches that are left, for Lightning may load a loader's state too late."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Nothing: see :meth:`state_dict`."""


class _PlannedBatches:
    """The batch sampler: the batches of the epoch, and the latest pass over them."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self._users = loader.batch_sampler
        self.samples = len(loader.dataset)  # type: ignore[arg-type]
        self.batches: Iterable[Any] = ()
        self.length = 0
        self.latest = _Pass(iter(()), self.samples)

    @property
    def sampler(self) -> Any:
        """The user's, for loaders that ask it which epoch it is."""
        return getattr(self._users, "sampler", None)

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> _Pass:
        self.latest = _Pass(iter(self.batches), self.samples)
        return self.latest


class _Pass(Iterator[Any]):
    """One pass over the batches: those taken by the loader and not handed over wait in ``taken``, oldest first."""

    def __init__(self, batches: Iterator[Any], samples: int) -> None:
        self._batches, self._samples = batches, samples
        self.taken: deque[array[int]] = deque()

    def __next__(self) -> Any:
        batch = next(self._batches)
        self.taken.append(sample_numbers(batch, self._samples))
        return batch

    def rest(self) -> list[list[int]]:
        """What is not handed over yet. (A batch sampler that draws as it goes draws all of it now.)"""
        rest = [sample_numbers(batch, self._samples).tolist() for batch in self._batches]
        self._batches = iter(rest)
        return [*(numbers.tolist() for numbers in self.taken), *rest]


class _NumberedBatches(Iterator[Any]):
    """Hands over batches with their numbers.

    Its pass begins when the loader's iterator is made, or, if that is a generator, when the first batch is asked for.
    """

    def __init__(
        self, batches: Iterator[Any], planned: _PlannedBatches, hand_over: Callable[[array[int], _Pass], None]
    ) -> None:
        self._batches, self._planned, self._hand_over = batches, planned, hand_over
        self._pass = None if isinstance(batches, Generator) else planned.latest

    def __next__(self) -> Any:
        batch = next(self._batches)
        if self._pass is None:
            self._pass = self._planned.latest
        if not self._pass.taken:
            raise MisconfigurationException(
                f"{type(self._batches).__name__} has handed over more batches than it took from its batch sampler, so "
                "that their samples are unknown: use a torch.utils.data.DataLoader, which makes one batch of each list "
                "of indices."
            )
        self._hand_over(self._pass.taken.popleft(), self._pass)
        return batch


def check_numbered(loader: Any) -> DataLoader[Any]:
    """Return ``loader`` if each of its samples has a number, or raise an error that names the way out."""
    if not isinstance(loader, DataLoader):
        raise MisconfigurationException(
            "Skipping samples needs one torch.utils.data.DataLoader for training, whose batch sampler gives the "
            f"samples their numbers, got a {type(loader).__name__}: return a DataLoader of a map-style data set from "
            "train_dataloader, or remove the callback."
        )
    if isinstance(loader.dataset, IterableDataset):
        raise MisconfigurationException(
            f"Skipping samples needs to know them by a number, but {type(loader.dataset).__name__} is an iterable data "
            "set: give it __len__ and __getitem__ (a map-style data set), or remove the callback."
        )
    if loader.batch_sampler is None:
        raise MisconfigurationException(
            "Skipping samples needs a loader that makes the batches, but this DataLoader has batch_size=None and takes "
            "its data as they are: give it a batch_size or a batch_sampler, or remove the callback."
        )
    if loader.num_workers > 0 and not getattr(loader, "in_order", True):
        raise MisconfigurationException(
            "Skipping samples needs batches in the order of the sampler, but this DataLoader has in_order=False and "
            "hands over whichever is ready first: set in_order=True, or remove the callback."
        )
    return loader
