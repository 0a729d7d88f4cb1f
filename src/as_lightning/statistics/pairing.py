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
    """Return the arms with runs of which few share a seed with the reference.

    The pairs must be most of the runs of both. Of 7 and 3 runs with 3 common seeds, the pairs alone
    give an interval twice as wide as independent samples do.

    >>> base, few = dict.fromkeys(range(7), 90.0), dict.fromkeys(range(3), 91.0)
    >>> unpaired({"base": base, "few": few, "all": base}, "base")
    {'few'}
    """
    base = _finished(scores[reference]).index
    found = set()
    for arm, by_seed in scores.items():
        own = _finished(by_seed).index
        if len(own) and 2 * len(own.intersection(base)) <= max(len(own), len(base)):
            found.add(arm)
    return found


def paired_differences(
    scores: Scores, reference: Arm, ratio: float = 0.0
) -> dict[Arm, dict[int, float]]:
    r"""Return scores whose differences to the reference have the means and the standard errors
    that runs allow; those of the reference are all its mean.

    * Of paired runs: the differences $d_s$ of $n$ seeds, spread so that their mean has the variance
      $(1/n + \rho) s^2$ (Nadeau and Bengio 2003). The ratio $\rho$ is of test to training examples,
      0 for independent runs.
    * Of others (`unpaired`): as many numbers as give Welch's degrees of freedom (rounded down),
      with the difference of the means as their mean, and its standard error as theirs.

    The keys are numbers in place of seeds; NaN fills the shorter ones up.
    """
    base = _finished(scores[reference])
    independent = unpaired(scores, reference)
    differences: dict[Arm, list[float]] = {}
    for arm, by_seed in scores.items():
        own = _finished(by_seed)
        paired = (own - base).dropna()
        if arm not in independent:
            spread = math.sqrt(1.0 + len(paired) * ratio)
            differences[arm] = list(paired.mean() + (paired - paired.mean()) * spread)
        elif min(len(own), len(base)) >= MIN_PAIRS:
            differences[arm] = _welch(own, base)
        else:
            differences[arm] = []
    longest = max(map(len, differences.values()))
    middle = float(base.mean())
    filled = {}
    for arm, values in differences.items():
        padded = [*values, *[math.nan] * (longest - len(values))]
        filled[arm] = {number: middle + value for number, value in enumerate(padded)}
    filled[reference] = dict.fromkeys(range(longest), middle)
    return filled


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
