"""Accumulation windows that close when a policy says so, exactly."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Literal

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import GradientAccumulationScheduler, StochasticWeightAveraging
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities.rank_zero import rank_zero_warn
from torch import Tensor
from torch.optim import Optimizer

from as_lightning.callbacks import window as windows
from as_lightning.callbacks.accumulation_policy import (
    AccumulationWindow,
    MaskingPolicy,
    Policy,
    checked_policy,
)
from as_lightning.callbacks.learning_rate_scale import RATE_FACTORS, ScaledRates, advance_schedulers
from as_lightning.callbacks.open_window import OpenWindow, divide_gradients
from as_lightning.functional.argument_checks import check_choice


class AdaptiveGradientAccumulation(windows.WindowCallback):
    r"""Step the optimizer where a policy says so, at any batch of training, exactly.

    The batches between two steps are a window. It also ends with the epoch, and where a validation
    may save a checkpoint. The weights equal those of a loop by hand that takes the mean over each
    window's batches, bit for bit. Logs ``accumulation/steps`` (the window's length) and
    ``accumulation/loss`` at the first step and every ``log_every_n_steps``.

    Args:
        policy: a function of the open `AccumulationWindow`, which says whether the optimizer steps
            after the batch that starts, the same on all ranks. Without it AS-Speed, of which
            ``max_steps``, ``scale`` and ``monotone`` are arguments (`accumulation_steps`).
        lr_interval: what schedulers with ``interval="step"`` follow: ``"batch"``, the batches, or
            ``"step"``, as Lightning does it, and as it is wherever ``Trainer(max_steps)`` is set.
        lr_scale: a step of $k$ batches takes the scheduler's rate (``"none"``), $\sqrt k$ times it
            (``"sqrt"``, for Adam: Malladi et al., 2022) or $k$ times it (``"linear"``, for SGD:
            Goyal et al., 2017). ``"auto"`` is ``"sqrt"`` for AS-Speed and ``"none"`` for others.
        items: the gradient is the mean over all items of a window, of which a batch has
            ``items(batch)``, or with ``"module"`` what its masked loss divides by. Without it the
            gradient is the mean over the batches.

    Attributes:
        history: the closed `AccumulationWindow`s since training began or was resumed.
        window: the open `AccumulationWindow`; None between two.

    Raises:
        ValueError, TypeError: if an argument lies outside its range, or items of a batch do.
        MisconfigurationException: for what the page on accumulation lists, mostly at the start.

    Source: paper, section on AS-Speed, for the default policy.

    Examples:
        >>> every_fourth = AdaptiveGradientAccumulation(lambda window: window.length >= 4)
        >>> trainer = Trainer(callbacks=[every_fourth], logger=False, enable_checkpointing=False)
    """

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        max_steps: int | None = None,
        scale: float | None = None,
        monotone: bool | None = None,
        lr_interval: Literal["batch", "step"] = "batch",
        lr_scale: Literal["auto", "none", "sqrt", "linear"] = "auto",
        items: Callable[[Any], Any] | Literal["module"] | None = None,
    ) -> None:
        self.lr_interval = check_choice("lr_interval", lr_interval, ("batch", "step"))
        check_choice("lr_scale", lr_scale, ("auto", "none", *RATE_FACTORS))
        if items is not None and not callable(items):
            check_choice("items", items, ("module",))
        self.items = items
        options = {"max_steps": max_steps, "scale": scale, "monotone": monotone}
        self.policy = checked_policy(policy, options, items)
        if lr_scale == "auto":
            lr_scale = "sqrt" if isinstance(self.policy, MaskingPolicy) else "none"
        self.lr_scale = lr_scale
        self._rates: ScaledRates | None = None
        self._accumulate: int | None = None  # what it was set to, while training
        super().__init__()

    def _reset(self) -> None:
        self.history: list[AccumulationWindow] = []
        self._last: AccumulationWindow | None = None
        self._leave_window()

    def _leave_window(self) -> None:
        self.window: OpenWindow | None = None
        self._closed: AccumulationWindow | None = None  # until its last batch ends
        # The first batch of the window that a checkpoint lies in.
        self._resumed: int | None = None

    # The start and the end of fit

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        if self._fitting:
            self._leave_window()

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Raise unless Lightning takes the steps, this callback alone sets when, and the needed
        counts are there.
        """
        given, strategy = trainer.accumulate_grad_batches, trainer.strategy
        rivals = GradientAccumulationScheduler, StochasticWeightAveraging, type(self)
        callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
        others = [type(c).__name__ for c in callbacks if isinstance(c, rivals) and c is not self]
        no_index = "dataloader_iter" in inspect.signature(pl_module.training_step).parameters
        refusals = [
            (strategy.handles_gradient_accumulation, f"{type(strategy).__name__} accumulates"),
            (given != 1, f"remove accumulate_grad_batches={given}: a schedule does the same"),
            (others, f"remove {others}, which may set accumulate_grad_batches too"),
            (not pl_module.automatic_optimization, "set automatic_optimization = True"),
            (no_index, "training_step takes a dataloader_iter, which has no index"),
        ]
        for applies, message in refusals:
            if applies:
                raise MisconfigurationException(
                    f"AdaptiveGradientAccumulation cannot train {type(pl_module).__name__}: "
                    f"{message}."
                )
        if self.items == "module" or isinstance(self.policy, MaskingPolicy):
            self.refuse_uncounted(pl_module, windows.counts_masking(pl_module))

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._accumulate = 1
        _, self._ranks = windows.ranks_with_own_batches(trainer)
        if self.lr_scale != "none":
            self._rates = ScaledRates(trainer.optimizers[0], self.lr_scale)

    def on_train_end(self, trainer: Trainer, *_: Any) -> None:
        if self._accumulate is not None:  # otherwise it may be the user's value, which was refused
            trainer.accumulate_grad_batches, self._accumulate = 1, None
        if self._rates is not None:
            self._rates.leave()
            self._rates = None

    def on_exception(self, trainer: Trainer, *_: Any) -> None:
        self.on_train_end(trainer)

    # One batch

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if trainer.accumulate_grad_batches != self._accumulate:
            raise MisconfigurationException(
                "AdaptiveGradientAccumulation had set accumulate_grad_batches to "
                f"{self._accumulate}, but something else has since set it to "
                f"{trainer.accumulate_grad_batches}, which corrupts gradients: remove what does so."
            )
        super().on_train_batch_start(trainer, pl_module, batch, batch_idx)
        begins = self.window is None
        if self.window is None:
            first = batch_idx if self._resumed is None else self._resumed
            if first < batch_idx:
                rank_zero_warn(
                    f"The checkpoint lies inside a window, after {batch_idx - first} of its "
                    "batches, and holds no gradients of these: the window's step takes the mean "
                    "over its other batches."
                )
            place = trainer.current_epoch, first, trainer.global_step, self._last
            self.window = OpenWindow(self.items, *place)
        window = self.window
        window.length = batch_idx + 1 - window.batch
        closes = window.begin_batch(trainer, self.policy, batch)
        self._accumulate = accumulation_of_batch(trainer, batch_idx, window.length, closes=closes)
        trainer.accumulate_grad_batches = self._accumulate
        if begins:
            window.choose_unit()
            # Lightning zeroes them by itself where accumulate_grad_batches divides batch_idx.
            if batch_idx % self._accumulate:
                trainer.optimizers[0].zero_grad()

    def on_before_backward(
        self, trainer: Trainer, pl_module: LightningModule, loss: Tensor
    ) -> None:
        super().on_before_backward(trainer, pl_module, loss)
        assert self.window is not None
        if self.window.added:
            raise MisconfigurationException(
                f"{type(trainer.optimizers[0]).__name__} computes the loss several times in a "
                "step, and Lightning adds each gradient to those of the window: use an optimizer "
                f"that computes it once, or remove {type(self).__name__}."
            )
        self.window.add(trainer, self.counter, loss)

    # The end of a window

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer
    ) -> None:
        """Make the gradients means over the items, before they are clipped and after a scaler has
        unscaled them.
        """
        assert self.window is not None
        self._closed = self.window.close(trainer)
        divisor = self._closed.items / self.window.unit / self._ranks
        if divisor not in (0.0, 1.0):
            divide_gradients(optimizer, divisor)
        if self._rates is not None:
            self._rates.batches = self._closed.length

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if outputs:
            # Lightning has divided it: later callbacks see the batch's own loss.
            outputs["loss"] = outputs["loss"] * self._accumulate
            if not self._counted and isinstance(self.policy, MaskingPolicy):
                self._counted = self.counter.counts is not None
                self.refuse_uncounted(pl_module, self._counted)
        if self._closed is None:
            return
        self.history.append(self._closed)
        self._last = self._closed
        self._leave_window()
        if self.lr_interval == "batch" and trainer.max_steps == -1:
            advance_schedulers(trainer, pl_module, self._last.batch, batch_idx + 1)
        step = trainer.global_step - 1
        if windows.is_logged(trainer, step):
            length, loss = float(self._last.length), self._last.loss
            metrics = {"accumulation/steps": length, "accumulation/loss": loss}
            windows.publish(trainer, metrics, step)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.window is not None and not trainer.should_stop:
            # Lightning takes no step then, and zeroes the gradients when the next epoch starts.
            rank_zero_warn(
                f"Epoch {trainer.current_epoch} ended inside an accumulation window, whose "
                "gradients are dropped: its loader yielded fewer batches than its length says."
            )
        self._leave_window()
        # Between epochs others may train, such as a search of the learning rate.
        trainer.accumulate_grad_batches = self._accumulate = 1

    # Checkpoints

    def state_dict(self) -> dict[str, Any]:
        return {
            "last": self._last and asdict(self._last),
            "first_batch": self.window and self.window.batch,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if not self._fitting:  # trainer.test(ckpt_path="best") must not rewind the fit before it
            return
        last = state_dict.get("last")  # older checkpoints lack both
        self._last = last and AccumulationWindow(**last)
        self._resumed = state_dict.get("first_batch")


def accumulation_of_batch(trainer: Trainer, batch_idx: int, length: int, *, closes: bool) -> int:
    """Return ``accumulate_grad_batches`` for a batch, the last of a window of ``length`` so far.

    Lightning zeroes the gradients in batch $b$ where it divides $b$, and steps after it where it
    divides $b + 1$. A larger power of two divides neither.
    """
    last = trainer.is_last_batch or batch_idx + 1 == trainer.num_training_batches
    if not (closes or last or validation_follows(trainer, batch_idx)):
        if length == 1 and batch_idx > 1:
            return batch_idx
        return int(2 ** (batch_idx + 2).bit_length())
    return 1 if length == 1 else batch_idx + 1


def validation_follows(trainer: Trainer, batch_idx: int) -> bool:
    """Return whether Lightning validates after this batch. (That of a time interval cannot be
    foreseen.)
    """
    every, epochs = trainer.val_check_batch, trainer.check_val_every_n_epoch
    if every is None or every == math.inf:
        return False
    if epochs is None:
        batch_idx = trainer.fit_loop.total_batch_idx
    elif (trainer.current_epoch + 1) % epochs:
        return False
    return (batch_idx + 1) % every == 0 and trainer.enable_validation
