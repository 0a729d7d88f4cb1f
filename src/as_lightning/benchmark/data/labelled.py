"""The data set that all modalities share: inputs, targets, and what is done to an input when it is taken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch.utils.data import Dataset


class LabelledDataset(Dataset[tuple[Any, Tensor]]):
    """Pairs of ``(transform(input), target)``.

    Args:
        inputs: a tensor, a list, or anything that has a length and an element at an index.
        targets: what belongs to them, in the same order: a tensor ``(N, ...)``, or a list where sizes differ.
        transform: called with an input each time it is taken, e.g. random augmentation.

    Raises:
        ValueError: if there is not one target for each input.
    """

    def __init__(
        self,
        inputs: Sequence[Any] | Tensor,
        targets: Tensor | Sequence[Tensor],
        transform: Callable[[Any], Any] | None = None,
    ) -> None:
        if len(inputs) != len(targets):
            raise ValueError(f"expected a target for each input, got {len(inputs)} inputs and {len(targets)} targets")
        self.inputs, self.targets, self.transform = inputs, targets, transform

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Any, Tensor]:
        taken = self.inputs[index]
        return (taken if self.transform is None else self.transform(taken)), self.targets[index]


class Rows(Sequence[Any]):
    """Some of the inputs of a data set, taken from it when they are asked for."""

    def __init__(self, inputs: Sequence[Any], rows: Sequence[int]) -> None:
        self.inputs, self.rows = inputs, rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.inputs[self.rows[index]]
