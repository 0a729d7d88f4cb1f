"""A batch sampler as a user writes one: Lightning makes it anew from a sampler, a batch size and ``drop_last``."""

from __future__ import annotations

from collections.abc import Iterator

from torch.utils.data import BatchSampler

POOL_BATCHES = 3


def length_of(number: int) -> int:
    """The length that the sample of this number would have."""
    return (7 * number) % 23


class LengthBatches(BatchSampler):
    """Of every few batches' worth of samples, those of similar length share a batch; the longest come first."""

    def __iter__(self) -> Iterator[list[int]]:
        order, size = list(self.sampler), self.batch_size
        for start in range(0, len(order), POOL_BATCHES * size):
            pool = sorted(order[start : start + POOL_BATCHES * size], key=length_of)
            yield from reversed([pool[first : first + size] for first in range(0, len(pool), size)])
