"""The order of the training samples, batches of similar length, and a loader that goes on inside an epoch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from functools import partialmethod
from itertools import islice
from typing import Any

import numpy as np
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Sampler


def permutation(length: int, *entropy: int) -> list[int]:
    """The numbers from 0 to ``length - 1`` in an order that depends on the integers ``entropy`` alone."""
    return np.random.default_rng(entropy).permutation(length).tolist()


class EpochOrder(RandomSampler):
    """All indices of a data set in random order, which ``seed`` and epoch decide.

    A run that was killed and resumed sees the order that it would have seen. Lightning calls `set_epoch` before each
    epoch, which a ``fixed`` order does not follow, and puts PyTorch's ``DistributedSampler`` in the place of a
    ``RandomSampler`` where ranks share the data.
    """

    def __init__(self, data_source: Sized, seed: int, fixed: bool = False) -> None:
        super().__init__(data_source)
        self.seed, self.epoch, self.fixed = seed, 0, fixed

    def set_epoch(self, epoch: int) -> None:
        """Give the order of this epoch from now on."""
        self.epoch = 0 if self.fixed else epoch

    def __iter__(self) -> Iterator[int]:
        yield from permutation(len(self.data_source), self.seed, self.epoch)


POOL_BATCHES = 50


class LengthBatchSampler(BatchSampler):
    """Cut a sampler's order into batches of samples of similar length.

    Of a pool of ``pool_batches`` batches' worth of samples at a time, in the sampler's order, the samples are sorted by
    their ``lengths`` and cut into batches. With ``shuffle`` the ``seed`` and ``epoch`` of the sampler (0 where it has
    none) decide the order of a pool's batches.
    """

    def __init__(
        self,
        sampler: Sampler[int] | Iterable[int],
        batch_size: int,
        drop_last: bool,
        lengths: Sequence[int],
        pool_batches: int = POOL_BATCHES,
        shuffle: bool = False,
    ) -> None:
        super().__init__(sampler, batch_size, drop_last)
        self.lengths, self.pool_batches, self.shuffle = lengths, pool_batches, shuffle

    @classmethod
    def bound(cls, lengths: Sequence[int], **settings: Any) -> Callable[..., LengthBatchSampler]:
        """This class without these arguments: Lightning makes a run's sampler anew with the first three alone."""
        return type(cls.__name__, (cls,), {"__init__": partialmethod(cls.__init__, lengths=lengths, **settings)})

    def __iter__(self) -> Iterator[list[int]]:
        order = iter(self.sampler)
        for number, pool in enumerate(iter(lambda: list(islice(order, self.pool_batches * self.batch_size)), [])):
            pool.sort(key=self.lengths.__getitem__)
            batches = [pool[start : start + self.batch_size] for start in range(0, len(pool), self.batch_size)]
            if self.drop_last and len(batches[-1]) < self.batch_size:
                batches.pop()
            if self.shuffle:
                seed, epoch = (getattr(self.sampler, name, 0) for name in ("seed", "epoch"))
                batches = [batches[place] for place in permutation(len(batches), seed, epoch, number)]
            yield from batches


class ResumableLoader(DataLoader[Any]):
    """A ``DataLoader`` whose place in the epoch is part of a checkpoint.

    Lightning saves the ``state_dict`` of a training loader that has one. Batches that were already given are not
    loaded. The sampler must give the order of its ``epoch`` whenever it is asked, as `EpochOrder` and
    ``DistributedSampler`` do. A ``generator`` is seeded anew for each epoch. With ``num_workers > 0``, random
    augmentation after a resume draws other numbers than it would have without.
    """

    _epoch = 0  # that of the batch given last
    _given = 0  # batches of it that were given
    _resumed = False  # a state was loaded and no batch was taken since

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        # A generator function: nothing below runs before the first batch is asked for. Lightning calls iter() once or
        # twice before it sets the epoch.
        sampler = getattr(self.batch_sampler, "sampler", None)
        epoch = getattr(sampler, "epoch", 0)
        first = self._given if self._resumed and epoch == self._epoch else 0
        self._epoch, self._given, self._resumed = epoch, first, False
        if self.generator is not None:
            entropy = np.random.SeedSequence((getattr(sampler, "seed", 0), epoch, first))
            self.generator.manual_seed(int(entropy.generate_state(1)[0]))
        if first:
            assert self.batch_sampler is not None
            rest = copy.copy(self)
            # what a loader refuses to be set, and workers that have the whole one
            vars(rest).update(batch_sampler=islice(self.batch_sampler, first, None), _iterator=None)
            batches = DataLoader.__iter__(rest)
        else:
            batches = super().__iter__()
        for batch in batches:
            self._given += 1
            yield batch

    def state_dict(self) -> dict[str, int]:
        """The epoch, and the batches of it that were given."""
        return {"epoch": self._epoch, "batches": self._given}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Go on behind the batches that were given, if it is in that epoch that the loader is next iterated over."""
        self._epoch, self._given, self._resumed = state_dict["epoch"], state_dict["batches"], True
