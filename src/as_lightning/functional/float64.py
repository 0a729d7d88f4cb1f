"""Float64 where a device has it: Apple's GPUs do not."""

from __future__ import annotations

import torch
from torch import Tensor


def widest_dtype(device: torch.device) -> torch.dtype:
    """The widest floating-point type of a device: float32 on Apple's GPUs (``mps``), else float64.

    Example:
        >>> widest_dtype(torch.device("cpu")), widest_dtype(torch.device("mps"))
        (torch.float64, torch.float32)
    """
    return torch.float32 if device.type == "mps" else torch.float64


def in_float64(values: Tensor) -> Tensor:
    """The values in float64: on their device, or on the CPU if their device has no float64."""
    return (values if widest_dtype(values.device) == torch.float64 else values.cpu()).double()
