"""What a masked loss reports beside its value: how many samples and classes the margin has dropped."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class MaskingCounts(NamedTuple):
    """How much of a batch the margin has masked, as 0-dim ``int64`` tensors on the logits' device.

    Keeping them as tensors means that counting never makes the host wait for the device.

    Attributes:
        masked_samples: samples whose competitors are all masked (zero loss, zero gradient).
        samples: samples that take part in the loss (rows with ``ignore_index`` are none).
        masked_classes: masked competitors, summed over the samples.
        classes: competitors, summed over the samples: ``C - 1`` for each single-label sample.
    """

    masked_samples: Tensor
    samples: Tensor
    masked_classes: Tensor
    classes: Tensor

    def stacked(self) -> Tensor:
        """The four counts as one ``int64`` tensor of shape ``(4,)``, in the order of the fields."""
        return torch.stack(tuple(self))


def counts_of_rows(kept: Tensor, ignored: Tensor | None, classes: int) -> MaskingCounts:
    """The counts of single-label rows of ``classes`` classes.

    Args:
        kept: how many classes each row keeps (all of them where it is ignored), ``int64``, shape ``(N)``.
        ignored: rows that take no part, boolean, shape ``(N)``; None where there is none.
        classes: the number of classes ``C``.
    """
    masked = kept == 1
    if ignored is None:
        samples = kept.new_full((), kept.numel())
    else:
        samples, masked = (~ignored).sum(), masked & ~ignored
    return MaskingCounts(
        masked_samples=masked.sum(),
        samples=samples,
        masked_classes=kept.numel() * classes - kept.sum(),
        classes=samples * (classes - 1),
    )
