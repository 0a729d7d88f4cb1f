r"""Sparsemax and alpha-entmax, with the calling convention of ``F.cross_entropy``."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from as_lightning.functional.argument_checks import check_number
from as_lightning.functional.calling_convention import loss_of_rows, over_rows
from as_lightning.functional.tracing import can_read_values, in_plain_operations, recorded

# The threshold is computed from this many of the largest logits, and from all logits in rows of a
# larger support.
LARGEST = 64
# Below this alpha the exponent 1 / (alpha - 1) magnifies float32's rounding past 1e-5.
DOUBLE_BELOW = 1.01
# Newton's steps from below to the root of a convex function: each makes its value times its slope
# at least four times smaller. This many lead from the square of 100,000 classes to the rounding
# error.
STEPS = {torch.float32: 30, torch.float64: 45}


def _checked_alpha(alpha: float) -> float:
    expected = "a number in [1, 2] (alpha=1 is softmax, alpha=2 sparsemax)"
    return check_number("alpha", alpha, lambda value: 1 <= value <= 2, expected)


def _power(p: Tensor, exponent: float, support: Tensor) -> Tensor:
    """Return the power on the support, else 0: of 0 its derivatives are infinite."""
    return torch.where(support, torch.where(support, p, 1.0).pow(exponent), 0.0)


def _newton_step(scores: Tensor, threshold: Tensor, exponent: float) -> Tensor:
    """Take a Newton step towards probabilities of sum 1, which is convex in the threshold."""
    above = ~(scores <= threshold)
    gap = torch.where(above, scores - threshold, 1.0)
    slope = torch.where(above, gap.pow(exponent - 1.0), 0.0)
    excess = (slope * gap).sum(-1, keepdim=True) - 1.0
    return threshold + excess / (exponent * slope.sum(-1, keepdim=True))


def _threshold(scores: Tensor, exponent: float) -> Tensor:
    """Return the threshold at which the probabilities sum to 1; the largest score is 0."""
    threshold = torch.full_like(scores[..., :1], -1.0)
    rounding = torch.finfo(scores.dtype).eps
    for _ in range(STEPS[scores.dtype]):
        previous = threshold
        threshold = torch.maximum(threshold, _newton_step(scores, threshold, exponent))
        if can_read_values(scores) and not bool((threshold - previous > rounding).any()):
            break
    return threshold


@torch.no_grad()
def _threshold_of_largest(scores: Tensor, exponent: float) -> Tensor:
    if torch.compiler.is_compiling() and not recorded(scores):
        return _threshold_in_a_graph(scores, exponent)
    if not can_read_values(scores) or scores.size(-1) <= LARGEST:
        return _threshold(scores, exponent)
    largest = scores.topk(LARGEST, dim=-1).values
    threshold = _threshold(largest, exponent)
    wide_rows = (largest[:, -1:] > threshold).squeeze(-1).nonzero().squeeze(-1)
    if wide_rows.numel():
        threshold[wide_rows] = _threshold(scores[wide_rows], exponent)
    return threshold


@torch.library.custom_op(
    "as_lightning::entmax_threshold",
    mutates_args=(),
    schema="(Tensor scores, float exponent) -> Tensor",
)
def _threshold_in_a_graph(scores: Tensor, exponent: float) -> Tensor:
    """One node of a compiled graph, where all the steps would take a minute to compile."""
    return _threshold_of_largest(scores, exponent)


@_threshold_in_a_graph.register_fake
def _(scores: Tensor, exponent: float) -> Tensor:
    return scores.new_empty((*scores.shape[:-1], 1))


def _probabilities(relative: Tensor, alpha: float) -> Tensor:
    """Transform rows whose maximum is 0; in a graph its derivatives are right to second order."""
    exponent = 1.0 / (alpha - 1.0)
    scores = relative * (alpha - 1.0)
    threshold = _threshold_of_largest(scores.detach(), exponent)
    if torch.is_grad_enabled() or in_plain_operations(relative):
        # each step makes one more derivative exact
        threshold = _newton_step(scores, _newton_step(scores, threshold, exponent), exponent)
        above = ~(scores <= threshold)  # also where a score is NaN, which must reach the gradient
        p = _power(scores - threshold, exponent, above)
    else:
        p = (scores - threshold).clamp_(min=0.0)
        if exponent != 1.0:
            p.pow_(exponent)
    return p / p.sum(-1, keepdim=True)


class _Entmax(torch.autograd.Function):
    r"""`_probabilities`, which saves only the result.

    With $s_i = p_i^{2 - \alpha}$ on the support its Jacobian is $\operatorname{diag}(s) - s s^\top
    / \sum_i s_i$.
    """

    @staticmethod
    def forward(ctx: Any, relative: Tensor, alpha: float) -> Tensor:
        ctx.alpha = alpha
        ctx.set_materialize_grads(False)
        p = _probabilities(relative, alpha)
        ctx.save_for_backward(p)
        return p

    @staticmethod
    def backward(ctx: Any, upstream: Tensor | None) -> tuple[Tensor | None, None]:
        if upstream is None:
            return None, None
        (p,) = ctx.saved_tensors
        s = _power(p, 2.0 - ctx.alpha, p > 0)
        return s * (upstream - (s * upstream).sum(-1, keepdim=True) / s.sum(-1, keepdim=True)), None


class _FenchelYoung(torch.autograd.Function):
    r"""The loss of rows, whose gradient is $p - e_t$; a second derivative goes on through ``p``."""

    @staticmethod
    def forward(ctx: Any, relative: Tensor, p: Tensor, own: Tensor, alpha: float) -> Tensor:
        ctx.save_for_backward(p, own)
        losses = _row_losses(relative, p, p.pow(alpha), own, alpha)
        return losses.clamp(min=0.0)  # rounding may leave -1e-8

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None, None]:
        p, own = ctx.saved_tensors
        unit_gradient = p.scatter_add(-1, own, p.new_full((), -1.0).expand(own.shape))
        return unit_gradient * upstream.unsqueeze(-1), None, None, None


def _row_losses(relative: Tensor, p: Tensor, power: Tensor, own: Tensor, alpha: float) -> Tensor:
    r"""Return the losses of rows, with ``power`` $p^\alpha$ and the target's column ``own``."""
    scores = torch.where(relative == -torch.inf, 0.0, relative)  # where p is 0
    entropy = (1.0 - power.sum(-1)) / (alpha * (alpha - 1.0))
    return (p * scores).sum(-1) - relative.gather(-1, own).squeeze(-1) + entropy


