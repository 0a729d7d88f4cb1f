"""AS-Speed: accumulate more batches as more of their samples are masked, exactly."""

from __future__ import annotations

import math
import sys
from typing import Any, Literal, NamedTuple

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import GradientAccumulationScheduler, StochasticWeightAveraging
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities.rank_zero import rank_zero_warn
from lightning.pytorch.utilities.signature_utils import is_param_in_hook_signature
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer

from as_lightning.callbacks.window import close_window, masking_counter, sum_over_ranks, window_ends
from as_lightning.functional.accumulation import accumulation_steps, aligned_window
from as_lightning.functional.counts import MaskingCounts


class AccumulationWindow(NamedTuple):
    """One optimizer step: the batches that led to it and what was masked in them, summed over the ranks.

    Attributes:
        epoch: 0-based epoch.
        batch: 0-based index in the epoch of the window's first batch.
        length: how many batches were accumulated.
        masked_samples: samples of the window whose competitors were all masked.
        samples: samples of the window that took part in the loss.
    """

    epoch: int
    batch: int
    length: int
    masked_samples: int
    samples: int


class AdaptiveGradientAccumulation(pl.Callback):
    r"""Accumulate gradients over more batches as the margin masks more of their samples (the paper's AS-Speed).

    After every window of batches, from the :math:`N` samples seen since the last decision,

    .. math:: k = \operatorname{clip}\!\left(\operatorname{round}\!\left(s\,\frac{N}{N - N_\text{masked}}\right),
              1, k_\text{max}\right),

    at most one above the :math:`k` before it and with ``monotone`` never below it. The next window takes ``k``
    batches, or as many as keep Lightning's zeroing, scaling and stepping on the window's bounds: see
    :func:`~as_lightning.functional.accumulation.aligned_window`. The weights are those of a loop that accumulates
    these windows by hand, bit for bit.

    Costs one small all-reduce and one host read per window, none per batch. The callback moves itself to the front of
    ``trainer.callbacks``, so that the others see what it has decided.

    Args:
        max_steps: the largest :math:`k`.
        scale: the factor :math:`s`.
        monotone: never accumulate fewer batches than before (the paper's choice).
        warmup_windows: take so many windows before the first change.
        update_every: decide once in so many windows, on the counts of all of them.
        lr_pace: what a learning-rate scheduler with ``interval="step"`` follows. ``"data"``: a window of :math:`A`
            batches advances it as :math:`A` windows of one batch would, so that a schedule built from
            ``trainer.estimated_stepping_batches`` is at its end when training is. ``"steps"``: optimizer steps,
            as Lightning does it. ``ReduceLROnPlateau`` and ``interval="epoch"`` are left to Lightning.

    Attributes:
        history: one :class:`AccumulationWindow` a window taken, in order, of the last ``fit``.

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
        for name, value, least in (
            ("max_steps", max_steps, 1),
            ("warmup_windows", warmup_windows, 0),
            ("update_every", update_every, 1),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
        if not (isinstance(scale, (int, float)) and 0 < scale < math.inf):
            raise ValueError(f"scale must be a positive number, got {scale!r}")
        if lr_pace not in ("data", "steps"):
            raise ValueError(f"lr_pace must be 'data' or 'steps', got {lr_pace!r}")
        self.max_steps = max_steps
        self.scale = scale
        self.monotone = monotone
        self.warmup_windows = warmup_windows
        self.update_every = update_every
        self.lr_pace = lr_pace
        self.history: list[AccumulationWindow] = []
        self._fitting = True
        self._forget()

    def _forget(self) -> None:
        """The state before training."""
        self.history = []
        self._wanted = 1  # k
        self._undecided_windows = self._undecided_samples = self._undecided_masked = 0
        self._start, self._length = 0, 1  # the window that is open, or that was closed last
        self._open = False
        self._in_batch = False
        self._accumulated = 0  # batches of the open window whose gradients are in place
        self._resuming = False  # a checkpoint's state has been loaded and training has not gone on from it yet
        self._restored: dict[str, Any] | None = None  # the counts and gradients of an open window, from a checkpoint

    # The start and the end of fit

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        self._fitting = stage == "fit"
        if not self._fitting:
            return
        self._refuse_trainer(trainer, pl_module)
        if trainer.global_step == 0:  # not the continuation of an earlier fit
            self._forget()
        callbacks: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]
        callbacks.remove(self)
        callbacks.insert(0, self)

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._refuse_module(pl_module)  # not in setup: the module's own setup comes after it

    def _refuse_trainer(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        name = type(self).__name__
        if trainer.strategy.handles_gradient_accumulation:
            raise MisconfigurationException(
                f"{name} cannot change the accumulation of {type(trainer.strategy).__name__}, which (as DeepSpeed "
                "does) fixes it at the start and accumulates by itself. Use strategy='ddp' or 'fsdp', or remove the "
                "callback."
            )
        if trainer.accumulate_grad_batches != 1:
            raise MisconfigurationException(
                f"{name} sets the trainer's accumulate_grad_batches and starts from 1, got "
                f"Trainer(accumulate_grad_batches={trainer.accumulate_grad_batches}). Remove that argument, or the "
                "callback."
            )
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, StochasticWeightAveraging) and not _has_batch_norm(pl_module):
                continue  # it sets the accumulation only to renew batch-norm statistics
            rivals = (AdaptiveGradientAccumulation, GradientAccumulationScheduler, StochasticWeightAveraging)
            if callback is not self and isinstance(callback, rivals):
                raise MisconfigurationException(
                    f"{name} and {type(callback).__name__} both set the trainer's accumulate_grad_batches: remove one "
                    "of the two callbacks."
                )

    def _refuse_module(self, pl_module: pl.LightningModule) -> None:
        name = type(self).__name__
        if not pl_module.automatic_optimization:
            raise MisconfigurationException(
                f"{name} needs automatic optimization, but {type(pl_module).__name__}.automatic_optimization is False: "
                "a manual training_step decides itself when to step. Set it to True, or remove the callback and call "
                "as_lightning.functional.accumulation_steps in training_step."
            )
        if is_param_in_hook_signature(pl_module.training_step, "dataloader_iter", explicit=True):
            raise MisconfigurationException(
                f"{name} needs to know which batch comes, but {type(pl_module).__name__}.training_step takes a "
                "dataloader_iter: take (batch, batch_idx), or remove the callback."
            )
        masking_counter(pl_module, self)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        resuming, self._resuming = self._resuming, False
        restored, self._restored = self._restored, None
        counter = masking_counter(pl_module, self)
        counter.reset()
        self._in_batch = False
        if not resuming:
            self._open, self._length, self._accumulated = False, 1, 0
        # A resumed epoch loop looks at it to tell whether the checkpoint's batch had stepped. Not earlier than here:
        # trainer.estimated_stepping_batches divides by it, and configure_optimizers asks for that.
        trainer.accumulate_grad_batches = self._length
        if not self._open or self._accumulated == 0:
            return
        if restored is None:
            rank_zero_warn(
                f"The checkpoint lies inside an accumulation window, after {self._accumulated} of its {self._length} "
                f"batches, and holds no gradients of these ({type(trainer.strategy).__name__}, or it was saved while "
                "a batch ran): the window's step takes the mean over its other batches."
            )
            self._accumulated = 0
            return
        if trainer.is_global_zero:  # the counts are already summed over the ranks
            counter.update(MaskingCounts(*restored["counts"].to(pl_module.device)))
        for parameter_name, parameter in pl_module.named_parameters():
            gradient = restored["gradients"].get(parameter_name)
            if gradient is not None:
                parameter.grad = gradient.to(parameter.device)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        trainer.accumulate_grad_batches = 1

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        trainer.accumulate_grad_batches = 1

    # One window

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self._refuse_other_assignments(trainer)
        if not (self._open and self._start < batch_idx < self._start + self._length):
            if self._open or batch_idx == 0:  # what a window that never stepped has counted
                masking_counter(pl_module, self).reset()
            remaining = trainer.num_training_batches - batch_idx
            if remaining == math.inf and trainer.is_last_batch:  # a stream shows its end only with its last batch
                remaining = 1
            self._start, self._open, self._accumulated = batch_idx, True, 0
            self._length = aligned_window(batch_idx, min(self._wanted, self.max_steps), remaining)
            trainer.accumulate_grad_batches = self._length
        self._in_batch = True

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: Optimizer
    ) -> None:
        accumulated = self._accumulated + 1
        if accumulated == self._length:
            return
        # The end came unforeseen (or a checkpoint lost gradients): every loss was divided by the window's full length.
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        for gradient in gradients:
            gradient.mul_(self._length / accumulated)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._refuse_other_assignments(trainer)
        self._in_batch = False
        self._accumulated += 1
        if not window_ends(trainer, batch_idx):
            return
        counts = close_window(trainer, pl_module, self, batch_idx)
        masked_samples, samples, *_ = counts.tolist()  # the window's one host read
        window = AccumulationWindow(
            trainer.current_epoch, self._start, batch_idx + 1 - self._start, masked_samples, samples
        )
        self._open = False
        self.history.append(window)
        self._decide(window)
        if self.lr_pace == "data":
            _advance_schedulers(trainer, pl_module, batch_idx, window.length, stepped=True)

    def _decide(self, window: AccumulationWindow) -> None:
        taken = len(self.history)
        if taken <= self.warmup_windows - self.update_every:
            return
        self._undecided_windows += 1
        self._undecided_samples += window.samples
        self._undecided_masked += window.masked_samples
        if self._undecided_windows < self.update_every:
            return
        self._wanted = accumulation_steps(
            self._undecided_samples,
            self._undecided_masked,
            scale=self.scale,
            max_steps=self.max_steps,
            previous=self._wanted,
            monotone=self.monotone,
        )
        self._undecided_windows = self._undecided_samples = self._undecided_masked = 0

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not self._open:
            return
        # Lightning takes no step then, and zeroes the gradients when the next epoch starts.
        self._open = False
        if self._accumulated and not trainer.should_stop:
            rank_zero_warn(
                f"Epoch {trainer.current_epoch} ended inside an accumulation window: the gradients of its last "
                f"{self._accumulated} batches are dropped. Either on_train_batch_start returned -1, or the loader "
                "yielded fewer batches than its length or limit_train_batches said."
            )
        if self.lr_pace == "data" and self._accumulated:
            _advance_schedulers(
                trainer, pl_module, self._start + self._accumulated - 1, self._accumulated, stepped=False
            )

    def _refuse_other_assignments(self, trainer: pl.Trainer) -> None:
        if trainer.accumulate_grad_batches != self._length:
            raise MisconfigurationException(
                f"{type(self).__name__} had set the trainer's accumulate_grad_batches to {self._length}, but something "
                f"else has since set it to {trainer.accumulate_grad_batches}, which would corrupt the gradients: "
                "remove the callback or the hook that assigns it."
            )

    # Checkpoints

    def state_dict(self) -> dict[str, Any]:
        return {
            "history": torch.tensor(self.history, dtype=torch.int64).reshape(-1, len(AccumulationWindow._fields)),
            "wanted": self._wanted,
            "undecided": (self._undecided_windows, self._undecided_samples, self._undecided_masked),
            "window": (self._start, self._length, self._open, self._accumulated),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if not self._fitting:  # trainer.test(ckpt_path="best") must not rewind the history of the fit before it
            return
        self.history = [AccumulationWindow(*row) for row in state_dict["history"].tolist()]
        self._wanted = state_dict["wanted"]
        self._undecided_windows, self._undecided_samples, self._undecided_masked = state_dict["undecided"]
        self._start, self._length, self._open, self._accumulated = state_dict["window"]
        self._restored = state_dict.get("open_window")
        self._resuming = True

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Save what an open window has gathered so far, so that a run resumed inside it goes on exactly."""
        if not self._open or self._in_batch or not isinstance(trainer.strategy, (SingleDeviceStrategy, DDPStrategy)):
            return
        if trainer.world_size > 1 and _in_signal_handler():  # the ranks may be anywhere: no collective would match
            return
        counts = masking_counter(pl_module, self).open_counts.to(pl_module.device)
        checkpoint["callbacks"][self.state_key]["open_window"] = {
            "counts": sum_over_ranks(trainer, counts).cpu(),
            "gradients": _mean_gradients(trainer, pl_module),
        }


