"""The spread of two candidates' difference that the test examples make: a floor, and an error on
new examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class ExampleSpread(NamedTuple):
    """The spread of the difference of two candidates' scores, in points; 0 where it is not known.

    ``floor`` is the standard deviation over the seeds that flips of single examples make, ``error``
    the standard error of the mean difference that comes from the choice of the examples.
    """

    floor: float = 0.0
    error: float = 0.0


class ScoredExamples(NamedTuple):
    """What one run's test examples add to its score, arrays with a row for each example.

    The score is the sum of ``parts[:, 0]`` over that of ``parts[:, 1]``: an accuracy, a micro F1.
    """

    ids: np.ndarray  # ``(N,)``: the same example has the same id in every run
    parts: np.ndarray  # ``(N, 2)``
    right: np.ndarray | None = None  # ``(N,)``: whether the one predicted class is right


def example_spread(pairs: Sequence[tuple[ScoredExamples, ScoredExamples]]) -> ExampleSpread:
    r"""Return the spread of a difference, from the examples of both candidates in each seed.

    The floor is of the accuracy of classes: where one run is right on a share q of N examples on
    which the other is wrong, or the other way round, $100 \sqrt{q / N}$ points. Two different wrong
    answers are no flip.

    The error is that of a bootstrap of the examples, in closed form: with $\psi_{se}$ the influence
    of example e on the difference of seed s, $100\,\mathrm{sd}_e(\bar\psi_{\cdot e}) / \sqrt N$.
    Together with the error over the seeds it is that of a bootstrap of seeds and examples (Owen
    2007). It needs the same examples in every seed.
    """
    ids = pairs[0][0].ids
    influences = np.array([_influences(own) - _influences(other) for own, other in pairs])
    error = 0.0
    if len(ids) > 1 and all(np.array_equal(own.ids, ids) for own, _ in pairs):
        error = float(influences.mean(0).std(ddof=1))
    flips = []
    for own, other in pairs:
        if own.right is not None and other.right is not None:
            flips.append(np.mean(own.right != other.right))
    floor = float(np.sqrt(np.mean(flips))) if flips else 0.0
    scale = 100.0 / np.sqrt(len(ids))
    return ExampleSpread(scale * floor, scale * error)


def _influences(examples: ScoredExamples) -> np.ndarray:
    """How much each example moves the score, times their number."""
    above, below = examples.parts.T
    if not below.sum():
        return np.full(len(below), np.nan)
    return np.asarray((above - above.sum() / below.sum() * below) / below.mean())
