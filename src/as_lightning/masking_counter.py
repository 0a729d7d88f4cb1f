"""The counts of an accumulation window, gathered on the device and read when the window closes."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import torch
from torch import Tensor

from as_lightning.functional.counts import MaskingCounts


class MaskingCounter:
    """Adds up the :class:`~as_lightning.functional.MaskingCounts` of the batches of one accumulation window.

    It is how a module reports its masking: any ``LightningModule`` with a ``masking_counter`` attribute of this type
    works with the callbacks. Adding happens on the device; several callbacks may close the same window, and only the
    first makes the ranks add up theirs.

    Attributes:
        counted: whether any batch has been counted so far. (Not how many: ``torch.compile`` would compile
            ``training_step`` anew for every value.)

    Example:
        >>> import torch
        >>> from as_lightning.functional import MaskingCounts
        >>> counter = MaskingCounter()
        >>> counter.update(MaskingCounts(*torch.tensor([1, 4, 5, 12])))
        >>> counter.update(MaskingCounts(*torch.tensor([3, 4, 9, 12])))
        >>> counter.close_window(key=(0, 1), reduce=lambda counts: counts)
        tensor([ 4,  8, 14, 24])
    """

    def __init__(self) -> None:
        self.counted = False
        self._open: Tensor | None = None
        self._closed = torch.zeros(4, dtype=torch.int64)
        self._closed_key: Hashable = None

    def update(self, counts: MaskingCounts) -> None:
        """Add a batch's counts to the open window, without waiting for the device."""
        stacked = counts.stacked().detach()
        self._open = stacked if self._open is None else self._open + stacked
        self.counted = True

    @property
    def open_counts(self) -> Tensor:
        """The counts since the last window closed, ``int64`` of shape ``(4,)``: this rank's, not summed."""
        return torch.zeros(4, dtype=torch.int64) if self._open is None else self._open

    def close_window(self, key: Hashable, reduce: Callable[[Tensor], Tensor]) -> Tensor:
        """Close the window that ends at ``key`` and return its counts; a second call with that key returns them again.

        Args:
            key: names the window's last batch, e.g. ``(epoch, batch_idx)``.
            reduce: sums a tensor over the ranks (the identity on one process).

        Returns:
            ``int64`` tensor of shape ``(4,)`` on the device: the summed counts in the order of ``MaskingCounts``.
        """
        if key != self._closed_key:
            self._closed, self._closed_key, self._open = reduce(self.open_counts), key, None
        return self._closed

    def reset(self) -> None:
        """Forget the open window and the last closed one."""
        self._open, self._closed_key = None, None
