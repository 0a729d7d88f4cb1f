"""The counts of an accumulation window, gathered on the device and read when the window closes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import lightning.pytorch as pl
import torch
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor

from as_lightning.functional.counts import MaskingCounts

if TYPE_CHECKING:
    from as_lightning.losses import MaskedLoss


class WindowSums(NamedTuple):
    """The sums over the batches of an accumulation window, on one rank or on all."""

    counts: Tensor  # ``int64`` of shape ``(4,)``, in the order of `MaskingCounts`
    items: float | Tensor = 0.0  # the items of its batches
    loss: Tensor | None = None  # the sum of their losses, weighed as their gradients are

    def packed(self) -> Tensor:
        """All of them as one tensor, for one all-reduce."""
        if self.loss is None:
            return self.counts
        device = "cpu" if self.loss.device.type == "mps" else self.loss.device  # mps has no float64
        parts = self.counts, torch.as_tensor(self.items).reshape(1), self.loss.reshape(1)
        return torch.cat([part.to(device, torch.float64) for part in parts])

    @classmethod
    def unpacked(cls, sums: Tensor) -> WindowSums:
        items, loss = sums[4:] if len(sums) > 4 else (0.0, None)
        return cls(sums[:4].round().long(), items, loss)


def trainer_at_work(module: pl.LightningModule) -> pl.Trainer | None:
    """The trainer that runs a module; None where the module is called by hand, also before a fit or
    after it.
    """
    return (
        None if module._trainer is None or module._trainer.state.stage is None else module._trainer
    )


class MaskingCounter:
    """Adds up the `MaskingCounts` of the batches of one accumulation window, on the device.

    It is how a module reports its masking: any ``LightningModule`` with a ``masking_counter``
    attribute of this type works with the callbacks. The first of them opens and closes its windows.

    Args:
        losses: loss modules that report to it while a batch is trained, in a module that counts
            nothing by itself.
        module: the one whose ``training_step`` is counted. Its other hooks, and those of callbacks,
            are not.

    Attributes:
        counted: whether any batch has been counted since training began. (Not how many:
            ``torch.compile`` would compile ``training_step`` anew for every value.)
        may_be_silent: whether a training may count nothing, as with a loss that masks nothing.
        items, loss: the items of the window's batches, and the sum of their losses, weighed as
            their gradients are. `AdaptiveGradientAccumulation` adds both; ``loss`` is None where it
            adds none.

    Examples:
        >>> import torch
        >>> from as_lightning.functional import MaskingCounts
        >>> counter = MaskingCounter()
        >>> counter.update(MaskingCounts(*torch.tensor([1, 4, 5, 12])))
        >>> counter.update(MaskingCounts(*torch.tensor([3, 4, 9, 12])))
        >>> counter.close_window().counts
        tensor([ 4,  8, 14, 24])
    """

    items: float | Tensor
    loss: Tensor | None
    _open: Tensor | None

    def __init__(
        self, losses: Sequence[MaskedLoss] = (), module: pl.LightningModule | None = None
    ) -> None:
        self.losses, self.module = losses, module
        self.counted = self.may_be_silent = False
        self._counting = True
        self._of_batch: Tensor | None = (
            None  # the samples since the batch began, also where a step closes the window
        )
        self._samples: Tensor | None = None  # of the loss that was counted last
        self._uneven: Tensor | None = (
            None  # whether the batch has two losses of different numbers of samples
        )
        self._steps_before: int | None = None  # optimizer steps when training began
        self.drop_window()

    def update(self, counts: MaskingCounts, denominator: Any = None) -> None:
        """Add a batch's counts to the open window, without waiting for the device.

        Under a trainer it counts ``training_step`` alone, and nothing after `end_batch`.
        """
        if self._between_steps:
            return
        if self._samples is not None:
            uneven = self._samples != counts.samples
            self._uneven = uneven if self._uneven is None else self._uneven | uneven
        stacked = counts.stacked().detach()
        self._open = stacked if self._open is None else self._open + stacked
        self.counted = True
        self._samples = counts.samples
        self._of_batch = (
            counts.samples if self._of_batch is None else self._of_batch + counts.samples
        )

    @property
    def _between_steps(self) -> bool:
        if self.module is not None:
            if trainer_at_work(self.module) is None:  # a loop by hand counts all
                return False
            if self.module._current_fx_name not in (None, "training_step"):
                return True
        return not self._counting

    def begin_batch(self) -> None:
        """Count until `end_batch`, also what ``losses`` compute. Nothing is counted between
        training's batches.
        """
        self._counting = True
        self._of_batch = self._samples = self._uneven = None
        for loss in self.losses:
            loss.masking_counter = self

    def end_batch(self) -> None:
        """Count nothing until `begin_batch` or `start`: the batch's loss is computed."""
        self._counting = False
        for loss in self.losses:
            loss.masking_counter = None

    @property
    def batch_samples(self) -> Tensor | None:
        """The samples since `begin_batch`, None if none were counted; NaN if two losses had
        different numbers.
        """
        if self._of_batch is None or self._uneven is None:
            return self._of_batch
        return torch.where(self._uneven, torch.nan, self._of_batch)

    @property
    def open_sums(self) -> WindowSums:
        """What was counted since the last window closed, of this rank alone."""
        counts = torch.zeros(4, dtype=torch.int64) if self._open is None else self._open
        return WindowSums(counts, self.items, self.loss)

    def weigh(self, items: float | Tensor, loss: Tensor) -> None:
        """Add a batch's items, and its loss, weighed as its gradient is."""
        self.items, self.loss = self.items + items, loss if self.loss is None else self.loss + loss

    def close_window(self) -> WindowSums:
        """Return the sums of the open window, of this rank alone, and drop it."""
        sums = self.open_sums
        self.drop_window()
        return sums

    def start(self, trainer: pl.Trainer, open_sums: WindowSums | None = None) -> None:
        """Begin a training: drop the counts before it; ``open_sums`` are those of a checkpoint
        inside a window.
        """
        self.drop_window()
        self.counted, self._counting = False, True
        self._steps_before = trainer.global_step
        if (
            self.module is not None and self.module._trainer is None
        ):  # a part that Lightning gives no trainer
            self.module = trainer.lightning_module
        if open_sums is not None:
            self._open, self.items, self.loss = open_sums

    def drop_window(self) -> None:
        """Drop the sums of the open window."""
        self._open, self.items, self.loss = None, 0.0, None

    def refuse_silence(self, pl_module: pl.LightningModule, outputs: Any) -> None:
        """Raise if ``training_step`` has computed a loss and nothing has been counted since
        training began.

        It has computed none if ``outputs`` is empty (it returned None), unless a manual
        optimization took a step.
        """
        if self.counted or self.may_be_silent:
            return
        stepped = (
            self._steps_before is not None and pl_module.trainer.global_step > self._steps_before
        )
        if not outputs and (pl_module.automatic_optimization or not stepped):
            return
        raise MisconfigurationException(
            f"{type(pl_module).__name__}.training_step has reported no masking counts although it "
            "has computed a loss. "
            + (
                f"It has not called its {type(self.losses[0]).__name__}: compute the training loss "
                "with that module."
                if self.losses
                else "Either compute the training loss with self.as_softmax_loss(logits, target), "
                "or set "
                "`as_softmax_replaces` to the name of the attribute that training_step calls as "
                "loss(logits, target). "
                "A direct call of F.cross_entropy(...) cannot be replaced from outside. With an "
                "ASSoftmaxLoss, which "
                "the callbacks count, leave ASSoftmaxMixin out."
            )
        )