def _recentred(rows: Tensor, alpha: float) -> Tensor:
    """Return the rows relative to their maximum, in which sums keep their digits."""
    relative = rows - rows.detach().amax(-1, keepdim=True)
    if alpha < DOUBLE_BELOW:
        return relative.double()
    return relative


def entmax(logits: Tensor, *, alpha: float = 1.5, dim: int = -1) -> Tensor:
    r"""The alpha-entmax transform: sparse for every ``alpha`` above 1.

    $$
    p = \operatorname*{argmax}_{p \in \Delta} \;
    p^\top o + \frac{1 - \sum_i p_i^\alpha}{\alpha (\alpha - 1)},
    \qquad p_i = \bigl[(\alpha - 1) o_i - \lambda\bigr]_+^{1 / (\alpha - 1)}
    $$

    ``alpha`` lies in [1, 2]: 1 is softmax, the limit, and 2 `sparsemax`. A class $1 /
    (\alpha - 1)$ below the largest logit has probability 0.

    Source: Peters, Niculae, Martins 2019 (arXiv 1905.05702), equations 9 and 10.

    Examples:
        >>> entmax(torch.tensor([0.0, 1.0, 2.0]))
        tensor([0.0000, 0.1693, 0.8307])
    """
    alpha = _checked_alpha(alpha)

    def transform(rows: Tensor) -> Tensor:
        if alpha == 1:
            return rows.softmax(-1)
        relative = _recentred(rows, alpha)
        probabilities = _probabilities if in_plain_operations(rows) else _Entmax.apply
        return probabilities(relative, alpha).to(rows.dtype)

    return over_rows(transform, logits, dim)


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

    $$
    \ell = (p - e_t)^\top o + \frac{1 - \sum_i p_i^\alpha}{\alpha (\alpha - 1)}, \qquad
    \frac{\partial \ell}{\partial o_i} = p_i - [i = t]
    $$

    It is 0 (but for rounding) once the target leads every other class by $1 / (\alpha - 1)$: a
    finite margin. At ``alpha=1`` it is cross-entropy. The arguments but ``alpha`` are those of
    `torch.nn.functional.cross_entropy`.

    Source: Blondel, Martins, Niculae 2020 (arXiv 1901.02324), equation 14.

    Examples:
        >>> logits = torch.tensor([[0.0, 1.0, 2.0], [0.0, 1.0, 4.0]])
        >>> entmax_loss(logits, torch.tensor([2, 2]), reduction="none")
        tensor([0.0617, 0.0000])
    """
    alpha = _checked_alpha(alpha)

    def row_loss(rows: Tensor, row_target: Tensor) -> Tensor:
        if alpha == 1:
            return F.cross_entropy(rows, row_target, reduction="none")
        relative = _recentred(rows, alpha)
        own = row_target.unsqueeze(-1)
        if in_plain_operations(rows):
            p = _probabilities(relative, alpha)
            loss = _row_losses(relative, p, _power(p, alpha, p > 0), own, alpha)
        else:
            loss = _FenchelYoung.apply(relative, _Entmax.apply(relative, alpha), own, alpha)
        return loss.to(rows.dtype)

    return loss_of_rows(
        row_loss, logits, target, weight=weight, ignore_index=ignore_index, reduction=reduction
    )


def sparsemax(logits: Tensor, *, dim: int = -1) -> Tensor:
    r"""The Euclidean projection on the probability simplex, $p_i = [o_i - \lambda]_+$: `entmax` at
    ``alpha=2``.

    Source: Martins, Astudillo 2016 (arXiv 1602.02068), equation 1 and proposition 1.

    Examples:
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
    r"""`entmax_loss` at ``alpha=2``, with its gradient ``sparsemax(logits)`` minus the one-hot
    target.

    $$
    \ell = \frac{1}{2} - o_t + \sum_{i: p_i > 0} \frac{o_i^2 - \lambda^2}{2}
    $$

    Source: Martins, Astudillo 2016 (arXiv 1602.02068), equation 16.

    Examples:
        >>> logits = torch.tensor([[0.0, 1.0, 1.5], [0.0, 1.0, 2.0]])
        >>> sparsemax_loss(logits, torch.tensor([2, 2]), reduction="none")
        tensor([0.0625, 0.0000])
    """
    return entmax_loss(
        logits, target, alpha=2.0, weight=weight, ignore_index=ignore_index, reduction=reduction
    )
