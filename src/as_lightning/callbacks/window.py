"""Where an accumulation window ends, and what it has counted: shared by the callbacks."""

from __future__ import annotations

import lightning.pytorch as pl
import torch
from lightning.pytorch.strategies import ModelParallelStrategy, SingleDeviceStrategy
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor

from as_lightning.masking_counter import MaskingCounter


def masking_counter(pl_module: pl.LightningModule, callback: pl.Callback) -> MaskingCounter:
    """The module's counter, or an error that names the way out."""
    counter = getattr(pl_module, "masking_counter", None)
    if not isinstance(counter, MaskingCounter):
        raise MisconfigurationException(
            f"{type(callback).__name__} needs a module that reports masking counts, but "
            f"{type(pl_module).__name__}.masking_counter is {counter!r}. Mix in as_lightning.ASSoftmaxMixin (and name "
            "it before the module's class), or set `self.masking_counter = MaskingCounter()` and update it in "
            "training_step."
        )
    return counter


def window_ends(trainer: pl.Trainer, batch_idx: int) -> bool:
    """Whether the optimizer steps on this batch: Lightning steps on ``(b + 1) % A == 0`` and on the last batch."""
    return (batch_idx + 1) % trainer.accumulate_grad_batches == 0 or trainer.is_last_batch


def close_window(trainer: pl.Trainer, pl_module: pl.LightningModule, callback: pl.Callback, batch_idx: int) -> Tensor:
    """The counts of the window that ends here, summed over its batches and over the ranks, on the device."""
    counter = masking_counter(pl_module, callback)
    if not counter.counted:
        raise MisconfigurationException(
            f"{type(pl_module).__name__}.training_step has reported no masking counts to {type(callback).__name__}: "
            "compute the training loss with self.as_softmax_loss(logits, target), or name the attribute that "
            "training_step calls in `as_softmax_replaces`."
        )
    return counter.close_window(
        key=(trainer.current_epoch, batch_idx),
        reduce=lambda counts: sum_over_ranks(trainer, counts.to(pl_module.device)),
    )


def sum_over_ranks(trainer: pl.Trainer, counts: Tensor) -> Tensor:
    """Add up the ranks' counts: one all-reduce of four integers. (``Strategy.reduce`` would put a barrier before it.)

    Ranks that share their batches (tensor parallelism) are counted once.
    """
    strategy = trainer.strategy
    if isinstance(strategy, SingleDeviceStrategy):
        return counts
    if trainer.world_size == 1 or not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return strategy.reduce(counts, reduce_op="sum")
    group = strategy.device_mesh["data_parallel"].get_group() if isinstance(strategy, ModelParallelStrategy) else None
    counts = counts.clone()
    torch.distributed.all_reduce(counts, op=torch.distributed.ReduceOp.SUM, group=group)
    return counts
