"""The learning rate where windows change: a schedule keeps the pace of the data, and a larger window a larger step.

Lightning advances a scheduler with ``interval="step"`` once for each optimizer step. A schedule that was built from
``trainer.estimated_stepping_batches`` counts the steps of a training with one step for each batch. Accumulation takes
fewer steps: the schedule would not reach its end.

Source: Lightning's training loop advances a scheduler on a stepping batch $b$ with
$(b + 1) \\bmod \\text{frequency} = 0$, where $b$ counts from 0 in each epoch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import lightning.pytorch as pl
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

LRScale = Literal["none", "sqrt", "linear"]


def follow_batches(
    trainer: pl.Trainer, pl_module: pl.LightningModule, *, last_batch: int, batches: int, stepped: bool
) -> None:
    """Advance the schedulers as ``batches`` windows of one batch would have, after a window of ``batches``.

    Call it in ``on_train_batch_end`` of the window's last batch: Lightning has advanced each scheduler at most once by
    then, if the optimizer has ``stepped``. ``ReduceLROnPlateau`` counts checks of its metric, and is left to Lightning.
    """
    end = last_batch + 1
    counted = scheduled_batches(trainer, last_batch, batches, stepped=stepped)
    for config in trainer.lr_scheduler_configs:
        if config.interval != "step" or config.reduce_on_plateau:
            continue
        taken = int(stepped and end % config.frequency == 0)  # by Lightning, on the last batch
        for _ in range(end // config.frequency - (end - counted) // config.frequency - taken):
            pl_module.lr_scheduler_step(config.scheduler, None)


def scheduled_batches(trainer: pl.Trainer, last_batch: int, batches: int, *, stepped: bool) -> int:
    """How many of a window's ``batches`` count for a schedule of ``trainer.estimated_stepping_batches`` steps.

    All of them, unless ``Trainer(max_steps)`` may end training before the data do. Then the remaining length of the
    schedule is the largest number of optimizer steps that can still come, ``min(steps left, batches left)``.
    """
    if trainer.max_steps == -1:
        return batches
    batches_left = math.inf
    if trainer.max_epochs not in (None, -1) and trainer.num_training_batches != math.inf:
        batches_left = (trainer.max_epochs - trainer.current_epoch) * trainer.num_training_batches - last_batch - 1
    steps_left = trainer.max_steps - trainer.global_step
    before = min(steps_left + stepped, batches_left + batches)
    return int(before - min(steps_left, batches_left))


class ScaledRates:
    r"""The step of a window of $k$ batches at $\sqrt k$ or $k$ times the optimizer's rates.

    The rates are raised when ``optimizer.step`` begins and put back when it ends: schedulers and checkpoints see their
    own. A step that the gradient scaler leaves out raises nothing.

    Args:
        rule: ``"sqrt"``, for optimizers such as Adam (Malladi et al., NeurIPS 2022); ``"linear"``, for SGD (Goyal et
            al., 2017); ``"none"``, nothing is changed.
        batches: gives $k$.

    Attributes:
        used: the rates of the latest step, one for each parameter group.
    """

    def __init__(self, rule: LRScale, batches: Callable[[], int]) -> None:
        if rule not in ("none", "sqrt", "linear"):
            raise ValueError(f"lr_scale must be 'none', 'sqrt' or 'linear', got {rule!r}")
        self._rule, self._batches = rule, batches
        self._own: list[Any] | None = None  # the rates of the groups while a step runs
        self._handles: list[RemovableHandle] = []
        self.used: list[Any] = []

    def attach(self, optimizer: Optimizer) -> None:
        """Scale the steps of ``optimizer`` from now on."""
        self.detach(optimizer)
        if self._rule != "none":
            self._handles = [
                optimizer.register_step_pre_hook(lambda optimizer, *_: self._raise(optimizer)),
                optimizer.register_step_post_hook(lambda optimizer, *_: self._restore(optimizer)),
            ]

    def detach(self, optimizer: Optimizer) -> None:
        """Leave the optimizer as it was, also in a step that an exception has ended."""
        while self._handles:
            self._handles.pop().remove()
        self._restore(optimizer)
        self.used = []

    def restore_in(self, checkpoint: dict[str, Any]) -> None:
        """Put the optimizer's own rates into a checkpoint that is saved while a step runs."""
        if self._own is not None:
            for group, rate in zip(checkpoint["optimizer_states"][0]["param_groups"], self._own, strict=True):
                group["lr"] = rate

    def _raise(self, optimizer: Optimizer) -> None:
        factor = self._batches() if self._rule == "linear" else math.sqrt(self._batches())
        rates = [group["lr"] for group in optimizer.param_groups]
        self._own = [rate.clone() if isinstance(rate, Tensor) else rate for rate in rates]
        self.used = [rate * factor for rate in rates]
        _set_rates(optimizer, self.used)

    def _restore(self, optimizer: Optimizer) -> None:
        if self._own is not None:
            _set_rates(optimizer, self._own)
            self._own = None


def _set_rates(optimizer: Optimizer, rates: list[Any]) -> None:
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        if isinstance(group["lr"], Tensor):
            group["lr"].copy_(rate)  # compiled and captured steps hold on to the tensor
        else:
            group["lr"] = rate
