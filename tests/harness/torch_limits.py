"""What a version of PyTorch cannot do by itself: where it runs, the tests of that are skipped and
say so.
"""

from dataclasses import dataclass

import pytest
import torch


@dataclass(frozen=True)
class Limit:
    """A version of PyTorch, as ``"2.6"``, and what it does not do."""

    version: str
    cause: str

    @property
    def holds(self):
        """Whether this is that version."""
        return torch.__version__.startswith(f"{self.version}.")

    def __str__(self):
        return f"torch {self.version}: {self.cause}"


FSDP2_ON_A_CPU = Limit(
    "2.6", "FSDP2 does not run on a CPU ('Stream' object has no attribute 'record_event')"
)
TENSOR_PARALLEL_CLIPPED = Limit(
    "2.6", "clipping the gradients of DTensors by their norm is exact to 1e-7 alone"
)
ONE_SIDE_OF_A_CONDITION = Limit(
    "2.6", "a graph with a dynamic batch is for the sizes on one side of each condition"
)
SELF_LOG_COMPILED = Limit(
    "2.13",
    "self.log of a module compiled as a whole fails in Lightning ('method' object has no attribute "
    "`__dict__`)",
)
LIMITS = (FSDP2_ON_A_CPU, TENSOR_PARALLEL_CLIPPED, ONE_SIDE_OF_A_CONDITION, SELF_LOG_COMPILED)


def skipped_by(limit):
    """Skip the test where the limit holds."""
    return pytest.mark.skipif(limit.holds, reason=str(limit))
