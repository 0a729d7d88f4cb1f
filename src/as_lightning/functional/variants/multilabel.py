r"""The multi-label losses without a margin: ``multilabel_softmax``, ``multilabel_sparse`` and
``bce``.

All three predict a label where its logit is above 0, and their transform is the sigmoid. Targets
have the logits' shape: 1 at each positive label, 0 at each negative one, ``ignore_index`` where it
is unknown.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from as_lightning.functional.argument_checks import check_reduction
from as_lightning.functional.calling_convention import label_rows, reduce_labels, reduce_samples
from as_lightning.functional.multilabel import log_one_plus_sum_exp
from as_lightning.functional.variants.sparse_softmax import check_k


def _loss_of_samples(
    logits: Tensor, target: Tensor, k: int | None, ignore_index: int, reduction: str
) -> Tensor:
    """Return the loss of all positives and the ``k`` strongest negatives (None: all of them)."""
    labels = label_rows(logits, target, ignore_index)
    check_reduction(reduction)
    scores, kept_negatives = labels.scores, labels.negative
    if k is not None:
        check_k(k, scores.size(-1), of="labels")
        scores = scores.masked_fill(~kept_negatives, -torch.inf).topk(k, dim=-1).values
        kept_negatives = scores != -torch.inf  # NaN must reach the loss
    loss_of_negatives = log_one_plus_sum_exp(scores, kept_negatives)
    loss_of_positives = log_one_plus_sum_exp(-labels.scores, labels.positive)
    return reduce_samples(loss_of_negatives + loss_of_positives, labels, logits, reduction)


def multilabel_softmax_loss(
    logits: Tensor, target: Tensor, *, ignore_index: int = -100, reduction: str = "mean"
) -> Tensor:
    r"""`multilabel_as_cross_entropy` at ``delta=1``: softmax cross-entropy carried over to several
    positive labels.

    $$
    \ell = \log\Bigl(1 + \sum_{i \in N} e^{o_i}\Bigr) + \log\Bigl(1 + \sum_{t \in P} e^{-o_t}\Bigr)
    $$

    Source: Su, Zhu, Murtadha, Pan, Wen, Liu 2022 (arXiv 2208.02955), equation 9.

    Examples:
        >>> multilabel_softmax_loss(torch.tensor([[2.0, -1.0, -3.0]]), torch.tensor([[1, 0, 0]]))
        tensor(0.4759)
    """
    return _loss_of_samples(logits, target, None, ignore_index, reduction)


def multilabel_sparse_loss(
    logits: Tensor, target: Tensor, *, k: int = 5, ignore_index: int = -100, reduction: str = "mean"
) -> Tensor:
    r"""`multilabel_softmax_loss` with only the ``k`` strongest negatives, ``k`` in [1, C] (all, if
    there are fewer).

    Source: Su et al. 2022 (arXiv 2208.02955) for the sum, Sun et al. 2021 (arXiv 2112.12433) for
        the k largest.

    Examples:
        >>> logits = torch.tensor([[2.0, -1.0, -3.0]])
        >>> multilabel_sparse_loss(logits, torch.tensor([[1, 0, 0]]), k=1)
        tensor(0.4402)
    """
    return _loss_of_samples(logits, target, k, ignore_index, reduction)


def bce_loss(
    logits: Tensor, target: Tensor, *, ignore_index: int = -100, reduction: str = "mean"
) -> Tensor:
    r"""Binary cross-entropy of every known label on its own, $\ell_i = \log(1 + e^{o_i}) - y_i
    o_i$.

    ``reduction="mean"`` is over the known labels, as PyTorch's loss has it, not over the samples.

    Source: `torch.nn.functional.binary_cross_entropy_with_logits`.

    Examples:
        >>> bce_loss(torch.tensor([[2.0, -1.0, -3.0]]), torch.tensor([[1, 0, -100]]))
        tensor(0.2201)
    """
    labels = label_rows(logits, target, ignore_index)
    check_reduction(reduction)
    known = labels.positive | labels.negative
    scores = labels.scores.masked_fill(~known, 0.0)  # 0 * nan is nan
    positive = labels.positive.to(scores.dtype)
    fused = reduction
    if reduction == "mean":
        fused = "sum"  # several times as fast as reducing the losses of all the labels
    loss = F.binary_cross_entropy_with_logits(
        scores, positive, weight=known.to(scores.dtype), reduction=fused
    )
    return reduce_labels(loss, known, logits, reduction)
