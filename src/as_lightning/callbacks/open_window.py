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
from as_lightning.functional.calling_convention import in_float64
from as_lightning.masking_counter import MaskingCounter

Items = Callable[[Any], Any] | Literal["module"] | None


class OpenWindow(AccumulationWindow):
    """The open window, with this rank's sums over its batches. What is on a device stays there."""

    def __init__(self, items_of: Items, *place: Any) -> None:
        self.epoch, self.batch, self.step, self.last = place
        if self.last is not None:
            self.items_before = self.last.items_before + self.last.items
        self.unit = 1.0
        self.added = False  # whether the present batch is
        self._items_of = items_of
        self._trainer: Trainer | None = None
        self._batch_items: Tensor | float = 1.0
        # Of each batch: they are summed when the window closes.
        self._items: list[Tensor | float] = []
        self._counts: list[Tensor] = []
        self._losses: list[Tensor] = []

    @property
    def items(self) -> float:  # type: ignore[override]
        """The items of all ranks, read when a policy asks for them."""
        if self._trainer is None or self._items_of == "module":
            return math.nan
        items = stacked([*self._items, self._batch_items], torch.device("cpu")).sum()
        return float(sum_over_ranks(self._trainer, items))

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
        """Weigh the gradient of the batch's loss, and add the batch."""
        if self._items_of == "module":
            denominator = counter.denominator
            if denominator is None:
                denominator = torch.full_like(loss, torch.nan)  # refused when the window closes
            self._batch_items = number_of(denominator)
        if self.unit != 1.0 or trainer.accumulate_grad_batches != 1 or self._items_of is not None:
            weigh(loss, self._batch_items / self.unit)
        self.added = True
        value = loss.detach() * trainer.accumulate_grad_batches
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        if scaler is not None:
            value = value / scaler.scale(torch.ones_like(value))
        self._losses.append(value)
        self._items.append(self._batch_items)
        if counter.counts is not None:
            self._counts.append(counter.counts)

    def close(self, trainer: Trainer) -> AccumulationWindow:
        """Return the closed window: the sums over the ranks, by the window's one host read."""
        if self._losses:
            losses = in_float64(torch.stack(self._losses))
            items = stacked(self._items, losses.device)
            if self._items_of is not None:  # a mean over no item may be 0 / 0
                losses = (losses * items).masked_fill(items == 0, 0.0)
            counts = torch.stack(self._counts or [losses.new_zeros(4)]).sum(0)[:2]
            sums = torch.cat([in_float64(counts), items.sum(0, True), losses.sum(0, True)])
        else:
            sums = torch.zeros(4, dtype=torch.float64)
        masked, samples, total, summed_loss = sum_over_ranks(trainer, sums).tolist()
        if not math.isfinite(total):
            raise ValueError(
                "the items of a batch must be a finite number of at least 0. With items='module' "
                "there must be a masked loss that divides by one (not reduction='none'), and two "
                "losses of a batch must divide by the same. Say them with items=lambda batch: ..."
            )
        place = self.epoch, self.batch, self.step, self.length, total, self.items_before
        mean = summed_loss / total if total else 0.0
        return AccumulationWindow(*place, self.wanted, int(masked), int(samples), mean)


def items_in(batch: Any, items: Callable[[Any], Any]) -> Tensor | float:
    try:
        number = items(batch)
    except (AttributeError, LookupError, TypeError) as error:
        kind = type(batch).__name__
        raise TypeError(f"items= does not fit a batch that is a {kind}: {error!r}") from error
    if isinstance(number, Tensor) and number.numel() == 1:
        return number_of(number)
    expected = "a finite number of at least 0"
    return check_number("the items of a batch", number, lambda n: n >= 0, expected)


def number_of(number: Tensor) -> Tensor | float:
    """Return a number of a device as a 0-dim float64 tensor there; Apple's have no float64."""
    if number.device.type in ("cpu", "mps"):
        return number.item()
    return number.detach().reshape(()).double()


def stacked(numbers: list[Any], device: torch.device) -> Tensor:
    if isinstance(numbers[0], Tensor):
        return torch.stack(numbers)
    return torch.tensor(numbers, dtype=torch.float64, device=device)


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
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    for kind in {type(gradient) for gradient in gradients}:  # DTensors take no plain tensor beside
        torch._foreach_div_([g for g in gradients if type(g) is kind], divisor)
