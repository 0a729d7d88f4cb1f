r"""The probability of winning under noise (Cohen Indelman, Hazan: arXiv 2406.02180).

:math:`p_i = P[\operatorname{argmax}_j (o_j + \varepsilon_j) = i]` has a closed form only for Gumbel noise. With density
``f`` and distribution function ``F`` of the noise it is a one-dimensional integral over the winning value,

.. math:: p_i = \int f(e - o_i) \prod_{j \ne i} F(e - o_j) \, de
              = \int \exp\Bigl(\sum_j \log F(e - o_j) + \log \tfrac{f}{F}(e - o_i)\Bigr) de,

whose integrand is log-concave for normal and logistic noise: one hump that an equidistant rule (the trapezoidal rule of
a function that vanishes at both ends) integrates with an error that falls exponentially with the number of nodes. The
work is nodes x C for each row, hundreds of times the work of softmax: little at ten classes, too much at a thousand.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from as_lightning.functional.calling_convention import cross_entropy_of, loss_of_rows, over_rows

COARSE_NODES = 16
FINE_NODES = {torch.float32: 32, torch.float64: 96}
MAX_ZOOMS = 4
SERIES_BELOW = {torch.float32: -12.0, torch.float64: -36.0}
# How many terms log F(e - o_j), rows x nodes x classes, are held at once: as many as fit a CPU's cache, or enough to
# keep an accelerator busy.
CPU_BLOCK, DEVICE_BLOCK = 2**18, 2**24
HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


class _LogNormalCDF(torch.autograd.Function):
    r""":math:`\log \Phi(u)` by ``erfc``, and by its asymptotic series where ``erfc`` underflows.

    The same as ``torch.special.log_ndtr``, about four times as fast on a CPU, where that function is not vectorised.
    """

    @staticmethod
    def series(v: Tensor) -> Tensor:
        r""":math:`\Phi(v) \, |v| / \varphi(v) = 1 - v^{-2} + 3 v^{-4} - 15 v^{-6} + \dots` for very negative ``v``."""
        q = v.square().reciprocal()
        return 1 - q * (1 - 3 * q * (1 - 5 * q * (1 - 7 * q)))

    @staticmethod
    def forward(ctx: Any, u: Tensor) -> Tensor:
        result = torch.erfc(u * -math.sqrt(0.5)).mul_(0.5).log_()
        far = u < SERIES_BELOW[u.dtype]
        if far.any():
            v = u[far]
            result[far] = -0.5 * v.square() - HALF_LOG_TWO_PI - (-v).log() + _LogNormalCDF.series(v).log()
        ctx.save_for_backward(u, result)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        # with create_graph=True these operations are differentiated in their turn; the result is one of this function
        u, result = ctx.saved_tensors
        derivative = (u * u).mul_(-0.5).sub_(result).sub_(HALF_LOG_TWO_PI).exp_()
        far = u < SERIES_BELOW[u.dtype]
        if far.any():
            v = u[far]
            derivative = derivative.index_put((far,), -v / _LogNormalCDF.series(v))
        return grad * derivative


class _Noise(NamedTuple):
    """A noise with a log-concave density and distribution function.

    Attributes:
        log_cdf: log F.
        log_pdf: log f.
        tail: from a number of nats to the distance from 0 at which log f has fallen by that much.
    """

    log_cdf: Callable[[Tensor], Tensor]
    log_pdf: Callable[[Tensor], Tensor]
    tail: Callable[[float], float]


def _logistic_log_cdf(u: Tensor) -> Tensor:
    return -torch.logaddexp(-u, torch.zeros((), dtype=u.dtype, device=u.device))


NOISES = {
    "normal": _Noise(
        log_cdf=_LogNormalCDF.apply,
        log_pdf=lambda u: -0.5 * u.square() - HALF_LOG_TWO_PI,
        tail=lambda nats: math.sqrt(2 * nats),
    ),
    "logistic": _Noise(
        log_cdf=_logistic_log_cdf,
        log_pdf=lambda u: _logistic_log_cdf(u) + _logistic_log_cdf(-u),
        tail=lambda nats: nats,
    ),
}


def check_noise(noise: str) -> str:
    """Return the noise's name, or raise if it is none of ``"gumbel"``, ``"normal"``, ``"logistic"``."""
    names = ("gumbel", *NOISES)
    if noise not in names:
        raise ValueError(f"noise must be one of {', '.join(map(repr, names))}, got {noise!r}")
    return noise


