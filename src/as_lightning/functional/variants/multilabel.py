r"""The multi-label losses without a margin: ``multilabel_softmax``, ``multilabel_sparse`` and ``bce``.

All three predict a label where its logit is above 0, and the transform that goes with all three is the sigmoid
(:func:`torch.sigmoid`): for the first two it is the softmax of a label against the threshold class, whose logit is 0.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from as_lightning.functional.argument_checks import check_reduction
from as_lightning.functional.calling_convention import (
    class_dimension,
    counted_samples,
    label_rows,
    loss_dtype,
    reduce_rows,
)
from as_lightning.functional.multilabel import log_one_plus_sum_exp
from as_lightning.functional.variants.sparse_softmax import check_k


def _per_sample(
    sample_loss: Callable[[Tensor, Tensor, Tensor], Tensor],
    logits: Tensor,
    target: Tensor,
    *,
    ignore_index: int,
    reduction: str,
) -> Tensor:
    """Shapes, unknown labels and reductions around a loss of ``(scores, positive, negative)``, labels last."""
    labels = label_rows(logits, target, ignore_index)
    check_reduction(reduction)
    loss = sample_loss(labels.scores, labels.positive, labels.negative)
    # a sample of which no label is known takes part as little as an ignored row does
    counted = counted_samples(labels)
    unknown = None if counted is None else ~counted
    return reduce_rows(loss, unknown, reduction=reduction).to(loss_dtype(logits.dtype, logits.device))


def multilabel_softmax_loss(
    logits: Tensor, target: Tensor, *, ignore_index: int = -100, reduction: str = "mean"
) -> Tensor:
    r"""Softmax cross-entropy carried over to several positive labels: every positive above 0, every negative below.

    .. math:: \ell = \log\Bigl(1 + \sum_{i \in N} e^{o_i}\Bigr) + \log\Bigl(1 + \sum_{t \in P} e^{-o_t}\Bigr)

    for positives ``P`` and negatives ``N``: what :func:`~as_lightning.functional.multilabel_as_cross_entropy` is at
    ``delta=1``, without the price of looking for a mask.

    Args:
        logits: shape ``(C)``, ``(N, C)`` or ``(N, C, d1, ...)``, floating point (the half types are computed in
            float32).
        target: 1 at each positive label, 0 at each negative one, of the shape of ``logits``; bool, integer or floating
            point.
        ignore_index: value of unknown labels, which are neither positive nor negative. A sample without a known label
            does not count.
        reduction: ``"none"``, ``"mean"`` (over the samples) or ``"sum"``.

    Returns:
        The loss in the dtype of ``logits`` (float32 under autocast): a scalar, or of the shape of ``logits`` without
        the label dimension with ``reduction="none"``.

    Raises:
        ValueError: if the shapes differ, ``reduction`` is unknown, or (on the CPU) ``target`` holds anything but 0, 1
            and ``ignore_index``.
        TypeError: if ``logits`` is no floating-point tensor.

    Source: Su, Zhu, Murtadha, Pan, Wen, Liu 2022 (arXiv 2208.02955), equation 9.

    Example:
        >>> import torch
        >>> multilabel_softmax_loss(torch.tensor([[2.0, -1.0, -3.0]]), torch.tensor([[1, 0, 0]]))
        tensor(0.4759)
    """

    def sample_loss(scores: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return log_one_plus_sum_exp(scores, negative) + log_one_plus_sum_exp(-scores, positive)

    return _per_sample(sample_loss, logits, target, ignore_index=ignore_index, reduction=reduction)


def multilabel_sparse_loss(
    logits: Tensor, target: Tensor, *, k: int = 5, ignore_index: int = -100, reduction: str = "mean"
) -> Tensor:
    r""":func:`multilabel_softmax_loss` with only the ``k`` strongest negatives.

    .. math:: \ell = \log\Bigl(1 + \sum_{i \in N_k} e^{o_i}\Bigr) + \log\Bigl(1 + \sum_{t \in P} e^{-o_t}\Bigr)

    :math:`N_k` holds the ``k`` negatives with the largest logits (all of them if there are fewer); the others get
    no gradient. Every positive stays in, as the target does in :func:`~as_lightning.functional.sparse_softmax_loss`.

    Args:
        logits: shape ``(C)``, ``(N, C)`` or ``(N, C, d1, ...)``, floating point (the half types are computed in
            float32).
        target: 1 at each positive label, 0 at each negative one, of the shape of ``logits``; bool, integer or floating
            point.
        k: how many negatives take part, in [1, C].
        ignore_index: value of unknown labels, which are neither positive nor negative. A sample without a known label
            does not count.
        reduction: ``"none"``, ``"mean"`` (over the samples) or ``"sum"``.

    Returns:
        The loss in the dtype of ``logits`` (float32 under autocast): a scalar, or of the shape of ``logits`` without
        the label dimension with ``reduction="none"``.

    Raises:
        ValueError: if ``k`` lies outside [1, C], the shapes differ, ``reduction`` is unknown, or (on the CPU)
            ``target`` holds anything but 0, 1 and ``ignore_index``.
        TypeError: if ``k`` is no int or ``logits`` no floating-point tensor.

    Source: Su et al. 2022 (arXiv 2208.02955) for the sum, Sun et al. 2021 (arXiv 2112.12433) for the k largest.

    Example:
        >>> import torch
        >>> multilabel_sparse_loss(torch.tensor([[2.0, -1.0, -3.0]]), torch.tensor([[1, 0, 0]]), k=1)
        tensor(0.4402)
    """

    def sample_loss(scores: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        check_k(k, scores.size(-1), of="labels")
        strongest = scores.masked_fill(~negative, -torch.inf).topk(k, dim=-1).values
        return log_one_plus_sum_exp(strongest, strongest > -torch.inf) + log_one_plus_sum_exp(-scores, positive)

    return _per_sample(sample_loss, logits, target, ignore_index=ignore_index, reduction=reduction)


def bce_loss(logits: Tensor, target: Tensor, *, ignore_index: int = -100, reduction: str = "mean") -> Tensor:
    r"""Binary cross-entropy of every label on its own: ``F.binary_cross_entropy_with_logits`` for known labels.

    .. math:: \ell_i = \log(1 + e^{o_i}) - y_i o_i

    Args:
        logits: any shape, floating point (the half types are computed in float32).
        target: 1 at each positive label, 0 at each negative one, of the shape of ``logits``; bool, integer or floating
            point.
        ignore_index: value of unknown labels, which do not count.
        reduction: ``"none"``, ``"mean"`` (over the known labels, as PyTorch's loss has it, not over the samples) or
            ``"sum"``.

    Returns:
        The loss in the dtype of ``logits`` (float32 under autocast): a scalar, or of the shape of ``logits`` with
        ``reduction="none"``.

    Raises:
        ValueError: if the shapes differ, ``reduction`` is unknown, or (on the CPU) ``target`` holds anything but 0, 1
            and ``ignore_index``.
        TypeError: if ``logits`` is no floating-point tensor.

    Source: :func:`torch.nn.functional.binary_cross_entropy_with_logits`.

    Example:
        >>> import torch
        >>> bce_loss(torch.tensor([[2.0, -1.0, -3.0]]), torch.tensor([[1, 0, -100]]))
        tensor(0.2201)
    """
    labels = label_rows(logits, target, ignore_index)
    check_reduction(reduction)
    known = labels.positive | labels.negative
    # the sum is fused with the loss, which makes it several times as fast as reducing the losses of all the labels
    fused = "none" if reduction == "none" else "sum"
    dtype = labels.scores.dtype
    loss = F.binary_cross_entropy_with_logits(
        labels.scores, labels.positive.to(dtype), weight=known.to(dtype), reduction=fused
    )
    if reduction == "none":
        loss = loss.movedim(-1, class_dimension(logits))
    elif reduction == "mean":
        loss = loss / known.sum()
    return loss.to(loss_dtype(logits.dtype, logits.device))
