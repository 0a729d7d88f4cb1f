"""Accumulation windows that close when a policy says so, exactly."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any, Literal

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import GradientAccumulationScheduler, StochasticWeightAveraging
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities.rank_zero import rank_zero_warn
from lightning.pytorch.utilities.signature_utils import is_param_in_hook_signature
from torch import Tensor
from torch.optim import Optimizer

from as_lightning.callbacks import window as windows
from as_lightning.callbacks.accumulation_policy import AccumulationWindow, MaskingPolicy, Policy
from as_lightning.callbacks.item_weights import (
    divide_gradients,
    items_in,
    long_dtype,
    unit_after,
    weigh,
)
from as_lightning.callbacks.learning_rate_scale import RATE_FACTORS, ScaledRates, advance_schedulers
from as_lightning.functional.argument_checks import check_choice
from as_lightning.masking_counter import uncounted

ONE = torch.ones((), dtype=torch.float64)


class OpenWindow(AccumulationWindow):
    """An open window, whose items are read when a policy asks for them."""

    read_items: Callable[[], float] | None = None

    @property
    def items(self) -> float:
        if self.read_items is not None:
            self._items, self.read_items = self.read_items(), None
        return self._items

    @items.setter
    def items(self, value: float) -> None:
        self._items = value


class AdaptiveGradientAccumulation(windows.WindowCallback):
    r"""Step the optimizer where a policy says so, at any batch of training, exactly.

    The batches between two steps are a window. It also ends with the epoch, and where a validation
    may save a checkpoint. The weights equal those of a loop by hand that takes the mean over each
    window's batches, bit for bit. Logs ``accumulation/steps`` (the window's length),
    ``accumulation/loss`` (the mean of its losses, weighed as their gradients are) and, where
    ``lr_scale`` acts, ``accumulation/lr``, at the first step, the last one and every
    ``log_every_n_steps``.

    Args:
        policy: a function of the open `AccumulationWindow`, the batch that starts included, which
            says whether the optimizer steps after this batch; the same on all ranks. Such as
            `AccumulationSchedule`, `TokenBudget` or ``lambda window: window.length >= 4``. Without
            it AS-Speed, of which ``max_steps``, ``scale`` and ``monotone`` are arguments
            (`accumulation_steps`).
        lr_interval: what schedulers with ``interval="step"`` follow: ``"batch"``, the batches, so
            that a schedule of ``trainer.estimated_stepping_batches`` ends with training; or
            ``"step"``, as Lightning does it.
        lr_scale: a step of $k$ batches takes the scheduler's rate (``"none"``), $\sqrt k$ times it
            (``"sqrt"``, for Adam: Malladi et al., 2022) or $k$ times it (``"linear"``, for SGD:
            Goyal et al., 2017). ``"auto"`` is ``"sqrt"`` for AS-Speed and ``"none"`` for all
            others, and in a resumed run what it was before.
        items: the gradient is the mean over all items of a window, of which a batch has
            ``items(batch)``. With ``"module"`` they are what the batch's masked loss divides by,
            which is known after ``training_step`` alone: a policy cannot read the items of the open
            window then. Without it the gradient is the mean over the batches.
        loss_is: what ``training_step`` returns: the ``"mean"`` over the batch's items, or their
            ``"sum"``.

    Attributes:
        history: the closed `AccumulationWindow`s since training began or was resumed.
        window: the open `AccumulationWindow`; None between two.

    Raises:
        ValueError: if an argument lies outside its range, or the number of items in a batch is
            negative or not finite.
        TypeError: if ``policy`` is no function.
        MisconfigurationException: for what the page on accumulation lists, mostly when ``fit``
            starts.

    Source: paper, section on AS-Speed, for the default policy.

    Examples:
        >>> every_fourth = AdaptiveGradientAccumulation(lambda window: window.length >= 4)
        >>> trainer = Trainer(callbacks=[every_fourth], logger=False, enable_checkpointing=False)
        >>> every_fourth.history
        []
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
        check_choice("lr_interval", lr_interval, ("batch", "step"))
        check_choice("lr_scale", lr_scale, ("auto", "none", *RATE_FACTORS))
        check_choice("loss_is", loss_is, ("mean", "sum"))
        if items is not None and not callable(items):
            check_choice("items", items, ("module",))
        if loss_is == "sum" and items is None:
            raise ValueError(
                "loss_is='sum' says how items weigh: say what they are with items= too, or leave "
                "it out"
            )
        options: dict[str, Any] = {"max_steps": max_steps, "scale": scale, "monotone": monotone}
        options = {name: value for name, value in options.items() if value is not None}
        if policy is None:
            policy = MaskingPolicy(**options)
        elif options:
            raise ValueError(
                f"{', '.join(options)}: arguments of AS-Speed, which cannot stand beside {policy!r}"
            )
        if isinstance(policy, type) or not callable(policy):
            raise TypeError(
                "policy must be a function of the open window, as an AccumulationSchedule is, got "
                f"{policy!r} (for AS-Speed write max_steps=4)"
            )
        if getattr(policy, "by", None) == "items" and items is None:
            raise ValueError(
                f"{type(policy).__name__} goes by items: say what they are with items="
            )
        self.policy: Policy = policy
        self.lr_interval, self.lr_scale = lr_interval, lr_scale
        self.items, self.loss_is = items, loss_is
        self._rates = ScaledRates(self._batches_in_step)
        # While it is true, a search of the learning rate may load a checkpoint.
        self._training = False
        self._warned = False  # that no window of the policy fits into an epoch
        super().__init__()

    def _reset(self) -> None:
        self._rates.scale = self.lr_scale
        if self.lr_scale == "auto":
            self._rates.scale = "sqrt" if isinstance(self.policy, MaskingPolicy) else "none"
        self.history: list[AccumulationWindow] = []
        self._last: AccumulationWindow | None = None
        self._items_closed = 0.0  # those of all closed windows
        self.window: OpenWindow | None = None
        self._forget_sums()

    def _forget_sums(self) -> None:
        """Forget this rank's sums over the batches that the gradients are of."""
        self._unit = 1.0 if self.items is None else unit_after(self._last)
        self._counts: Tensor | None = None
        self._items = self._loss = torch.zeros((), dtype=torch.float64)
        # The window and the mean of its losses, once its sums are known.
        self._closed: tuple[AccumulationWindow, float] | None = None

    def _batches_in_step(self) -> int:
        # Between two windows, where a search of the learning rate may lie, steps keep their rates.
        return 0 if self.window is None else self.window.length

    # The start and the end of fit

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        if self._fitting:
            self.window, self._warned = None, False  # a checkpoint may set another window

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        refuse(trainer, pl_module, self)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._training = self._resumed = True
        _, self._ranks = windows.ranks_with_own_batches(trainer)
        # The batches of the epoch that the schedulers have followed, None until the first one.
        self._paced: int | None = None
        self._rates.follow(trainer.optimizers[0])
        self._forget_sums()
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
        self._refuse_other_assignments(trainer)
        super().on_train_batch_start(trainer, pl_module, batch, batch_idx)
        if self._paced is None:
            self._paced = batch_idx
        if self.window is None:
            self._open_window(trainer, batch_idx)
        window = self.window
        assert window is not None
        window.length = batch_idx + 1 - window.batch
        if self._resumed and window.length > 1:
            rank_zero_warn(
                f"The checkpoint lies inside a window, after {window.length - 1} of its batches, "
                "and holds no gradients of these: the window's step takes the mean over its other "
                "batches."
            )
        begins = self._resumed or window.length == 1
        self._resumed = self._added = False
        self._batch_items = items_in(batch, self.items) if callable(self.items) else ONE
        self._accumulate = self._decide(trainer, window, batch_idx)
        trainer.accumulate_grad_batches = self._accumulate
        if begins and self.items is None:
            # A power of two costs no bit, and saves windows of so many batches the division.
            self._unit = 2.0 ** (window.wanted.bit_length() - 1)
        # Lightning zeroes them by itself where accumulate_grad_batches divides the batch's index.
        if begins and batch_idx % self._accumulate:
            zero_gradients(trainer, pl_module, batch_idx)

    def _open_window(self, trainer: Trainer, batch_idx: int) -> None:
        place = trainer.current_epoch, batch_idx, trainer.global_step
        self.window = OpenWindow(*place, items_before=self._items_closed, last=self._last)
        self._forget_sums()
        self._rates.follow(trainer.optimizers[0])  # it may have been replaced

    def _decide(self, trainer: Trainer, window: OpenWindow, batch_idx: int) -> int:
        """Return ``accumulate_grad_batches`` for this batch.

        Lightning zeroes the gradients before batch $b$ where it divides $b$, and steps after it
        where it divides $b + 1$. A larger power of two divides neither, and dividing the loss by it
        costs no bit.
        """
        window.read_items = partial(self._items_so_far, trainer)
        closes = self.policy(window)
        window.read_items = None
        if not isinstance(closes, bool):
            raise MisconfigurationException(
                "A policy says whether the optimizer steps after this batch, True or False, as "
                f"lambda window: window.length >= 4 does, got {closes!r} from {self.policy!r}."
            )
        last = trainer.is_last_batch or batch_idx + 1 == trainer.num_training_batches
        if last and not closes and window.batch == 0 and not self._warned:
            self._warned = True
            rank_zero_warn(
                f"The policy wants a window of more batches than an epoch has, {window.length}: a "
                "window ends with its epoch, so none is longer than that."
            )
        if not (closes or last or validation_follows(trainer, batch_idx)):
            return int(2 ** (batch_idx + 2).bit_length())
        return 1 if window.length == 1 else batch_idx + 1

    def _items_so_far(self, trainer: Trainer) -> float:
        if self.items == "module":
            raise MisconfigurationException(
                "items='module' are known after training_step alone, and the policy reads the "
                "items of the open window before it: say them with items=lambda batch: ..."
            )
        return float(windows.sum_over_ranks(trainer, self._items + self._batch_items))

    def on_before_backward(
        self, trainer: Trainer, pl_module: LightningModule, loss: Tensor
    ) -> None:
        super().on_before_backward(trainer, pl_module, loss)
        assert self.window is not None
        if self._added and self.window.length > 1:
            raise MisconfigurationException(
                f"{type(trainer.optimizers[0]).__name__} computes the loss several times in a "
                "step, and Lightning adds each gradient to those of the window's other batches. "
                f"Use an optimizer that computes it once, or remove {type(self).__name__}."
            )
        if self.items == "module":
            self._batch_items = self._denominator(pl_module)
        elif self.items is not None and loss.numel() != 1:
            raise MisconfigurationException(
                f"training_step has returned a loss of shape {tuple(loss.shape)}, which is neither "
                "the mean nor the sum over the batch's items."
            )
        weight = (ONE if self.loss_is == "sum" else self._batch_items) / self._unit
        weigh(loss, weight)
        if not self._added:
            self._add(trainer, loss.detach(), weight * self._unit)
        self._added = True

    def _denominator(self, pl_module: LightningModule) -> Tensor:
        """Return what the batch's loss divides by; NaN, which is refused before the step, where
        that cannot be said.
        """
        denominator = self.counter.denominator
        if denominator is None:
            raise MisconfigurationException(
                f"items='module' weighs each batch by what its masked loss divides by, and "
                f"{type(pl_module).__name__}.training_step has computed none: say the number of "
                "items with items=lambda batch: ..."
            )
        return denominator.to(long_dtype(denominator))

    def _add(self, trainer: Trainer, loss: Tensor, weight: Tensor) -> None:
        """Add the batch to the sums of the window."""
        value = loss.to(long_dtype(loss)).sum() * self._accumulate
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        if scaler is not None:
            value = value / scaler.scale(torch.ones_like(value))
        # Without items the loss may be 0 / 0.
        empty = (self._batch_items == 0).to(value.device, non_blocking=True)
        weighed = torch.where(empty, 0.0, value * weight)
        self._loss = self._loss + weighed
        self._items = self._items + self._batch_items
        counts = self.counter.counts
        if counts is not None:
            self._counts = counts if self._counts is None else self._counts + counts

    # The end of a window

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer
    ) -> None:
        """Make the gradients means over the items, before they are clipped and after a scaler has
        unscaled them.
        """
        window, _ = self._close_window(trainer)
        divisor = window.items / self._unit / self._ranks
        if divisor not in (0.0, 1.0):
            divide_gradients(optimizer, divisor)

    def _close_window(self, trainer: Trainer) -> tuple[AccumulationWindow, float]:
        """Return the closed window and the mean of its losses: the sums over the ranks, with the
        window's one host read, unless this batch has read them already.
        """
        if self._closed is not None:
            return self._closed
        device = trainer.strategy.root_device
        if device.type == "mps":  # which has no float64
            device = torch.device("cpu")
        counts = torch.zeros(4) if self._counts is None else self._counts
        parts = [counts[0], counts[1], self._items, self._loss]
        sums = torch.stack([part.to(device, torch.float64) for part in parts])
        masked, samples, items, loss = windows.sum_over_ranks(trainer, sums).tolist()
        if not math.isfinite(items):
            raise ValueError(
                "the items of a batch must be a finite number of at least 0. With items='module' "
                "the loss must divide by one: not with reduction='none', and two losses of a batch "
                "must divide by the same. Say them with items=lambda batch: ..."
            )
        window = self.window
        assert window is not None
        closed = AccumulationWindow(
            window.epoch,
            window.batch,
            window.step,
            window.length,
            items,
            self._items_closed,
            window.wanted,
            int(masked),
            int(samples),
        )
        self._closed = closed, loss / items if items else 0.0
        return self._closed

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._refuse_other_assignments(trainer)
        if not outputs:  # no loss, and so no backward
            self.counter.pause()
        else:
            # Lightning has divided it: later callbacks see the batch's own loss.
            outputs["loss"] = outputs["loss"] * self._accumulate
            if isinstance(self.policy, MaskingPolicy):
                self.refuse_silence(pl_module)
        if not windows.window_ends(trainer):
            return
        self._keep_pace(trainer, pl_module, stepped=True)
        window = self.window
        # Where the loader gives None for an epoch's last batch, there is no step.
        if window is None or trainer.global_step == window.step:
            return
        self._last, mean_loss = self._close_window(trainer)
        self.window = None
        self._items_closed += self._last.items
        self.history.append(self._last)
        self.log_step(trainer, trainer.global_step - 1, (window.length, mean_loss))

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
        if self.lr_interval == "batch" and batches > 0:
            advance_schedulers(trainer, pl_module, end, batches, stepped=stepped)

    def _refuse_other_assignments(self, trainer: Trainer) -> None:
        if trainer.accumulate_grad_batches != self._accumulate:
            raise MisconfigurationException(
                f"{type(self).__name__} had set accumulate_grad_batches to {self._accumulate}, but "
                f"something else has since set it to {trainer.accumulate_grad_batches}, which "
                "corrupts gradients: remove what does so."
            )

    def write_step(self, trainer: Trainer, step: int, values: Any) -> None:
        length, loss = values
        metrics = {"accumulation/steps": float(length), "accumulation/loss": float(loss)}
        for group, rate in enumerate(self._rates.used, 1):
            suffix = f"/pg{group}" if len(self._rates.used) > 1 else ""
            metrics[f"accumulation/lr{suffix}"] = float(rate)
        windows.publish(trainer, metrics, step)

    # Checkpoints

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {"lr_scale": self._rates.scale, "items": self._items_closed}
        for name, window in (("window", self.window), ("last", self._last)):
            state[name] = None if window is None else {**asdict(window), "last": None}
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if not self._fitting:  # trainer.test(ckpt_path="best") must not rewind the fit before it
            return
        if not self._training:
            self.history = []
        if self.lr_scale == "auto":
            self._rates.scale = state_dict["lr_scale"]
        self._items_closed, self.window, self._last = state_dict["items"], None, None
        if state_dict["last"] is not None:
            self._last = AccumulationWindow(**state_dict["last"])
        if state_dict["window"] is not None:
            self.window = OpenWindow(**state_dict["window"])
            self.window.last = self._last


