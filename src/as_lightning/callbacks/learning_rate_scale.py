"""Learning rates of optimizer steps that gather several batches: their multiples and pace."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch.optim import Optimizer

# Of a number of batches.
RATE_FACTORS: dict[str, Callable[[int], float]] = {"sqrt": math.sqrt, "linear": float}


class ScaledRates:
    """Multiplies an optimizer's rates in each step, once its loss is computed.

    (A gradient scaler calls no step that it leaves out, and computes the loss before.)
    """

    def __init__(self, optimizer: Any, scale: str) -> None:
        rates = [group.get("lr") for group in optimizer.param_groups]
        if not isinstance(optimizer, Optimizer) or None in rates:
            raise MisconfigurationException(
                f"{type(optimizer).__name__} is no optimizer of torch with a learning rate: set "
                "lr_scale='none'."
            )
        self.batches = 1  # that the next step gathers
        self._scale = scale
        self._own: list[tuple[dict[str, Any], Any]] = []  # groups and their rates, in a step
        before, after = optimizer.register_step_pre_hook, optimizer.register_step_post_hook
        self._hooks = [before(self._begin_step), after(self._set_back)]

    def leave(self) -> None:
        """Restore the rates and remove the hooks, also if an exception has ended a step."""
        self._set_back()
        for hook in self._hooks:
            hook.remove()

    def _begin_step(self, optimizer: Optimizer, args: Any, kwargs: dict[str, Any]) -> Any:
        closure = kwargs.get("closure")
        if closure is None:
            self._multiply(optimizer)
            return None

        def closure_then_rates() -> Any:
            loss = closure()
            self._multiply(optimizer)
            return loss

        return args, {**kwargs, "closure": closure_then_rates}

    def _multiply(self, optimizer: Optimizer) -> None:
        if self._own or self.batches == 1:
            return
        for group in optimizer.param_groups:
            self._own.append((group, group["lr"]))
            group["lr"] = group["lr"] * RATE_FACTORS[self._scale](self.batches)

    def _set_back(self, *_: Any) -> None:
        self.batches = 1  # the next step may be that of a search of the learning rate
        while self._own:
            group, rate = self._own.pop()
            group["lr"] = rate


def advance_schedulers(trainer: Trainer, pl_module: LightningModule, start: int, end: int) -> None:
    """Advance the schedulers with ``interval="step"`` by the batches ``start`` to ``end`` of the
    epoch, but for the last one, by which Lightning advances them.
    """
    for config in trainer.lr_scheduler_configs:
        # ReduceLROnPlateau counts checks of its metric.
        if config.interval == "step" and not config.reduce_on_plateau:
            for _ in range((end - 1) // config.frequency - start // config.frequency):
                pl_module.lr_scheduler_step(config.scheduler, None)
