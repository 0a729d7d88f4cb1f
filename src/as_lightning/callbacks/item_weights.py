r"""Windows whose gradient is the mean over their items: over what a batch's loss is a mean of, or
over the batches.

With batch losses $\ell_{rb}$ that are means over $n_{rb}$ items, windows of $A$ batches on $R$
ranks, and $n$ items in all (Lightning divides by $A$, DDP by $R$),

$$
\frac{R A u}{n} \cdot \frac1R \sum_{r, b} \frac{n_{rb}}{A u} \nabla \ell_{rb} = \frac1n \sum_i \nabla \ell_i.
$$

The unit $u$, the items per batch of the previous window, keeps the products near 1, as half
precision needs. The mean over batches is that of one item a batch: $u$ is 1, and the factor $R A u
/ n$ is exactly 1 in a window of $A$ batches.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from as_lightning.callbacks.window import find_counter
from as_lightning.functional.argument_checks import check_number
from as_lightning.functional.calling_convention import widened
from as_lightning.masking_counter import MaskingCounter

Items = float | Tensor  # a number that is on a device stays there
UNEVEN = (
    "training_step has computed two losses of different numbers of samples, whose sum no number of "
    "items weighs: add "
    "losses of as many samples, or say with items=lambda batch: ... what the loss is a mean over"
)


class ItemWeights:
    """Counts the items of batches and weighs their losses' gradients; ``unit`` is $u$, None until
    one is known.

    ``source`` names, in checkpoints and messages, where the number of items comes from; None is one
    item a batch.
    """

    def __init__(
        self,
        items: Callable[[Any], Any] | Literal["module"] | None,
        loss_is: Literal["mean", "sum"],
    ) -> None:
        self.items, self.loss_is, self.source = items, loss_is, None if items is None else "items"
        self._guards: list[RemovableHandle] = []  # on models that could weigh the items too
        self._zeroing: list[
            RemovableHandle
        ] = []  # on the leaves that a batch without items would spoil
        self.unit: float | None = None

    def start(self, pl_module: LightningModule) -> None:
        """Set the ``source``, and make models refuse ``num_items_in_batch``, which would weigh the
        items twice.
        """
        if self.items == "module":
            is_method = callable(getattr(pl_module, "items_in_batch", None))
            self.source = (
                "items_in_batch"
                if is_method
                else "masking_counter"
                if find_counter(pl_module)
                else "nothing"
            )
        if self.source is not None:
            models = (
                part
                for part in pl_module.modules()
                if hasattr(part, "config") and hasattr(part, "loss_function")
            )
            self._guards = [
                model.register_forward_pre_hook(_refuse_items, with_kwargs=True) for model in models
            ]

    def leave(self) -> None:
        """Remove all hooks, also those that an exception in a backward pass has left."""
        self.end_backward()
        while self._guards:
            self._guards.pop().remove()

    def count(self, pl_module: LightningModule, batch: Any, batch_idx: int) -> Items | None:
        """The items of the batch that starts, before ``training_step`` may change it; None if it
        does not tell them.
        """
        if self.source in (None, "masking_counter"):
            return None
        items = self.items(batch) if callable(self.items) else pl_module.items_in_batch(batch)  # type: ignore[operator]
        if isinstance(items, Tensor) and items.numel() == 1:
            if items.device.type != "cpu":
                return (
                    items.detach()
                    .reshape(())
                    .to(torch.float32 if items.device.type == "mps" else torch.float64)
                )
            items = items.item()
        return check_number(
            f"the items of batch {batch_idx}",
            items,
            lambda n: n >= 0,
            "a finite number of at least 0",
        )

    def counted(self, counter: MaskingCounter) -> Items:
        """The samples of this batch; raises if none were counted, or if two losses had different
        numbers.
        """
        samples = counter.batch_samples
        if samples is None:
            raise MisconfigurationException(
                "items='module' weighs each batch by the samples that the masking counter counts, "
                "and training_step "
                "has returned a loss in which it counted none: compute it with the loss that is "
                "counted, or say the "
                "number of items with items=lambda batch: ..."
            )
        if samples.device.type != "cpu":
            return samples.double()
        if math.isnan(items := float(samples)):
            raise MisconfigurationException(UNEVEN)
        return items

    def weigh(self, pl_module: LightningModule, loss: Tensor, items: Items) -> tuple[Items, Tensor]:
        """Make the backward pass weigh the gradient of ``loss`` by its items. Returns the items,
        and the weighed loss, detached and in a dtype for long sums.
        """
        value = widened(loss.detach())
        if self.source is None:
            return 0.0, value
        if loss.numel() != 1:
            raise MisconfigurationException(
                f"training_step has returned a loss of shape {tuple(loss.shape)}, which is neither "
                "the mean nor the "
                "sum over the batch's items: return one of the two and say which, as in "
                "loss_is='mean'."
            )
        weight: Items = 1.0
        unit = self.unit or 1.0  # None before the first items
        if isinstance(items, Tensor):
            valid = items.isfinite() & (items >= 0)
            weight, items = (
                torch.where(valid, items, 0.0) / unit,
                torch.where(valid, items, math.nan),
            )
            value = value.where(weight > 0, 0.0)
        elif items == 0:
            # the gradient of a mean over nothing may be 0 / 0, which a weight of 0 leaves as it is.
            # The parameters are added, since the graph of the loss lacks those of checkpointed
            # parts of the model
            leaves = {*_leaves(loss), *(p for p in pl_module.parameters() if p.requires_grad)}
            self._zeroing = [leaf.register_hook(torch.zeros_like) for leaf in leaves]
            return items, torch.zeros_like(value)
        else:
            weight = items / unit
        if self.loss_is == "mean" and not (isinstance(weight, float) and weight == 1.0):
            value = value * weight
            if loss.requires_grad:
                loss.register_hook(lambda gradient: (gradient * weight).to(gradient.dtype))
        return items, value

    def end_backward(self) -> None:
        """Remove the hooks that zero the gradients of a batch without items."""
        while self._zeroing:
            self._zeroing.pop().remove()

    def factor(self, items: Items, ranks: int, length: int) -> Items:
        """The factor that makes the gradient of a window of ``items`` on all ranks their mean; 0
        without items.
        """
        numerator = (
            ranks * length * ((self.unit or 1.0) if self.source and self.loss_is == "mean" else 1.0)
        )
        if not isinstance(items, Tensor) or items.device.type == "cpu":
            return numerator / number if (number := float(items)) > 0 else 0.0
        return torch.where(items > 0, numerator / items, 0.0)

    def see(self, items: float, batches: int) -> None:
        """Set the unit to the items per batch of a window that had so many ``batches`` on all
        ranks.
        """
        if not math.isfinite(items):
            raise ValueError(
                f"the items of a batch must be a finite number of at least 0; or {UNEVEN}"
            )
        if items > 0:
            self.unit = items / batches


def _leaves(loss: Tensor) -> list[Tensor]:
    """The leaves of the loss's graph, which under FSDP2 are other tensors than the module's
    parameters.
    """
    nodes, seen = [loss.grad_fn], set()
    leaves = []
    while nodes:
        node: Any = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        nodes += [next_node for next_node, _ in node.next_functions]
        if hasattr(node, "variable"):
            leaves.append(node.variable)
    return leaves


def _refuse_items(model: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
    if named.get("num_items_in_batch") is not None:
        raise MisconfigurationException(
            f"{type(model).__name__} is given num_items_in_batch, by which it divides the loss, "
            "and items= weighs the "
            "items too: leave num_items_in_batch out, whose window is not known before its last "
            "batch"
        )


def multiply_gradients(optimizer: Optimizer, factor: Items) -> None:
    """Multiply the gradients of all parameter groups, in place."""
    if isinstance(factor, float) and factor == 1.0:
        return
    parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if gradients:
        torch._foreach_mul_(gradients, factor)
