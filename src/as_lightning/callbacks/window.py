"""Accumulation windows as Lightning has them, the sums of each, and the callbacks that
act on them.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.plugins.environments import SLURMEnvironment
from lightning.pytorch.strategies import ModelParallelStrategy, SingleDeviceStrategy
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor

from as_lightning.losses import MaskedLoss
from as_lightning.masking_counter import MaskingCounter, WindowSums

COUNTS = "as_lightning_open_counts"  # key of a checkpoint


def aligned_window(batch: int, wanted: int, remaining: float = math.inf) -> int:
    r"""The longest accumulation window of at most ``wanted`` batches that may start at ``batch`` of
    an epoch.

    Lightning zeroes gradients before batch $b$ iff $b \bmod A = 0$ and steps after it iff
    $(b + 1) \bmod A = 0$. So $A$ must divide ``batch``, and the epoch's end, with $r$ batches
    remaining, must not cut the window short:

    $$
    A = \max \{ d \le k : d \mid b \}, \qquad A = \gcd(b, r) \text{ if } r < A.
    $$

    Args:
        batch: 0-based index in the epoch of the window's first batch.
        wanted: the batches to accumulate if there were no alignment.
        remaining: batches left in the epoch, ``batch`` included; infinite if the end is not known.

    Examples:
        >>> [aligned_window(batch, wanted=4) for batch in (0, 1, 6, 8, 9)]
        [4, 1, 3, 4, 3]
        >>> [aligned_window(batch, wanted=4, remaining=2) for batch in (8, 9)]
        [2, 1]
    """
    length = (
        wanted
        if batch % wanted == 0
        else next(d for d in range(min(wanted, batch), 0, -1) if batch % d == 0)
    )
    return math.gcd(batch, int(remaining)) if remaining < length else length


def window_ends(trainer: Trainer, length: int | None = None) -> bool:
    """Whether Lightning steps on this batch of a window of ``length`` (by default
    ``accumulate_grad_batches``).
    """
    return (trainer.fit_loop.batch_idx + 1) % (
        length or trainer.accumulate_grad_batches
    ) == 0 or trainer.is_last_batch


def find_counter(pl_module: LightningModule) -> MaskingCounter | None:
    counter = getattr(pl_module, "masking_counter", None)
    return counter if isinstance(counter, MaskingCounter) else None


def find_losses(pl_module: LightningModule) -> None:
    """Give a module without a counter of its own one that its loss modules, as `ASSoftmaxLoss`,
    report to.
    """
    counter = getattr(pl_module, "masking_counter", None)
    if counter is None or (
        isinstance(counter, MaskingCounter) and counter.losses
    ):  # not the module's own
        losses = masked_losses(pl_module)
        setattr(pl_module, "masking_counter", MaskingCounter(losses, pl_module) if losses else None)  # noqa: B010


def masked_losses(pl_module: LightningModule) -> list[MaskedLoss]:
    return [module for module in pl_module.modules() if isinstance(module, MaskedLoss)]


def masking_counter(pl_module: LightningModule, callback: Callback) -> MaskingCounter:
    """The module's counter; if it has none, an error says how to get one."""
    counter = find_counter(pl_module)
    if counter is None:
        raise MisconfigurationException(
            f"{type(callback).__name__} needs a module that reports masking counts, but "
            f"{type(pl_module).__name__}."
            f"masking_counter is {getattr(pl_module, 'masking_counter', None)!r}. Mix in "
            "as_lightning.ASSoftmaxMixin "
            "before the module's class, compute the loss with a submodule such as `self.criterion "
            "= "
            "ASSoftmaxLoss(delta=0.5)`, or update a `self.masking_counter = MaskingCounter()` in "
            "training_step."
        )
    return counter


