"""The counts of an accumulation window, gathered on the device and read when the window closes."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor

from as_lightning.functional.counts import MaskingCounts
from as_lightning.loss_call import LossCall
from as_lightning.narrowed_loss import NarrowedLoss, counted


class MaskingCounter:
    """Adds up the :class:`~as_lightning.functional.MaskingCounts` of the batches of one accumulation window.

    It is how a module reports its masking: any ``LightningModule`` with a ``masking_counter`` attribute of this type
    works with the callbacks. The counts are added on the device. Several callbacks may close the same window. Only the
    first call sums over the ranks.

    Attributes:
        counted: whether any batch has been counted since training began. (Not how many: ``torch.compile`` would
            compile ``training_step`` anew for every value.)
        wants_live: set by a callback, while a batch runs, that needs to know which samples are *live*, that is, have a
            competitor which the margin keeps (a sample that is not live has zero loss and zero gradient). Otherwise
            nothing is recorded.
        live_delta: the margin of that record; None for the margin of the loss.
        live: which samples of the running batch are live, a boolean tensor on the logits' device of the shape of the
            target (for several labels per sample: ``(N,)``); None if no loss has recorded it. See :meth:`take_live`.
        narrowed_loss: set by a callback while it narrows batches to their live samples; it then computes the losses.

    Example:
        >>> import torch
        >>> from as_lightning.functional import MaskingCounts
        >>> counter = MaskingCounter()
        >>> counter.update(MaskingCounts(*torch.tensor([1, 4, 5, 12])))
        >>> counter.update(MaskingCounts(*torch.tensor([3, 4, 9, 12])))
        >>> counter.close_window(key=(0, 1), reduce=lambda counts: counts)
        tensor([ 4,  8, 14, 24])
    """

    def __init__(self) -> None:
        self.counted = False
        self.wants_live = False
        self.live_delta: float | None = None
        self.live: Tensor | None = None
        self.narrowed_loss: NarrowedLoss | None = None
        self._open: Tensor | None = None
        self._closed = torch.zeros(4, dtype=torch.int64)
        self._closed_key: Hashable = None
        self._steps_before: int | None = None  # optimizer steps when training began

    def __getstate__(self) -> dict[str, Any]:
        """A copy, also a pickled one, has the counts, and nothing of what a callback wants of the running training."""
        return vars(self) | {"wants_live": False, "live_delta": None, "live": None, "narrowed_loss": None}

    def loss(self, call: LossCall, delta: float) -> Tensor:
        """The loss of ``call`` at the margin ``delta``, counted, and recorded where a callback asks for it."""
        live_delta = delta if self.live_delta is None else self.live_delta
        if self.narrowed_loss is not None:
            loss, counts, live = self.narrowed_loss.loss(call, delta, live_delta)
        elif self.wants_live:
            loss, counts, live = counted(call, delta, live_delta)
        else:
            loss, counts = call(delta, return_counts=True)
            live = None
        if live is not None and self.wants_live:
            self.record_live(live)
        self.update(counts)
        return loss

    def update(self, counts: MaskingCounts) -> None:
        """Add a batch's counts to the open window, without waiting for the device."""
        stacked = counts.stacked().detach()
        self._open = stacked if self._open is None else self._open + stacked
        self.counted = True

    def record_live(self, live: Tensor) -> None:
        """Note which samples of the batch are live; with two losses in one step, those that are live in either.

        Raises:
            ValueError: if an earlier loss of the batch has recorded another shape.
        """
        if self.live is not None and self.live.shape != live.shape:
            raise ValueError(
                f"two losses in one training step have live samples of shapes {tuple(self.live.shape)} and "
                f"{tuple(live.shape)}, which cannot be told apart by sample: a callback that skips samples needs one "
                "loss per step, or losses with targets of one shape"
            )
        self.live = live if self.live is None else self.live | live

    def take_live(self) -> Tensor | None:
        """Return the record of the batch and forget it. Call it in ``on_train_batch_end``. The host reads nothing."""
        live, self.live = self.live, None
        return live

    @property
    def open_counts(self) -> Tensor:
        """The counts since the last window closed, ``int64`` of shape ``(4,)``, of this rank alone."""
        return torch.zeros(4, dtype=torch.int64) if self._open is None else self._open

    def close_window(self, key: Hashable, reduce: Callable[[Tensor], Tensor]) -> Tensor:
        """Close the window that ends at ``key`` and return its counts; a second call with that key returns them again.

        Args:
            key: names the window's last batch, e.g. ``(epoch, batch_idx)``.
            reduce: sums a tensor over the ranks (the identity on one process).

        Returns:
            ``int64`` tensor of shape ``(4,)`` on the device: the summed counts in the order of ``MaskingCounts``.
        """
        if key != self._closed_key:
            self._closed, self._closed_key, self._open = reduce(self.open_counts), key, None
        return self._closed

    def start(self, trainer: pl.Trainer, open_counts: Tensor | None = None) -> None:
        """Begin a training: forget the counts before it, and continue inside a window if a checkpoint was saved there.

        Several callbacks may call it with the same counts; the second call changes nothing.

        Args:
            trainer: the trainer that starts.
            open_counts: the counts of the open window in a checkpoint, ``int64`` of shape ``(4,)``.
        """
        self.drop_window()
        self.counted, self.live = False, None
        self._open = open_counts
        self._steps_before = trainer.global_step

    def drop_window(self) -> None:
        """Forget the open window and the last closed one."""
        self._open, self._closed_key = None, None

    def refuse_silence(self, pl_module: pl.LightningModule, outputs: Any) -> None:
        """Raise if ``training_step`` has computed a loss and nothing has been counted since training began.

        A batch whose ``training_step`` returned None does not count as a loss. A manual ``training_step`` has
        computed a loss when it has returned one or taken an optimizer step.

        Args:
            pl_module: the module, in ``on_train_batch_end``.
            outputs: what Lightning passes to ``on_train_batch_end``: empty if no loss was returned.

        Raises:
            MisconfigurationException: the message names both ways to count.
        """
        if self.counted:
            return
        stepped = self._steps_before is not None and pl_module.trainer.global_step > self._steps_before
        if not outputs and (pl_module.automatic_optimization or not stepped):
            return
        raise MisconfigurationException(
            f"{type(pl_module).__name__}.training_step has reported no masking counts although it has computed a loss. "
            "Either compute the training loss with self.as_softmax_loss(logits, target), or set `as_softmax_replaces` "
            "to the name of the attribute that training_step calls as loss(logits, target). A direct call of "
            "F.cross_entropy(...) cannot be replaced from outside."
        )
