r"""Logit adjustment after training, for a long tail (Menon et al. 2021, section 4.1)."""

from __future__ import annotations

import torch
from torch import Tensor

from as_lightning.functional.argument_checks import check_number
from as_lightning.functional.calling_convention import class_dimension, class_rows, in_float64
from as_lightning.functional.variants.class_counts import log_prior

TAUS = tuple(step / 20 for step in range(61))  # 0 to 3
TIE = 1e-12  # two balanced accuracies that differ by less are equal


def adjust_logits(logits: Tensor, class_counts: Tensor, tau: float = 1.0) -> Tensor:
    r"""Subtract the log of each class's share of the training data from its logit.

    $$
    o_i - \tau \log \pi_i, \qquad \pi_i = n_i / \sum_j n_j
    $$

    At ``tau=1`` the result ranks the classes as if each were equally frequent, which raises
    balanced accuracy and costs accuracy. It needs no new training; `fit_tau` chooses ``tau``. Do
    not adjust the logits of a model that was trained with `logit_adjusted_loss`.

    Args:
        logits: shape ``(C)``, ``(N, C)`` or ``(N, C, d1, ...)``.
        class_counts: the training examples of each class $n$, shape ``(C)``; a class without an
            example counts as 1, and a warning names it.
        tau: $\tau$; 0 changes nothing.

    Returns:
        The adjusted logits, in the shape and dtype of ``logits``.

    Raises:
        ValueError: if the counts are negative or of another shape, or ``tau`` is negative.
        TypeError: if an argument is of a wrong type.

    Source: Menon et al. 2021 (arXiv 2007.07314), section 4.1.

    Examples:
        >>> adjust_logits(torch.tensor([[2.0, 1.0]]), torch.tensor([90, 10])).argmax(-1)
        tensor([1])
    """
    tau = check_number("tau", tau, lambda value: value >= 0, "a number of 0 or more")
    adjustment = tau * log_prior(class_counts, logits)
    trailing = logits.dim() - 1 - class_dimension(logits)
    adjusted = logits - adjustment.reshape(-1, *[1] * trailing)
    return adjusted.to(logits.dtype)


def fit_tau(
    logits: Tensor, target: Tensor, class_counts: Tensor, *, ignore_index: int = -100
) -> float:
    r"""Return the ``tau`` at which adjusted logits have the largest balanced accuracy.

    Balanced accuracy is the mean of the recalls of the classes that occur in ``target``. All of 0,
    0.05, ..., 3 are tried, in float64. Among equally good values the smallest is returned, the one
    that changes the logits least; so without rows it is 0. Give logits of the validation split, not
    of the training or the test data.

    Args:
        logits: shape ``(C)``, ``(N, C)`` or ``(N, C, d1, ...)``.
        target: class indices, shape ``()``, ``(N)`` or ``(N, d1, ...)``.
        class_counts: the *training* examples of each class, shape ``(C)``, as for `adjust_logits`.
        ignore_index: target value of rows that take no part.

    Raises:
        ValueError, TypeError, IndexError: as `adjust_logits` and `as_cross_entropy`.

    Source: Menon et al. 2021 (arXiv 2007.07314), section 4.1, which tunes $\tau$ on held-out data.

    Examples:
        >>> logits = torch.tensor([[3.0, 0.0], [3.0, 0.0], [2.0, 1.0]])
        >>> fit_tau(logits, torch.tensor([0, 0, 1]), torch.tensor([90, 10]))
        0.5
    """
    rows = class_rows(logits.detach(), target, ignore_index)
    scores, target = in_float64(rows.logits), rows.target
    prior = log_prior(class_counts, scores)
    if rows.ignored is not None:
        scores, target = scores[~rows.ignored], target[~rows.ignored]
    target = target.to(scores.device)
    samples = torch.bincount(target, minlength=scores.size(-1))
    balanced = []
    for tau in TAUS:
        right = (scores - tau * prior).argmax(-1) == target
        recall = torch.bincount(target[right], minlength=len(samples)) / samples.double()
        balanced.append(recall.nanmean())  # NaN is the recall of a class without samples
    accuracies = torch.stack(balanced)
    best = (accuracies >= accuracies.max() - TIE).int().argmax()
    return TAUS[int(best)]