def can_save_open_window(trainer: Trainer, length: int | None = None) -> bool:
    """Whether training is between two batches of a window of ``length``, and all ranks save it at
    the same batch.

    While a batch runs, its gradients are not complete. An exception may have come to one rank
    alone, and a signal of SLURM (unless ``auto_requeue=False``) finds the ranks anywhere: a
    collective operation would then hang.
    """
    progress: Any = trainer.fit_loop.epoch_loop.batch_progress.current
    if progress.processed != progress.ready or window_ends(trainer, length):
        return False
    environment = getattr(trainer.strategy, "cluster_environment", None)
    preempted = isinstance(environment, SLURMEnvironment) and environment.auto_requeue
    return trainer.world_size == 1 or not (preempted or trainer.interrupted)


def publish(trainer: Trainer, metrics: dict[str, float], step: int) -> None:
    """Hand metrics to every logger and to the callbacks; ``pl_module.log`` costs over a millisecond
    a step.
    """
    values = {name: torch.tensor(value, dtype=torch.float64) for name, value in metrics.items()}
    trainer.callback_metrics.update(values)
    trainer.logged_metrics.update(values)
    for logger in trainer.loggers:
        logger.log_metrics(metrics, step=step)


def sum_over_ranks(trainer: Trainer, sums: Tensor) -> Tensor:
    """Add up the ranks' sums, on the device: one all-reduce. (``Strategy.reduce`` would put a
    barrier before it.)

    Ranks that share their batches (tensor parallelism) are counted once. On a single device they
    stay where they are.
    """
    strategy = trainer.strategy
    if isinstance(strategy, SingleDeviceStrategy):
        return sums
    sums = sums.to(strategy.root_device)
    if trainer.world_size == 1 or not (
        torch.distributed.is_available() and torch.distributed.is_initialized()
    ):
        return strategy.reduce(sums, reduce_op="sum")
    sums, (group, _, _) = sums.clone(), ranks_with_own_batches(trainer)
    torch.distributed.all_reduce(sums, op=torch.distributed.ReduceOp.SUM, group=group)
    return sums


def ranks_with_own_batches(trainer: Trainer) -> tuple[Any, int, bool]:
    """The group over which `sum_over_ranks` adds up (None for all), its size, and whether this rank
    is its first.
    """
    if not isinstance(trainer.strategy, ModelParallelStrategy):
        return None, trainer.world_size, trainer.is_global_zero
    mesh = trainer.strategy.device_mesh["data_parallel"]  # other ranks share their batches
    return mesh.get_group(), mesh.size(), mesh.get_local_rank() == 0