def _block_shape(rows: Tensor, nodes: Tensor) -> tuple[int, int]:
    """How many rows and nodes to take at once."""
    elements = CPU_BLOCK if rows.device.type == "cpu" else DEVICE_BLOCK
    classes = max(1, rows.size(-1))
    node_count = min(nodes.size(-1), max(1, elements // classes))
    return max(1, elements // (classes * node_count)), node_count


def _recomputed(function: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """``function(*tensors)``, its intermediate results (nodes x C per row) recomputed in the backward pass."""
    return checkpoint(function, *tensors, use_reentrant=False, preserve_rng_state=False)


def _log_cdf_sum(rows: Tensor, nodes: Tensor, noise: _Noise) -> Tensor:
    r""":math:`\sum_j \log F(e - o_j)` at the nodes ``e``, shape ``(R, Q)``."""

    def of_block(rows: Tensor, block: Tensor) -> Tensor:
        return noise.log_cdf(block.unsqueeze(-1) - rows.unsqueeze(-2)).sum(-1)

    row_count, node_count = _block_shape(rows, nodes)
    return torch.cat(
        [
            torch.cat([_recomputed(of_block, some, block) for block in some_nodes.split(node_count, -1)], dim=-1)
            for some, some_nodes in zip(rows.split(row_count), nodes.split(row_count), strict=True)
        ]
    )


def _log_integrand(rows: Tensor, logit: Tensor, nodes: Tensor, noise: _Noise) -> Tensor:
    """The log of the integrand of the class with that ``logit`` at the nodes, shape ``(R, Q)``."""
    own = nodes - logit
    return _log_cdf_sum(rows, nodes, noise) + noise.log_pdf(own) - noise.log_cdf(own)


@torch.no_grad()
def _nodes(rows: Tensor, logit: Tensor, noise: _Noise) -> tuple[Tensor, Tensor]:
    """Equidistant nodes over the hump of the integrand of the class with that ``logit``, and the log of their distance.

    A closed-form bracket is narrowed by looking at a few nodes: the integrand is log-concave, so what lies beyond the
    neighbours of the last node within ``nats`` of the best is negligible. On an accelerator the host waits once a zoom.

    Args:
        rows: logits relative to their maximum, shape ``(R, C)``.
        logit: shape ``(R, 1)``.
        noise: the noise.
    """
    nats = -math.log(torch.finfo(rows.dtype).eps)
    reach = noise.tail(nats)
    # a class far below the maximum wins, if at all, with a value between the two (halfway under normal noise, anywhere
    # under logistic noise), and the maximum of C draws of the noise lies tail(log C) up
    low = (logit / 2 if noise is NOISES["normal"] else logit) - reach
    high = torch.full_like(low, reach + noise.tail(math.log(rows.size(-1))))
    coarse = torch.linspace(0, 1, COARSE_NODES, dtype=rows.dtype, device=rows.device)
    for _ in range(MAX_ZOOMS):
        width = high - low
        nodes = low + width * coarse
        height = _log_integrand(rows, logit, nodes, noise)
        within = height >= height.amax(-1, keepdim=True) - nats
        first = within.int().argmax(-1, keepdim=True)
        last = COARSE_NODES - 1 - within.flip(-1).int().argmax(-1, keepdim=True)
        low = nodes.gather(-1, (first - 1).clamp(min=0))
        high = nodes.gather(-1, (last + 1).clamp(max=COARSE_NODES - 1))
        if not ((high - low) * 2 < width).any():
            break
    fine = torch.linspace(0, 1, FINE_NODES[rows.dtype], dtype=rows.dtype, device=rows.device)
    return low + (high - low) * fine, ((high - low) / (fine.numel() - 1)).log().squeeze(-1)


def _probabilities(rows: Tensor, noise: _Noise) -> Tensor:
    """The probabilities of all classes, shape ``(R, C)``."""
    rows = rows - rows.detach().amax(-1, keepdim=True)
    nodes, _ = _nodes(rows, rows.detach().amax(-1, keepdim=True), noise)

    def of_block(rows: Tensor, block: Tensor) -> Tensor:
        u = block.unsqueeze(-1) - rows.unsqueeze(-2)
        log_cdf = noise.log_cdf(u)
        return (log_cdf.sum(-1, keepdim=True) + noise.log_pdf(u) - log_cdf).exp().sum(-2)

    row_count, node_count = _block_shape(rows, nodes)
    masses = torch.cat(
        [
            torch.stack([_recomputed(of_block, some, block) for block in some_nodes.split(node_count, -1)]).sum(0)
            for some, some_nodes in zip(rows.split(row_count), nodes.split(row_count), strict=True)
        ]
    )
    return masses / masses.sum(-1, keepdim=True)


def perturb_max(logits: Tensor, *, noise: str = "normal", dim: int = -1) -> Tensor:
    r"""The probability that a class has the largest logit once independent noise is added to every logit.

    .. math:: p_i = P\bigl[\operatorname{argmax}_j (o_j + \varepsilon_j) = i\bigr]
                  = \int f(e - o_i) \prod_{j \ne i} F(e - o_j) \, de

    ``f`` and ``F`` are density and distribution function of the noise: ``"gumbel"`` gives softmax, exactly (and is
    computed as such); ``"normal"`` (multinomial probit) and ``"logistic"`` of unit scale are integrated numerically.
    Positive until it underflows, order-preserving, invariant to a shift of the logits. Normal noise has the lightest
    tails: a class 6 below the largest logit has probability 1e-5, under softmax 2e-3.

    The error of the quadrature is below 1e-6 in float32 and 1e-9 in float64 (absolute).

    Args:
        logits: any shape, floating point (the half types are computed in float32).
        noise: ``"gumbel"``, ``"normal"`` or ``"logistic"``.
        dim: the class dimension.

    Returns:
        Probabilities, of the shape and dtype of ``logits``.

    Raises:
        ValueError: if ``noise`` is unknown.
        TypeError: if ``logits`` is no floating-point tensor.

    Source: Cohen Indelman, Hazan 2024 (arXiv 2406.02180), section 4; the Gumbel case: Maddison, Tarlow, Minka 2014
    (arXiv 1411.0030), section 2.

    Example:
        >>> import torch
        >>> perturb_max(torch.tensor([0.0, 1.0, 2.0]))
        tensor([0.0472, 0.2241, 0.7288])
    """
    if check_noise(noise) == "gumbel":
        return over_rows(lambda rows: rows.softmax(-1), logits, dim)
    return over_rows(lambda rows: _probabilities(rows, NOISES[noise]), logits, dim)


def perturb_max_loss(
    logits: Tensor,
    target: Tensor,
    *,
    noise: str = "normal",
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    r"""The negative log-likelihood under :func:`perturb_max`.

    .. math:: \ell = -\log p_t = -\log \int f(e - o_t) \prod_{j \ne t} F(e - o_j) \, de

    It is integrated in the logarithm, around the maximum of the target's integrand. So it stays finite and keeps its
    gradient, however small :math:`p_t` is. Under normal noise the loss grows with the square of the target's deficit.
    Its relative error is below 1e-4 in float32. ``"gumbel"`` is ``F.cross_entropy``.

    Args:
        logits: shape ``(C)``, ``(N, C)`` or ``(N, C, d1, ...)``, floating point (the half types are computed in
            float32).
        target: class indices, shape ``()``, ``(N)`` or ``(N, d1, ...)``.
        noise: ``"gumbel"``, ``"normal"`` or ``"logistic"``.
        weight: a weight per class, shape ``(C)``.
        ignore_index: target value of rows that do not count.
        reduction: ``"none"``, ``"mean"`` or ``"sum"``.

    Returns:
        The loss in the dtype of ``logits`` (float32 under autocast): a scalar, or of the shape of ``target`` with
        ``reduction="none"``.

    Raises:
        ValueError: if ``noise`` is unknown, the shapes do not fit, or ``reduction`` is unknown.
        TypeError: if ``target`` holds no class indices.

    Source: Cohen Indelman, Hazan 2024 (arXiv 2406.02180), section 4.

    Example:
        >>> import torch
        >>> perturb_max_loss(torch.tensor([[0.0, 1.0, 2.0]]), torch.tensor([2]))
        tensor(0.3164)
    """
    if check_noise(noise) == "gumbel":
        return cross_entropy_of(
            lambda values: values, logits, target, weight=weight, ignore_index=ignore_index, reduction=reduction
        )

    def row_loss(rows: Tensor, row_target: Tensor) -> Tensor:
        relative = rows - rows.detach().amax(-1, keepdim=True)
        logit = relative.gather(-1, row_target.unsqueeze(-1))
        nodes, log_distance = _nodes(relative, logit.detach(), NOISES[noise])
        return -(_log_integrand(relative, logit, nodes, NOISES[noise]).logsumexp(-1) + log_distance)

    return loss_of_rows(row_loss, logits, target, weight=weight, ignore_index=ignore_index, reduction=reduction)
