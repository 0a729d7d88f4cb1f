"""What the processes tell each other of the batches of an epoch."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from as_lightning.callbacks.epoch_batches import Batches


def least_over_ranks(trainer: pl.Trainer, count: int) -> int:
    """The least of the processes' counts. A collective call."""
    device = trainer.strategy.root_device
    return int(trainer.strategy.reduce(torch.tensor(count, device=device), reduce_op="min"))


def batches_of_all_ranks(trainer: pl.Trainer, batches: Batches) -> list[Batches]:
    """The batches of each process, in the order of their ranks. A collective call."""
    if trainer.world_size == 1:
        return [batches]
    gathered: list[Any] = [None] * trainer.world_size
    torch.distributed.all_gather_object(gathered, batches)
    return gathered


def batches_of_this_rank(trainer: pl.Trainer, of_all: list[Batches]) -> Batches:
    """This process's part of :func:`batches_of_all_ranks`, from a checkpoint.

    Raises:
        MisconfigurationException: if they are those of another number of processes.
    """
    if len(of_all) != trainer.world_size:
        raise MisconfigurationException(
            f"The checkpoint lies inside an epoch whose plan is for {len(of_all)} processes, but there are "
            f"{trainer.world_size}: resume with as many, or from a checkpoint of the end of an epoch."
        )
    return of_all[trainer.global_rank]
