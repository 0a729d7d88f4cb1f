r"""Windows whose gradient is the mean over their items.

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
from typing import Any

import torch
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor
from torch.optim import Optimizer

from as_lightning.callbacks.accumulation_policy import AccumulationWindow
from as_lightning.functional.argument_checks import check_number


def items_in(batch: Any, items: Callable[[Any], Any]) -> Tensor:
    """Return the items of a batch, 0-dim; a number that is on a device stays there, NaN if it is
    negative.
    """
    try:
        number = items(batch)
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        what = f"a {type(batch).__name__}"
        if hasattr(batch, "keys"):
            what += f" with the keys {list(batch.keys())}"
        raise MisconfigurationException(
            f"items= must return the number of items in a batch, and raised {error!r}. The batch "
            f"is {what}: write items=lambda batch: ... with what it holds."
        ) from error
    if isinstance(number, Tensor) and number.numel() == 1:
        if number.device.type != "cpu":
            number = number.detach().reshape(()).to(long_dtype(number))
            return torch.where(number >= 0, number, torch.nan)
        number = number.item()
    number = check_number(
        "the items of a batch", number, lambda n: n >= 0, "a finite number of at least 0"
    )
    return torch.tensor(number, dtype=torch.float64)


def long_dtype(tensor: Tensor) -> torch.dtype:
    """Return the dtype for long sums on the tensor's device: Apple's GPUs have no float64."""
    return torch.float32 if tensor.device.type == "mps" else torch.float64


def unit_after(last: AccumulationWindow | None) -> float:
    """Return a power of two near the items per batch of a closed window; 1 where there are none."""
    if last is None or last.items == 0:
        return 1.0
    return 2.0 ** math.frexp(last.items / last.length)[1]


def weigh(loss: Tensor, weight: Tensor) -> None:
    """Make the backward pass multiply the gradient by ``weight`` where Lightning has divided the
    loss by ``accumulate_grad_batches``, so that no division has to be undone.

    ``loss`` is that quotient, or a scaler's multiple of it.
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
