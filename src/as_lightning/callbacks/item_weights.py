r"""Windows whose gradient is the mean over their items, not over their batches.

With batch losses $\ell_{rb}$ that are means over $n_{rb}$ items, windows of $A$ batches on $R$
ranks, and $n$ items in all (Lightning divides by $A$, DDP by $R$),

$$
\frac{R A u}{n} \cdot \frac1R \sum_{r, b} \frac{n_{rb}}{A u} \nabla \ell_{rb} = \frac1n \sum_i \nabla \ell_i.
$$

The unit $u$, the items of a batch in the window before, keeps the products near 1, as half precision needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from as_lightning.callbacks.window import find_counter
from as_lightning.functional.argument_checks import check_number
from as_lightning.masking_counter import MaskingCounter

Items = float | Tensor  # a number that only a device knows stays there


class ItemWeights:
    """Counts the items of batches and weighs their losses' gradients; ``unit`` is $u$, None until one is known."""

    def __init__(self, items: Callable[[Any], Any] | None, loss_is: Literal["mean", "sum"]) -> None:
        self._items, self._loss_is = items, loss_is
        self._samples_before: Items = 0.0
        self._hooks: list[RemovableHandle] = []
        self.unit: float | None = None

    def source(self, pl_module: LightningModule) -> str | None:
        """Where the number of items comes from, for messages; None from nowhere."""
        if self._items is not None:
            return "items"
        if callable(getattr(pl_module, "items_in_batch", None)):
            return "items_in_batch"
        return None if find_counter(pl_module) is None else "masking_counter"

    def count(self, pl_module: LightningModule, batch: Any, batch_idx: int) -> Items | None:
        """The items of the batch that starts, before ``training_step`` may change it; None if they come later."""
        function = self._items or getattr(pl_module, "items_in_batch", None)
        if function is None:
            counter = find_counter(pl_module)
            self._samples_before = counter.open_counts[1] if counter else 0.0
            return None
        items = function(batch)
        if isinstance(items, Tensor) and items.numel() == 1:
            if items.device.type != "cpu":
                return items.detach().reshape(()).to(torch.float32 if items.device.type == "mps" else torch.float64)
            items = items.item()
        return check_number(f"the items of batch {batch_idx}", items, lambda n: n >= 0, "a finite number of at least 0")

    def counted_since(self, counter: MaskingCounter) -> Items:
        """The samples that the counter has counted since `count`; refused if it has counted none, as no loss was."""
        if not counter.batch_counted:
            raise MisconfigurationException(
                "normalize='items' weighs each batch by the samples that the masking counter counts, and training_step "
                "has returned a loss in which it counted none: compute it with the loss that is counted, or say the "
                "number of items with items=lambda batch: ..."
            )
        items = counter.open_counts[1] - self._samples_before
        return float(items) if items.device.type == "cpu" else items.double()

    def weigh(self, pl_module: LightningModule, loss: Tensor, items: Items) -> Items:
        """Have the backward pass of ``loss`` weigh it by its items; returns what adds to the window's items."""
        if loss.numel() != 1:
            raise MisconfigurationException(
                f"training_step has returned a loss of shape {tuple(loss.shape)}, which is neither the mean nor the "
                "sum over the batch's items: return one of the two and say which, as in loss_is='mean'."
            )
        weight, unit = 1.0, self.unit or 1.0  # type: Items, float  # there is no unit before the first items
        if isinstance(items, Tensor):
            valid = items.isfinite() & (items >= 0)
            weight, items = torch.where(valid, items, 0.0) / unit, torch.where(valid, items, math.nan)
        elif items == 0:
            # the gradient of a mean over nothing may be 0 / 0, which a weight of 0 leaves as it is
            self._hooks = [p.register_hook(torch.zeros_like) for p in pl_module.parameters() if p.requires_grad]
        else:
            weight = items / unit
        if self._loss_is == "mean" and loss.requires_grad and not (isinstance(weight, float) and weight == 1.0):
            loss.register_hook(lambda gradient: (gradient * weight).to(gradient.dtype))
        return items

    def end_backward(self) -> None:
        """Remove what a batch without items has needed."""
        while self._hooks:
            self._hooks.pop().remove()

    def factor(self, items: Items, ranks: int, length: int) -> Items:
        """What turns the gradient of a window of ``items`` on all ranks into the mean over them; 0 without items."""
        share = ranks * length * ((self.unit or 1.0) if self._loss_is == "mean" else 1.0)
        if not isinstance(items, Tensor) or items.device.type == "cpu":
            return share / number if (number := float(items)) > 0 else 0.0
        return torch.where(items > 0, share / items, 0.0)

    def see(self, items: float, batches: int) -> None:
        """Learn from so many batches, those of all ranks, how many items a batch has."""
        if not math.isfinite(items):
            raise ValueError("the items of a batch must be a finite number of at least 0: one of the latest had others")
        if items > 0:
            self.unit = items / batches


def on_device(items: Items) -> Tensor:
    """The number as a tensor of shape ``(1,)``, where it is known."""
    return items.reshape(1) if isinstance(items, Tensor) else torch.tensor([items], dtype=torch.float64)


def multiply_gradients(optimizer: Optimizer, factor: Items) -> None:
    """Multiply the gradients of all parameter groups, in place."""
    if isinstance(factor, float) and factor == 1.0:
        return
    parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if gradients:
        torch._foreach_mul_(gradients, factor)
