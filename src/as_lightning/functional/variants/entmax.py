r"""Sparsemax and alpha-entmax, from the ``entmax`` package, with the calling convention of ``F.cross_entropy``."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from as_lightning.functional.argument_checks import check_number
from as_lightning.functional.calling_convention import loss_of_rows, over_rows

# Beyond this many classes the package sorts only the largest logits, and more of them where the support is larger.
PARTIAL_SORT = 64
# Below this alpha the exponent 1 / (alpha - 1) magnifies float32's rounding past 1e-5.
DOUBLE_BELOW = 1.01
BISECTIONS = {torch.float32: 30, torch.float64: 55}  # halve an interval shorter than 1 until only rounding is left


def _package(alpha: float) -> tuple[float, ModuleType]:
    """``alpha`` as a float, and the ``entmax`` package; or raise where one of them is no good."""
    expected = "a number in (1, 2] (alpha=1 is softmax, alpha=2 sparsemax)"
    alpha = check_number("alpha", alpha, lambda value: 1 < value <= 2, expected)
    try:
        import entmax
    except ImportError as error:
        raise ImportError('sparsemax and entmax need a package: pip install "as-lightning[variants]"') from error
    return alpha, entmax


def _recentred(rows: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    """The rows relative to their maximum, cut off where the probability is 0 for certain, and that maximum.

    Neither changes a probability, and the package's sums keep their digits. A row with NaN or an infinite maximum
    becomes zeros: the package's sort would index out of bounds. (``peak - peak`` is NaN.)
    """
    peak = rows.detach().amax(-1, keepdim=True)
    relative = (rows - peak).clamp(min=-1.5 / (alpha - 1.0))
    relative = torch.where(peak.isfinite(), relative, 0.0)
    return (relative.double() if alpha < DOUBLE_BELOW else relative), peak


class _NoSecondDerivative(torch.autograd.Function):
    """A gradient, to autograd a function of ``x``, whose derivative is refused: the package's would be 0."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, x: Tensor) -> Tensor:
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor, Tensor]:
        raise RuntimeError(
            "the loss of sparsemax and entmax can be differentiated once, and this gradient was made with "
            "create_graph=True: leave it out of the loss, or use one with second derivatives, such as as_cross_entropy"
        )


