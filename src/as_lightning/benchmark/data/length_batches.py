"""Batches of samples of similar length, so that little of a batch is padding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partialmethod

from torch.utils.data import BatchSampler, Sampler

from as_lightning.benchmark.data.epoch_order import permutation

POOL_BATCHES = 50


class LengthBatchSampler(BatchSampler):
    """Cut a sampler's order into batches of samples of similar length.

    Of ``pool_batches`` batches' worth of samples at a time, in the sampler's order, the samples are sorted by length
    and cut into batches; with ``shuffle`` the batches of a pool come in random order. The sampler decides which samples
    share a pool, so a random sampler makes other batches each epoch, and a distributed one gives each rank its own.
    The order of a pool's batches depends on the ``seed`` and the ``epoch`` of the sampler alone (0 where it has none).

    Args:
        sampler: indices, e.g. of :class:`torch.utils.data.RandomSampler`.
        batch_size: samples per batch; the last batch of the last pool may be short.
        drop_last: leave a short batch out.
        lengths: the length of each sample of the data set.
        pool_batches: batches a pool, at least 1.
        shuffle: mix the batches of a pool.

    Raises:
        ValueError: if ``pool_batches`` is below 1.

    Example:
        >>> list(LengthBatchSampler([0, 1, 2, 3, 4], 2, False, lengths=[9, 1, 8, 2, 5], pool_batches=2))
        [[1, 3], [2, 0], [4]]
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
        if pool_batches < 1:
            raise ValueError(f"pool_batches must be at least 1, got {pool_batches}")
        self.lengths, self.pool_batches, self.shuffle = lengths, pool_batches, shuffle

    @classmethod
    def bound(
        cls, lengths: Sequence[int], *, pool_batches: int = POOL_BATCHES, shuffle: bool = False
    ) -> Callable[[Sampler[int] | Iterable[int], int, bool], LengthBatchSampler]:
        """This class with all but the sampler and the size of a batch settled.

        Lightning makes the sampler of a distributed run, and of any prediction, anew, and of a loader that it is handed
        it knows no more than these: ``type(batch_sampler)(sampler, batch_size, drop_last)``.
        """
        settled = partialmethod(cls.__init__, lengths=lengths, pool_batches=pool_batches, shuffle=shuffle)
        return type(cls.__name__, (cls,), {"__init__": settled})

    def __iter__(self) -> Iterator[list[int]]:
        pools = self._pools()
        return (batch for number, pool in enumerate(pools) for batch in self._batches(pool, number))

    def _pools(self) -> Iterator[list[int]]:
        pool: list[int] = []
        for index in self.sampler:
            pool.append(index)
            if len(pool) == self.pool_batches * self.batch_size:
                yield pool
                pool = []
        if pool:
            yield pool

    def _batches(self, pool: list[int], number: int) -> Iterator[list[int]]:
        pool = sorted(pool, key=lambda index: self.lengths[index])
        batches = [pool[start : start + self.batch_size] for start in range(0, len(pool), self.batch_size)]
        if self.drop_last and len(batches[-1]) < self.batch_size:
            batches.pop()
        if self.shuffle:
            seed, epoch = (getattr(self.sampler, name, 0) for name in ("seed", "epoch"))
            batches = [batches[place] for place in permutation(len(batches), seed, epoch, number)]
        return iter(batches)
