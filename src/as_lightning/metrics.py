"""The share of masked samples or classes, as a torchmetric (synchronised over ranks)."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor
from torchmetrics import Metric

from as_lightning.functional.argument_checks import check_choice
from as_lightning.functional.counts import MaskingCounts


class MaskingRate(Metric):
    r"""The share of samples, or of competing classes, that the margin has masked: $\sum
    \text{masked} / \sum \text{counted}$.

    It is the ratio of the sums over all updates and all ranks, and 0 before any sample was counted.

    Args:
        level: ``"sample"`` (samples whose competitors are all masked) or ``"class"`` (competitors).
        **kwargs: arguments of `torchmetrics.Metric`.

    Source: paper, section on AS-Speed (its ratio of masked samples).

    Examples:
        >>> import torch
        >>> from as_lightning.functional import as_cross_entropy
        >>> rate = MaskingRate()
        >>> logits = torch.tensor([[4.0, 0.0, 0.0], [1.0, 0.9, -2.0]])
        >>> loss, counts = as_cross_entropy(logits, torch.tensor([0, 0]), return_counts=True)
        >>> rate.update(counts)
        >>> rate.compute()
        tensor(0.5000)
    """

    full_state_update = False

    counts: Tensor  # all four, so that a MetricCollection may keep one state for both levels

    def __init__(self, level: Literal["sample", "class"] = "sample", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.level = check_choice("level", level, ("sample", "class"))
        self.add_state("counts", torch.zeros(4, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, counts: MaskingCounts) -> None:
        """Add the counts of a batch."""
        self.counts = self.counts + counts.stacked()

    def compute(self) -> Tensor:
        """The ratio of the sums."""
        counts = MaskingCounts(*self.counts)
        return counts.sample_ratio if self.level == "sample" else counts.class_ratio
