"""An accumulation window that has begun and not yet stepped: its state, and how a checkpoint holds it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.plugins.environments import SLURMEnvironment
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from torch import Tensor

from as_lightning.callbacks.rank_sums import holds_the_sum, sum_over_ranks
from as_lightning.callbacks.window import masking_counter, window_ends

COUNTS, GRADIENTS = "as_lightning_open_counts", "as_lightning_open_gradients"  # keys of a checkpoint


@dataclass
class OpenWindow:
    """The open window, or the window that was closed last.

    Attributes:
        first_batch: 0-based index in the epoch of its first batch.
        length: its number of batches; ``trainer.accumulate_grad_batches`` while it is open.
        accumulated: the number of its batches whose gradients have been added.
        is_open: whether its optimizer step is still to come.
    """

    first_batch: int = 0
    length: int = 1
    accumulated: int = 0
    is_open: bool = False

    def goes_on_at(self, batch_idx: int) -> bool:
        """Whether the batch belongs to this window and is not its first."""
        return self.is_open and self.first_batch < batch_idx < self.first_batch + self.length

    @property
    def last_batch(self) -> int:
        """0-based index in the epoch of the last batch whose gradients have been added."""
        return self.first_batch + self.accumulated - 1

    def state_dict(self) -> dict[str, Any]:
        return asdict(self)


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


def save_open_gradients(
    trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any], length: int | None = None
) -> None:
    """Put the gradients of an open window into the checkpoint, if each rank holds all of them.

    They are averaged over the ranks: inside a window DDP has not yet done so. A resumed run goes on from the mean on
    every rank, which gives the same mean once DDP averages.
    """
    whole = isinstance(trainer.strategy, (SingleDeviceStrategy, DDPStrategy))
    if not (whole and lies_inside_window(trainer, length) and can_reduce_while_saving(trainer)):
        return
    parameters = list(pl_module.named_parameters())
    present = torch.tensor([parameter.grad is not None for _, parameter in parameters], device=pl_module.device)
    on_any_rank = sum_over_ranks(trainer, present.long()).tolist()  # a rank may not have used a parameter yet
    gradients = {}
    for (name, parameter), ranks in zip(parameters, on_any_rank, strict=True):
        if ranks:
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
            gradients[name] = trainer.strategy.reduce(gradient.detach(), reduce_op="mean").cpu()
    checkpoint[GRADIENTS] = gradients


def restore_open_gradients(pl_module: pl.LightningModule, gradients: dict[str, Tensor]) -> None:
    """Put the saved gradients in place, so that the window's next batches add to them."""
    for name, parameter in pl_module.named_parameters():
        if name in gradients:
            parameter.grad = gradients[name].to(parameter.device)


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
