"""What is recorded of an accumulation window once its optimizer step is taken."""

from __future__ import annotations

from typing import NamedTuple


class AccumulationWindow(NamedTuple):
    """One optimizer step: the batches that led to it and what was masked in them, summed over the ranks.

    Attributes:
        epoch: 0-based epoch.
        batch: 0-based index in the epoch of the window's first batch.
        length: how many batches were accumulated.
        masked_samples: samples of the window whose competitors were all masked.
        samples: samples of the window that took part in the loss.
    """

    epoch: int
    batch: int
    length: int
    masked_samples: int
    samples: int
