r"""Cross-entropy with smoothed labels (Szegedy et al.: arXiv 1512.00567, section 7)."""

from __future__ import annotations

from torch import Tensor

from as_lightning.functional.argument_checks import check_number
from as_lightning.functional.calling_convention import cross_entropy_of


def label_smoothing_loss(
    logits: Tensor,
    target: Tensor,
    *,
    smoothing: float = 0.1,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    r"""``F.cross_entropy(label_smoothing=smoothing)`` for class indices; the transform that goes
    with it is softmax.

    $$
    \ell = \log \sum_j e^{o_j} - (1 - \varepsilon) \, o_t - \frac{\varepsilon}{C} \sum_i o_i
    $$

    ``smoothing`` is the mass $\varepsilon$ that goes to the uniform distribution, in [0, 1).

    Source: Szegedy, Vanhoucke, Ioffe, Shlens, Wojna 2016 (arXiv 1512.00567), section 7.

    Examples:
        >>> import torch
        >>> label_smoothing_loss(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([2]), smoothing=0.3)
        tensor(0.7076)
    """
    smoothing = check_number(
        "smoothing", smoothing, lambda value: 0 <= value < 1, "a number in [0, 1)"
    )
    return cross_entropy_of(
        lambda rows, _: rows,
        logits,
        target,
        label_smoothing=smoothing,
        weight=weight,
        ignore_index=ignore_index,
        reduction=reduction,
    )
