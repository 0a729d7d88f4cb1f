"""The epochs at the start and at the end of training that take all samples."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lightning.pytorch.utilities.exceptions import MisconfigurationException


class FullEpochs:
    """So many epochs at the start and at the end, as counts (integers) or as shares (floats) of all epochs.

    A share is rounded to the nearest whole number of epochs, a half upwards.

    Args:
        start: epochs at the start.
        end: epochs at the end.

    Raises:
        TypeError: if one is no number.
        ValueError: if one is negative, a share is above 1, or two shares leave no epoch between them.

    Example:
        >>> full = FullEpochs(start=1, end=0.25)
        >>> [full.contains(epoch, max_epochs=8) for epoch in range(8)]
        [True, False, False, False, False, False, True, True]
    """

    def __init__(self, start: float = 1, end: float = 0) -> None:
        for name, value in (("start", start), ("end", end)):
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise TypeError(f"full_epochs must be numbers of epochs (int) or shares (float), got {name}={value!r}")
            if not value >= 0 or (isinstance(value, float) and value > 1):  # also NaN
                raise ValueError(
                    f"full_epochs must be counts of at least 0 (int) or shares in [0, 1] (float), got {name}={value!r}"
                )
        if isinstance(start, float) and isinstance(end, float) and start + end >= 1:
            raise ValueError(
                f"full_epochs=({start}, {end}) leaves no epoch to skip samples in: lower one of the shares"
            )
        self.start, self.end = start, end

    @classmethod
    def of(cls, full_epochs: Sequence[float]) -> FullEpochs:
        """Those of an argument ``full_epochs=(start, end)``, or an error if it is no pair."""
        expected = f"full_epochs must be a pair (start, end), such as (1, 0), got {full_epochs!r}"
        if not isinstance(full_epochs, Sequence) or isinstance(full_epochs, str):
            raise TypeError(expected)
        if len(full_epochs) != 2:
            raise ValueError(expected)
        return cls(*full_epochs)

    def contains(self, epoch: int, max_epochs: int | None) -> bool:
        """Whether the 0-based ``epoch`` takes all samples. ``max_epochs`` is None or -1 where training has no end."""
        if epoch < self._count(self.start, max_epochs):
            return True
        return bool(self.end) and epoch >= (max_epochs or 0) - self._count(self.end, max_epochs)

    def check(self, max_epochs: int | None) -> None:
        """Raise unless some epoch may skip samples, if training has more than one."""
        endless = max_epochs is None or max_epochs == -1
        if endless and (self.end or isinstance(self.start, float)):
            raise MisconfigurationException(
                f"full_epochs=({self.start}, {self.end}) needs to know when training ends: set Trainer(max_epochs=...) "
                "or give only a count of epochs at the start, as in full_epochs=(1, 0)."
            )
        if not endless and max_epochs > 1 and all(self.contains(e, max_epochs) for e in range(max_epochs)):  # type: ignore[operator,arg-type]
            raise MisconfigurationException(
                f"full_epochs=({self.start}, {self.end}) leaves none of the {max_epochs} epochs to skip samples in: "
                "lower it, or raise Trainer(max_epochs=...)."
            )

    @staticmethod
    def _count(epochs: float, max_epochs: int | None) -> int:
        if isinstance(epochs, int):
            return epochs
        return math.floor(epochs * (max_epochs or 0) + 0.5)  # so that a short training has epochs to skip in
