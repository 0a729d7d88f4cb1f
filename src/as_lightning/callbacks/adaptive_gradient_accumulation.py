"""AS-Speed: accumulate more batches as more of their samples are masked, exactly."""

from __future__ import annotations

import math
from typing import Any, Literal

import lightning.pytorch as pl
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities.rank_zero import rank_zero_warn
from torch import Tensor
from torch.optim import Optimizer

from as_lightning.callbacks.accumulation_policy import AccumulationPolicy
from as_lightning.callbacks.accumulation_requirements import refuse_module, refuse_trainer
from as_lightning.callbacks.accumulation_window import AccumulationWindow
from as_lightning.callbacks.hook_order import move_to_front
from as_lightning.callbacks.lr_pace import follow_batches
from as_lightning.callbacks.open_window import (
    COUNTS,
    GRADIENTS,
    OpenWindow,
    restore_open_gradients,
    save_open_counts,
    save_open_gradients,
    start_counting,
)
from as_lightning.callbacks.window import aligned_window, close_window, masking_counter, window_ends


class AdaptiveGradientAccumulation(pl.Callback):
    r"""Accumulate gradients over more batches as the margin masks more of their samples (the paper's AS-Speed).

    After every window of batches, from the :math:`N` samples seen since the last decision,

    .. math:: k = \operatorname{clip}\!\left(\operatorname{round}\!\left(s\,\frac{N}{N - N_\text{masked}}\right),
              1, k_\text{max}\right),

    :math:`k` is at most one above the :math:`k` before it. With ``monotone`` it is never below it. The next window
    takes ``k`` batches, or as many as keep Lightning's zeroing, scaling and stepping on the window's bounds: see
    :func:`~as_lightning.callbacks.window.aligned_window`. The weights are equal, bit for bit, to the weights of a loop
    that accumulates these windows by hand.

    It costs one small all-reduce and one host read per window, none per batch. The callback moves itself to the front
    of ``trainer.callbacks``, so that the other callbacks see its decision.

    Args:
        max_steps: the largest :math:`k`.
        scale: the factor :math:`s`.
        monotone: never accumulate fewer batches than before (the paper's choice).
        warmup_windows: the number of windows before the first change.
        update_every: the number of windows between two decisions; a decision uses the counts of all of them.
        lr_pace: what a learning-rate scheduler with ``interval="step"`` follows. ``"data"``: a window of :math:`A`
            batches advances it as :math:`A` windows of one batch would. A schedule built from
            ``trainer.estimated_stepping_batches`` is then at its end when training ends. ``"steps"``: optimizer steps,
            as Lightning does it. ``ReduceLROnPlateau`` and ``interval="epoch"`` are left to Lightning.

    Attributes:
        history: one :class:`AccumulationWindow` for each window, in order, since the last ``fit`` began or was resumed.
            Checkpoints do not hold it.
        policy: the :class:`~as_lightning.callbacks.accumulation_policy.AccumulationPolicy` that decides; its ``steps``
            are :math:`k`.

    Raises:
        ValueError: if an argument lies outside its range.
        MisconfigurationException: at the start of ``fit``, with manual optimization, with a strategy that accumulates
            by itself (DeepSpeed), with ``Trainer(accumulate_grad_batches != 1)``, beside another callback that sets
            ``accumulate_grad_batches``, with a ``training_step`` that takes a ``dataloader_iter``, or if the module
            has no masking counter; later, if something else assigns ``accumulate_grad_batches``.

    Source: paper, section on AS-Speed.

    Example:
        >>> import lightning.pytorch as pl
        >>> speed = AdaptiveGradientAccumulation(max_steps=4)
        >>> trainer = pl.Trainer(callbacks=[speed], logger=False, enable_checkpointing=False)
        >>> speed.history
        []
    """

    def __init__(
        self,
        max_steps: int = 4,
        *,
        scale: float = 1.0,
        monotone: bool = True,
        warmup_windows: int = 0,
        update_every: int = 1,
        lr_pace: Literal["data", "steps"] = "data",
    ) -> None:
        if lr_pace not in ("data", "steps"):
            raise ValueError(f"lr_pace must be 'data' or 'steps', got {lr_pace!r}")
        self.policy = AccumulationPolicy(
            max_steps=max_steps,
            scale=scale,
            monotone=monotone,
            warmup_windows=warmup_windows,
            update_every=update_every,
        )
        self.lr_pace = lr_pace
        self._fitting = True
        self._forget()

    def _forget(self) -> None:
        """The state before training."""
        self.history: list[AccumulationWindow] = []
        self.policy.forget()
        self._window = OpenWindow()
        self._resumed = False  # a checkpoint has been loaded, and training has not gone on from it yet
        self._saved_counts: Tensor | None = None  # of the open window, from a checkpoint
        self._saved_gradients: dict[str, Tensor] | None = None

    # The start and the end of fit

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        self._fitting = stage == "fit"
        if not self._fitting:
            return
        refuse_trainer(trainer, pl_module, self, kind=AdaptiveGradientAccumulation)
        if trainer.global_step == 0:  # not the continuation of an earlier fit
            self._forget()
        move_to_front(trainer, self)

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        refuse_module(pl_module, self)  # not in setup: the module's own setup comes after it

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        window, gradients = self._window, self._saved_gradients
        start_counting(trainer, pl_module, self, self._saved_counts)
        if not self._resumed:
            window = self._window = OpenWindow()
        self._resumed, self._saved_counts, self._saved_gradients = False, None, None
        # A resumed epoch loop looks at it to tell whether the checkpoint's batch had stepped. Not earlier than here:
        # trainer.estimated_stepping_batches divides by it, and configure_optimizers asks for that.
        trainer.accumulate_grad_batches = window.length
        if not window.is_open or window.accumulated == 0:
            return
        if gradients is not None:
            restore_open_gradients(pl_module, gradients)
            return
        rank_zero_warn(
            f"The checkpoint lies inside an accumulation window, after {window.accumulated} of its {window.length} "
            f"batches, and holds no gradients of these ({type(trainer.strategy).__name__}, saved while a batch ran, "
            "after an exception in one of several processes, or under SLURM's requeueing): the window's step takes the "
            "mean over its other batches."
        )
        window.accumulated = 0

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        trainer.accumulate_grad_batches = 1

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        trainer.accumulate_grad_batches = 1

    # One window

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self._refuse_other_assignments(trainer)
        if self._window.goes_on_at(batch_idx):
            return
        if self._window.is_open or batch_idx == 0:  # what a window that never stepped has counted
            masking_counter(pl_module, self).drop_window()
        remaining = trainer.num_training_batches - batch_idx
        if remaining == math.inf and trainer.is_last_batch:  # a stream shows its end only with its last batch
            remaining = 1
        length = aligned_window(batch_idx, self.policy.steps, remaining)
        self._window = OpenWindow(first_batch=batch_idx, length=length, is_open=True)
        trainer.accumulate_grad_batches = length

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: Optimizer
    ) -> None:
        batches = self._window.accumulated + 1
        if batches == self._window.length:
            return
        # The end came unforeseen (or a checkpoint lost gradients): every loss was divided by the window's full length.
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        for gradient in gradients:
            gradient.mul_(self._window.length / batches)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._refuse_other_assignments(trainer)
        ends = window_ends(trainer, batch_idx)
        if not self._window.is_open:  # a batch of None, for which Lightning calls no on_train_batch_start
            if self.lr_pace == "data":
                follow_batches(trainer, pl_module, last_batch=batch_idx, batches=1, stepped=ends)
            return
        self._window.accumulated += 1
        if not ends:
            return
        counts = close_window(trainer, pl_module, self, outputs, batch_idx)
        masked_samples, samples, *_ = counts.tolist()  # the window's one host read
        first_batch, length = self._window.first_batch, batch_idx + 1 - self._window.first_batch
        self._window.is_open = False
        self.history.append(AccumulationWindow(trainer.current_epoch, first_batch, length, masked_samples, samples))
        self.policy.see(samples, masked_samples)
        if self.lr_pace == "data":
            follow_batches(trainer, pl_module, last_batch=batch_idx, batches=length, stepped=True)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not self._window.is_open:
            return
        # Lightning takes no step then, and zeroes the gradients when the next epoch starts.
        self._window.is_open = False
        batches = self._window.accumulated
        if batches and not trainer.should_stop:
            rank_zero_warn(
                f"Epoch {trainer.current_epoch} ended inside an accumulation window: the gradients of its last "
                f"{batches} batches are dropped. Either on_train_batch_start returned -1, or the loader yielded fewer "
                "batches than its length or limit_train_batches said."
            )
        if self.lr_pace == "data" and batches:
            follow_batches(trainer, pl_module, last_batch=self._window.last_batch, batches=batches, stepped=False)

    def _refuse_other_assignments(self, trainer: pl.Trainer) -> None:
        if trainer.accumulate_grad_batches != self._window.length:
            raise MisconfigurationException(
                f"{type(self).__name__} had set the trainer's accumulate_grad_batches to {self._window.length}, but "
                f"something else has since set it to {trainer.accumulate_grad_batches}, which would corrupt the "
                "gradients: remove the callback or the hook that assigns it."
            )

    # Checkpoints

    def state_dict(self) -> dict[str, Any]:
        return {"policy": self.policy.state_dict(), "window": self._window.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if not self._fitting:  # trainer.test(ckpt_path="best") must not rewind the fit before it
            return
        self.history = []
        self.policy.load_state_dict(state_dict["policy"])
        self._window = OpenWindow(**state_dict["window"])
        self._resumed = True

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Save what an open window has gathered so far, so that a run resumed inside it goes on exactly."""
        # not accumulate_grad_batches: callbacks that save on an exception come after on_exception, where it is 1 again
        length = self._window.length if self._window.is_open else 1
        save_open_counts(trainer, pl_module, self, checkpoint, length)
        save_open_gradients(trainer, pl_module, checkpoint, length)

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        if self._fitting:
            self._saved_counts, self._saved_gradients = checkpoint.get(COUNTS), checkpoint.get(GRADIENTS)
