r"""The probability of winning under noise (Cohen Indelman, Hazan: arXiv 2406.02180)."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from as_lightning.functional.argument_checks import check_choice
from as_lightning.functional.calling_convention import loss_of_rows, over_rows
from as_lightning.functional.tracing import can_read_values, in_plain_operations

NOISES = ("gumbel", "normal", "logistic")
NODES, ZOOMS = {torch.float32: 32, torch.float64: 96}, 3
HELD = 2**18  # numbers, rows x nodes x classes, that are held at once


def _log_cdf(u: Tensor, noise: str) -> Tensor:
    if noise == "logistic":
        return F.logsigmoid(u)
    # torch.special.log_ndtr takes three times as long on a CPU: it is used only where erfc
    # underflows
    lowest = -12.0 if u.dtype == torch.float32 else -36.0
    near = torch.log(0.5 * torch.erfc(u.clamp(min=lowest) * -math.sqrt(0.5)))
    far = u < lowest
    if can_read_values(far) and not bool(far.any()):
        return near
    return torch.where(far, torch.special.log_ndtr(u.clamp(max=lowest)), near)


def _log_pdf(u: Tensor, noise: str) -> Tensor:
    if noise == "logistic":
        return F.logsigmoid(u) + F.logsigmoid(-u)
    return -0.5 * (u.square() + math.log(2 * math.pi))


def _in_parts(
    row_function: Callable[..., Tensor], rows: Tensor, logit: Tensor, nodes: Tensor, noise: str
) -> Tensor:
    """Call ``row_function`` with a few rows at a time, and again in the backward pass.

    In a graph and in the transforms of ``torch.func``, which take no checkpoint, it gets all rows.
    """
    if in_plain_operations(rows):
        return row_function(rows, logit, nodes, noise)
    size = max(1, HELD // (nodes.size(-1) * max(1, rows.size(-1))))
    parts = zip(rows.split(size), logit.split(size), nodes.split(size), strict=True)
    options = {"use_reentrant": False, "preserve_rng_state": False}
    return torch.cat([checkpoint(row_function, *part, noise, **options) for part in parts])  # type: ignore[arg-type]


def _log_integrand(rows: Tensor, logit: Tensor, nodes: Tensor, noise: str) -> Tensor:
    target_noise = nodes - logit
    log_cdf_sum = _log_cdf(nodes.unsqueeze(-1) - rows.unsqueeze(-2), noise).sum(-1)
    return log_cdf_sum + _log_pdf(target_noise, noise) - _log_cdf(target_noise, noise)


def _masses(rows: Tensor, _: Tensor, nodes: Tensor, noise: str) -> Tensor:
    u = nodes.unsqueeze(-1) - rows.unsqueeze(-2)
    # for a logit of -inf (0 * inf is NaN); a clamp would hide NaN from the gradient
    u = torch.where(u > 1e4, 1e4, u)
    log_cdf = _log_cdf(u, noise)
    return (log_cdf.sum(-1, keepdim=True) + _log_pdf(u, noise) - log_cdf).exp().sum(-2)


@torch.no_grad()
def _nodes(rows: Tensor, logit: Tensor, noise: str) -> tuple[Tensor, Tensor]:
    """Return nodes over the hump of the log-concave integrand, and the log of their distance."""
    nats = -math.log(torch.finfo(rows.dtype).eps)
    tail, largest_noise, logit_factor = nats, math.log(rows.size(-1)), 1.0
    if noise != "logistic":
        tail, largest_noise = math.sqrt(2 * tail), math.sqrt(2 * largest_noise)
        logit_factor = 0.5
    low, high = logit * logit_factor - tail, torch.full_like(logit, tail + largest_noise)
    coarse = torch.linspace(0, 1, 16, dtype=low.dtype, device=low.device)
    fine = torch.linspace(0, 1, NODES[low.dtype], dtype=low.dtype, device=low.device)
    for _ in range(ZOOMS):
        nodes = low + (high - low) * coarse
        height = _in_parts(_log_integrand, rows, logit, nodes, noise)
        within = (height >= height.amax(-1, keepdim=True) - nats).int()
        first = within.argmax(-1, True) - 1
        last = 16 - within.flip(-1).argmax(-1, True)
        low, high = nodes.gather(-1, first.clamp(min=0)), nodes.gather(-1, last.clamp(max=15))
    return low + (high - low) * fine, ((high - low) / (fine.numel() - 1)).log().squeeze(-1)


def perturb_max(logits: Tensor, *, noise: str = "normal", dim: int = -1) -> Tensor:
    r"""The probability that a class has the largest logit once independent noise is added to every
    logit.

    $$ p_i = P[\operatorname{argmax}_j (o_j + \varepsilon_j) = i] = \int f(e - o_i) \prod_{j \ne i}
    F(e - o_j) \, de $$

    ``noise="gumbel"`` is softmax; ``"normal"`` (multinomial probit) and ``"logistic"`` are
    integrated, with an error below 1e-6 in float32 and 1e-9 in float64.

    Source: Cohen Indelman, Hazan 2024 (arXiv 2406.02180), section 4.

    Examples:
        >>> perturb_max(torch.tensor([0.0, 1.0, 2.0]))
        tensor([0.0472, 0.2241, 0.7288])
    """
    check_choice("noise", noise, NOISES)

    def transform(rows: Tensor) -> Tensor:
        if noise == "gumbel":
            return rows.softmax(-1)
        rows = rows - rows.detach().amax(-1, keepdim=True)
        top = torch.zeros_like(rows[:, :1])
        nodes, _ = _nodes(rows, top, noise)
        return F.normalize(_in_parts(_masses, rows, top, nodes, noise), p=1.0, dim=-1)

    return over_rows(transform, logits, dim)


def perturb_max_loss(
    logits: Tensor,
    target: Tensor,
    *,
    noise: str = "normal",
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    r"""The negative log-likelihood $-\log p_t$ under `perturb_max`, its source; called as
    ``F.cross_entropy`` is.

    Examples:
        >>> perturb_max_loss(torch.tensor([[0.0, 1.0, 2.0]]), torch.tensor([2]))
        tensor(0.3164)
    """
    check_choice("noise", noise, NOISES)

    def row_loss(rows: Tensor, row_target: Tensor) -> Tensor:
        if noise == "gumbel":
            return F.cross_entropy(rows, row_target, reduction="none")
        rows = rows - rows.detach().amax(-1, keepdim=True)
        logit = rows.gather(-1, row_target.unsqueeze(-1))
        nodes, log_distance = _nodes(rows, logit.detach(), noise)
        return -(_in_parts(_log_integrand, rows, logit, nodes, noise).logsumexp(-1) + log_distance)

    return loss_of_rows(
        row_loss, logits, target, weight=weight, ignore_index=ignore_index, reduction=reduction
    )
