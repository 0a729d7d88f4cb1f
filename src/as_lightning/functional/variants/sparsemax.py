r"""Sparsemax (Martins, Astudillo: arXiv 1602.02068): alpha-entmax at ``alpha=2``."""

from __future__ import annotations

from torch import Tensor

from as_lightning.functional.variants.entmax import entmax, entmax_loss


def sparsemax(logits: Tensor, *, dim: int = -1) -> Tensor:
    r"""The Euclidean projection of the logits on the probability simplex.

    .. math:: p = \operatorname*{argmin}_{p \in \Delta} \lVert p - o \rVert^2, \qquad p_i = [o_i - \lambda]_+

    with :math:`\lambda` such that the probabilities sum to 1. Order-preserving and invariant to a shift of the logits;
    a class 1 below the largest logit always has probability 0.

    Args:
        logits: any shape, floating point (the half types are computed in float32).
        dim: the class dimension.

    Returns:
        Probabilities, of the shape and dtype of ``logits``.

    Raises:
        TypeError: if ``logits`` is no floating-point tensor.
        ImportError: without the ``entmax`` package.

    Source: Martins, Astudillo 2016 (arXiv 1602.02068), equation 1 and proposition 1; the ``entmax`` package.

    Example:
        >>> import torch
        >>> sparsemax(torch.tensor([0.0, 1.0, 1.5]))
        tensor([0.0000, 0.2500, 0.7500])
    """
    return entmax(logits, alpha=2.0, dim=dim)


def sparsemax_loss(
    logits: Tensor,
    target: Tensor,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    r"""The loss whose gradient is ``sparsemax(logits)`` minus the one-hot target.

    .. math:: \ell = \frac{1}{2} - o_t + \sum_{i \in S} \frac{o_i^2 - \lambda^2}{2}, \qquad
              \frac{\partial \ell}{\partial o_i} = p_i - [i = t]

    with :math:`\lambda` and the support ``S`` of :func:`sparsemax`. Never negative, and exactly 0 once the target leads
    every other class by 1. Differentiable once.

    Args:
        logits: shape ``(C)``, ``(N, C)`` or ``(N, C, d1, ...)``, floating point (the half types are computed in
            float32).
        target: class indices, shape ``()``, ``(N)`` or ``(N, d1, ...)``.
        weight: a weight per class, shape ``(C)``.
        ignore_index: target value of rows that do not count.
        reduction: ``"none"``, ``"mean"`` or ``"sum"``.

    Returns:
        The loss in the dtype of ``logits`` (float32 under autocast): a scalar, or of the shape of ``target`` with
        ``reduction="none"``.

    Raises:
        ValueError: if the shapes do not fit, or ``reduction`` is unknown.
        TypeError: if ``target`` holds no class indices.
        ImportError: without the ``entmax`` package.
        RuntimeError: where its gradient, made with ``create_graph=True``, is differentiated again.

    Source: Martins, Astudillo 2016 (arXiv 1602.02068), equation 16; the ``entmax`` package.

    Example:
        >>> import torch
        >>> logits = torch.tensor([[0.0, 1.0, 1.5], [0.0, 1.0, 2.0]])
        >>> sparsemax_loss(logits, torch.tensor([2, 2]), reduction="none")
        tensor([0.0625, 0.0000])
    """
    return entmax_loss(logits, target, alpha=2.0, weight=weight, ignore_index=ignore_index, reduction=reduction)
