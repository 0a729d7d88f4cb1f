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
from lightning.pytorch.utilities.rank_zero import WarningCache, rank_zero_warn
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
from as_lightning.masking_counter import uncounted

# Each of them once.
WARNED = WarningCache()


class AdaptiveGradientAccumulation(windows.WindowCallback):
    r"""Step the optimizer where a policy says so, at any batch of training, exactly.

    The batches between two steps are a window. It also ends with the epoch, and where a validation
    may save a checkpoint. The weights equal those of a loop by hand that takes the mean over each
    window's batches, bit for bit. Logs ``accumulation/steps`` (the window's length) and
    ``accumulation/loss`` at the first step, the last one and every ``log_every_n_steps``.

    Args:
        policy: a function of the open `AccumulationWindow`, which says whether the optimizer steps
            after the batch that starts, the same on all ranks. Without it AS-Speed, of which
            ``max_steps``, ``scale`` and ``monotone`` are arguments (`accumulation_steps`).
        lr_interval: what schedulers with ``interval="step"`` follow: ``"batch"``, the batches, or
            ``"step"``, as Lightning does it.
        lr_scale: a step of $k$ batches takes the scheduler's rate (``"none"``), $\sqrt k$ times it
            (``"sqrt"``, for Adam: Malladi et al., 2022) or $k$ times it (``"linear"``, for SGD:
            Goyal et al., 2017). ``"auto"`` is ``"sqrt"`` for AS-Speed and ``"none"`` for others.
        items: the gradient is the mean over all items of a window, of which a batch has
            ``items(batch)``, or with ``"module"`` what its masked loss divides by. Without it the
            gradient is the mean over the batches.
        loss_is: what ``training_step`` returns: the ``"mean"`` over the batch's items, or their
            ``"sum"``.

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
        loss_is: Literal["mean", "sum"] = "mean",
    ) -> None:
        self.lr_interval = check_choice("lr_interval", lr_interval, ("batch", "step"))
        check_choice("lr_scale", lr_scale, ("auto", "none", *RATE_FACTORS))
        self.loss_is = check_choice("loss_is", loss_is, ("mean", "sum"))
        if items is not None and not callable(items):
            check_choice("items", items, ("module",))
        if loss_is == "sum" and items is None:
            raise ValueError("loss_is='sum' says how items weigh: say what they are with items=")
        self.items = items
        options = {"max_steps": max_steps, "scale": scale, "monotone": monotone}
        self.policy = checked_policy(policy, options, items)
        if lr_scale == "auto":
            lr_scale = "sqrt" if isinstance(self.policy, MaskingPolicy) else "none"
        self._rates = ScaledRates(lr_scale)
        # While it is true, a search of the learning rate may load a checkpoint.
        self._training = False
        super().__init__()

    def _reset(self) -> None:
        self.history: list[AccumulationWindow] = []
        self._last: AccumulationWindow | None = None
        self.window: OpenWindow | None = None

    # The start and the end of fit

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        if self._fitting:
            self.window = None  # a checkpoint may set another one

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        refuse(trainer, pl_module, self)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._training = self._resumed = True
        _, self._ranks = windows.ranks_with_own_batches(trainer)
        # The batches of the epoch that the schedulers have followed, None until the first one.
        self._paced: int | None = None
        self._rates.follow(trainer.optimizers[0])
        # A resumed epoch loop reads it to see whether the checkpoint's batch had stepped. It must
        # not be set earlier: trainer.estimated_stepping_batches, which configure_optimizers may
        # read, divides by it.
        if self.window is not None:
            trainer.accumulate_grad_batches = trainer.fit_loop.batch_idx + 2
        self._accumulate = trainer.accumulate_grad_batches

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_train_end(trainer, pl_module)
        self._leave(trainer)

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        self._leave(trainer)

    def _leave(self, trainer: Trainer) -> None:
        if self._training:  # otherwise it may be the user's value, which was refused
            trainer.accumulate_grad_batches, self._training = 1, False
        self._rates.leave()

    # One batch

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if trainer.accumulate_grad_batches != self._accumulate:
            raise assigned_elsewhere(trainer, self._accumulate)
        super().on_train_batch_start(trainer, pl_module, batch, batch_idx)
        if self._paced is None:
            self._paced = batch_idx
        window = self.window
        if window is None:
            place = trainer.current_epoch, batch_idx, trainer.global_step
            window = self.window = OpenWindow(self.items, self.loss_is, *place, last=self._last)
        window.length = batch_idx + 1 - window.batch
        if self._resumed and window.length > 1:
            rank_zero_warn(
                f"The checkpoint lies inside a window, after {window.length - 1} of its batches, "
                "and holds no gradients of these: the window's step takes the mean over its other "
                "batches."
            )
        begins = self._resumed or window.length == 1
        self._resumed = False
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
        if self.window.added and self.window.length > 1:
            raise MisconfigurationException(
                f"{type(trainer.optimizers[0]).__name__} computes the loss several times in a "
                "step, and Lightning adds each gradient to those of the window's other batches. "
                f"Use an optimizer that computes it once, or remove {type(self).__name__}."
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
        divisor = self.window.close(trainer).items / self.window.unit / self._ranks
        if divisor not in (0.0, 1.0):
            divide_gradients(optimizer, divisor)
        self._rates.loss_is_computed(self.window.length)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.accumulate_grad_batches != self._accumulate:
            raise assigned_elsewhere(trainer, self._accumulate)
        if not outputs:  # no loss, and so no backward
            self.counter.pause()
        else:
            # Lightning has divided it: later callbacks see the batch's own loss.
            outputs["loss"] = outputs["loss"] * self._accumulate
            if not self._counted and isinstance(self.policy, MaskingPolicy):
                self.refuse_silence(pl_module)
        if not windows.window_ends(trainer):
            return
        self._keep_pace(trainer, pl_module, stepped=True)
        window = self.window
        # Where the loader gives None for an epoch's last batch, there is no step.
        if window is None or trainer.global_step == window.step:
            return
        self._last, self.window, self._rates.batches = window.close(trainer), None, 0
        self.history.append(self._last)
        self.log_step(trainer, trainer.global_step - 1, self._last)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.window is not None:
            # Lightning takes no step then, and zeroes the gradients when the next epoch starts.
            if not trainer.should_stop:
                rank_zero_warn(
                    f"Epoch {trainer.current_epoch} ended inside an accumulation window: the "
                    "gradients of its last batches are dropped. Have its loader yield as many "
                    "batches as its length says."
                )
            self.window = None
            self._keep_pace(trainer, pl_module, stepped=trainer.is_last_batch)
        self._paced = 0
        # Between epochs others may train, such as a search of the learning rate.
        trainer.accumulate_grad_batches = self._accumulate = 1

    def _keep_pace(self, trainer: Trainer, pl_module: LightningModule, *, stepped: bool) -> None:
        end = trainer.fit_loop.batch_idx + 1
        batches = end - (self._paced or 0)
        self._paced = end
        if self.lr_interval == "batch" and batches > 0 and trainer.lr_scheduler_configs:
            advance_schedulers(trainer, pl_module, end, batches, stepped=stepped)

    def write_step(self, trainer: Trainer, step: int, values: Any) -> None:
        metrics = {"accumulation/steps": float(values.length), "accumulation/loss": values.loss}
        windows.publish(trainer, metrics, step)

    # Checkpoints

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {}
        for name, window in (("window", self.window), ("last", self._last)):
            state[name] = None if window is None else {**asdict(window), "last": None}
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if not self._fitting:  # trainer.test(ckpt_path="best") must not rewind the fit before it
            return
        if not self._training:
            self.history = []
        self.window = self._last = None
        if state_dict["last"] is not None:
            self._last = AccumulationWindow(**state_dict["last"])
        if state_dict["window"] is not None:
            place = state_dict["window"] | {"last": self._last}
            self.window = OpenWindow(self.items, self.loss_is, **place)


def accumulation_of_batch(trainer: Trainer, batch_idx: int, length: int, *, closes: bool) -> int:
    """Return ``accumulate_grad_batches`` for a batch, the last of a window of ``length`` so far.

    Lightning zeroes the gradients in batch $b$ where it divides $b$, and steps after it where it
    divides $b + 1$. A larger power of two divides neither.
    """
    last = trainer.is_last_batch or batch_idx + 1 == trainer.num_training_batches
    if last and not closes and length == batch_idx + 1:
        WARNED.warn(
            f"The policy wants a window of more batches than an epoch has, {length}: a window ends "
            "with its epoch, so none is longer than that."
        )
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


def assigned_elsewhere(trainer: Trainer, ours: int) -> MisconfigurationException:
    return MisconfigurationException(
        f"AdaptiveGradientAccumulation had set accumulate_grad_batches to {ours}, but something "
        f"else has since set it to {trainer.accumulate_grad_batches}, which corrupts gradients: "
        "remove what does so."
    )


RIVALS = AdaptiveGradientAccumulation, GradientAccumulationScheduler, StochasticWeightAveraging


def refuse(
    trainer: Trainer, pl_module: LightningModule, callback: AdaptiveGradientAccumulation
) -> None:
    """Raise unless Lightning takes the steps, ``callback`` alone sets when, and the needed counts
    are there.
    """
    given, strategy = trainer.accumulate_grad_batches, trainer.strategy
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    rivals = [other for other in callbacks if isinstance(other, RIVALS) and other is not callback]
    names = ", ".join(type(other).__name__ for other in rivals)
    counts = windows.counts_masking(pl_module)
    no_items = callback.items == "module" and not counts
    no_index = "dataloader_iter" in inspect.signature(pl_module.training_step).parameters
    cases = [
        (strategy.handles_gradient_accumulation, f"{type(strategy).__name__} does so by itself"),
        (given != 1, f"remove Trainer(accumulate_grad_batches={given}): a schedule does the same"),
        (rivals, f"{names} may set accumulate_grad_batches too: remove one of them"),
        (not pl_module.automatic_optimization, "set automatic_optimization = True"),
        (no_index, "a dataloader_iter has no index: let training_step take (batch, batch_idx)"),
        (no_items, "items='module' needs a masked loss: say them with items=lambda batch: ..."),
    ]
    for applies, message in cases:
        if applies:
            module = type(pl_module).__name__
            raise MisconfigurationException(
                f"AdaptiveGradientAccumulation cannot train {module}: {message}."
            )
    if isinstance(callback.policy, MaskingPolicy) and not counts:
        raise uncounted(pl_module, callback)
