"""One call of a masked loss: its value at any margin, its live samples alone, and what its rows count for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from as_lightning.functional.calling_convention import accumulation_dtype, class_dimension, equals, row_weights
from as_lightning.functional.class_parallel import is_dtensor
from as_lightning.functional.cross_entropy import as_cross_entropy
from as_lightning.functional.head_operands import HeadNames
from as_lightning.functional.linear_cross_entropy import cross_entropy_of_head
from as_lightning.functional.live_samples import linear_live_samples, live_samples
from as_lightning.functional.multilabel import multilabel_as_cross_entropy


class LossRows(NamedTuple):
    """What the rows of a loss count for; each tensor has the shape of the loss with ``reduction="none"``.

    Attributes:
        counted: rows that take part, boolean.
        weight: the weight of each row in the mean, 0 where it takes no part; float32 or float64.
        competitors: classes that the margin could mask, ``int64``, 0 where the row takes no part.
    """

    counted: Tensor
    weight: Tensor
    competitors: Tensor


class LossCall(ABC):
    """A loss and its arguments, without the margin."""

    reduction: str

    @abstractmethod
    def __call__(self, delta: float, reduction: str | None = None, **returned: bool) -> Any:
        """The loss at a margin, with what ``return_counts`` and ``return_live`` ask for."""

    @abstractmethod
    def live(self, delta: float) -> Tensor:
        """Which samples are live at a margin, which need not be the loss's: without its value and its gradient."""

    @abstractmethod
    def rows(self) -> LossRows:
        """What its rows count for."""

    @property
    @abstractmethod
    def sharded(self) -> bool:
        """Whether its classes are spread over processes."""

    def _live_of_loss(self, delta: float) -> Tensor:
        with torch.no_grad():
            return self(delta, return_live=True)[1]


@dataclass(eq=False)
class ClassLoss(LossCall):
    """:func:`~as_lightning.functional.as_cross_entropy`."""

    logits: Tensor
    target: Tensor
    weight: Tensor | None
    ignore_index: int
    reduction: str

    def __call__(self, delta: float, reduction: str | None = None, **returned: bool) -> Any:
        options = {"weight": self.weight, "ignore_index": self.ignore_index, "reduction": reduction or self.reduction}
        return as_cross_entropy(self.logits, self.target, delta, **options, **returned)  # type: ignore[call-overload]

    def live(self, delta: float) -> Tensor:
        if self.sharded:
            return self._live_of_loss(delta)
        return live_samples(self.logits, self.target, delta, self.ignore_index)

    def rows(self) -> LossRows:
        classes = self.logits.size(class_dimension(self.logits))
        return _rows_of_classes(self.target, self.ignore_index, self.weight, classes, self.logits.dtype)

    @property
    def sharded(self) -> bool:
        return is_dtensor(self.logits) or is_dtensor(self.target)


# as the mixin's as_softmax_head_loss names them
HEAD_NAMES = HeadNames("hidden", "head.weight", "head.bias", "target", "weight")


@dataclass(eq=False)
class HeadLoss(LossCall):
    """:func:`~as_lightning.functional.as_linear_cross_entropy`."""

    hidden: Tensor
    weight: Tensor
    bias: Tensor | None
    target: Tensor
    class_weight: Tensor | None
    ignore_index: int
    reduction: str

    def __call__(self, delta: float, reduction: str | None = None, **returned: bool) -> Any:
        operands = (self.hidden, self.weight, self.bias, self.target, self.class_weight)
        options: dict[str, Any] = {
            "ignore_index": self.ignore_index,
            "reduction": reduction or self.reduction,
            **returned,
        }
        return cross_entropy_of_head(operands, HEAD_NAMES, delta, **options)

    def live(self, delta: float) -> Tensor:
        if self.sharded:
            return self._live_of_loss(delta)
        options: dict[str, Any] = {"bias": self.bias, "ignore_index": self.ignore_index}
        return linear_live_samples(self.hidden, self.weight, self.target, delta, **options)

    def rows(self) -> LossRows:
        classes, dtype = self.weight.size(0), self.hidden.dtype
        return _rows_of_classes(self.target, self.ignore_index, self.class_weight, classes, dtype)

    @property
    def sharded(self) -> bool:
        return is_dtensor(self.weight) or is_dtensor(self.hidden)


@dataclass(eq=False)
class LabelLoss(LossCall):
    """:func:`~as_lightning.functional.multilabel_as_cross_entropy`."""

    logits: Tensor
    target: Tensor
    ignore_index: int
    reduction: str

    def __call__(self, delta: float, reduction: str | None = None, **returned: bool) -> Any:
        options = {"ignore_index": self.ignore_index, "reduction": reduction or self.reduction}
        return multilabel_as_cross_entropy(self.logits, self.target, delta, **options, **returned)  # type: ignore[call-overload]

    def live(self, delta: float) -> Tensor:
        return live_samples(self.logits, self.target, delta, self.ignore_index)

    def rows(self) -> LossRows:
        dimension = class_dimension(self.logits)
        ignored = equals(self.target, self.ignore_index)
        known = torch.ones_like(self.target, dtype=torch.bool) if ignored is None else ~ignored
        counted = known.any(dimension)
        return LossRows(counted, counted.to(accumulation_dtype(self.logits.dtype)), known.sum(dimension))

    @property
    def sharded(self) -> bool:
        return False


def _rows_of_classes(
    target: Tensor, ignore_index: int, weight: Tensor | None, classes: int, dtype: torch.dtype
) -> LossRows:
    ignored = equals(target, ignore_index)
    counted = torch.ones_like(target, dtype=torch.bool) if ignored is None else ~ignored
    share = counted.to(accumulation_dtype(dtype))
    in_range = target.long().masked_fill(~counted, 0)
    weights = row_weights(weight, in_range.reshape(-1), share.dtype)
    if weights is not None:
        share = share * weights.reshape(share.shape)
    return LossRows(counted, share, counted.long() * (classes - 1))
