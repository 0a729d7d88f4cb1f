"""The order of the training samples: another one each epoch, a function of seed and epoch alone."""

from __future__ import annotations

from collections.abc import Iterator, Sized

import numpy as np
from torch.utils.data import RandomSampler


def permutation(length: int, *entropy: int) -> list[int]:
    """The numbers from 0 to ``length - 1`` in an order that depends on the integers ``entropy`` alone.

    Example:
        >>> permutation(5, 0, 1) == permutation(5, 0, 1)
        True
    """
    return np.random.default_rng(entropy).permutation(length).tolist()


class EpochOrder(RandomSampler):
    """All indices of a data set in random order, which seed and epoch decide.

    A run that was killed and resumed sees the samples in the order that it would have seen them in without the kill:
    no state of a random generator has to be kept. Lightning calls :meth:`set_epoch` before each epoch. It takes this
    class for what it is, a :class:`~torch.utils.data.RandomSampler`, and puts PyTorch's ``DistributedSampler`` in its
    place where ranks share the data; that one's order is a function of seed and epoch too.

    Args:
        data_source: the data set.
        seed: a non-negative integer.

    Example:
        >>> order = EpochOrder(range(100), seed=0)
        >>> first = list(order)
        >>> order.set_epoch(1)
        >>> list(order) == first, sorted(order) == sorted(first)
        (False, True)
    """

    def __init__(self, data_source: Sized, seed: int) -> None:
        super().__init__(data_source)
        self.seed, self.epoch = seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Give the order of this epoch from now on."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        yield from permutation(len(self.data_source), self.seed, self.epoch)
