"""A training loader that goes on inside an epoch, where a checkpoint was saved."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
from torch.utils.data import DataLoader

# of a loader, apart from the data set and how batches are made
SETTINGS = (
    "num_workers",
    "collate_fn",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "generator",
    "prefetch_factor",
)


class ResumableLoader(DataLoader[Any]):
    """A ``DataLoader`` whose place in the epoch is part of a checkpoint.

    Lightning saves the ``state_dict`` of a training loader that has one, and loads it before it resumes: without it, a
    run that is resumed inside an epoch trains the rest of the epoch on batches from the epoch's start. The batches that
    were already given are skipped without being loaded.

    The sampler must give the order of its ``epoch`` whenever it is asked, as :class:`EpochOrder` and PyTorch's
    ``DistributedSampler`` do. Where ``generator`` is given, it is seeded anew for each epoch, and the
    global random state is left alone.

    Arguments are those of :class:`torch.utils.data.DataLoader`, without ``batch_size=None``. With ``num_workers > 0``,
    random augmentation after a resume draws other numbers than it would have without: the order of the samples is the
    same.
    """

    _epoch = 0  # that of the batch given last
    _given = 0  # batches of it that were given
    _resumed = False  # a state was loaded and no batch was taken since

    @property
    def _sampler(self) -> Any:
        return getattr(self.batch_sampler, "sampler", None)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        # A generator function: nothing below runs before the first batch is asked for. Lightning calls iter() once or
        # twice before it sets the epoch.
        epoch = getattr(self._sampler, "epoch", 0)
        first = self._given if self._resumed and epoch == self._epoch else 0
        self._epoch, self._given, self._resumed = epoch, first, False
        if self.generator is not None:
            entropy = np.random.SeedSequence((getattr(self._sampler, "seed", 0), epoch, first))
            self.generator.manual_seed(int(entropy.generate_state(1)[0]))
        for batch in self._batches_from(first):
            self._given += 1
            yield batch

    def _batches_from(self, first: int) -> Iterator[Any]:
        if not first:
            return super().__iter__()
        assert self.batch_sampler is not None
        rest = islice(self.batch_sampler, first, None)
        settings = {name: getattr(self, name) for name in SETTINGS}
        return iter(DataLoader(self.dataset, batch_sampler=rest, **settings))

    def state_dict(self) -> dict[str, int]:
        """The epoch, and the batches of it that were given."""
        return {"epoch": self._epoch, "batches": self._given}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Go on behind the batches that were given, if it is in that epoch that the loader is next iterated over."""
        self._epoch, self._given, self._resumed = state_dict["epoch"], state_dict["batches"], True
