r"""Sparsemax and alpha-entmax, from the ``entmax`` package, with the calling convention of ``F.cross_entropy``."""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor

from as_lightning.functional.argument_checks import check_number
from as_lightning.functional.calling_convention import loss_of_rows, over_rows
from as_lightning.functional.second_derivative import differentiable_once

# Beyond this many classes the package sorts only the largest logits, and more of them where the support is larger.
PARTIAL_SORT = 64
# Below this alpha the exponent 1 / (alpha - 1) magnifies float32's rounding past 1e-5.
DOUBLE_BELOW = 1.01


def require_entmax() -> ModuleType:
    """The ``entmax`` package, or ``ImportError`` with the way to get it."""
    try:
        import entmax
    except ImportError as error:
        raise ImportError(
            'sparsemax and entmax need the entmax package: pip install "as-lightning[variants]"'
        ) from error
    return entmax


def check_alpha(alpha: float) -> float:
    """Return ``alpha`` as a float, or raise where it lies outside (1, 2]."""
    return check_number(
        "alpha", alpha, lambda value: 1 < value <= 2, "a number in (1, 2] (alpha=1 is softmax, alpha=2 sparsemax)"
    )


def _recentred(rows: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    """The rows relative to their maximum, cut off where the probability is 0 for certain, and that maximum.

    Both keep the package's running sums from losing their digits to large logits, and change no probability: a class
    ``1 / (alpha - 1)`` below the maximum has none (half as much again keeps rounding from giving it one). A row with
    NaN or an infinite maximum becomes zeros (its maximum still shows it): the package's sort would index out of bounds.
    """
    peak = rows.detach().amax(-1, keepdim=True)
    relative = (rows - peak).clamp(min=-1.5 / (alpha - 1.0))
    relative = torch.where(peak.isfinite(), relative, 0.0)
    return (relative.double() if alpha < DOUBLE_BELOW else relative), peak


def _poison(peak: Tensor) -> Tensor:
    """0, or NaN where the maximum of a row is NaN or infinite: bad logits must reach the loss."""
    return peak - peak


def _bisections(rows: Tensor) -> int:
    """Halvings of an interval shorter than 1 until it is below the rounding of a number in it."""
    return 55 if rows.dtype == torch.float64 else 30


def _partial(rows: Tensor) -> int | None:
    return PARTIAL_SORT if rows.size(-1) > PARTIAL_SORT else None


def entmax(logits: Tensor, *, alpha: float = 1.5, dim: int = -1) -> Tensor:
    r"""The alpha-entmax transform: sparse for every ``alpha`` above 1.

    .. math:: p = \operatorname*{argmax}_{p \in \Delta} \; p^\top o + \frac{1 - \sum_i p_i^\alpha}{\alpha (\alpha - 1)},
              \qquad p_i = \bigl[(\alpha - 1) o_i - \lambda\bigr]_+^{1 / (\alpha - 1)}

    with :math:`\lambda` such that the probabilities sum to 1. ``alpha=2`` is :func:`sparsemax`; ``alpha`` tending to 1
    tends to softmax. 1.5 and 2 are exact (by sorting), other values by bisection. Order-preserving and invariant to a
    shift of the logits; a class :math:`1 / (\alpha - 1)` below the largest logit always has probability 0.

    Args:
        logits: any shape, floating point (the half types are computed in float32).
        alpha: how sparse, in (1, 2].
        dim: the class dimension.

    Returns:
        Probabilities, of the shape and dtype of ``logits``.

    Raises:
        ValueError: if ``alpha`` lies outside (1, 2].
        TypeError: if ``alpha`` is no number or ``logits`` no floating-point tensor.
        ImportError: without the ``entmax`` package.

    Source: Peters, Niculae, Martins 2019 (arXiv 1905.05702), equations 9 and 10; the ``entmax`` package.

    Example:
        >>> import torch
        >>> entmax(torch.tensor([0.0, 1.0, 2.0]))
        tensor([0.0000, 0.1693, 0.8307])
    """
    alpha = check_alpha(alpha)
    package = require_entmax()

    def of_rows(rows: Tensor) -> Tensor:
        relative, peak = _recentred(rows, alpha)
        if alpha == 2.0:
            probabilities = package.sparsemax(relative, dim=-1, k=_partial(rows))
        elif alpha == 1.5:
            probabilities = package.entmax15(relative, dim=-1, k=_partial(rows))
        else:
            probabilities = package.entmax_bisect(relative, alpha=alpha, dim=-1, n_iter=_bisections(relative))
        return probabilities.to(rows.dtype) + _poison(peak)

    return over_rows(of_rows, logits, dim)


def entmax_loss(
    logits: Tensor,
    target: Tensor,
    *,
    alpha: float = 1.5,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    r"""The Fenchel-Young loss of alpha-entmax.

    .. math:: \ell = (p - e_t)^\top o + \frac{1 - \sum_i p_i^\alpha}{\alpha (\alpha - 1)}, \qquad
              \frac{\partial \ell}{\partial o_i} = p_i - [i = t]

    with ``p`` the :func:`entmax` of the logits. Never negative, and 0 (but for rounding) once the target leads every
    other class by :math:`1 / (\alpha - 1)`: a finite margin. Differentiable once.

    Args:
        logits: shape ``(C)``, ``(N, C)`` or ``(N, C, d1, ...)``, floating point (the half types are computed in
            float32).
        target: class indices, shape ``()``, ``(N)`` or ``(N, d1, ...)``.
        alpha: how sparse, in (1, 2].
        weight: a weight per class, shape ``(C)``.
        ignore_index: target value of rows that do not count.
        reduction: ``"none"``, ``"mean"`` or ``"sum"``.

    Returns:
        The loss in the dtype of ``logits`` (float32 under autocast): a scalar, or of the shape of ``target`` with
        ``reduction="none"``.

    Raises:
        ValueError: if ``alpha`` lies outside (1, 2], the shapes do not fit, or ``reduction`` is unknown.
        TypeError: if ``target`` holds no class indices.
        ImportError: without the ``entmax`` package.
        RuntimeError: where its gradient, made with ``create_graph=True``, is differentiated again.

    Source: Blondel, Martins, Niculae 2020 (arXiv 1901.02324), equation 14; Peters, Niculae, Martins 2019
    (arXiv 1905.05702), section 3.3; the ``entmax`` package.

    Example:
        >>> import torch
        >>> logits = torch.tensor([[0.0, 1.0, 2.0], [0.0, 1.0, 3.0]], requires_grad=True)
        >>> loss = entmax_loss(logits, torch.tensor([2, 2]), reduction="sum")
        >>> loss.backward()
        >>> bool(torch.allclose(logits.grad, entmax(logits) - torch.tensor([0.0, 0.0, 1.0])))
        True
    """
    alpha = check_alpha(alpha)
    package = require_entmax()

    def row_loss(rows: Tensor, row_target: Tensor) -> Tensor:
        rows = differentiable_once(rows, "the loss of sparsemax and entmax")
        relative, peak = _recentred(rows, alpha)
        with torch.autocast(rows.device.type, enabled=False):  # it would take the package's sums in a half type
            if alpha == 2.0:
                loss = package.sparsemax_loss(relative, row_target, _partial(rows))
            elif alpha == 1.5:
                loss = package.entmax15_loss(relative, row_target, _partial(rows))
            else:
                loss = package.entmax_bisect_loss(relative, row_target, alpha, _bisections(relative))
        # rounding may leave -1e-8; taken off as a constant, since a clamp would also stop the gradient
        loss = loss - loss.detach().clamp(max=0.0)
        # the target's own logit may have been cut off: the part of its deficit that the package has not seen
        own = row_target.unsqueeze(-1)
        unseen = relative.gather(-1, own) - (rows.gather(-1, own) - peak)
        return loss.to(rows.dtype) + (unseen.to(rows.dtype) + _poison(peak)).squeeze(-1)

    return loss_of_rows(row_loss, logits, target, weight=weight, ignore_index=ignore_index, reduction=reduction)
