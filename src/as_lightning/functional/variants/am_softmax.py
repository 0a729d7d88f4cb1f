r"""Softmax of cosines with an additive margin (Wang, Cheng, Liu, Liu: arXiv 1801.05599)."""

from __future__ import annotations

from torch import Tensor

from as_lightning.functional.argument_checks import check_number, check_temperature
from as_lightning.functional.calling_convention import cross_entropy_of
from as_lightning.functional.variants.t_softmax import t_softmax

DEFAULT_TAU = 1 / 30  # the paper's scale s = 30


def am_softmax(logits: Tensor, *, tau: float = DEFAULT_TAU, dim: int = -1) -> Tensor:
    r"""Softmax of cosines at temperature ``tau``: $p_i = e^{\cos\theta_i / \tau} / \sum_j
    e^{\cos\theta_j / \tau}$.

    The margin belongs to the loss: prediction does not know the target. ``logits`` are cosines in
    [-1, 1], which `as_lightning.bench.tasks.classifier.CosineHead` gives; ``tau`` is the inverse of
    the paper's scale ``s``.

    Source: Wang, Cheng, Liu, Liu 2018 (arXiv 1801.05599), equation 6 with ``m = 0``.

    Examples:
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

    $$
    \ell = -\log \frac{e^{(c_t - m) / \tau}}{e^{(c_t - m) / \tau} + \sum_{j \ne t} e^{c_j / \tau}},
    \quad c = \cos\theta
    $$

    The margin ``m`` is 0 or more. The other arguments are those of
    `torch.nn.functional.cross_entropy`.

    Source: Wang, Cheng, Liu, Liu 2018 (arXiv 1801.05599), equation 6.

    Examples:
        >>> import torch
        >>> am_softmax_loss(torch.tensor([[0.5, 0.6]]), torch.tensor([1]), margin=0.1, tau=0.1)
        tensor(0.6931)
    """
    margin = check_number(
        "margin", margin, lambda value: value >= 0, "a margin between cosines, 0 or more"
    )
    tau = check_temperature(tau)

    def scores(rows: Tensor, row_target: Tensor) -> Tensor:
        own = row_target.unsqueeze(-1)
        scaled = rows / tau
        return scaled.scatter_add(-1, own, scaled.new_full(own.shape, -margin / tau))

    return cross_entropy_of(
        scores, logits, target, weight=weight, ignore_index=ignore_index, reduction=reduction
    )
