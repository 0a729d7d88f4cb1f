"""The error that a choice of test examples makes in scores that are no mean over the examples."""

from __future__ import annotations

from typing import Literal

import numpy as np
from scipy import sparse

DRAWS = 1000
CHUNK = 100  # draws at a time, which bounds the memory

ClassScore = Literal["balanced_accuracy", "f1_macro"]


def class_scores(
    right: np.ndarray, predicted: np.ndarray, target: np.ndarray, score: ClassScore
) -> np.ndarray:
    r"""Return the balanced accuracy or the macro F1, in points, from counts by class.

    With $r_c$ right, $p_c$ predicted and $n_c$ true examples of class c, over the C classes with
    $n_c > 0$:

    $$
    \frac{100}{C} \sum_c \frac{r_c}{n_c}, \qquad \frac{100}{C} \sum_c \frac{2 r_c}{p_c + n_c}.
    $$

    Args:
        right: how many examples of each class are predicted right, ``(..., C)``.
        predicted: how many examples are predicted to be of each class, ``(..., C)``.
        target: how many examples each class has, ``(C)``.
        score: ``"balanced_accuracy"`` or ``"f1_macro"``.

    >>> counts = np.array([3, 0]), np.array([4, 0]), np.array([3, 1])
    >>> [float(class_scores(*counts, score).round(1)) for score in ("balanced_accuracy", "f1_macro")]
    [50.0, 42.9]
    """
    present = target > 0
    right, predicted, target = right[..., present], predicted[..., present], target[present]
    if score == "balanced_accuracy":
        return 100 * (right / target).mean(-1)
    return 100 * (2 * right / (predicted + target)).mean(-1)


def bootstrap_error(
    own: np.ndarray,
    other: np.ndarray,
    target: np.ndarray,
    score: ClassScore,
    draws: int = DRAWS,
    seed: int = 0,
) -> float:
    """Return the standard error of a mean difference that the choice of test examples makes.

    The examples are drawn with replacement within each class, the same ones for all runs, so that
    each class keeps its size. Classes with one example add nothing: `single_classes` names them.

    Args:
        own: the predicted classes of a candidate's runs, integers ``(S, N)``.
        other: those of the baseline's runs, paired by row, ``(S, N)``.
        target: the true classes, ``(N)``.
        score: ``"balanced_accuracy"`` or ``"f1_macro"``.
        draws: how many times the examples are drawn.
        seed: of the draws.

    Source: Efron 1979; together with the error over seeds it is a bootstrap of both (Owen 2007).

    >>> target = np.repeat([0, 1], 50)
    >>> own, other = target.copy(), target.copy()
    >>> other[:10] = 1
    >>> round(bootstrap_error(own[None], other[None], target, "balanced_accuracy"))
    3
    """
    classes = int(max(own.max(), other.max(), target.max())) + 1
    generator = np.random.default_rng(seed)
    runs = [(predicted, 1) for predicted in own] + [(predicted, -1) for predicted in other]
    matrices = [(*_by_class(predicted, target, classes), sign) for predicted, sign in runs]
    sizes = np.bincount(target, minlength=classes)
    differences = []
    for start in range(0, draws, CHUNK):
        weights = _weights(target, min(CHUNK, draws - start), generator)
        total = np.zeros(len(weights))
        for right, predicted, sign in matrices:
            total += sign * class_scores(weights @ right, weights @ predicted, sizes, score)
        differences.append(total / len(own))
    return float(np.concatenate(differences).std(ddof=1))


def single_classes(target: np.ndarray, classes: int) -> tuple[list[int], list[int]]:
    """Return the classes without a test example, and those with one.

    >>> single_classes(np.array([0, 0, 2]), classes=4)
    ([1, 3], [2])
    """
    sizes = np.bincount(target, minlength=classes)
    return np.flatnonzero(sizes == 0).tolist(), np.flatnonzero(sizes == 1).tolist()


def _by_class(
    predicted: np.ndarray, target: np.ndarray, classes: int
) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Return which examples are right, and how each is predicted, as ``(N, C)`` of 0 and 1."""
    rows = np.arange(len(target))
    ones = np.ones(len(target))
    shape = (len(target), classes)
    right = sparse.csr_array(((predicted == target).astype(float), (rows, target)), shape=shape)
    return right, sparse.csr_array((ones, (rows, predicted)), shape=shape)


def _weights(target: np.ndarray, draws: int, generator: np.random.Generator) -> np.ndarray:
    """Return how often each example is drawn, ``(draws, N)``."""
    weights = np.empty((draws, len(target)))
    for label in np.unique(target):
        rows = np.flatnonzero(target == label)
        shares = np.full(len(rows), 1 / len(rows))
        weights[:, rows] = generator.multinomial(len(rows), shares, size=draws)
    return weights