def entmax(logits: Tensor, *, alpha: float = 1.5, dim: int = -1) -> Tensor:
    r"""The alpha-entmax transform: sparse for every ``alpha`` above 1.

    $$
    p = \operatorname*{argmax}_{p \in \Delta} \; p^\top o + \frac{1 - \sum_i p_i^\alpha}{\alpha (\alpha - 1)},
    \qquad p_i = \bigl[(\alpha - 1) o_i - \lambda\bigr]_+^{1 / (\alpha - 1)}
    $$

    ``alpha`` lies in (1, 2]: 2 is `sparsemax`, and towards 1 it tends to softmax. 1.5 and 2 are exact (by sorting),
    others by bisection. A class $1 / (\alpha - 1)$ below the largest logit has probability 0.

    Source: Peters, Niculae, Martins 2019 (arXiv 1905.05702), equations 9 and 10; the ``entmax`` package.

    Examples:
        >>> entmax(torch.tensor([0.0, 1.0, 2.0]))
        tensor([0.0000, 0.1693, 0.8307])
    """
    alpha, package = _package(alpha)

    def of_rows(rows: Tensor) -> Tensor:
        relative, peak = _recentred(rows, alpha)
        if alpha == 2.0:
            probabilities = package.sparsemax(relative, dim=-1, k=PARTIAL_SORT)
        elif alpha == 1.5:
            probabilities = package.entmax15(relative, dim=-1, k=PARTIAL_SORT)
        else:
            probabilities = package.entmax_bisect(relative, alpha=alpha, dim=-1, n_iter=BISECTIONS[relative.dtype])
        return probabilities.to(rows.dtype) + (peak - peak)

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
    r"""The Fenchel-Young loss of alpha-entmax. Differentiable once.

    $$
    \ell = (p - e_t)^\top o + \frac{1 - \sum_i p_i^\alpha}{\alpha (\alpha - 1)}, \qquad
    \frac{\partial \ell}{\partial o_i} = p_i - [i = t]
    $$

    It is 0 (but for rounding) once the target leads every other class by $1 / (\alpha - 1)$: a finite margin. The
    arguments but ``alpha`` are those of `torch.nn.functional.cross_entropy`.

    Source: Blondel, Martins, Niculae 2020 (arXiv 1901.02324), equation 14; the ``entmax`` package.

    Examples:
        >>> entmax_loss(torch.tensor([[0.0, 1.0, 2.0], [0.0, 1.0, 4.0]]), torch.tensor([2, 2]), reduction="none")
        tensor([0.0617, 0.0000])
    """
    alpha, package = _package(alpha)

    def row_loss(rows: Tensor, row_target: Tensor) -> Tensor:
        if rows.requires_grad:
            leaf, rows = rows, rows.view_as(rows)
            rows.register_hook(
                lambda gradient: _NoSecondDerivative.apply(gradient, leaf) if torch.is_grad_enabled() else gradient
            )
        relative, peak = _recentred(rows, alpha)
        with torch.autocast(rows.device.type, enabled=False):  # it would take the package's sums in a half type
            if alpha == 2.0:
                loss = package.sparsemax_loss(relative, row_target, PARTIAL_SORT)
            elif alpha == 1.5:
                loss = package.entmax15_loss(relative, row_target, PARTIAL_SORT)
            else:
                loss = package.entmax_bisect_loss(relative, row_target, alpha, BISECTIONS[relative.dtype])
        # rounding may leave -1e-8; taken off as a constant, since a clamp would also stop the gradient
        loss = loss - loss.detach().clamp(max=0.0)
        # the target's own logit may have been cut off: the part of its deficit that the package has not seen
        own = row_target.unsqueeze(-1)
        unseen = relative.gather(-1, own) - (rows.gather(-1, own) - peak)
        return loss.to(rows.dtype) + (unseen.to(rows.dtype) + (peak - peak)).squeeze(-1)

    return loss_of_rows(row_loss, logits, target, weight=weight, ignore_index=ignore_index, reduction=reduction)


def sparsemax(logits: Tensor, *, dim: int = -1) -> Tensor:
    r"""The Euclidean projection on the probability simplex, $p_i = [o_i - \lambda]_+$: `entmax` at ``alpha=2``.

    Source: Martins, Astudillo 2016 (arXiv 1602.02068), equation 1 and proposition 1; the ``entmax`` package.

    Examples:
        >>> sparsemax(torch.tensor([0.0, 1.0, 1.5]))
        tensor([0.0000, 0.2500, 0.7500])
    """
    return entmax(logits, alpha=2.0, dim=dim)


def sparsemax_loss(
    logits: Tensor, target: Tensor, *, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean"
) -> Tensor:
    r"""`entmax_loss` at ``alpha=2``, with its gradient ``sparsemax(logits)`` minus the one-hot target.

    $$
    \ell = \frac{1}{2} - o_t + \sum_{i \in S} \frac{o_i^2 - \lambda^2}{2}, \qquad S \text{ the support of sparsemax}
    $$

    Source: Martins, Astudillo 2016 (arXiv 1602.02068), equation 16; the ``entmax`` package.

    Examples:
        >>> logits = torch.tensor([[0.0, 1.0, 1.5], [0.0, 1.0, 2.0]])
        >>> sparsemax_loss(logits, torch.tensor([2, 2]), reduction="none")
        tensor([0.0625, 0.0000])
    """
    return entmax_loss(logits, target, alpha=2.0, weight=weight, ignore_index=ignore_index, reduction=reduction)
