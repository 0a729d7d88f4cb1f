"""The learning rate where windows change: a schedule keeps the pace of the data, and a larger window a larger step."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

from lightning.pytorch import LightningModule, Trainer
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

LRScale = Literal["none", "sqrt", "linear"]


def follow_batches(
    trainer: Trainer, pl_module: LightningModule, last_batch: int, batches: int, *, stepped: bool
) -> None:
    """Advance the schedulers by steps as ``batches`` windows of one batch would have, when one window of them ends.

    Where the optimizer ``stepped`` and ``(batch + 1) % frequency == 0``, Lightning has advanced the scheduler once.
    With ``Trainer(max_steps)``, the rest of the schedule is ``min(steps left, batches left)``.
    """
    end, counted = last_batch + 1, batches
    if trainer.max_steps != -1:
        batches_left = math.inf
        if trainer.max_epochs not in (None, -1) and trainer.num_training_batches != math.inf:
            batches_left = (trainer.max_epochs - trainer.current_epoch) * trainer.num_training_batches - end
        steps_left = trainer.max_steps - trainer.global_step
        counted = int(min(steps_left + stepped, batches_left + batches) - min(steps_left, batches_left))
    for config in trainer.lr_scheduler_configs:
        if config.interval != "step" or config.reduce_on_plateau:  # the latter counts checks of its metric
            continue
        taken = int(stepped and end % config.frequency == 0)  # by Lightning, on the last batch
        for _ in range(end // config.frequency - (end - counted) // config.frequency - taken):
            pl_module.lr_scheduler_step(config.scheduler, None)


class ScaledRates:
    """The step of a window of ``batches()`` at a multiple of the optimizer's rates, which only the step itself sees.

    ``used`` are the rates of the latest step. Source: ``"sqrt"`` (for Adam) Malladi et al., NeurIPS 2022; ``"linear"``
    (for SGD) Goyal et al., 2017.
    """

    def __init__(self, rule: LRScale, batches: Callable[[], int]) -> None:
        self._rule, self._batches = rule, batches
        self._own: list[Any] = []  # the rates of the groups while a step runs
        self._handles: list[RemovableHandle] = []
        self.used: list[Any] = []

    def attach(self, optimizer: Optimizer) -> None:
        """Scale the steps of ``optimizer`` from now on."""
        self.detach(optimizer)
        if self._rule != "none":
            self._handles = [
                optimizer.register_step_pre_hook(self._raise),
                optimizer.register_step_post_hook(self._restore),
            ]

    def detach(self, optimizer: Optimizer) -> None:
        """Leave the optimizer as it was, also in a step that an exception has ended."""
        while self._handles:
            self._handles.pop().remove()
        self._restore(optimizer)
        self.used = []

    def restore_in(self, checkpoint: dict[str, Any]) -> None:
        """Put the optimizer's own rates into a checkpoint that is saved while a step runs."""
        if self._own:
            for group, rate in zip(checkpoint["optimizer_states"][0]["param_groups"], self._own, strict=True):
                group["lr"] = rate

    def _raise(self, optimizer: Optimizer, *_: Any) -> None:
        factor = self._batches() if self._rule == "linear" else math.sqrt(self._batches())
        self._own = [group["lr"] for group in optimizer.param_groups]
        self.used = [rate * factor for rate in self._own]
        for group, rate in zip(optimizer.param_groups, self.used, strict=True):
            group["lr"] = rate

    def _restore(self, optimizer: Optimizer, *_: Any) -> None:
        for group, rate in zip(optimizer.param_groups, self._own, strict=False):  # none outside a step
            group["lr"] = rate
        self._own = []
