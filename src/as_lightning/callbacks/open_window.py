r"""The open window: what its batches sum to, and what their gradients weigh.

With batch losses $\ell_{rb}$ that are means over $n_{rb}$ items, on $R$ ranks, and $n$ items in
all (DDP divides by $R$),

$$
\frac{R u}{n} \cdot \frac1R \sum_{r, b} \frac{n_{rb}}{u} \nabla \ell_{rb}
= \frac1n \sum_i \nabla \ell_i.
$$

The unit $u$, a power of two near the items per batch of the previous window, costs no bit and keeps
the products near 1, as half precision needs. The mean over batches is that of one item a batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor
from torch.optim import Optimizer

from as_lightning.callbacks.accumulation_policy import AccumulationWindow, Policy
from as_lightning.callbacks.window import sum_over_ranks
from as_lightning.functional.argument_checks import check_number
from as_lightning.masking_counter import MaskingCounter

Items = Callable[[Any], Any] | Literal["module"] | None


class OpenWindow(AccumulationWindow):
    """The open window, with this rank's sums over its batches. What is on a device stays there."""

    def __init__(self, items_of: Items, loss_is: str, *place: Any, **fields: Any) -> None:
        super().__init__(*place, **fields)
        if self.last is not None:
            self.items_before = self.last.items_before + self.last.items
        self.unit = 1.0
        self.added = False  # whether the present batch is
        self.closed: AccumulationWindow | None = None
        self._items_of, self._loss_is = items_of, loss_is
        self._trainer: Trainer | None = None
        self._batch_items: Tensor | float = 1.0
        self._items: Tensor | float = 0.0
        # Of each batch: they are summed when the window closes.
        self._counts: list[Tensor] = []
        self._losses: list[Tensor] = []

    @property
    def items(self) -> float:
        """The items of all ranks, read when a policy asks for them."""
        if self._trainer is None:
            return 0.0
        if self._items_of == "module":
            raise MisconfigurationException(
                "a policy reads the items before training_step: say them with items=lambda batch: "
                "... instead of items='module'"
            )
        return float(sum_over_ranks(self._trainer, tensor_of(self._items + self._batch_items)))

    @items.setter
    def items(self, value: float) -> None:
        """Ignore what the constructor of a dataclass sets."""

    def begin_batch(self, trainer: Trainer, policy: Policy, batch: Any) -> bool:
        """Return whether the optimizer steps after this batch, by the policy."""
        self.added = False
        if callable(self._items_of):
            self._batch_items = items_in(batch, self._items_of)
        self._trainer = trainer
        closes = policy(self)
        self._trainer = None
        if not isinstance(closes, bool):
            raise MisconfigurationException(
                "A policy says whether the optimizer steps after this batch, True or False, as "
                f"lambda window: window.length >= 4 does, got {closes!r} from {policy!r}."
            )
        return closes

    def choose_unit(self) -> None:
        """Set the unit, after the policy was asked; a window of so many batches divides nothing."""
        if self._items_of is None:
            self.unit = 2.0 ** (self.wanted.bit_length() - 1)
        elif self.last is not None and self.last.items > 0:
            self.unit = 2.0 ** math.frexp(self.last.items / self.last.length)[1]

    def add(self, trainer: Trainer, counter: MaskingCounter, loss: Tensor) -> None:
        """Weigh the gradient of the batch's loss, and add the batch unless it has been added."""
        if self._items_of == "module":
            self._batch_items = torch.nan  # refused when the window closes
            if counter.denominator is not None:
                self._batch_items = counter.denominator.to(long_dtype(loss))
        factor = 1.0 if self._loss_is == "sum" else self._batch_items
        weigh(loss, factor / self.unit)
        if self.added:
            return
        self.added = True
        value = loss.detach() * trainer.accumulate_grad_batches
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        if scaler is not None:
            value = value / scaler.scale(torch.ones_like(value))
        if self._items_of is not None:
            # Without items the loss may be 0 / 0.
            empty = torch.as_tensor(self._batch_items == 0).to(value.device, non_blocking=True)
            value = torch.where(empty, 0.0, value.to(long_dtype(value)) * factor)
        self._losses.append(value)
        self._items = self._items + self._batch_items
        if counter.counts is not None:
            self._counts.append(counter.counts)

    def close(self, trainer: Trainer) -> AccumulationWindow:
        """Return the closed window: the sums over the ranks, by the window's one host read."""
        if self.closed is not None:
            return self.closed
        device = trainer.strategy.root_device
        if device.type == "mps":  # which has no float64
            device = torch.device("cpu")
        sums = torch.zeros(4, dtype=torch.float64, device=device)
        if self._losses:
            losses = torch.stack(self._losses).to(device).double().sum()
            counts = torch.stack(self._counts or [sums[:2]]).sum(0).to(device).double()
            sums = torch.stack([counts[0], counts[1], tensor_of(self._items).to(device), losses])
        masked, samples, items, loss = sum_over_ranks(trainer, sums).tolist()
        if not math.isfinite(items):
            raise ValueError(
                "the items of a batch must be a finite number of at least 0. With items='module' "
                "there must be a masked loss that divides by one (not reduction='none'), and two "
                "losses of a batch must divide by the same. Say them with items=lambda batch: ..."
            )
        place = self.epoch, self.batch, self.step, self.length, items, self.items_before
        mean = loss / items if items else 0.0
        self.closed = AccumulationWindow(*place, self.wanted, int(masked), int(samples), mean)
        return self.closed


def items_in(batch: Any, items: Callable[[Any], Any]) -> Tensor | float:
    """Return the items of a batch; those on a device as a 0-dim tensor, NaN if negative."""
    try:
        number = items(batch)
    except (AttributeError, LookupError, TypeError) as error:
        kind = type(batch).__name__
        raise TypeError(f"items= does not fit a batch that is a {kind}: {error!r}") from error
    if isinstance(number, Tensor) and number.numel() == 1:
        if number.device.type != "cpu":
            number = number.detach().reshape(()).to(long_dtype(number))
            return torch.where(number >= 0, number, torch.nan)
        number = number.item()
    expected = "a finite number of at least 0"
    return check_number("the items of a batch", number, lambda n: n >= 0, expected)


def long_dtype(tensor: Tensor) -> torch.dtype:
    """Return the dtype for long sums on the tensor's device: Apple's GPUs have no float64."""
    return torch.float32 if tensor.device.type == "mps" else torch.float64


def tensor_of(number: Tensor | float) -> Tensor:
    return number if isinstance(number, Tensor) else torch.tensor(number, dtype=torch.float64)


def weigh(loss: Tensor, weight: Tensor | float) -> None:
    """Make the backward pass multiply the gradient by ``weight`` where Lightning has divided the
    loss, so that no division has to be undone. ``loss`` may be a scaler's multiple of it.
    """
    division = loss.grad_fn
    if division is None:
        return  # backward refuses it
    if not division.name().startswith("Div"):
        division = division.next_functions[0][0]
    assert division is not None

    def multiply(gradients: tuple[Any, ...], outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        gradient = (outputs[0] * weight).to(outputs[0].dtype)
        return (gradient, *gradients[1:])

    division.register_hook(multiply)


def divide_gradients(optimizer: Optimizer, divisor: float) -> None:
    """Divide the gradients of all parameter groups, in place."""
    parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if len({type(gradient) for gradient in gradients}) == 1:
        torch._foreach_div_(gradients, divisor)
        return
    for gradient in gradients:  # DTensors beside plain tensors have no common operation
        gradient.div_(divisor)
