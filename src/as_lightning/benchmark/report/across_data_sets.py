"""One line over several data sets: how probable it is that a method is better, equal or worse on the next one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from baycomp import SignedRankTest

from as_lightning.benchmark.report.old_verdicts import MARGIN_POINTS, POINT

MIN_DATA_SETS = 3
SAMPLES = 50_000


@dataclass(frozen=True)
class AcrossDataSets:
    """Posterior probabilities that a method's score on a data set is higher, within the margin, or lower.

    Attributes:
        better: of a difference above the margin.
        equal: of a difference within it (the region of practical equivalence).
        worse: of a difference below minus the margin.
        data_sets: the number of data sets.
        margin: in the unit of the score.
    """

    better: float
    equal: float
    worse: float
    data_sets: int
    margin: float

    @property
    def in_words(self) -> str:
        """One line for a report.

        >>> AcrossDataSets(0.02, 0.9, 0.08, data_sets=6, margin=0.005).in_words
        'over 6 data sets: better 2%, equal within 0.5 points 90%, worse 8% (Bayesian signed-rank test)'
        """
        return (
            f"over {self.data_sets} data sets: better {self.better:.0%}, equal within {self.margin / POINT:g} points "
            f"{self.equal:.0%}, worse {self.worse:.0%} (Bayesian signed-rank test)"
        )


def across_data_sets(
    scores: Sequence[float], reference: Sequence[float], margin: float = MARGIN_POINTS * POINT
) -> AcrossDataSets:
    """The Bayesian signed-rank test of a method's mean scores against the reference's, paired by data set.

    Args:
        scores: a method's mean score on each data set.
        reference: the reference's, in the same order.
        margin: the region of practical equivalence, in the unit of the score.

    Raises:
        ValueError: if the lengths differ, there are fewer than 3 data sets, or a score is not finite.

    Source: Benavoli, Corani, Demsar, Zaffalon, "Time for a Change", JMLR 18 (2017); baycomp's ``SignedRankTest``.
    """
    first, second = np.asarray(scores, dtype=np.float64), np.asarray(reference, dtype=np.float64)
    if first.shape != second.shape or first.ndim != 1:
        raise ValueError(
            f"expected two lists with one score for each data set, got shapes {first.shape} and {second.shape}"
        )
    if len(first) < MIN_DATA_SETS:
        raise ValueError(f"expected at least {MIN_DATA_SETS} data sets, got {len(first)}")
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise ValueError("a mean score is not finite: leave its data set out")
    better, equal, worse = SignedRankTest.probs(first, second, rope=margin, nsamples=SAMPLES, random_state=0)
    return AcrossDataSets(float(better), float(equal), float(worse), len(first), margin)
