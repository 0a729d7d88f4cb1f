"""The order of the training samples, and batches of similar length."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from functools import partialmethod

import numpy as np
from torch.utils.data import BatchSampler, RandomSampler, Sampler


def permutation(length: int, *entropy: int) -> list[int]:
    """Return the numbers below ``length`` in an order that only the integers ``entropy`` decide."""
    return np.random.default_rng(entropy).permutation(length).tolist()


class EpochOrder(RandomSampler):
    """All indices of a data set in a random order that ``seed`` and epoch decide, also in a resumed
    run.

    Lightning calls `set_epoch` before each epoch; a ``fixed`` order ignores it. Where ranks share
    the data, Lightning takes PyTorch's ``DistributedSampler`` in place of a ``RandomSampler``.
    """

    def __init__(self, data_source: Sized, seed: int, fixed: bool = False) -> None:
        super().__init__(data_source)
        self.seed, self.epoch, self.fixed = seed, 0, fixed

    def set_epoch(self, epoch: int) -> None:
        self.epoch = 0 if self.fixed else epoch

    def __iter__(self) -> Iterator[int]:
        yield from permutation(len(self.data_source), self.seed, self.epoch)


POOL_BATCHES = 50


class LengthBatchSampler(BatchSampler):
    """Cut a sampler's order into batches of samples of similar length.

    With ``shuffle`` the order is cut into pools of 50 batches. The samples of a pool are sorted by
    their ``lengths`` and cut into batches, whose order the ``seed`` and ``epoch`` of the sampler (0
    where it has none) decide. Without it all samples are one pool, in the order of their lengths.
    """

    def __init__(
        self,
        sampler: Sampler[int] | Iterable[int],
        batch_size: int,
        drop_last: bool,
        lengths: Sequence[int],
        shuffle: bool = False,
    ) -> None:
        super().__init__(sampler, batch_size, drop_last=False)
        self.lengths, self.shuffle = lengths, shuffle

    @classmethod
    def bound(cls, lengths: Sequence[int], shuffle: bool) -> Callable[..., LengthBatchSampler]:
        """Return a subclass with these arguments bound; Lightning knows the first three alone."""
        bound = partialmethod(cls.__init__, lengths=lengths, shuffle=shuffle)
        return type(cls.__name__, (cls,), {"__init__": bound})

    def __iter__(self) -> Iterator[list[int]]:
        order = list(self.sampler)
        size = POOL_BATCHES * self.batch_size if self.shuffle else max(len(order), 1)
        seed, epoch = getattr(self.sampler, "seed", 0), getattr(self.sampler, "epoch", 0)
        for number, first in enumerate(range(0, len(order), size)):
            pool = sorted(order[first : first + size], key=self.lengths.__getitem__)
            starts = range(0, len(pool), self.batch_size)
            batches = [pool[start : start + self.batch_size] for start in starts]
            if self.shuffle:
                places = permutation(len(batches), seed, epoch, number)
                batches = [batches[place] for place in places]
            yield from batches
