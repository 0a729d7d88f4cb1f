"""Calibration: one temperature for the probabilities of a trained classifier, and how often they
are right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter
from torch.nn.parameter import is_lazy

from as_lightning.functional.argument_checks import check_count
from as_lightning.functional.calling_convention import equals, in_float64

MIN_TEMPERATURE, MAX_TEMPERATURE = 1e-3, 1e3
BINS = 15  # of a reliability diagram
ROW = 2**14  # numbers in a row of a digest, whose products fit in a cache


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
    if prior_samples < 0:
        raise ValueError(f"prior_samples must be at least 0, got {prior_samples}")
    from scipy.optimize import minimize_scalar

    logits, target, multilabel = _known_in_float64(logits.detach(), target, ignore_index)
    if not multilabel:
        ruled_out = logits.gather(-1, target.unsqueeze(-1)).squeeze(-1) == -torch.inf
        if bool(ruled_out.any()):  # no temperature makes such a class likely
            logits, target = logits[~ruled_out], target[~ruled_out]
    possible = scaled_probabilities(logits, None, multilabel) != 0  # NaN must reach the result
    if multilabel:
        logits, target = logits[possible], target[possible]
    rows = float(reduce(torch.tensor(float(target.numel()), dtype=torch.float64)))
    if rows == 0:
        return 1.0

    def objective(log_beta: float) -> float:
        scaled = logits * math.exp(log_beta)
        if multilabel:
            prior, labels = torch.full_like(scaled, 0.5), target.to(scaled.dtype)
            losses = [
                F.binary_cross_entropy_with_logits(scaled, y, reduction="sum")
                for y in (labels, prior)
            ]
        else:
            log_p = scaled.log_softmax(dim=-1)
            prior_losses = -log_p.where(possible, 0.0).sum(dim=-1) / possible.sum(dim=-1).clamp(
                min=1
            )
            losses = [F.nll_loss(log_p, target, reduction="sum"), prior_losses.sum()]
        sums = reduce(torch.stack(losses)).tolist()
        return float(sums[0] + prior_samples * sums[1] / rows)

    bounds = (-math.log(MAX_TEMPERATURE), -math.log(MIN_TEMPERATURE))
    minimum = minimize_scalar(objective, bounds=bounds, method="bounded", options={"xatol": 1e-6})
    if not math.isfinite(minimum.fun):
        return math.nan
    return math.exp(-minimum.x) if minimum.fun < objective(0.0) else 1.0


def scaled_probabilities(
    logits: Tensor, temperature: float | None, multilabel: bool = False
) -> Tensor:
    """``softmax(logits / temperature)`` over the last dimension, or ``sigmoid`` of each label; None
    is 1.
    """
    scaled = logits if temperature is None else logits / temperature
    return scaled.sigmoid() if multilabel else scaled.softmax(dim=-1)


def weights_digest(weights: Mapping[str, Any]) -> dict[str, int]:
    """A digest of each weight, a number that depends on its values in float32 and on their places.

    A buffer of one number, such as a counter or a best score, is left out: a validation may change
    it. A weight of a compiled part has the name that it had before.
    """
    dense_weights = {
        name.replace("_orig_mod.", ""): x.detach().as_subclass(Tensor)
        for name, x in weights.items()
        if (type(x) is Tensor and x.numel() > 1) or issubclass(type(x), Parameter)
        if not is_lazy(x) and x.layout == torch.strided and not x.is_quantized and x.numel()
    }
    tensors = {
        name: torch.view_as_real(x) if x.is_complex() else x for name, x in dense_weights.items()
    }
    if not tensors:
        return {}
    columns = {
        device: _factors(torch.arange(ROW, device=device))
        for device in {x.device for x in tensors.values()}
    }
    totals = [_digest(x, columns[x.device]) for x in tensors.values()]
    return dict(
        zip(
            tensors,
            torch.stack([total.to(totals[0].device) for total in totals]).tolist(),
            strict=True,
        )
    )


def _digest(weight: Tensor, column_factors: Tensor) -> Tensor:
    """The sum modulo 2**64 of each number's bits times the odd factors of its place: a linear
    universal hash.

    The place is a row of `ROW` numbers and a column, each with a factor, so that no copy has the
    weight's size.
    """
    bits, row_length = weight.float().view(torch.int32).reshape(-1), min(ROW, weight.numel())
    row_factors = _factors(ROW + torch.arange(-(-len(bits) // row_length), device=bits.device))
    rows_at_once = 1 if weight.device.type == "cpu" else 2**10  # on a GPU few, large kernels
    total = torch.zeros((), dtype=torch.int64, device=bits.device)
    for part, factors in zip(
        bits.split(rows_at_once * row_length), row_factors.split(rows_at_once), strict=True
    ):
        part = F.pad(part, (0, -len(part) % row_length)) if len(part) % row_length else part
        total += ((part.view(-1, row_length) * column_factors[:row_length]).sum(1) * factors).sum()
    return total


def _factors(places: Tensor) -> Tensor:
    """An odd number of 64 bits for each place, without a pattern: by SplitMix64 (Steele et al.,
    2014).
    """
    mixed = (places + 1) * -0x61C8864680B583EB
    for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15)):
        mixed = (mixed ^ mixed >> shift) * factor
    return (mixed ^ mixed >> 31) | 1


def is_multilabel(logits: Tensor, target: Tensor) -> bool:
    """Whether the target holds {0, 1} for each class, not one class index per row; raises if the
    shapes fit neither.
    """
    if target.shape == logits.shape:
        return True
    if target.shape == logits.shape[:-1]:
        return False
    raise ValueError(
        "expected logits of shape (..., C), classes last, with a target of shape (...) or (..., "
        "C); got "
        f"{tuple(logits.shape)} and {tuple(target.shape)}. Logits of shape (N, C, ...) need "
        "logits.movedim(1, -1)"
    )


def known_entries(logits: Tensor, target: Tensor, ignore_index: int) -> tuple[Tensor, Tensor]:
    """Logits and targets that are not ignored: rows ``(R, C)`` and ``(R,)``, or with several labels
    ``(K,)`` each.

    Raises ``ValueError`` for a target of shares: they may be those of one class or of several
        labels.
    """
    ignored = equals(target, ignore_index)
    known = torch.ones_like(target, dtype=torch.bool) if ignored is None else ~ignored
    multilabel = is_multilabel(logits, target)
    if not (multilabel or target.is_floating_point()):
        target = target.long()  # gather and nll_loss take no narrow type
    logits, target = logits[known], target[known]
    if multilabel and bool((stray := (target != 0) & (target != 1)).any()):
        raise ValueError(
            "a target of the logits' shape must hold 0 and 1 for several labels, and ignore_index "
            f"({ignore_index}), "
            f"got {target[stray][0].item()!r}: give class indices, not their probabilities, as "
            "target.argmax(-1)"
        )
    return logits, target


def _known_in_float64(
    logits: Tensor, target: Tensor, ignore_index: int
) -> tuple[Tensor, Tensor, bool]:
    """The `known_entries` with logits in float64, and whether they are of several labels; raises
    for stray indices.
    """
    multilabel = is_multilabel(logits, target)
    logits, target = known_entries(logits, target, ignore_index)
    logits = in_float64(logits)
    target = target.to(logits.device)
    if (
        not multilabel
        and target.numel()
        and not 0 <= int(target.min()) <= int(target.max()) < logits.size(-1)
    ):
        index_range = f"{int(target.min())} to {int(target.max())}"
        expected = f"from 0 to {logits.size(-1) - 1} or ignore_index"
        raise IndexError(f"target must hold class indices {expected}, got {index_range}")
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
        >>> bins = reliability(torch.tensor([[0.0, 3.0], [3.0, 0.0]]), torch.tensor([1, 1]), bins=10)
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
    """The `Reliability` of predictions with a ``confidence`` in [0, 1] that are ``correct`` or not,
    both ``(N,)``.
    """
    confidence, correct = in_float64(confidence), in_float64(correct)
    index = (confidence * bins).ceil().long().clamp(1, bins) - 1
    in_bin = F.one_hot(index, bins).double()
    return Reliability(in_bin.sum(0), in_bin.T @ confidence, in_bin.T @ correct)
