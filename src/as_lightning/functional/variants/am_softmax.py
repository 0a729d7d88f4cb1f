r"""Softmax of cosines with an additive margin (Wang, Cheng, Liu, Liu: arXiv 1801.05599)."""

from __future__ import annotations

from torch import Tensor

from as_lightning.functional.argument_checks import check_number, check_temperature
from as_lightning.functional.calling_convention import class_dimension, cross_entropy_of, safe_targets
from as_lightning.functional.variants.t_softmax import t_softmax

DEFAULT_TAU = 1 / 30  # the paper's scale s = 30


def am_softmax(logits: Tensor, *, tau: float = DEFAULT_TAU, dim: int = -1) -> Tensor:
    r"""The probabilities of a cosine classifier: softmax of the cosines at temperature ``tau``.

    .. math:: p_i = \frac{e^{\cos\theta_i / \tau}}{\sum_j e^{\cos\theta_j / \tau}}

    The margin belongs to the loss: it needs the target, which prediction does not have.

    Args:
        logits: cosines in [-1, 1], any shape, floating point (the half types are computed in float32);
            :class:`as_lightning.benchmark.tasks.cosine_head.CosineHead` gives them.
        tau: the temperature, positive: the inverse of the paper's scale ``s``.
        dim: the class dimension.

    Returns:
        Probabilities, of the shape and dtype of ``logits``.

    Raises:
        ValueError: if ``tau`` is not a positive finite number.
        TypeError: if ``tau`` is no number or ``logits`` no floating-point tensor.

    Source: Wang, Cheng, Liu, Liu 2018 (arXiv 1801.05599), equation 6 with ``m = 0``.

    Example:
        >>> import torch
        >>> am_softmax(torch.tensor([0.5, 0.6]), tau=0.1)
        tensor([0.2689, 0.7311])
    """
    return t_softmax(logits, tau=tau, dim=dim)


def am_softmax_loss(
    logits: Tensor,
    target: Tensor,
    *,
    margin: float = 0.35,
    tau: float = DEFAULT_TAU,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    r"""Cross-entropy of cosines at temperature ``tau``, the target's lowered by ``margin``.

    .. math:: \ell = -\log \frac{e^{(\cos\theta_t - m) / \tau}}
                                {e^{(\cos\theta_t - m) / \tau} + \sum_{j \ne t} e^{\cos\theta_j / \tau}}

    ``margin=0`` is cross-entropy at temperature ``tau``.

    Args:
        logits: cosines in [-1, 1] (the loss takes any number, but the margin and the temperature are meant for
            cosines), shape ``(C)``, ``(N, C)`` or ``(N, C, d1, ...)``, floating point (the half types are computed in
            float32); :class:`as_lightning.benchmark.tasks.cosine_head.CosineHead` gives them.
        target: class indices, shape ``()``, ``(N)`` or ``(N, d1, ...)``.
        margin: the margin ``m`` between cosines, 0 or more.
        tau: the temperature, positive: the inverse of the paper's scale ``s``.
        weight: a weight per class, shape ``(C)``.
        ignore_index: target value of rows that do not count.
        reduction: ``"none"``, ``"mean"`` or ``"sum"``.

    Returns:
        The loss in the dtype of ``logits`` (float32 under autocast): a scalar, or of the shape of ``target`` with
        ``reduction="none"``.

    Raises:
        ValueError: if ``margin`` is negative, ``tau`` is not a positive finite number, the shapes do not fit, or
            ``reduction`` is unknown.
        TypeError: if ``target`` holds no class indices.

    Source: Wang, Cheng, Liu, Liu 2018 (arXiv 1801.05599), equation 6.

    Example:
        >>> import torch
        >>> am_softmax_loss(torch.tensor([[0.5, 0.6]]), torch.tensor([1]), margin=0.1, tau=0.1)
        tensor(0.6931)
    """
    margin = check_number("margin", margin, lambda value: value >= 0, "a margin between cosines, 0 or more")
    tau = check_temperature(tau)

    def scores(values: Tensor) -> Tensor:
        dim = class_dimension(logits)
        own = safe_targets(target, values.size(dim), ignore_index)[0].unsqueeze(dim)
        lowered = values / tau
        return lowered.scatter_add_(dim, own, lowered.new_full(own.shape, -margin / tau))

    return cross_entropy_of(scores, logits, target, weight=weight, ignore_index=ignore_index, reduction=reduction)
