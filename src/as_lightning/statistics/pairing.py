"""Differences for runs that are not paired, or not independent, such that a paired t-test of them
is right.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd

from as_lightning.statistics.verdicts import MIN_PAIRS, Arm, Scores

TEST_SHARE = 0.2  # of the examples, in a random split: as in 5 folds


def unpaired(scores: Scores, reference: Arm) -> set[Arm]:
    """The arms that have scores, but no seed in common with the reference."""
    base, by_arm = (
        set(_finished(scores[reference]).index),
        {arm: set(_finished(scores[arm]).index) for arm in scores},
    )
    return {arm for arm, seeds in by_arm.items() if seeds and base.isdisjoint(seeds)}


def paired_differences(
    scores: Scores, reference: Arm, ratio: float = 0.0
) -> dict[Arm, dict[int, float]]:
    r"""Scores whose differences to the reference (all 0) have the means and the standard errors
    that runs allow.

    * In $n$ seeds of both: the differences $d_s$, spread so that their mean has the variance $(1/n
      + \rho) s^2$ (Nadeau and Bengio 2003). The ratio $\rho$ is of test to training examples, 0 for
      independent runs.
    * Without a seed of both: as many numbers as give Welch's degrees of freedom (rounded down),
      with the difference of the means as their mean, and its standard error as theirs.

    The keys are numbers in place of seeds; NaN fills the shorter ones up.
    """
    base = _finished(scores[reference])
    differences: dict[Arm, list[float]] = {}
    for arm, by_seed in scores.items():
        own = _finished(by_seed)
        paired = (own - base).dropna()
        if len(paired):
            differences[arm] = list(
                paired.mean() + (paired - paired.mean()) * math.sqrt(1.0 + len(paired) * ratio)
            )
        else:
            differences[arm] = _welch(own, base) if min(len(own), len(base)) >= MIN_PAIRS else []
    longest = max(map(len, differences.values()))
    filled = {
        arm: [*values, *[math.nan] * (longest - len(values))] for arm, values in differences.items()
    }
    filled[reference] = [0.0] * longest
    return {arm: dict(enumerate(values)) for arm, values in filled.items()}


def _welch(own: pd.Series, base: pd.Series) -> list[float]:
    variances = np.array([own.var() / len(own), base.var() / len(base)])
    error, degrees = variances.sum(), min(len(own), len(base)) - 1.0
    if error > 0:
        degrees = error**2 / (variances**2 / [len(own) - 1, len(base) - 1]).sum()
    positions = np.arange(int(degrees + 1e-9) + 1.0)
    spread = (positions - positions.mean()) / positions.std(ddof=1)
    return list(own.mean() - base.mean() + spread * math.sqrt(error * len(positions)))


def _finished(by_seed: Mapping[int, float]) -> pd.Series:
    return pd.Series(by_seed, dtype=float).dropna()
