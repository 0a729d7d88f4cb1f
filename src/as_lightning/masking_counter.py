"""What a module reports to the callbacks of each training batch: how much the margin masks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from as_lightning.functional.counts import MaskingCounts


class MaskingCounter:
    """Add up the `MaskingCounts` of one training batch, on the device.

    It is how a module reports its masking. The callbacks find every `MaskedLoss` by themselves. Any
    other ``LightningModule`` reports with a ``self.masking_counter = MaskingCounter()`` which its
    ``training_step`` updates.

    Attributes:
        counts: ``int64`` of shape ``(4,)``, in the order of `MaskingCounts`, of the batch so far;
            None if nothing has been counted.
        denominator: what the batch's loss divides by, 0-dim; NaN where it cannot be said, or where
            two losses divide by different numbers; None if nothing has been counted.
        losses: the loss modules that report to it.

    Examples:
        >>> import torch
        >>> from as_lightning.functional import MaskingCounts
        >>> counter = MaskingCounter()
        >>> counter.update(MaskingCounts(*torch.tensor([1, 4, 5, 12])))
        >>> counter.update(MaskingCounts(*torch.tensor([3, 4, 9, 12])))
        >>> counter.counts, counter.denominator
        (tensor([ 4,  8, 14, 24]), tensor(4.))
    """

    counts: Tensor | None
    denominator: Tensor | None

    def __init__(self) -> None:
        self.begin_batch()

    def begin_batch(self, losses: Sequence[Any] = ()) -> None:
        """Forget the batch before, and count what ``losses`` report, until `pause`."""
        self.counts = self.denominator = None
        self.losses = losses
        self._counting = True
        for loss in self.losses:
            loss.masking_counter = self

    def pause(self) -> None:
        """Count nothing until `begin_batch`: the batch's loss is computed."""
        if not self._counting:
            return
        self._counting = False
        # a CUDA graph, as of torch.compile(mode="reduce-overhead"), overwrites its outputs
        if self.counts is not None:
            self.counts = self.counts.clone()
        for loss in self.losses:
            loss.masking_counter = None

    def update(self, counts: MaskingCounts, denominator: Tensor | None = None) -> None:
        """Add the counts of a loss, without waiting for the device.

        Args:
            counts: the counts of the rows that the loss was computed of.
            denominator: what the loss divides by, 0-dim; by default ``counts.samples``.
        """
        if not self._counting:
            return
        stacked = counts.stacked().detach()
        divisor = counts.samples if denominator is None else denominator
        if self.counts is None or self.denominator is None:
            self.counts, self.denominator = stacked, divisor
        else:
            self.counts = self.counts + stacked
            self.denominator = torch.where(self.denominator == divisor, divisor, torch.nan)
