r"""Softmax at a temperature (Hinton, Vinyals, Dean: arXiv 1503.02531, equation 1)."""

from __future__ import annotations

from torch import Tensor

from as_lightning.functional.argument_checks import check_temperature
from as_lightning.functional.calling_convention import cross_entropy_of, over_rows


def t_softmax(logits: Tensor, *, tau: float = 0.5, dim: int = -1) -> Tensor:
    r"""Softmax at temperature ``tau``.

    .. math:: p_i = \frac{e^{o_i / \tau}}{\sum_j e^{o_j / \tau}}

    Strictly positive, order-preserving, invariant to a shift of the logits; tends to one-hot as ``tau`` tends to 0 and
    to uniform as it grows.

    Args:
        logits: any shape, floating point (the half types are computed in float32).
        tau: the temperature, positive.
        dim: the class dimension.

    Returns:
        Probabilities, of the shape and dtype of ``logits``.

    Raises:
        ValueError: if ``tau`` is not a positive finite number.
        TypeError: if ``tau`` is no number or ``logits`` no floating-point tensor.

    Source: Hinton, Vinyals, Dean 2015 (arXiv 1503.02531), equation 1.

    Example:
        >>> import torch
        >>> t_softmax(torch.tensor([1.0, 2.0, 3.0]), tau=0.5)
        tensor([0.0159, 0.1173, 0.8668])
    """
    tau = check_temperature(tau)
    return over_rows(lambda rows: (rows / tau).softmax(-1), logits, dim)


def t_softmax_loss(
    logits: Tensor,
    target: Tensor,
    *,
    tau: float = 0.5,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    r"""Cross-entropy at temperature ``tau``.

    .. math:: \ell = \log \sum_j e^{o_j / \tau} - o_t / \tau, \qquad
              \frac{\partial \ell}{\partial o_i} = \frac{p_i - [i = t]}{\tau}

    The loss is not multiplied by :math:`\tau^2`, so a small ``tau`` also means a large gradient. ``tau=1`` is
    ``F.cross_entropy``.

    Args:
        logits: shape ``(C)``, ``(N, C)`` or ``(N, C, d1, ...)``, floating point (the half types are computed in
            float32).
        target: class indices, shape ``()``, ``(N)`` or ``(N, d1, ...)``.
        tau: the temperature, positive.
        weight: a weight per class, shape ``(C)``.
        ignore_index: target value of rows that do not count.
        reduction: ``"none"``, ``"mean"`` or ``"sum"``.

    Returns:
        The loss in the dtype of ``logits`` (float32 under autocast): a scalar, or of the shape of ``target`` with
        ``reduction="none"``.

    Raises:
        ValueError: if ``tau`` is not a positive finite number, the shapes do not fit, or ``reduction`` is unknown.
        TypeError: if ``target`` holds no class indices.

    Source: Hinton, Vinyals, Dean 2015 (arXiv 1503.02531), equation 1.

    Example:
        >>> import torch
        >>> t_softmax_loss(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([2]), tau=0.5)
        tensor(0.1429)
    """
    tau = check_temperature(tau)
    return cross_entropy_of(
        lambda values: values / tau, logits, target, weight=weight, ignore_index=ignore_index, reduction=reduction
    )
