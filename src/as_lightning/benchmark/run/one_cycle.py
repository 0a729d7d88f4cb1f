"""One cycle of the learning rate, for trainings of any length."""

from __future__ import annotations

from typing import Any

import torch
from torch.optim.lr_scheduler import OneCycleLR


class OneCycle(OneCycleLR):
    """:class:`torch.optim.lr_scheduler.OneCycleLR`, also for trainings too short to rise.

    The rise ends at step ``pct_start * total_steps - 1``. PyTorch's class divides by zero where that is step 0, and
    trains a single step at the final rate. Where there is no step to rise in, this class starts at the maximum.

    Example:
        >>> weight = torch.nn.Parameter(torch.zeros(1))
        >>> for total in range(1, 21):
        ...     scheduler = OneCycle(torch.optim.SGD([weight], lr=1.0), total, 0.1, max_lr=1.0, cycle_momentum=False)
    """

    def __init__(self, optimizer: torch.optim.Optimizer, total_steps: int, pct_start: float, **cycle: Any) -> None:
        if pct_start * total_steps <= 1.0 + 1e-9:
            total_steps = max(total_steps, 2)  # the one step of a training of one is not the last
            pct_start = (1.0 - 1e-6) / total_steps
        super().__init__(optimizer, total_steps=total_steps, pct_start=pct_start, **cycle)
