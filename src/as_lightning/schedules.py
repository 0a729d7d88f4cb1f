"""The margin warm-up (the authors' ``initial_as_delta`` and ``min_as_delta``)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch

from as_lightning.functional.masking import check_delta


@dataclass(frozen=True)
class DeltaWarmup:
    r"""For the first batches of training, go from the margin ``initial`` to the loss's own ``delta``.

    With :math:`b` the 0-based batch and :math:`B = \lfloor r \cdot \text{total} \rfloor` (or ``batches``):

    .. math:: \delta_b = \begin{cases} \delta & b \ge B \\
              \text{initial} & b < B,\ \text{shape} = \text{hold} \\
              \text{initial} + (\delta - \text{initial})\, b / B & b < B,\ \text{shape} = \text{linear}
              \end{cases}

    Args:
        ratio: the share of training's batches that the warm-up lasts, in [0, 1]. It needs a training of known length:
            the batches of the first epoch, times ``Trainer(max_epochs)``. A checkpoint keeps it.
        initial: the margin at the start, in [0, 1]; 1 is plain softmax.
        shape: ``"hold"`` stays at ``initial``, then drops; ``"linear"`` goes in a straight line.
        batches: the warm-up's length in batches, in place of ``ratio``.

    Raises:
        ValueError: if an argument lies outside its range, or both or none of ``ratio`` and ``batches`` are given.

    Source: the authors' code; batches, not optimizer steps, so that accumulation does not stretch it.

    Example:
        >>> warmup = DeltaWarmup(ratio=0.1, shape="linear")
        >>> [round(warmup.delta_at(batch, total_batches=100, delta=0.1), 2) for batch in (0, 5, 10, 99)]
        [1.0, 0.55, 0.1, 0.1]
    """

    ratio: float | None = None
    initial: float = 1.0
    shape: Literal["hold", "linear"] = "hold"
    batches: int | None = None

    def __post_init__(self) -> None:
        if (self.ratio is None) == (self.batches is None):
            raise ValueError(f"give one of ratio and batches, got ratio={self.ratio}, batches={self.batches}")
        if self.ratio is not None and not 0.0 <= self.ratio <= 1.0:
            raise ValueError(f"ratio must lie in [0, 1], got {self.ratio}")
        if self.batches is not None and self.batches < 0:
            raise ValueError(f"batches must be at least 0, got {self.batches}")
        if self.shape not in ("hold", "linear"):
            raise ValueError(f"shape must be 'hold' or 'linear', got {self.shape!r}")
        try:
            check_delta(self.initial)
        except (TypeError, ValueError) as error:
            raise ValueError(f"initial: {error}") from error

    def delta_at(self, batch: int, total_batches: float, delta: float) -> float:
        """The margin of the 0-based ``batch`` of a training of ``total_batches``.

        Raises:
            ValueError: if the length is given by ``ratio`` and ``total_batches`` is infinite.
        """
        if self.batches is not None:
            length = self.batches
        elif math.isfinite(total_batches):
            length = int((self.ratio or 0.0) * total_batches)
        else:
            raise ValueError("DeltaWarmup(ratio=...) needs a training of known length: give batches=... instead")
        if batch >= length:
            return delta
        if self.shape == "hold":
            return self.initial
        return self.initial + (delta - self.initial) * batch / length


torch.serialization.add_safe_globals([DeltaWarmup])  # it may lie in a checkpoint's hyperparameters
