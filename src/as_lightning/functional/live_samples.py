r"""Which samples have a gradient at a margin (paper, section III: what is not masked)."""

from __future__ import annotations

import torch
from torch import Tensor

from as_lightning.functional.calling_convention import ClassRows, class_rows, widened
from as_lightning.functional.kernels.row_loss import block_size, blocks
from as_lightning.functional.label_convention import label_rows
from as_lightning.functional.leads import target_and_strongest
from as_lightning.functional.masking import below_margin, check_delta
from as_lightning.functional.multilabel import live_labels, multilabel_keep
from as_lightning.functional.tracing import traced


def live_samples(logits: Tensor, target: Tensor, delta: float = 0.1, ignore_index: int = -100) -> Tensor:
    r"""The samples that have a gradient at the margin ``delta``: those that keep at least one competitor.

    .. math:: \text{live} \iff p_t - \max_{i \ne t} p_i \le \delta, \qquad p = \operatorname{softmax}(o)

    With several labels, a sample is live iff the margin keeps at least one of its labels. A sample that is not live is
    a *masked sample*: at this margin its loss and its gradient are exactly zero. A sample with ``ignore_index`` (with
    several labels: a sample of which no label is known) is not live. No gradient flows, and nothing is read from the
    device.

    Args:
        logits: unnormalised scores, shape ``(C)``, ``(N, C)`` or ``(N, C, d1, ...)``, floating point.
        target: class indices, shape ``()``, ``(N)`` or ``(N, d1, ...)``; or 0 and 1 for several labels, of the shape of
            ``logits``.
        delta: the margin, in [0, 1]. It need not be the margin of the loss.
        ignore_index: target value of rows, or of labels, that take no part.

    Returns:
        Boolean tensor on the logits' device, of the shape of ``logits`` without the class dimension. Rows with NaN
        logits are live.

    Raises:
        ValueError: if ``delta`` lies outside [0, 1], the shapes do not fit, or (on the CPU) labels are anything but 0,
            1 and ``ignore_index``.
        TypeError: if ``target`` is of a wrong type, ``logits`` is no floating-point tensor, or ``delta`` is no number.
        IndexError: if a class index is out of range (on the CPU; elsewhere the device asserts).

    Source: paper, section III.

    Example:
        >>> import torch
        >>> logits = torch.tensor([[4.0, 0.0, 0.0], [1.0, 0.9, -2.0], [1.0, 0.9, -2.0]])
        >>> live_samples(logits, torch.tensor([0, 0, -100]), delta=0.1)
        tensor([False,  True, False])
    """
    delta = check_delta(delta)
    if target.dim() == logits.dim():
        labels = label_rows(logits.detach(), target, ignore_index)
        return live_labels(labels, *multilabel_keep(labels, delta))
    return _live_rows(class_rows(logits.detach(), target, ignore_index), delta).reshape(target.shape)


def _live_rows(batch: ClassRows, delta: float) -> Tensor:
    """The rows that keep a competitor, block by block, so that what one step computes is in the cache for the next."""
    rows, classes = batch.logits.shape
    if classes == 1 or rows == 0:
        return torch.zeros_like(batch.target, dtype=torch.bool)
    size = rows if traced() else block_size(rows, classes, batch.logits.device)
    live = [_live_block(batch.logits[a:b], batch.target[a:b], delta) for a, b in blocks(rows, size)]
    return batch.without_ignored(torch.cat(live) if len(live) != 1 else live[0])


def _live_block(logits: Tensor, target: Tensor, delta: float) -> Tensor:
    target_probability, strongest = target_and_strongest(widened(logits).softmax(-1), target)
    return ~below_margin(strongest, target_probability, delta).squeeze(-1)
