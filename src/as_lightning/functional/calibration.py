"""Calibration: one temperature for a classifier's probabilities, and how often they are right."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter
from torch.nn.parameter import is_lazy

from as_lightning.functional.argument_checks import check_count, check_number
from as_lightning.functional.calling_convention import equals, in_float64

MIN_TEMPERATURE, MAX_TEMPERATURE = 1e-3, 1e3
BINS = 15  # of a reliability diagram
PART = 2**16  # numbers of a weight that are summed at a time, which fit in a cache


def fit_temperature(
    logits: Tensor,
    target: Tensor,
    *,
    ignore_index: int = -100,
    prior_samples: float = 1.0,
    reduce: Callable[[Tensor], Tensor] = lambda sums: sums,
) -> float:
    r"""The temperature at which ``softmax(logits / T)`` has the largest likelihood.

    With $\beta = 1 / T$ and the cross-entropy $\ell$ it minimises

    $$
    \sum_n \ell(\beta o_n, t_n) + \frac{\kappa}{N} \sum_n \frac{1}{C} \sum_c \ell(\beta o_n, c)
    $$

    The second term, $\kappa$ samples of unknown class, keeps the temperature above 0 where every
    prediction is right. Its mean is over the classes with a probability above 0. A class that the
    model rules out, by a logit of ``-inf`` or -1e9, takes no part, nor does a row whose target has
    a logit of ``-inf``. With several labels $\ell$ is the binary cross-entropy of each known label
    that is not ruled out.

    Args:
        logits: shape ``(..., C)``, classes last.
        target: class indices of shape ``(...)``, or {0, 1} of the logits' shape for several labels.
        ignore_index: target value of rows, or of single labels, that take no part.
        prior_samples: $\kappa$, 0 or more.
        reduce: sums a tensor over the ranks.

    Returns:
        The temperature, in [0.001, 1000]; 1 if there are no rows or no other is likelier, NaN if a
        logit is NaN.

    Raises:
        ValueError: if the shapes do not fit, several labels are not {0, 1}, or ``prior_samples`` is
            negative.
        IndexError: if a class index is out of range.
        ImportError: if SciPy is not installed.

    Source: Guo et al., "On Calibration of Modern Neural Networks", ICML 2017, section 4.2.

    Examples:
        >>> logits = torch.tensor([[4.0, 0.0], [4.0, 0.0], [4.0, 0.0], [4.0, 0.0]])
        >>> temperature = fit_temperature(logits, torch.tensor([0, 0, 0, 1]), prior_samples=0)
        >>> (logits[0] / temperature).softmax(-1)  # right in 3 of 4
        tensor([0.7500, 0.2500])
    """
    prior_samples = check_number(
        "prior_samples", prior_samples, lambda value: value >= 0, "a number of 0 or more"
    )
    from scipy.optimize import minimize_scalar

    logits, target, multilabel = _known_in_float64(logits.detach(), target, ignore_index)
    if not multilabel:  # no temperature makes a class likely that is ruled out
        likely = logits.gather(-1, target.unsqueeze(-1)).squeeze(-1) != -torch.inf
        logits, target = logits[likely], target[likely]
    possible = scaled_probabilities(logits, None, multilabel) != 0  # NaN must reach the result
    if multilabel:
        logits, target = logits[possible], target[possible]
    rows = float(reduce(torch.tensor(float(target.numel()), dtype=torch.float64)))
    if rows == 0:
        return 1.0

    def losses(scaled: Tensor) -> tuple[Tensor, Tensor]:
        """Return the sums of the losses of the targets, and of all classes or labels."""
        if multilabel:
            log_p, log_complement = F.logsigmoid(scaled), F.logsigmoid(-scaled)
            wrong = torch.where(target == 1, log_p, log_complement)
            return -wrong.sum(), -0.5 * (log_p + log_complement).sum()
        log_p = scaled.log_softmax(dim=-1)
        of_all = log_p.where(possible, 0.0).sum(dim=-1) / possible.sum(dim=-1).clamp(min=1)
        return F.nll_loss(log_p, target, reduction="sum"), -of_all.sum()

    def objective(log_beta: float) -> float:
        sums = reduce(torch.stack(losses(logits * math.exp(log_beta)))).tolist()
        return float(sums[0] + prior_samples * sums[1] / rows)

    bounds = (-math.log(MAX_TEMPERATURE), -math.log(MIN_TEMPERATURE))
    minimum = minimize_scalar(objective, bounds=bounds, method="bounded", options={"xatol": 1e-6})
    if not math.isfinite(minimum.fun):
        return math.nan
    if minimum.fun < objective(0.0):
        return math.exp(-minimum.x)
    return 1.0


def scaled_probabilities(
    logits: Tensor, temperature: float | None, multilabel: bool = False
) -> Tensor:
    """Return ``softmax(logits / temperature)``, or ``sigmoid`` of each label; None is 1."""
    if temperature is not None:
        logits = logits / temperature
    if multilabel:
        return logits.sigmoid()
    return logits.softmax(dim=-1)


def weights_digest(weights: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sum and the sum of squares of each weight, to six digits.

    A buffer of one number, such as a counter or a best score, is left out: a validation may change
    it. A weight of a compiled part has the name that it had before.
    """
    names, sums = [], []
    for name, weight in weights.items():
        if not isinstance(weight, Tensor) or is_lazy(weight) or weight.is_quantized:
            continue
        if weight.layout == torch.strided and (weight.numel() > 1 or isinstance(weight, Parameter)):
            names.append(name.replace("_orig_mod.", ""))
            sums.append(_sums(weight.detach()))
    if not sums:
        return {}
    # to the host at once
    totals = torch.stack([total.to(sums[0].device) for total in sums]).tolist()
    return {name: f"{x:.6g} {y:.6g}" for name, (x, y) in zip(names, totals, strict=True)}


