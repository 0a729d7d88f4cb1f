"""Gradient accumulation written out by hand: plain PyTorch, no Lightning, no callback."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


def train_by_hand(
    module: nn.Module,
    optimizer: Optimizer,
    epochs: Sequence[Sequence[Any]],
    windows: Iterable[tuple[int, int, int, int]],
    *,
    loss_of: Callable[[Any], Tensor],
    clip_norm: float | None = None,
    clip_value: float | None = None,
    rate_scale: Callable[[int], float] = lambda length: 1.0,
    after_step: Callable[[int], None] | None = None,
) -> None:
    """Take one optimizer step per window ``(epoch, first_batch, length, divisor)``.
    Its gradient is the sum of the window's, each of a loss divided by ``divisor``: the length, but
    for one that the end of the data cuts short. It takes ``rate_scale(length)`` times the rates,
    then calls ``after_step(length)``.
    """
    for epoch, first, length, divisor in windows:
        optimizer.zero_grad()
        for batch in epochs[epoch][first : first + length]:
            (loss_of(batch) / divisor).backward()
        if divisor != length:
            for parameter in module.parameters():
                if parameter.grad is not None:
                    parameter.grad.mul_(divisor / length)
        if clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(module.parameters(), clip_norm)
        if clip_value is not None:
            torch.nn.utils.clip_grad_value_(module.parameters(), clip_value)
        rates = [group["lr"] for group in optimizer.param_groups]
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * rate_scale(length)
        optimizer.step()
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        if after_step is not None:
            after_step(length)


def longest_window(batch: int, wanted: int, remaining: float) -> int:
    """The rule, by trying every length: the largest that divides ``batch``, and ``remaining`` too
    if that is nearer.
    """
    fits = [length for length in range(1, wanted + 1) if batch % length == 0]
    if remaining >= max(fits):
        return max(fits)
    return max(
        length
        for length in range(1, int(remaining) + 1)
        if batch % length == 0 and remaining % length == 0
    )


class WantedSteps:
    """The ``k`` before each window, when window ``i`` masks so much that ``script[i % len]``
    batches are asked for.
    """

    def __init__(self, script: Sequence[int], max_steps: int, *, monotone: bool = True) -> None:
        self.script, self.max_steps, self.monotone = script, max_steps, monotone
        self.windows, self.steps = 0, 1

    def __call__(self) -> int:
        if self.windows > 0:
            asked = min(
                self.script[(self.windows - 1) % len(self.script)], self.max_steps, self.steps + 1
            )
            self.steps = max(asked, self.steps) if self.monotone else asked
        self.windows += 1
        return self.steps


def windows_of_training(
    epochs: Sequence[int],
    wanted: Callable[[], int],
    *,
    length_known: bool = True,
    max_windows: int | None = None,
) -> list[tuple[int, int, int, int]]:
    """All windows ``(epoch, first_batch, length, divisor)`` of epochs of so many batches."""
    windows = []
    for epoch, batches in enumerate(epochs):
        first = 0
        while first < batches and (max_windows is None or len(windows) < max_windows):
            foreseen = batches - first if length_known or first == batches - 1 else float("inf")
            divisor = longest_window(first, wanted(), foreseen)
            length = min(divisor, batches - first)
            windows.append((epoch, first, length, divisor))
            first += length
    return windows
