r"""Which classes the margin keeps (paper, section III: the mask of AS-Softmax)."""

from __future__ import annotations

import torch
from torch import Tensor

from as_lightning.functional.argument_checks import check_number, check_tensor
from as_lightning.functional.calling_convention import class_rows, widened

DEFAULT_DELTA = 0.5  # of every loss whose caller gives no margin; the paper has 0.1


def check_delta(delta: float) -> float:
    """Return the margin ``delta`` as a float, or raise where it is not a number in [0, 1]."""
    if type(delta) is float and 0 <= delta <= 1:  # of each batch
        return delta
    return check_number("delta", delta, lambda value: 0 <= value <= 1, "a number in [0, 1]")


def masked_by_delta(
    probability: Tensor, target_probability: Tensor, delta: float, *, in_place: bool = False
) -> Tensor:
    r"""Apply the rule of the margin, stated here alone: a competitor is masked iff $p_i < p_t -
    \delta$.

    NaN masks nothing: it must reach the loss. The target itself is never masked. A tie is kept.
    ``in_place`` overwrites ``probability`` ``(..., C)`` (with 0 and 1, which later arithmetic takes
    as they are) and ``target_probability`` ``(..., 1)``.
    """
    if in_place:
        return probability.lt_(target_probability.sub_(ONE, alpha=delta))
    return probability < target_probability - delta


# For few logits, subtracting a multiple of a tensor takes half the time of subtracting a number, of
# which torch makes a tensor first. (In a compiled graph this tensor would be an input on the CPU.)
ONE = torch.ones((), device="cpu")


def all_masked_above(delta: float) -> float:
    r"""Return the $p_t$ above which all are masked: $p_i \le 1 - p_t < p_t - \delta$."""
    return (1.0 + delta) / 2.0


def as_softmax_mask(
    logits: Tensor, target: Tensor, delta: float, ignore_index: int = -100
) -> Tensor:
    r"""Return the classes that AS-Softmax keeps.

    $$
    \text{keep}_i = (i = t) \;\lor\; (p_t - p_i \le \delta), \qquad p = \operatorname{softmax}(o)
    $$

    ``<=`` keeps, as in the authors' code, so ``delta=1`` keeps everything (the paper's text masks
    at ``>=``).

    Args:
        logits: shape ``(C)``, ``(N, C)`` or ``(N, C, d1, ...)``.
        target: class indices, shape ``()``, ``(N)`` or ``(N, d1, ...)``.
        delta: the margin, in [0, 1].
        ignore_index: target value of rows to leave out: their mask, that of target 0, has no
            meaning.

    Returns:
        Boolean tensor of the shape of ``logits``; ``True`` is kept. NaN logits are kept: they must
        reach the loss.

    Raises:
        ValueError, TypeError, IndexError: as `as_cross_entropy`.

    Source: paper, section III; authors' code for the tie.

    Examples:
        The example of the authors' code, at the paper's margin.

        >>> import torch
        >>> logits = torch.tensor([[1.2, 1.5, 1.0, -0.35], [2.5, 3.5, 0.4, 0.3]])
        >>> as_softmax_mask(logits, torch.tensor([1, 2]), delta=0.10)
        tensor([[False,  True, False, False],
                [ True,  True,  True,  True]])
    """
    delta = check_delta(delta)
    check_tensor("logits", logits)
    batch = class_rows(logits.detach(), target, ignore_index)
    probability = widened(batch.logits).softmax(-1)
    target_probability = probability.gather(-1, batch.target.unsqueeze(-1))
    keep = ~masked_by_delta(probability, target_probability, delta)
    if logits.dim() == 1:
        return keep.squeeze(0)
    return keep.reshape(logits.shape[:1] + logits.shape[2:] + logits.shape[1:2]).movedim(-1, 1)
