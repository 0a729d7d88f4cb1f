"""One large batch in the place of each accumulation window: plain PyTorch, no Lightning, no
callback.
"""

from contextlib import nullcontext

import torch


def train_on_large_batches(
    module, optimizer, batches, windows, *, loss_of_items, autocast=nullcontext, clip_norm=None
):
    """Take one optimizer step per window ``(first_batch, length)`` of the batches of all epochs in
    their order. Its loss is the mean of ``loss_of_items(window)``, shape ``(items,)``, and 0 where
    there are none.
    """
    for first, length in windows:
        optimizer.zero_grad()
        with autocast():
            losses = loss_of_items(list(batches[first : first + length]))
        (losses.sum() / max(1, losses.numel())).backward()
        if clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(module.parameters(), clip_norm)
        optimizer.step()
