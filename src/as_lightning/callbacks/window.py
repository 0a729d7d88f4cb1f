"""Accumulation windows as Lightning has them: which batches they take, where they end, what was counted in them.

The accumulation and the monitor share it: both close the windows of the module's masking counter, and both go on inside
a window where a checkpoint was saved there.
"""

from __future__ import annotations

import math
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.plugins.environments import SLURMEnvironment
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor

from as_lightning.callbacks.rank_sums import holds_the_sum, sum_over_ranks
from as_lightning.masking_counter import MaskedLoss, MaskingCounter

COUNTS = "as_lightning_open_counts"  # key of a checkpoint


def move_to_front(trainer: pl.Trainer, callback: pl.Callback) -> None:
    """Have the hooks of ``callback`` called before those of the user's callbacks. Call it in ``setup``.

    A user's callback may save a checkpoint in ``on_train_batch_end``, which Lightning resumes after that batch. So what
    ``callback`` notes of the batch must be noted before. (Lightning moves its own checkpoint callbacks to the end.)
    """
    callbacks: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]
    callbacks.remove(callback)
    callbacks.insert(0, callback)


def aligned_window(batch: int, wanted: int, remaining: float = math.inf) -> int:
    r"""The longest accumulation window of at most ``wanted`` batches that may start at ``batch`` of an epoch.

    Lightning zeroes gradients before batch $b$ iff $b \bmod A = 0$ and steps after it iff
    $(b + 1) \bmod A = 0$. A window of $A$ batches is thus exactly the batches from ``batch`` to its end
    only where $A$ divides ``batch``:

    $$
    A = \max \{ d \le k : d \mid b \}, \qquad A = \gcd(b, r) \text{ if } r < A
    $$

    with $r$ batches remaining in the epoch, so that no window is cut short by the epoch's end and divided by
    the wrong count. At $b = 0$ every $d$ divides, and $\gcd(0, r) = r$.

    Args:
        batch: 0-based index in the epoch of the window's first batch.
        wanted: the batches to accumulate if there were no alignment.
        remaining: batches left in the epoch, ``batch`` included; infinite if the end is not known.

    Examples:
        >>> [aligned_window(batch, wanted=4) for batch in (0, 1, 6, 8, 9)]
        [4, 1, 3, 4, 3]
        >>> aligned_window(8, wanted=4, remaining=2)
        2
        >>> aligned_window(9, wanted=4, remaining=2)  # two windows of one batch
        1
    """
    if batch < 0:
        raise ValueError(f"batch must be at least 0, got {batch}")
    if wanted < 1:
        raise ValueError(f"wanted must be at least 1, got {wanted}")
    if remaining < 1:
        raise ValueError(f"remaining must be at least 1 (the window's first batch), got {remaining}")
    length = wanted if batch % wanted == 0 else next(d for d in range(min(wanted, batch), 0, -1) if batch % d == 0)
    return math.gcd(batch, int(remaining)) if remaining < length else length


def window_ends(trainer: pl.Trainer, batch_idx: int, length: int | None = None) -> bool:
    """Whether the optimizer steps on this batch: Lightning steps on ``(b + 1) % A == 0`` and on the last batch.

    ``length`` is A; the trainer's ``accumulate_grad_batches`` if it is not given.
    """
    return (batch_idx + 1) % (length or trainer.accumulate_grad_batches) == 0 or trainer.is_last_batch


def find_losses(pl_module: pl.LightningModule) -> None:
    """Give a module that counts nothing itself a counter, which its `ASSoftmaxLoss` or the like report to.

    Call it in ``on_fit_start``: the module may make its losses in its own setup.
    """
    counter = getattr(pl_module, "masking_counter", None)
    if counter is None or (isinstance(counter, MaskingCounter) and counter.losses):  # not the module's own
        losses = [module for module in pl_module.modules() if isinstance(module, MaskedLoss)]
        setattr(pl_module, "masking_counter", MaskingCounter(losses) if losses else None)  # noqa: B010


