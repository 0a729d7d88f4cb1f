r"""Which samples have a gradient at a margin (paper, section III: what is not masked)."""

from __future__ import annotations

import torch
from torch import Tensor

from as_lightning.functional.calling_convention import class_rows, label_rows, widened
from as_lightning.functional.masking import below_margin, check_delta
from as_lightning.functional.multilabel import live_labels, multilabel_keep


def live_samples(logits: Tensor, target: Tensor, delta: float = 0.1, ignore_index: int = -100) -> Tensor:
    r"""The samples that have a gradient at the margin ``delta``: those that keep at least one competitor.

    .. math:: \text{live} \iff p_t - \max_{i \ne t} p_i \le \delta, \qquad p = \operatorname{softmax}(o)

    With several labels a sample is live iff the margin keeps at least one of its labels. A sample that is not live is a
    *masked sample*: at this margin its loss and its gradient are exactly zero. A sample with ``ignore_index`` (with
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
        ValueError: if ``delta`` lies outside [0, 1] or the shapes do not fit.
        TypeError: if ``target`` is of a wrong type, or ``logits`` is no floating-point tensor.

    Source: paper, section III; the losses give the same for their own margin with ``return_live=True``.

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
    batch = class_rows(logits.detach(), target, ignore_index)
    probability, column = widened(batch.logits).softmax(-1), batch.target.unsqueeze(-1)
    target_probability = probability.gather(-1, column)
    if probability.size(-1) == 1:
        live = torch.zeros_like(batch.target, dtype=torch.bool)
    else:
        strongest = probability.scatter(-1, column, -1.0).amax(-1, keepdim=True)
        live = ~below_margin(strongest, target_probability, delta).squeeze(-1)
    return batch.without_ignored(live).reshape(target.shape)
