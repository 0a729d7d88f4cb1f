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
    r"""Cross-entropy with the target mixed with the uniform distribution.

    .. math:: \ell = \log \sum_j e^{o_j} - (1 - \varepsilon) \, o_t - \frac{\varepsilon}{C} \sum_i o_i, \qquad
              \frac{\partial \ell}{\partial o_i} = p_i - (1 - \varepsilon) [i = t] - \frac{\varepsilon}{C}

    It is ``F.cross_entropy(label_smoothing=smoothing)`` for class indices; the transform that goes with it is softmax.

    Args:
        logits: shape ``(C)``, ``(N, C)`` or ``(N, C, d1, ...)``, floating point (the half types are computed in
            float32).
        target: class indices, shape ``()``, ``(N)`` or ``(N, d1, ...)``.
        smoothing: the mass :math:`\varepsilon` that goes to the uniform distribution, in [0, 1).
        weight: a weight per class, shape ``(C)``; as in ``F.cross_entropy`` it weighs the uniform part class by class.
        ignore_index: target value of rows that do not count.
        reduction: ``"none"``, ``"mean"`` or ``"sum"``.

    Returns:
        The loss in the dtype of ``logits`` (float32 under autocast): a scalar, or of the shape of ``target`` with
        ``reduction="none"``.

    Raises:
        ValueError: if ``smoothing`` lies outside [0, 1), the shapes do not fit, or ``reduction`` is unknown.
        TypeError: if ``target`` holds no class indices.

    Source: Szegedy, Vanhoucke, Ioffe, Shlens, Wojna 2016 (arXiv 1512.00567), section 7.

    Example:
        >>> import torch
        >>> label_smoothing_loss(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([2]), smoothing=0.3)
        tensor(0.7076)
    """
    smoothing = check_number("smoothing", smoothing, lambda value: 0 <= value < 1, "a number in [0, 1)")
    return cross_entropy_of(
        lambda values: values,
        logits,
        target,
        weight=weight,
        ignore_index=ignore_index,
        reduction=reduction,
        label_smoothing=smoothing,
    )