def masking_counter(pl_module: pl.LightningModule, callback: pl.Callback) -> MaskingCounter:
    """The module's counter, or an error that says how to get one."""
    counter = getattr(pl_module, "masking_counter", None)
    if not isinstance(counter, MaskingCounter):
        raise MisconfigurationException(
            f"{type(callback).__name__} needs a module that reports masking counts, but "
            f"{type(pl_module).__name__}.masking_counter is {counter!r}. Mix in as_lightning.ASSoftmaxMixin (and name "
            "it before the module's class), compute the loss with a submodule such as `self.criterion = "
            "ASSoftmaxLoss(delta=0.1)`, or set `self.masking_counter = MaskingCounter()` and update it in "
            "training_step."
        )
    return counter


def close_window(trainer: pl.Trainer, pl_module: pl.LightningModule, callback: pl.Callback) -> Tensor:
    """The counts of the window that ends with this batch, summed over its batches and the ranks, on the device."""
    return masking_counter(pl_module, callback).close_window(
        key=(trainer.current_epoch, trainer.fit_loop.batch_idx),
        reduce=lambda counts: sum_over_ranks(trainer, counts.to(pl_module.device)),
    )


def save_open_counts(
    trainer: pl.Trainer,
    pl_module: pl.LightningModule,
    callback: pl.Callback,
    checkpoint: dict[str, Any],
    length: int | None = None,
) -> None:
    """Put the counts of an open window into the checkpoint, summed over the ranks, unless they are there already."""
    if COUNTS not in checkpoint and lies_inside_window(trainer, length) and can_reduce_while_saving(trainer):
        counts = masking_counter(pl_module, callback).open_counts.to(pl_module.device)
        checkpoint[COUNTS] = sum_over_ranks(trainer, counts).cpu()


def start_counting(
    trainer: pl.Trainer, pl_module: pl.LightningModule, callback: pl.Callback, saved_counts: Tensor | None
) -> None:
    """Start the module's counter anew, or inside the window whose counts a checkpoint held."""
    if saved_counts is not None:
        saved_counts = saved_counts.to(pl_module.device) if holds_the_sum(trainer) else None
    masking_counter(pl_module, callback).start(trainer, saved_counts)


def lies_inside_window(trainer: pl.Trainer, length: int | None = None) -> bool:
    """Whether training is between two batches of one window. (While a batch runs, its gradients are not complete.)

    ``length`` is that of the window; the trainer's ``accumulate_grad_batches`` if it is not given.
    """
    progress: Any = trainer.fit_loop.epoch_loop.batch_progress.current
    return progress.processed == progress.ready and not window_ends(trainer, progress.ready - 1, length)


def can_reduce_while_saving(trainer: pl.Trainer) -> bool:
    """Whether every rank that saves is at the same batch, so that all ranks join the same collective operation.

    Lightning's SLURM environment saves from a signal's handler when a job is preempted, and a signal finds the ranks
    anywhere. With ``SLURMEnvironment(auto_requeue=False)`` it does not. An exception, too, may have come to one rank
    alone.
    """
    environment = getattr(trainer.strategy, "cluster_environment", None)
    preempted = isinstance(environment, SLURMEnvironment) and environment.auto_requeue
    return trainer.world_size == 1 or not (preempted or trainer.interrupted)


def publish(trainer: pl.Trainer, metrics: dict[str, float], step: int) -> None:
    """Hand metrics to every logger, and to the callbacks that read the trainer's.

    Not ``pl_module.log``: for five names it costs more than a millisecond on every step, written or not.
    """
    values = {name: torch.tensor(value, dtype=torch.float64) for name, value in metrics.items()}
    trainer.callback_metrics.update(values)
    trainer.logged_metrics.update(values)
    for logger in trainer.loggers:
        logger.log_metrics(metrics, step=step)
