r"""Which classes the margin keeps (paper, section III: the mask of AS-Softmax)."""

from __future__ import annotations

import torch
from torch import Tensor

from as_lightning.functional.tracing import traced


def check_delta(delta: float) -> float:
    """Return the margin ``delta`` as a float, or raise ``ValueError`` where it is not a number in [0, 1]."""
    if isinstance(delta, bool) or not isinstance(delta, (int, float)):
        raise TypeError(f"delta must be a number in [0, 1], got {delta!r} of type {type(delta).__name__}")
    if not 0.0 <= delta <= 1.0:
        raise ValueError(f"delta is a margin between probabilities and must lie in [0, 1], got {delta!r}")
    return float(delta)


def check_class_indices(logits: Tensor, target: Tensor) -> None:
    """Raise unless ``target`` holds class indices for ``logits`` in one of the shapes ``F.cross_entropy`` takes."""
    if not logits.is_floating_point():
        raise TypeError(f"logits must be a floating-point tensor, got {logits.dtype}")
    if logits.dim() == 0:
        raise ValueError("logits must have a class dimension: (C), (N, C) or (N, C, d1, ...), got a 0-dim tensor")
    expected = logits.shape[:0] if logits.dim() == 1 else logits.shape[:1] + logits.shape[2:]
    if target.is_floating_point() or target.is_complex() or target.dtype == torch.bool:
        raise TypeError(
            f"target must hold class indices (torch.int64) of shape {tuple(expected)}, got {target.dtype} of shape "
            f"{tuple(target.shape)}: soft targets and class probabilities have no single target class to compare with"
        )
    if target.shape != expected:
        raise ValueError(
            f"target must have shape {tuple(expected)} for logits of shape {tuple(logits.shape)} "
            f"(class dimension {0 if logits.dim() == 1 else 1}), got {tuple(target.shape)}"
        )


def check_class_range(target: Tensor, classes: int) -> None:
    """Raise ``IndexError`` unless every index is in ``[0, classes)``.

    Checked on the CPU only: elsewhere the host would have to wait for the device (whose own gather asserts).
    """
    if target.numel() == 0 or target.device.type != "cpu" or traced():
        return
    lowest, highest = (int(bound) for bound in target.aminmax())
    if lowest < 0 or highest >= classes:
        raise IndexError(
            f"target must hold class indices from 0 to {classes - 1} or ignore_index, got "
            f"{lowest if lowest < 0 else highest}"
        )


def rows_of(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """View ``(C)``, ``(N, C)`` or ``(N, C, d1, ...)`` logits and their targets as ``(rows, C)`` and ``(rows,)``."""
    if logits.dim() == 1:
        return logits.unsqueeze(0), target.reshape(1)
    if logits.dim() == 2:
        return logits, target
    return logits.movedim(1, -1).reshape(-1, logits.size(1)), target.reshape(-1)


def as_softmax_mask(logits: Tensor, target: Tensor, delta: float, ignore_index: int = -100) -> Tensor:
    r"""The classes that AS-Softmax keeps: the target, and every class it does not beat by more than ``delta``.

    .. math:: \text{keep}_i = (i = t) \;\lor\; (p_t - p_i \le \delta), \qquad p = \operatorname{softmax}(o)

    No probability but the target's is computed: with :math:`p_t > \delta`, class ``i`` is kept iff
    :math:`o_i \ge o_t + \log(1 - \delta / p_t)`; with :math:`p_t \le \delta` every class is.
    ``<=`` keeps, as in the authors' code, so ``delta=1`` keeps everything (the paper's text masks at ``>=``).

    Args:
        logits: unnormalised scores, shape ``(C)``, ``(N, C)`` or ``(N, C, d1, ...)``, floating point.
        target: class indices, shape ``()``, ``(N)`` or ``(N, d1, ...)``.
        delta: the margin, in [0, 1].
        ignore_index: target value of rows that take no part; their mask is that of target 0 (as the authors' code
            has it) and means nothing.

    Returns:
        Boolean tensor of the shape of ``logits``; ``True`` is kept. NaN logits are kept: they must reach the loss.

    Raises:
        ValueError: if ``delta`` lies outside [0, 1] or the shapes do not fit.
        TypeError: if ``target`` is not of an integer type, or ``logits`` is.

    Source: paper, section III; authors' code for the tie.

    Example:
        >>> import torch
        >>> logits = torch.tensor([[1.2, 1.5, 1.0, -0.35], [2.5, 3.5, 0.4, 0.3]])
        >>> as_softmax_mask(logits, torch.tensor([1, 2]), delta=0.10)
        tensor([[False,  True, False, False],
                [ True,  True,  True,  True]])
    """
    delta = check_delta(delta)
    check_class_indices(logits, target)
    rows, row_target = rows_of(logits.detach(), target)
    if rows.dtype in (torch.float16, torch.bfloat16):
        rows = rows.float()
    safe_target = row_target.masked_fill(row_target == ignore_index, 0).long()
    check_class_range(safe_target, rows.size(-1))
    safe_target = safe_target.unsqueeze(-1)
    threshold = keep_threshold(rows.gather(-1, safe_target), rows.log_softmax(-1).gather(-1, safe_target), delta)
    keep = ~(rows < threshold)
    keep.scatter_(-1, safe_target, True)
    if logits.dim() == 1:
        return keep.squeeze(0)
    if logits.dim() == 2:
        return keep
    return keep.reshape(logits.shape[:1] + logits.shape[2:] + logits.shape[1:2]).movedim(-1, 1)


def keep_threshold(target_logit: Tensor, target_log_probability: Tensor, delta: float) -> Tensor:
    r"""The smallest logit that the margin keeps among the competitors, :math:`o_t + \log(1 - \delta / p_t)`.

    It is :math:`-\infty` where everything is kept (:math:`p_t \le \delta`) and :math:`+\infty` where nothing can be:
    with :math:`p_t > (1 + \delta) / 2`, :math:`p_i \le 1 - p_t` lies more than :math:`\delta` below for every ``i``.

    Written relative to the target's logit so that at ``delta=0`` a class that ties with the target is kept whatever
    the rounding of its log-probability.
    """
    target_probability = target_log_probability.exp()
    if delta == 0.0:
        threshold = target_logit  # log1p(-0 / p_t) is 0, but NaN where p_t has underflowed to 0
    else:
        threshold = target_logit + torch.log1p(-(delta / target_probability).clamp(max=1.0))
    return threshold.masked_fill(target_probability > (1.0 + delta) / 2.0, torch.inf)
