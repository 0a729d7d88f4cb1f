"""What the visits of an epoch have found of each sample, gathered without a host read inside a batch."""

from __future__ import annotations

from array import array
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor


class EpochRecord:
    """One number for each sample of the data set: the largest that the epoch's visits have found.

    Args:
        samples: the number of samples ``N``.
        dtype: of the numbers.
        not_visited: the number of a sample without a visit, below all others.

    Example:
        >>> record = EpochRecord(4, torch.int8, not_visited=-1)
        >>> record.add(array("q", [3, 1]), torch.tensor([True, False]))
        >>> record.found()
        tensor([-1,  0, -1,  1], dtype=torch.int8)
    """

    def __init__(self, samples: int, dtype: torch.dtype, not_visited: float) -> None:
        self.visits = 0
        self.backward = 0  # visits that took a backward pass
        self._found = torch.full((samples,), not_visited, dtype=dtype)
        self._numbers = array("q")  # of the latest batches
        self._latest: list[Tensor] = []  # what was found of them, on the module's device

    def add(self, numbers: array[int], found: Tensor, backward: int | None = None) -> None:
        """Add a batch: sample numbers, one number for each on any device, and how many took a backward pass (all)."""
        self.visits += len(numbers)
        self.backward += len(numbers) if backward is None else backward
        self._numbers.extend(numbers)
        self._latest.append(found)
        if len(self._latest) == 256:  # no read of the device: only fewer, larger tensors
            self._latest = [torch.cat(self._latest)]

    def found(self) -> Tensor:
        """What this process has found, shape ``(N,)`` on the CPU."""
        if self._latest:
            latest = torch.cat(self._latest).to("cpu", self._found.dtype)
            numbers = torch.frombuffer(self._numbers, dtype=torch.int64)
            self._found.scatter_reduce_(0, numbers, latest, reduce="amax")
            self._numbers, self._latest = array("q"), []
        return self._found

    def over_ranks(self, trainer: pl.Trainer) -> tuple[Tensor, int, int]:
        """What all processes have found, how many visits they made, and of these with backward. A collective call."""
        device = trainer.strategy.root_device
        found = trainer.strategy.reduce(self.found().to(device), reduce_op="max").cpu()
        visits = torch.tensor([self.visits, self.backward], device=device)
        visited, backward = trainer.strategy.reduce(visits, reduce_op="sum").tolist()
        return found, visited, backward

    @staticmethod
    def from_state(state: dict[str, Any], trainer: pl.Trainer) -> EpochRecord:
        """Go on from what :meth:`over_ranks` returned as ``found``, ``visits`` and ``backward``."""
        record = EpochRecord(0, state["found"].dtype, 0)
        record._found = state["found"].clone()
        if trainer.is_global_zero:  # already summed over the processes
            record.visits, record.backward = state["visits"], state["backward"]
        return record
