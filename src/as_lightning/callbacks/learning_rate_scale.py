"""Learning rates of optimizer steps that gather several batches: their multiples and pace."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

# Of a number of batches.
RATE_FACTORS: dict[str, Callable[[int], float]] = {"sqrt": math.sqrt, "linear": float}


class ScaledRates:
    """Runs an optimizer's step of ``batches`` batches at a multiple of its rates, from where its
    loss is computed. ``scale`` is ``"none"`` or a key of ``RATE_FACTORS``.
    """

    def __init__(self, scale: str) -> None:
        self.scale = scale
        # 0 between two windows, where a search of the learning rate may lie.
        self.batches = 0
        # The scheduler's rates, while a step runs at scaled ones.
        self._own: list[Any] = []
        self._begun = False
        # The optimizer that has the hooks.
        self._optimizer: Any = None
        self._hooks: list[RemovableHandle] = []

    def follow(self, optimizer: Any) -> None:
        """Scale the steps of this optimizer."""
        if self.scale == "none":
            return
        rates = [group.get("lr") for group in optimizer.param_groups]
        if not isinstance(optimizer, Optimizer) or None in rates:
            raise MisconfigurationException(
                f"{type(optimizer).__name__} is no optimizer of torch with a learning rate: set "
                "lr_scale='none'."
            )
        before, after = optimizer.register_step_pre_hook, optimizer.register_step_post_hook
        self._optimizer, self._hooks = optimizer, [before(self._begin_step), after(self._end_step)]

    def leave(self) -> None:
        """Restore the rates and remove the hooks, also if an exception has ended a step."""
        self._end_step()
        while self._hooks:
            self._hooks.pop().remove()
        self._optimizer = None

    def loss_is_computed(self, batches: int) -> None:
        """Scale the rates if the step has begun; a gradient scaler may still leave it out."""
        self.batches = batches
        if self._begun:
            self._scale()

    def _begin_step(self, optimizer: Optimizer, args: Any, kwargs: dict[str, Any]) -> None:
        self._begun = True
        if kwargs.get("closure") is None:  # the loss has been computed, as with a scaler
            self._scale()

    def _end_step(self, *_: Any) -> None:
        self._begun = False
        if self._own:
            set_rates(self._optimizer.param_groups, self._own)
            self._own = []

    def _scale(self) -> None:
        if self._own or self.batches == 0:
            return
        factor = RATE_FACTORS[self.scale](self.batches)
        if factor != 1.0:
            self._own = [group["lr"] for group in self._optimizer.param_groups]
            set_rates(self._optimizer.param_groups, [rate * factor for rate in self._own])


def set_rates(groups: list[dict[str, Any]], rates: list[Any]) -> None:
    for group, rate in zip(groups, rates, strict=True):
        group["lr"] = rate


def advance_schedulers(
    trainer: Trainer, pl_module: LightningModule, end: int, batches: int, *, stepped: bool
) -> None:
    """Advance the schedulers with ``interval="step"`` by the last ``batches`` of the first ``end``
    batches of the epoch. If ``stepped``, Lightning has done so for the last one.
    """
    advance = batches
    if trainer.max_steps != -1:  # the schedule has min(steps left, batches left) to go
        batches_left = math.inf
        if trainer.max_epochs not in (None, -1) and trainer.num_training_batches != math.inf:
            epochs_left = trainer.max_epochs - trainer.current_epoch
            batches_left = epochs_left * trainer.num_training_batches - end
        steps_left = trainer.max_steps - trainer.global_step
        before = min(steps_left + stepped, batches_left + batches)
        advance = int(before - min(steps_left, batches_left))
    for config in trainer.lr_scheduler_configs:
        # ReduceLROnPlateau counts checks of its metric.
        if config.interval != "step" or config.reduce_on_plateau:
            continue
        every = config.frequency
        missing = end // every - (end - advance) // every
        if stepped and end % every == 0:
            missing -= 1
        for _ in range(missing):
            pl_module.lr_scheduler_step(config.scheduler, None)