def _sums(weight: Tensor) -> Tensor:
    """Return the sums of the numbers and of their squares, without a copy of the weight's size."""
    if weight.is_complex():
        weight = torch.view_as_real(weight)
    size = PART
    if not weight.is_cpu:
        size <<= 10  # few, large kernels
    parts = [in_float64(part) for part in weight.reshape(-1).split(size)]
    return torch.stack([torch.stack([part.sum(), part.dot(part)]) for part in parts]).sum(0)


def is_multilabel(logits: Tensor, target: Tensor) -> bool:
    """Return whether the target holds {0, 1} for each class, not one class index per row."""
    if target.shape == logits.shape:
        return True
    if target.shape == logits.shape[:-1]:
        return False
    raise ValueError(
        "expected logits of shape (..., C), classes last, with a target of shape (...) or (..., "
        f"C); got {tuple(logits.shape)} and {tuple(target.shape)}. Logits of shape (N, C, ...) "
        "need logits.movedim(1, -1)"
    )


def known_entries(logits: Tensor, target: Tensor, ignore_index: int) -> tuple[Tensor, Tensor]:
    """Return the logits and targets that are not ignored: rows, or single labels ``(K,)``.

    Raise ``ValueError`` for a target of shares: they may be those of one class or of several
    labels.
    """
    multilabel = is_multilabel(logits, target)
    ignored = equals(target, ignore_index)
    if ignored is None:
        ignored = torch.zeros_like(target, dtype=torch.bool)
    if not (multilabel or target.is_floating_point()):
        target = target.long()  # gather and nll_loss take no narrow type
    logits, target = logits[~ignored], target[~ignored]
    stray = target[(target != 0) & (target != 1)]
    if multilabel and stray.numel():
        raise ValueError(
            "a target of the logits' shape must hold 0 and 1 for several labels, and ignore_index "
            f"({ignore_index}), got {stray[0].item()!r}: give class indices, not their "
            "probabilities, as target.argmax(-1)"
        )
    return logits, target


def _known_in_float64(
    logits: Tensor, target: Tensor, ignore_index: int
) -> tuple[Tensor, Tensor, bool]:
    """Return the `known_entries` in float64, checked, and whether they are of several labels."""
    multilabel = is_multilabel(logits, target)
    logits, target = known_entries(logits, target, ignore_index)
    logits = in_float64(logits)
    target = target.to(logits.device)
    if not multilabel and target.numel():
        lowest, highest = int(target.min()), int(target.max())
        if lowest < 0 or highest >= logits.size(-1):
            raise IndexError(
                f"target must hold class indices from 0 to {logits.size(-1) - 1} or ignore_index, "
                f"got {lowest} to {highest}"
            )
    return logits, target, multilabel


class Reliability(NamedTuple):
    """The bins of a reliability diagram, as sums that may be added over batches and ranks.

    Each is ``float64`` of shape ``(bins,)``. Bin ``b`` holds confidences in ``(b / bins, (b + 1) /
    bins]``.
    """

    predictions: Tensor
    confidence: Tensor
    correct: Tensor

    @property
    def calibration_error(self) -> Tensor:
        r"""The expected calibration error, $\sum_b |correct_b - confidence_b| / N$; 0 without
        predictions.
        """
        return (self.correct - self.confidence).abs().sum() / self.predictions.sum().clamp(min=1)


def reliability(
    logits: Tensor, target: Tensor, *, ignore_index: int = -100, bins: int = BINS
) -> Reliability:
    """Sort predictions by their confidence, and count how many are right.

    The confidence is the largest of ``softmax(logits)``; with several labels it is each label's
    ``sigmoid(logits)``.

    Args:
        logits: shape ``(..., C)``, classes last.
        target: class indices of shape ``(...)``, or {0, 1} of the logits' shape for several labels.
        ignore_index: target value of rows, or of single labels, that take no part.
        bins: the number of bins, of equal width.

    Raises:
        ValueError: if the shapes do not fit, several labels are not {0, 1}, or ``bins`` is less
            than 1.
        IndexError: if a class index is out of range.

    Examples:
        >>> logits, target = torch.tensor([[0.0, 3.0], [3.0, 0.0]]), torch.tensor([1, 1])
        >>> bins = reliability(logits, target, bins=10)
        >>> round(float(bins.calibration_error), 2)
        0.45

    Source: Guo et al., ICML 2017, section 2; torchmetrics' calibration error with ``norm="l1"``.
    """
    check_count("bins", bins, least=1)
    logits, target, multilabel = _known_in_float64(logits, target, ignore_index)
    if multilabel:
        confidence, correct = logits.sigmoid(), target.double()
    else:
        confidence, predicted = logits.softmax(dim=-1).max(dim=-1)
        correct = (predicted == target).double()
    return sorted_by_confidence(confidence, correct, bins)


def sorted_by_confidence(confidence: Tensor, correct: Tensor, bins: int = BINS) -> Reliability:
    """Return the `Reliability` of confidences in [0, 1] that are ``correct`` or not, ``(N,)``."""
    confidence, correct = in_float64(confidence), in_float64(correct)
    index = (confidence * bins).ceil().long().clamp(1, bins) - 1
    in_bin = F.one_hot(index, bins).double()
    return Reliability(in_bin.sum(0), in_bin.T @ confidence, in_bin.T @ correct)
