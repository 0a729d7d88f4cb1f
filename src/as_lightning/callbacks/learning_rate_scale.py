"""Learning rates of optimizer steps that gather several batches: their multiples, and their pace."""

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
    """Runs an optimizer's step of ``batches()`` batches at a multiple of its rates, and restores
    the rates after it.

    While the step computes the loss, the rates are the scheduler's: ``training_step`` or a hook may
    set others.

    ``batches`` returns 0 between two windows, where a learning-rate search may lie: its steps keep
    their rates. ``scale`` is ``"none"`` or a key of ``RATE_FACTORS``, ``used`` the rates of the
    latest step, if it was scaled.
    """

    def __init__(self, batches: Callable[[], int]) -> None:
        self.batches, self.scale = batches, "none"
        self.used: list[Any] = []
        # The scheduler's rates, while a step runs at scaled ones.
        self._own: list[Any] = []
        # The optimizer that has the hooks.
        self._optimizer: Any = None
        self._hooks: list[RemovableHandle] = []
        # Of nested steps: one that calls its base class's runs the hooks twice.
        self._depth = 0

    def follow(self, optimizer: Any) -> None:
        """Scale the steps of this optimizer, and those of no other."""
        if self.scale == "none" or optimizer is self._optimizer:
            return
        if not isinstance(optimizer, Optimizer) or any(
            group.get("lr") is None for group in optimizer.param_groups
        ):
            raise MisconfigurationException(
                f"lr_scale={self.scale!r} scales the learning rate of each step, but "
                f"{type(optimizer).__name__} is no optimizer of torch with a learning rate: set "
                "lr_scale='none'."
            )
        self.leave()
        before, after = optimizer.register_step_pre_hook, optimizer.register_step_post_hook
        self._optimizer, self._hooks = optimizer, [before(self._begin_step), after(self._end_step)]

    def leave(self) -> None:
        """Restore the rates and remove the hooks, also if an exception has ended a step."""
        self._restore_rates()
        while self._hooks:
            self._hooks.pop().remove()
        self._optimizer, self._depth, self.used = None, 0, []

    def _begin_step(
        self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        self._depth += 1
        batches = self.batches()
        if self._depth > 1 or batches == 0:
            return None
        factor = RATE_FACTORS[self.scale](batches)
        if factor == 1.0:
            return None
        closure = kwargs.get("closure")
        if closure is None:  # the loss has been computed, as with a scaler
            self._scale(factor)
            return None

        def closure_at_scheduled_rates() -> Any:
            self._restore_rates()  # it may come again
            loss = closure()
            self._scale(factor)
            return loss

        return args, {**kwargs, "closure": closure_at_scheduled_rates}

    def _end_step(self, *_: Any) -> None:
        self._depth -= 1
        if self._depth > 0:
            return
        if not self._own:  # the step was not scaled
            self.used = [group["lr"] for group in self._optimizer.param_groups]
        self._restore_rates()

    def _scale(self, factor: float) -> None:
        self._own = [group["lr"] for group in self._optimizer.param_groups]
        self.used = [rate * factor for rate in self._own]
        set_rates(self._optimizer.param_groups, self.used)

    def _restore_rates(self) -> None:
        if self._own:
            set_rates(self._optimizer.param_groups, self._own)
            self._own = []


def set_rates(groups: list[dict[str, Any]], rates: list[Any]) -> None:
    for group, rate in zip(groups, rates, strict=True):
        group["lr"] = rate


def advance_schedulers(
    trainer: Trainer, pl_module: LightningModule, end: int, batches: int, *, stepped: bool
) -> None:
    """Advance the schedulers with ``interval="step"`` by the last ``batches`` of the first ``end``
    batches of the epoch, as windows of one batch would have.

    ``stepped`` says that Lightning has advanced them once, for the last batch.
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
