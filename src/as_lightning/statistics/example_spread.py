"""The spread of two candidates' difference that the test examples make: a floor, and an error on
new examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from as_lightning.bench.run.predictions import Predictions


class ExampleSpread(NamedTuple):
    """The spread of the difference of two candidates' scores, in points; 0 where it is
    not known.
    """

    floor: float = 0.0  # the standard deviation over the seeds that flips of single examples make
    error: float = (
        0.0  # the standard error of the mean difference that comes from the choice of the examples
    )


def example_spread(pairs: Sequence[tuple[Predictions, Predictions]]) -> ExampleSpread:
    r"""The spread of a difference, from the predictions of both candidates in each seed.

    The floor is of the accuracy of classes: where one run is right on a share q of N examples on
    which the other is wrong, or the other way round, $100 \sqrt{q / N}$ points. Two different wrong
    answers are no flip.

    The error is that of a bootstrap of the examples, in closed form: with $\psi_{se}$ the influence
    of example e on the difference of seed s, $100\,\mathrm{sd}_e(\bar\psi_{\cdot e}) / \sqrt N$.
    Together with the error over the seeds it is that of a bootstrap of seeds and examples (Owen
    2007). It needs the same examples in every seed.
    """
    examples = len(pairs[0][0].ids)
    same_examples = all(np.array_equal(own.ids, pairs[0][0].ids) for own, _ in pairs)
    influences = np.array([_influences(own) - _influences(other) for own, other in pairs])
    error = float(influences.mean(0).std(ddof=1)) if same_examples and examples > 1 else 0.0
    flips = [
        np.mean((own.predicted == own.target) != (other.predicted == other.target))
        for own, other in pairs
        if own.predicted.ndim == 1
    ]
    floor = float(np.sqrt(np.mean(flips))) if flips else 0.0
    return ExampleSpread(*(100.0 * spread / np.sqrt(examples) for spread in (floor, error)))


def _influences(predictions: Predictions) -> np.ndarray:
    """How much each example moves the score, times their number."""
    above, below = predictions.score_parts.T
    return np.asarray((above - predictions.score * below) / max(below.mean(), np.finfo(float).tiny))