def _mean_gradients(trainer: pl.Trainer, pl_module: pl.LightningModule) -> dict[str, Tensor]:
    """Copies of the gradients, averaged over the ranks: inside a window DDP has not yet done so.

    The ranks then go on from the mean in place of their own, which is the same once DDP averages.
    """
    parameters = list(pl_module.named_parameters())
    present = torch.tensor([parameter.grad is not None for _, parameter in parameters], device=pl_module.device)
    on_any_rank = sum_over_ranks(trainer, present.long()).tolist()  # a rank may not have used a parameter yet
    gradients = {}
    for (name, parameter), ranks in zip(parameters, on_any_rank, strict=True):
        if ranks:
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
            gradients[name] = trainer.strategy.reduce(gradient.detach(), reduce_op="mean").cpu()
    return gradients


def _in_signal_handler() -> bool:
    """Whether Lightning saves from a signal's handler, as it does when SLURM preempts a job."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_globals.get("__name__", "").endswith("connectors.signal_connector"):
            return True
    return False


def _has_batch_norm(pl_module: pl.LightningModule) -> bool:
    return any(isinstance(module, _BatchNorm) for module in pl_module.modules())


def _advance_schedulers(
    trainer: pl.Trainer, pl_module: pl.LightningModule, last_batch: int, batches: int, *, stepped: bool
) -> None:
    """Bring the ``interval="step"`` schedulers from where Lightning leaves them to where the data are.

    Lightning advances a scheduler once on a stepping batch ``b`` with ``(b + 1) % frequency == 0``; without
    accumulation it would have done so on each such batch of the window.
    """
    batches = _scheduled_batches(trainer, last_batch, batches, stepped=stepped)
    for config in trainer.lr_scheduler_configs:
        if config.interval != "step" or config.reduce_on_plateau:
            continue
        end = last_batch + 1
        due = end // config.frequency - (end - batches) // config.frequency
        taken = int(stepped and end % config.frequency == 0)
        for _ in range(due - taken):
            pl_module.lr_scheduler_step(config.scheduler, None)


def _scheduled_batches(trainer: pl.Trainer, last_batch: int, batches: int, *, stepped: bool) -> int:
    """How many of the window's ``batches`` count for a schedule of ``trainer.estimated_stepping_batches`` steps.

    All of them, unless ``Trainer(max_steps)`` may end training before the data do: then what is left of the schedule
    is the most optimizer steps that can still come, ``min(steps left, batches left)``.
    """
    if trainer.max_steps == -1:
        return batches
    batches_left = math.inf
    if trainer.max_epochs not in (None, -1) and trainer.num_training_batches != math.inf:
        batches_left = (trainer.max_epochs - trainer.current_epoch) * trainer.num_training_batches - last_batch - 1
    steps_left = trainer.max_steps - trainer.global_step
    before = min(steps_left + stepped, batches_left + batches)
    return int(before - min(steps_left, batches_left))
