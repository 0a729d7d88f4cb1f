"""The spread of two candidates' difference that the test examples make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd


class ExampleSpread(NamedTuple):
    """The spread of the difference of two candidates' scores, in points; 0 where it is not known.

    ``floor`` is the standard deviation over the seeds that flips of single examples make, ``error``
    the standard error of the mean difference that comes from the choice of the examples.
    """

    floor: float = 0.0
    error: float = 0.0


class ScoredExamples(NamedTuple):
    """One run's score, and how much each of its test examples moves it."""

    ids: np.ndarray  # ``(N,)``: the same example has the same id in every run
    score: float  # NaN where no example counts
    influence: np.ndarray  # ``(N,)``: the derivative by the example's weight, times N
    right: np.ndarray | None = None  # ``(N,)``: whether the one predicted class is right
    strata: np.ndarray | None = None  # ``(N,)``: examples are drawn within these


def example_spread(pairs: Sequence[tuple[ScoredExamples, ScoredExamples]]) -> ExampleSpread:
    r"""Return the spread of a difference, from the examples of both candidates in each seed.

    The floor is of predicted classes: where one run is right on a share q of N examples on which
    the other is wrong, or the other way round, $100 \sqrt{q / N}$ points of accuracy. Of a score by
    class each flip counts as the example moves it.

    The error is that of a bootstrap of the examples within their strata, in closed form: with
    $\psi_{se}$ the influence of example e on the difference of seed s, and $n_h$ examples in the
    stratum h, $\frac{100}{N} \sqrt{\sum_h n_h \mathrm{var}_{e \in h}(\bar\psi_{\cdot e})}$, less
    the mean of $\mathrm{var}_s(\psi_{se}) / S$, the luck of S seeds, which is in the error over the
    seeds already. It needs the same examples in every seed; a stratum of one adds nothing.

    Source: Owen, "The pigeonhole bootstrap", Annals of Applied Statistics 1, 2007.
    """
    first = pairs[0][0]
    ids, count = first.ids, len(first.ids)
    influences = np.array([own.influence - other.influence for own, other in pairs])
    error = 0.0
    if all(np.array_equal(own.ids, ids) for own, _ in pairs):
        strata = np.zeros(count, dtype=int)
        if first.strata is not None:
            strata, _ = pd.factorize(first.strata)
        sizes = np.bincount(strata)
        influence = influences.mean(0)
        centred = influence - (np.bincount(strata, influence) / sizes)[strata]
        squares = np.bincount(strata, centred**2) * sizes / np.maximum(sizes - 1, 1)
        if len(pairs) > 1:
            squares -= np.bincount(strata, influences.var(0, ddof=1) / len(pairs))
        error = float(np.sqrt(max(squares[sizes > 1].sum(), 0.0))) / count
    flips = []
    for own, other in pairs:
        if own.strata is not None:
            flips.append(np.mean((own.influence - other.influence) ** 2))
        elif own.right is not None and other.right is not None:
            flips.append(np.mean(own.right != other.right))
    floor = float(np.sqrt(np.mean(flips) / count)) if flips else 0.0
    return ExampleSpread(100.0 * floor, 100.0 * error)