class WindowCallback(Callback):
    """Acts on each closed accumulation window. Stands at the front of ``trainer.callbacks``.

    One of them drives the module's masking counter for all: it alone opens, closes, saves and
    restores the window, and passes the sums to every `WindowCallback`. It is the first one, or the
    one that sets the windows' length.
    """

    sets_length = False
    needs_counts = True  # whether a module that has a masking counter must count

    def __init__(self) -> None:
        self._fitting, self._drives = True, False
        self._steps = 0  # optimizer steps before the open window
        self._closed: WindowSums | None = (
            None  # of a window that ends with this batch, until the batch ends
        )
        self._sizes = MaskingCounter()  # the batch sizes of a module without a masking counter
        self._saved: dict[str, Any] = {}  # of a checkpoint's open window, until training goes on
        self._unwritten: tuple[Any, ...] | None = (
            None  # the latest step and its values, unless written
        )
        self._reset()

    def _reset(self) -> None:
        """Set the state before training."""

    def on_window_end(
        self, trainer: Trainer, pl_module: LightningModule, sums: WindowSums, stepped: bool
    ) -> None:
        """A window ends; ``sums`` are those of its batches and all ranks. Not ``stepped`` if the
        loader gave None.
        """

    def write_step(self, trainer: Trainer, step: int, *what: Any) -> None:
        """Publish ``what``, the values that `log_step` got for an optimizer step."""

    def log_step(self, trainer: Trainer, step: int, *what: Any) -> None:
        """Write the step if Lightning writes its own metrics there, or if it is the first or will
        be the last one.
        """
        self._unwritten, every = (step, *what), trainer.log_every_n_steps  # type: ignore[attr-defined]
        if every > 0 and (step == 0 or (step + 1) % every == 0 or trainer.should_stop):
            self._write(trainer)

    def _write(self, trainer: Trainer) -> None:
        if self._unwritten is not None:
            latest, self._unwritten = self._unwritten, None
            self.write_step(trainer, *latest)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.log_every_n_steps:  # type: ignore[attr-defined]
            self._write(trainer)

    def counter(self, pl_module: LightningModule) -> MaskingCounter:
        return find_counter(pl_module) or self._sizes

    def close_window(self, trainer: Trainer, pl_module: LightningModule) -> WindowSums:
        """The sums of the window that ends with this batch, on their device: the first call adds up
        the ranks'.
        """
        if self._closed is None:
            sums = self.counter(pl_module).close_window()
            single = isinstance(trainer.strategy, SingleDeviceStrategy)
            self._closed = (
                sums if single else WindowSums.unpacked(sum_over_ranks(trainer, sums.packed()))
            )
        return self._closed

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._fitting = stage == "fit"
        if not self._fitting:
            return
        self._saved = {}
        if trainer.global_step == 0:  # not the continuation of an earlier fit
            self._unwritten = None
            self._reset()
        callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
        callbacks.remove(self)  # it must count a batch before others save a checkpoint after it
        callbacks.insert(0, self)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        find_losses(pl_module)  # not in setup: the module's own setup comes after it

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        saved = self._saved.pop(COUNTS, None)
        callbacks = window_callbacks(trainer)
        self._drives = self is next(
            (callback for callback in callbacks if callback.sets_length), callbacks[0]
        )
        if self._drives:
            open_sums = None
            if (
                saved is not None and ranks_with_own_batches(trainer)[-1]
            ):  # one rank goes on with the sums of all
                open_sums = WindowSums.unpacked(saved)
                open_sums = open_sums._replace(
                    counts=open_sums.counts.to(trainer.strategy.root_device)
                )
            self.counter(pl_module).start(trainer, open_sums)
            self._steps, self._closed = trainer.global_step, None

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if not self._drives:
            return
        counter = self.counter(pl_module)
        # No window lies over the start of an epoch, where a search of the learning rate may lie. (A
        # training_step that takes a dataloader_iter has not fetched the batch yet: batch_idx is
        # that of the one before.)
        if trainer.fit_loop.batch_idx == 0:
            counter.drop_window()
        if counter.losses:  # the module may have got another one since the last batch
            counter.losses = masked_losses(pl_module) or counter.losses
        counter.begin_batch()

    def on_before_backward(
        self, trainer: Trainer, pl_module: LightningModule, loss: Tensor
    ) -> None:
        if self._drives:  # backward may compute the loss again, and so may the optimizer's step
            self.counter(pl_module).end_batch()

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not pl_module.automatic_optimization and self._drives:  # another loss may follow
            self.counter(pl_module).begin_batch()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if not self._drives:
            return
        counter = self.counter(pl_module)
        counter.end_batch()
        if batch is None and batch_idx == 0:  # Lightning calls no on_train_batch_start for it
            counter.drop_window()
        if window_ends(trainer):
            sums, self._closed = self.close_window(trainer, pl_module), None
            stepped, self._steps = trainer.global_step > self._steps, trainer.global_step
            callbacks = window_callbacks(trainer)
            if find_counter(pl_module) and any(callback.needs_counts for callback in callbacks):
                counter.refuse_silence(pl_module, outputs)
            for callback in callbacks:
                callback.on_window_end(trainer, pl_module, sums, stepped)

    def _open_length(self, trainer: Trainer) -> int:
        return trainer.accumulate_grad_batches

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        if self._drives and can_save_open_window(trainer, self._open_length(trainer)):
            checkpoint[COUNTS] = sum_over_ranks(
                trainer, self.counter(pl_module).open_sums.packed()
            ).cpu()

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        if self._fitting:
            self._saved = {COUNTS: checkpoint[COUNTS]} if COUNTS in checkpoint else {}


def window_callbacks(trainer: Trainer) -> list[WindowCallback]:
    return [callback for callback in trainer.callbacks if isinstance(callback, WindowCallback)]  # type: ignore[attr-defined]
