r"""Plain cross-entropy of a wide linear head, from the hidden states, without the logits."""

from __future__ import annotations

from torch import Tensor

from as_lightning.functional.head_operands import HeadNames
from as_lightning.functional.linear_cross_entropy import cross_entropy_of_head


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Tensor:
    r"""Plain cross-entropy of a wide linear layer, without ever holding its logits.

    .. math:: \ell = \log \sum_i e^{o_i} - o_t, \qquad o = W x + b

    It takes the place of ``F.cross_entropy(F.linear(input, linear_weight, linear_bias), target)`` and, with the same
    argument names, of PyTorch's own ``torch.nn.functional.linear_cross_entropy`` (2.13 and later); the page "Wide
    output layers" lists the differences. It is :func:`~as_lightning.functional.as_linear_cross_entropy` at
    ``delta=1``: no class is masked and nothing is counted.

    Args:
        input: hidden states, shape ``(..., d)``: float32, float64, bfloat16 or float16. Half types accumulate in
            float32.
        linear_weight: shape ``(C, d)``, of the dtype of ``input`` (any, under autocast).
        target: class indices, shape ``(...)``, any integer type.
        linear_bias: shape ``(C)``.
        weight: a weight per class, shape ``(C)``.
        reduction: ``"none"``, ``"mean"`` (weighted, over the rows not ignored) or ``"sum"``.
        ignore_index: target value of rows that take no part.
        label_smoothing: 0; see below.

    Returns:
        The loss in the dtype of ``input`` (float32 under autocast): a scalar, or of the shape of ``target`` with
        ``reduction="none"``.

    Raises:
        ValueError: if ``label_smoothing`` is not 0, the shapes do not fit, or ``reduction`` is unknown.
        TypeError: if ``target`` does not hold integers (class probabilities are not supported), or the dtypes differ.
        IndexError: if ``target`` is out of range (on the CPU; elsewhere the device asserts).
        RuntimeError: in backward, as :func:`~as_lightning.functional.as_linear_cross_entropy` does.

    Source: the signature follows PyTorch 2.13; computing gradients chunk by chunk in forward is Liger-Kernel's idea
    (arXiv 2410.10989).

    Example:
        >>> import torch
        >>> from torch.nn import functional as F
        >>> hidden, weight = torch.randn(8, 4), torch.randn(50_000, 4)
        >>> target = torch.randint(50_000, (8,))
        >>> loss = linear_cross_entropy(hidden, weight, target)
        >>> torch.allclose(loss, F.cross_entropy(F.linear(hidden, weight), target))
        True
    """
    check_label_smoothing(label_smoothing)
    operands = (input, linear_weight, linear_bias, target, weight)
    loss: Tensor = cross_entropy_of_head(operands, NAMES, 1.0, ignore_index=ignore_index, reduction=reduction)
    return loss


NAMES = HeadNames("input", "linear_weight", "linear_bias", "target", "weight")


def check_label_smoothing(label_smoothing: float) -> None:
    """Raise ``ValueError`` unless ``label_smoothing`` is 0."""
    if label_smoothing:
        raise ValueError(
            f"label_smoothing must be 0, got {label_smoothing!r}: a smoothed target has a share in every class, and "
            "this head keeps one target class per row; use F.cross_entropy(F.linear(input, linear_weight, "
            "linear_bias), target, label_smoothing=...)"
        )
