"""What a callback that leaves samples out tells of an epoch."""

from __future__ import annotations

from typing import NamedTuple


class SkippingEpoch(NamedTuple):
    """An epoch of training, summed over the ranks.

    Attributes:
        epoch: 0-based epoch.
        samples: the samples of the data set.
        awake: how many of them the plan took.
        visits: how many visits there were: fewer than ``awake`` after an early stop or with ``limit_train_batches``,
            more where a sampler draws a sample several times.
        masked: visited samples that were masked.
        revisited: visited samples that had been put to sleep since they were last found live.
        woken: revisited samples that were live.
        backward: visits that took a backward pass: fewer than ``visits`` with ``skip_backward``.
    """

    epoch: int
    samples: int
    awake: int
    visits: int
    masked: int = 0
    revisited: int = 0
    woken: int = 0
    backward: int = 0
