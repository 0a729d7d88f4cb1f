"""Gradient accumulation written out by hand: plain PyTorch, no Lightning, no callback."""

import torch


def train_by_hand(
    module,
    optimizer,
    epochs,
    windows,
    *,
    loss_of,
    items_of=lambda batch: 1.0,
    clip_norm=None,
    clip_value=None,
    rate_scale=lambda length: 1.0,
    after_step=None,
):
    """Take one optimizer step per window ``(epoch, first_batch, length)``, on the mean over the
    items of its batches. It takes ``rate_scale(length)`` times the rates, then calls
    ``after_step(length)``.
    """
    for epoch, first, length in windows:
        optimizer.zero_grad()
        items = 0.0
        for batch in epochs[epoch][first : first + length]:
            weight = items_of(batch)
            items += weight
            (loss_of(batch) * weight).backward()
        for parameter in module.parameters():
            if parameter.grad is not None and items:
                parameter.grad /= items
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


class WantedSteps:
    """The ``k`` before each window, when window ``i`` masks so much that ``script[i % len]``
    batches are asked for.
    """

    def __init__(self, script, max_steps, *, monotone=True):
        self.script, self.max_steps, self.monotone = script, max_steps, monotone
        self.windows, self.steps = 0, 1

    def __call__(self, batch):
        if self.windows > 0:
            asked = min(
                self.script[(self.windows - 1) % len(self.script)], self.max_steps, self.steps + 1
            )
            self.steps = max(asked, self.steps) if self.monotone else asked
        self.windows += 1
        return self.steps


def windows_of_training(batches, epochs, wanted, *, validated_every=None, max_windows=None):
    """All windows ``(epoch, first_batch, length)``. ``wanted`` is told the first batch; the
    epoch's end and a validation cut a window short.
    """
    windows: list[tuple[int, int, int]] = []
    for epoch in range(epochs):
        first = 0
        while first < batches and (max_windows is None or len(windows) < max_windows):
            end = min(first + wanted(first), batches)
            if validated_every is not None:
                end = min(end, (first // validated_every + 1) * validated_every)
            windows.append((epoch, first, end - first))
            first = end
    return windows