def zero_gradients(trainer: Trainer, pl_module: LightningModule, batch_idx: int) -> None:
    """Zero the gradients as Lightning does, with its hooks."""
    optimizer = trainer.optimizers[0]
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        callback.on_before_zero_grad(trainer, pl_module, optimizer)
    pl_module.on_before_zero_grad(optimizer)
    pl_module.optimizer_zero_grad(trainer.current_epoch, batch_idx, optimizer)


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


RIVALS = AdaptiveGradientAccumulation, GradientAccumulationScheduler, StochasticWeightAveraging


def refuse(
    trainer: Trainer, pl_module: LightningModule, callback: AdaptiveGradientAccumulation
) -> None:
    """Raise unless Lightning takes the steps, ``callback`` alone sets when, and the needed counts
    are there.
    """
    name, module = type(callback).__name__, type(pl_module).__name__
    given, strategy = trainer.accumulate_grad_batches, trainer.strategy
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    rivals = [
        type(other).__name__
        for other in callbacks
        if isinstance(other, RIVALS) and other is not callback
    ]
    takes_iterator = is_param_in_hook_signature(
        pl_module.training_step, "dataloader_iter", explicit=True
    )
    counts = windows.counts_masking(pl_module)
    cases = {
        f"{name} cannot change the accumulation of {type(strategy).__name__}, which (as DeepSpeed "
        "does) accumulates by itself. Use strategy='ddp' or 'fsdp', or remove the "
        "callback.": strategy.handles_gradient_accumulation,
        f"{name} starts from 1 batch a step, got Trainer(accumulate_grad_batches={given}). Remove "
        f"that argument (it is AccumulationSchedule({{0: {given}}})), or the "
        "callback.": given != 1,
        f"{name} and {', '.join(rivals)} may both set accumulate_grad_batches: remove one of "
        "them.": bool(rivals),
        f"{name} needs automatic optimization, but {module}.automatic_optimization is False. Set "
        "it to True, or remove the callback and call "
        "as_lightning.functional.accumulation_steps.": not pl_module.automatic_optimization,
        f"{name} needs to know which batch comes, but {module}.training_step takes a "
        "dataloader_iter: take (batch, batch_idx), or remove the callback.": takes_iterator,
        f"items='module' weighs each batch by what its masked loss divides by, and {module} has no "
        "masked loss. Say the number of items with items=lambda batch: "
        "...": callback.items == "module" and not counts,
    }
    for message, applies in cases.items():
        if applies:
            raise MisconfigurationException(message)
    if isinstance(callback.policy, MaskingPolicy) and not counts:
        raise uncounted(pl_module, callback)
