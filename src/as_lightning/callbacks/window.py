"""Accumulation windows as Lightning has them: which batches they take, where they end, what was counted in them."""

from __future__ import annotations

import math
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor

from as_lightning.callbacks.rank_sums import sum_over_ranks
from as_lightning.masking_counter import MaskingCounter


def aligned_window(batch: int, wanted: int, remaining: float = math.inf) -> int:
    r"""The longest accumulation window of at most ``wanted`` batches that may start at ``batch`` of an epoch.

    Lightning zeroes gradients before batch :math:`b` iff :math:`b \bmod A = 0` and steps after it iff
    :math:`(b + 1) \bmod A = 0`. A window of :math:`A` batches is thus exactly the batches from ``batch`` to its end
    only where :math:`A` divides ``batch``:

    .. math:: A = \max \{ d \le k : d \mid b \}, \qquad A = \gcd(b, r) \text{ if } r < A

    with :math:`r` batches remaining in the epoch, so that no window is cut short by the epoch's end and divided by
    the wrong count. At :math:`b = 0` every :math:`d` divides, and :math:`\gcd(0, r) = r`.

    Args:
        batch: 0-based index in the epoch of the window's first batch.
        wanted: the batches to accumulate if there were no alignment.
        remaining: batches left in the epoch, ``batch`` included; infinite if the end is not known.

    Returns:
        The window's length, from 1 to ``wanted``.

    Raises:
        ValueError: if ``batch < 0``, ``wanted < 1`` or ``remaining < 1``.

    Example:
        >>> [aligned_window(batch, wanted=4) for batch in (0, 1, 6, 8, 9)]
        [4, 1, 3, 4, 3]
        >>> aligned_window(8, wanted=4, remaining=2)
        2
        >>> aligned_window(9, wanted=4, remaining=2)  # two windows of one batch
        1
    """
    if batch < 0:
        raise ValueError(f"batch must be at least 0, got {batch}")
    if wanted < 1:
        raise ValueError(f"wanted must be at least 1, got {wanted}")
    if remaining < 1:
        raise ValueError(f"remaining must be at least 1 (the window's first batch), got {remaining}")
    length = wanted if batch % wanted == 0 else next(d for d in range(min(wanted, batch), 0, -1) if batch % d == 0)
    return math.gcd(batch, int(remaining)) if remaining < length else length


def window_ends(trainer: pl.Trainer, batch_idx: int, length: int | None = None) -> bool:
    """Whether the optimizer steps on this batch: Lightning steps on ``(b + 1) % A == 0`` and on the last batch.

    ``length`` is A; the trainer's ``accumulate_grad_batches`` if it is not given.
    """
    return (batch_idx + 1) % (length or trainer.accumulate_grad_batches) == 0 or trainer.is_last_batch


def masking_counter(pl_module: pl.LightningModule, callback: pl.Callback) -> MaskingCounter:
    """The module's counter, or an error that says how to get one."""
    counter = getattr(pl_module, "masking_counter", None)
    if not isinstance(counter, MaskingCounter):
        raise MisconfigurationException(
            f"{type(callback).__name__} needs a module that reports masking counts, but "
            f"{type(pl_module).__name__}.masking_counter is {counter!r}. Mix in as_lightning.ASSoftmaxMixin (and name "
            "it before the module's class), or set `self.masking_counter = MaskingCounter()` and update it in "
            "training_step."
        )
    return counter


def close_window(
    trainer: pl.Trainer, pl_module: pl.LightningModule, callback: pl.Callback, outputs: Any, batch_idx: int
) -> Tensor:
    """The counts of the window that ends here, summed over its batches and over the ranks, on the device.

    Raises:
        MisconfigurationException: if training has computed a loss and counted nothing.
    """
    counter = masking_counter(pl_module, callback)
    counter.refuse_silence(pl_module, outputs)
    return counter.close_window(
        key=(trainer.current_epoch, batch_idx),
        reduce=lambda counts: sum_over_ranks(trainer, counts.to(pl_module.device)),
    )
