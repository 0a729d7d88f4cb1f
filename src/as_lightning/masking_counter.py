"""The counts of an accumulation window, gathered on the device and read when the window closes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor, nn

from as_lightning.functional.argument_checks import check_reduction
from as_lightning.functional.counts import MaskingCounts
from as_lightning.functional.masking import check_delta


class MaskingCounter:
    """Adds up the `MaskingCounts` of the batches of one accumulation window, on the device.

    It is how a module reports its masking: any ``LightningModule`` with a ``masking_counter`` attribute of this type
    works with the callbacks. Several may close the same window; only the first call sums over the ranks.

    Args:
        losses: loss modules that report to it while a batch is trained, in a module that counts nothing by itself.

    Attributes:
        counted: whether any batch has been counted since training began. (Not how many: ``torch.compile`` would compile
            ``training_step`` anew for every value.)
        batch_counted: whether the batch that began last has been.

    Examples:
        >>> import torch
        >>> from as_lightning.functional import MaskingCounts
        >>> counter = MaskingCounter()
        >>> counter.update(MaskingCounts(*torch.tensor([1, 4, 5, 12])))
        >>> counter.update(MaskingCounts(*torch.tensor([3, 4, 9, 12])))
        >>> counter.close_window(key=(0, 1), reduce=lambda counts: counts)
        tensor([ 4,  8, 14, 24])
    """

    def __init__(self, losses: Sequence[MaskedLoss] = ()) -> None:
        self.losses = losses
        self.counted = self.batch_counted = False
        self._counting = True
        self._open: Tensor | None = None
        self._closed = torch.zeros(4, dtype=torch.int64)
        self._closed_key: Hashable = None
        self._steps_before: int | None = None  # optimizer steps when training began

    def update(self, counts: MaskingCounts) -> None:
        """Add a batch's counts to the open window, without waiting for the device; no more after `end_batch`."""
        if not self._counting:
            return
        stacked = counts.stacked().detach()
        self._open = stacked if self._open is None else self._open + stacked
        self.counted = self.batch_counted = True

    def begin_batch(self) -> None:
        """Count until `end_batch`, also what ``losses`` compute: training's batches, and nothing between them."""
        self._counting, self.batch_counted = True, False
        for loss in self.losses:
            loss.masking_counter = self

    def end_batch(self) -> None:
        """Count nothing until `begin_batch` or `start`: callbacks call it when the batch's loss is computed."""
        self._counting = False
        for loss in self.losses:
            loss.masking_counter = None

    @property
    def open_counts(self) -> Tensor:
        """The counts since the last window closed, ``int64`` of shape ``(4,)``, of this rank alone."""
        return torch.zeros(4, dtype=torch.int64) if self._open is None else self._open

    def close_window(self, key: Hashable, reduce: Callable[[Tensor], Tensor]) -> Tensor:
        """Close the window whose last batch is ``key`` and return its counts; a second call returns them again.

        ``reduce`` sums a tensor over the ranks. The counts are ``int64`` of shape ``(4,)`` on the device, in the order
        of ``MaskingCounts``.
        """
        if key != self._closed_key:
            self._closed, self._closed_key, self._open = reduce(self.open_counts), key, None
        return self._closed

    def start(self, trainer: pl.Trainer, open_counts: Tensor | None = None) -> None:
        """Begin a training: forget the counts before it, and go on with those of a checkpoint inside a window.

        Several callbacks may call it with the same counts; the second call changes nothing.
        """
        self.drop_window()
        self.counted, self._counting = False, True
        self._open = open_counts
        self._steps_before = trainer.global_step

    def drop_window(self) -> None:
        """Forget the open window and the last closed one."""
        self._open, self._closed_key = None, None

    def refuse_silence(self, pl_module: pl.LightningModule, outputs: Any) -> None:
        """Raise if ``training_step`` has computed a loss and nothing has been counted since training began.

        It has computed none where it returned None (``outputs`` is empty); a manual one has, also if it took a step.
        """
        if self.counted:
            return
        stepped = self._steps_before is not None and pl_module.trainer.global_step > self._steps_before
        if not outputs and (pl_module.automatic_optimization or not stepped):
            return
        raise MisconfigurationException(
            f"{type(pl_module).__name__}.training_step has reported no masking counts although it has computed a loss. "
            + (
                f"It has not called its {type(self.losses[0]).__name__}: compute the training loss with that module."
                if self.losses
                else "Either compute the training loss with self.as_softmax_loss(logits, target), or set "
                "`as_softmax_replaces` to the name of the attribute that training_step calls as loss(logits, target). "
                "A direct call of F.cross_entropy(...) cannot be replaced from outside. With an ASSoftmaxLoss, which "
                "the callbacks count, leave ASSoftmaxMixin out."
            )
        )


class MaskedLoss(nn.Module):
    """A loss whose masking `MaskingMonitor` and `AdaptiveGradientAccumulation` count while a batch is trained."""

    masking_counter: MaskingCounter | None = None  # set by the callbacks from a batch's start to its end, else None

    def __init__(self, delta: float, ignore_index: int, reduction: str) -> None:
        super().__init__()
        self.delta = check_delta(delta)
        self.ignore_index = ignore_index
        self.reduction = check_reduction(reduction)

    def _counted(self, function: Callable[..., Any], *operands: Any, **settings: Any) -> Tensor:
        if self.masking_counter is None:
            return function(*operands, **settings)
        loss, counts = function(*operands, **settings, return_counts=True)
        self.masking_counter.update(counts)
        return loss

    def extra_repr(self) -> str:
        weight = getattr(self, "weight", None)
        of_classes = "" if weight is None else f", weight of {weight.numel()} classes"
        return f"delta={self.delta}, ignore_index={self.ignore_index}, reduction={self.reduction!r}{of_classes}"
