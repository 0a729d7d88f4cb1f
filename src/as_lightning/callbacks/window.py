"""What the callbacks that act on accumulation windows share."""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import ModelParallelStrategy
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor

from as_lightning.losses import MaskedLoss, masked_losses
from as_lightning.masking_counter import MaskingCounter


def counts_masking(pl_module: LightningModule) -> bool:
    return hasattr(pl_module, "masking_counter") or bool(masked_losses(pl_module))


def is_logged(trainer: Trainer, step: int) -> bool:
    """Return whether Lightning logs its own metrics at this optimizer step, or it is the first."""
    every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]
    return every > 0 and (step == 0 or (step + 1) % every == 0)


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
    """Add up the ranks' sums by one all-reduce, without the barrier of ``Strategy.reduce``. Ranks
    that share their batches (tensor parallelism) are counted once.
    """
    if trainer.world_size == 1:
        return sums
    group, _ = ranks_with_own_batches(trainer)
    sums = sums.to(trainer.strategy.root_device, copy=True)
    torch.distributed.all_reduce(sums, group=group)
    return sums


def ranks_with_own_batches(trainer: Trainer) -> tuple[Any, int]:
    """Return the group over which `sum_over_ranks` adds up (None for all), and its size."""
    if not isinstance(trainer.strategy, ModelParallelStrategy):
        return None, trainer.world_size
    mesh = trainer.strategy.device_mesh["data_parallel"]  # other ranks share their batches
    return mesh.get_group(), mesh.size()


class WindowCallback(Callback):
    """Counts each training batch. Stands at the front of ``trainer.callbacks``: it must have seen a
    batch before others save a checkpoint after it.
    """

    def __init__(self) -> None:
        self._fitting = True
        self._counted = False  # whether anything has been counted in this training
        # Of the module, looked for at each epoch, and until a batch has reported counts.
        self._losses: list[MaskedLoss] = []
        self._found = False
        self.counter = self._spare = MaskingCounter()
        self._reset()

    def _reset(self) -> None:
        """Set the state before training."""

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._fitting = stage == "fit"
        if not self._fitting:
            return
        self._counted = self._found = False
        if trainer.global_step == 0:  # not the continuation of an earlier fit
            self._reset()
        callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
        callbacks.remove(self)
        callbacks.insert(0, self)

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if batch_idx == 0 or not self._found:
            self._losses = masked_losses(pl_module)
        counter = getattr(pl_module, "masking_counter", None)
        if counter is None and self._losses:
            counter = self._losses[0].masking_counter  # another callback has begun the batch
        self.counter = counter or self._spare
        self.counter.begin_batch(self._losses)

    def on_before_backward(
        self, trainer: Trainer, pl_module: LightningModule, loss: Tensor
    ) -> None:
        self._found = self.counter.counts is not None
        if pl_module.automatic_optimization:  # otherwise another loss may follow
            self.counter.pause()  # backward may compute the loss again, as checkpoints do

    def refuse_uncounted(self, pl_module: LightningModule, counted: bool) -> None:
        """Raise unless the module reports its masking."""
        if not counted:
            raise MisconfigurationException(
                f"{type(self).__name__} needs a module that reports masking counts, and "
                f"{type(pl_module).__name__} reports none in training_step. Compute its loss by a "
                "module such as ASSoftmaxLoss(delta=0.5), by self.as_softmax_loss of "
                "ASSoftmaxMixin (or set as_softmax_replaces to the attribute that is called as "
                "loss(logits, target)), or update a self.masking_counter = MaskingCounter()."
            )
