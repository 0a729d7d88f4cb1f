"""The score of a run's predictions, and how much each test example moves it."""

from __future__ import annotations

import numpy as np
import pandas as pd


def ratio_score(parts: np.ndarray) -> tuple[float, np.ndarray]:
    r"""Return an accuracy or a micro F1, and the influence of each example on it.

    The score is $\sum_e a_e / \sum_e b_e$, the influence $(a_e - \text{score} \cdot b_e) / \bar b$,
    with the ``parts`` $(a_e, b_e)$, ``(N, 2)``.
    """
    above, below = parts.T
    if not below.sum():
        return np.nan, np.full(len(below), np.nan)
    score = above.sum() / below.sum()
    return float(score), np.asarray((above - score * below) / below.mean())


def class_score(predicted: np.ndarray, target: np.ndarray, score: str) -> tuple[float, np.ndarray]:
    r"""Return the balanced accuracy or the macro F1, and the influence of each example on it.

    With $r_c$ right, $p_c$ predicted and $n_c$ true examples of class c, the mean of $r_c / n_c$
    over the classes with $n_c > 0$, or that of $2 r_c / (p_c + n_c)$ over those with $p_c + n_c >
    0$. The influence is for draws within the true classes, so that $n_c$ is fixed.

    >>> value, influence = class_score(np.array([0, 0, 1, 1]), np.array([0, 0, 0, 1]), "f1_macro")
    >>> round(value, 3), influence.round(2).tolist()
    (0.733, [0.48, 0.48, -0.44, 0.89])
    """
    codes, names = pd.factorize(np.concatenate([target, predicted]))
    true, guessed = codes[: len(target)], codes[len(target) :]
    right = true == guessed
    hits, sizes, guesses = (
        np.bincount(of, minlength=len(names)) for of in (true[right], true, guessed)
    )
    if score == "balanced_accuracy":
        present = sizes > 0
        value = (hits[present] / sizes[present]).mean()
        return float(value), len(true) / present.sum() * right / sizes[true]
    total = sizes + guesses
    f1 = 2 * hits / total
    change = 2 * right / total[true] - f1[guessed] / total[guessed]
    return float(f1.mean()), len(true) / len(names) * change
