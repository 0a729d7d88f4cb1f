"""What a masked loss reports beside its value: the samples and classes that the margin dropped."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

CountT = TypeVar("CountT", int, Tensor)


def masking_ratio(masked: CountT, total: CountT) -> float | Tensor:
    """Return ``masked / total``, 0 if ``total`` is 0; of two tensors without a host read."""
    if isinstance(total, Tensor):
        return masked / total.clamp(min=1)
    return masked / max(total, 1)


class MaskingCounts(NamedTuple):
    """How much of a batch the margin has masked, as 0-dim ``int64`` tensors on the logits' device.

    Attributes:
        masked_samples: samples whose competitors are all masked (zero loss, zero gradient).
        samples: samples in the loss (rows with ``ignore_index`` do not count).
        masked_classes: masked competitors, summed over the samples.
        classes: competitors, summed over the samples: ``C - 1`` for each single-label sample.
    """

    masked_samples: Tensor
    samples: Tensor
    masked_classes: Tensor
    classes: Tensor

    @property
    def sample_ratio(self) -> Tensor:
        """The share of masked samples, 0-dim ``float32`` in [0, 1]; 0 without samples."""
        return masking_ratio(self.masked_samples, self.samples)  # type: ignore[return-value]

    @property
    def class_ratio(self) -> Tensor:
        """The share of masked competitors, 0-dim ``float32`` in [0, 1]; 0 without competitors."""
        return masking_ratio(self.masked_classes, self.classes)  # type: ignore[return-value]

    def stacked(self) -> Tensor:
        """Return the four counts as one ``int64`` tensor of shape ``(4,)``."""
        return torch.stack(tuple(self))


def counts_of_rows(masked: Tensor, ignored: Tensor | None, classes: int) -> MaskingCounts:
    """Return the counts of rows, from the masked competitors of each row (0 where ignored)."""
    if ignored is None:
        rows, device = masked.numel(), masked.device
        samples = torch.scalar_tensor(rows, dtype=torch.int64, device=device)
        competitors = torch.scalar_tensor(rows * (classes - 1), dtype=torch.int64, device=device)
    else:
        samples = (~ignored).sum()
        competitors = samples * (classes - 1)
    if classes > 1:
        # a comparison with a number would make a tensor of the number first, which costs as much
        fully_masked = torch.threshold(masked, classes - 2, 0).count_nonzero()
    else:
        fully_masked = samples.clone()
    return MaskingCounts(fully_masked, samples, masked.sum(dtype=torch.int64), competitors)


def live_rows(masked: Tensor, ignored: Tensor | None, classes: int) -> Tensor:
    """Return the rows that keep a competitor, boolean, from what `counts_of_rows` takes."""
    live = masked < classes - 1
    if ignored is None:
        return live
    return live & ~ignored
