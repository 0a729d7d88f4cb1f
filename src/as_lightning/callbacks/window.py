"""Accumulation windows as Lightning has them, the masking counts of each, and sums over the ranks that train."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.plugins.environments import SLURMEnvironment
from lightning.pytorch.strategies import ModelParallelStrategy, SingleDeviceStrategy
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor

from as_lightning.masking_counter import MaskedLoss, MaskingCounter

COUNTS = "as_lightning_open_counts"  # key of a checkpoint


def aligned_window(batch: int, wanted: int, remaining: float = math.inf) -> int:
    r"""The longest accumulation window of at most ``wanted`` batches that may start at ``batch`` of an epoch.

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
    length = wanted if batch % wanted == 0 else next(d for d in range(min(wanted, batch), 0, -1) if batch % d == 0)
    return math.gcd(batch, int(remaining)) if remaining < length else length


def window_ends(trainer: Trainer, length: int | None = None) -> bool:
    """Whether Lightning steps on this batch of a window of ``length`` (by default ``accumulate_grad_batches``)."""
    return (trainer.fit_loop.batch_idx + 1) % (length or trainer.accumulate_grad_batches) == 0 or trainer.is_last_batch


def move_to_front(trainer: Trainer, callback: Callback) -> None:
    """Have ``callback`` note a batch before other callbacks save a checkpoint after it. Call it in ``setup``."""
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    callbacks.remove(callback)
    callbacks.insert(0, callback)


def find_counter(pl_module: LightningModule) -> MaskingCounter | None:
    counter = getattr(pl_module, "masking_counter", None)
    return counter if isinstance(counter, MaskingCounter) else None


def find_losses(pl_module: LightningModule) -> None:
    """Give a module that counts nothing itself a counter, which its `ASSoftmaxLoss` or the like report to."""
    counter = getattr(pl_module, "masking_counter", None)
    if counter is None or (isinstance(counter, MaskingCounter) and counter.losses):  # not the module's own
        losses = [module for module in pl_module.modules() if isinstance(module, MaskedLoss)]
        setattr(pl_module, "masking_counter", MaskingCounter(losses) if losses else None)  # noqa: B010


def masking_counter(pl_module: LightningModule, callback: Callback) -> MaskingCounter:
    """The module's counter, or an error that says how to get one."""
    counter = find_counter(pl_module)
    if counter is None:
        raise MisconfigurationException(
            f"{type(callback).__name__} needs a module that reports masking counts, but {type(pl_module).__name__}."
            f"masking_counter is {getattr(pl_module, 'masking_counter', None)!r}. Mix in as_lightning.ASSoftmaxMixin "
            "before the module's class, compute the loss with a submodule such as `self.criterion = "
            "ASSoftmaxLoss(delta=0.1)`, or update a `self.masking_counter = MaskingCounter()` in training_step."
        )
    return counter


def close_window(trainer: Trainer, counter: MaskingCounter, reduce: Callable[[Tensor], Tensor] | None = None) -> Tensor:
    """The counts of the window that ends with this batch, summed over its batches and the ranks, on their device."""
    key = trainer.current_epoch, trainer.fit_loop.batch_idx
    return counter.close_window(key, reduce or (lambda counts: sum_over_ranks(trainer, counts)))


def save_open_counts(trainer: Trainer, counter: MaskingCounter, checkpoint: dict[str, Any]) -> None:
    """Put the counts of an open window into the checkpoint, summed over the ranks, unless they are there already."""
    if COUNTS not in checkpoint:
        checkpoint[COUNTS] = sum_over_ranks(trainer, counter.open_counts).cpu()


def start_counting(trainer: Trainer, counter: MaskingCounter, saved_counts: Tensor | None) -> None:
    """Start the counter anew, or inside the window whose counts a checkpoint held."""
    if saved_counts is not None:
        saved_counts = saved_counts.to(trainer.strategy.root_device) if ranks_with_own_batches(trainer)[-1] else None
    counter.start(trainer, saved_counts)


def can_save_open_window(trainer: Trainer, length: int | None = None) -> bool:
    """Whether training is between two batches of a window of ``length``, and all ranks save it at the same batch.

    While a batch runs, its gradients are not complete. An exception may have come to one rank alone, and a signal of
    SLURM (unless ``auto_requeue=False``) finds the ranks anywhere: a collective operation would then hang.
    """
    progress: Any = trainer.fit_loop.epoch_loop.batch_progress.current
    if progress.processed != progress.ready or window_ends(trainer, length):
        return False
    environment = getattr(trainer.strategy, "cluster_environment", None)
    preempted = isinstance(environment, SLURMEnvironment) and environment.auto_requeue
    return trainer.world_size == 1 or not (preempted or trainer.interrupted)


def is_written(trainer: Trainer, step: int) -> bool:
    """Whether the loggers get this step: as Lightning says for its own metrics, and the first one."""
    every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]
    return every > 0 and (step == 0 or (step + 1) % every == 0 or trainer.should_stop)


def publish(trainer: Trainer, metrics: dict[str, float], step: int) -> None:
    """Hand metrics to every logger and to the callbacks; ``pl_module.log`` costs over a millisecond a step."""
    values = {name: torch.tensor(value, dtype=torch.float64) for name, value in metrics.items()}
    trainer.callback_metrics.update(values)
    trainer.logged_metrics.update(values)
    for logger in trainer.loggers:
        logger.log_metrics(metrics, step=step)


def sum_over_ranks(trainer: Trainer, sums: Tensor) -> Tensor:
    """Add up the ranks' sums, on the device: one all-reduce. (``Strategy.reduce`` would put a barrier before it.)

    Ranks that share their batches (tensor parallelism) are counted once. On a single device they stay where they are.
    """
    strategy = trainer.strategy
    if isinstance(strategy, SingleDeviceStrategy):
        return sums
    sums = sums.to(strategy.root_device)
    if trainer.world_size == 1 or not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return strategy.reduce(sums, reduce_op="sum")
    sums, (group, _, _) = sums.clone(), ranks_with_own_batches(trainer)
    torch.distributed.all_reduce(sums, op=torch.distributed.ReduceOp.SUM, group=group)
    return sums


def ranks_with_own_batches(trainer: Trainer) -> tuple[Any, int, bool]:
    """The group over which `sum_over_ranks` adds up (None for all), its size, and whether this rank is its first."""
    if not isinstance(trainer.strategy, ModelParallelStrategy):
        return None, trainer.world_size, trainer.is_global_zero
    mesh = trainer.strategy.device_mesh["data_parallel"]  # other ranks share their batches
    return mesh.get_group(), mesh.size(), mesh.get_local_rank() == 0
