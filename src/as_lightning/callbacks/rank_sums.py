"""Sums over the ranks that train together."""

from __future__ import annotations

import lightning.pytorch as pl
import torch
from lightning.pytorch.strategies import ModelParallelStrategy, SingleDeviceStrategy
from torch import Tensor


def sum_over_ranks(trainer: pl.Trainer, sums: Tensor) -> Tensor:
    """Add up the ranks' sums, on the device: one all-reduce. (``Strategy.reduce`` would put a barrier before it.)

    Ranks that share their batches (tensor parallelism) are counted once. On a single device they stay where they are.
    """
    strategy = trainer.strategy
    if isinstance(strategy, SingleDeviceStrategy):
        return sums
    sums = sums.to(strategy.root_device)
    if trainer.world_size == 1 or not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return strategy.reduce(sums, reduce_op="sum")
    group = strategy.device_mesh["data_parallel"].get_group() if isinstance(strategy, ModelParallelStrategy) else None
    sums = sums.clone()
    torch.distributed.all_reduce(sums, op=torch.distributed.ReduceOp.SUM, group=group)
    return sums


def ranks_with_own_batches(trainer: pl.Trainer) -> int:
    """Over how many ranks `sum_over_ranks` adds up, and gradients are averaged."""
    strategy = trainer.strategy
    if isinstance(strategy, ModelParallelStrategy):
        return strategy.device_mesh["data_parallel"].size()
    return trainer.world_size


def holds_the_sum(trainer: pl.Trainer) -> bool:
    """Whether this rank keeps what `sum_over_ranks` has added up before the next sum."""
    strategy = trainer.strategy
    if isinstance(strategy, ModelParallelStrategy):
        return strategy.device_mesh["data_parallel"].get_local_rank() == 0
    return trainer.is_global_zero
