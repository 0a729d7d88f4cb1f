"""Differences for runs that are not paired, such that a paired t-test of them is right."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd

from as_lightning.statistics.verdicts import MIN_PAIRS, Arm, Scores


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


def paired_differences(scores: Scores, reference: Arm) -> dict[Arm, dict[int, float]]:
    """Return scores whose differences to the reference have the means and the standard errors
    that runs allow; those of the reference are all its mean.

    * Of paired runs: the differences of the seeds.
    * Of others (`unpaired`): as many numbers as give Welch's degrees of freedom (rounded down),
      with the difference of the means as their mean, and its standard error as theirs.

    The keys are numbers in place of seeds; NaN fills the shorter ones up.
    """
    base = _finished(scores[reference])
    independent = unpaired(scores, reference)
    differences: dict[Arm, list[float]] = {}
    for arm, by_seed in scores.items():
        own = _finished(by_seed)
        if arm not in independent:
            differences[arm] = list((own - base).dropna())
        elif min(len(own), len(base)) >= MIN_PAIRS:
            differences[arm] = _welch(own, base)
        else:
            differences[arm] = []
    middle = float(base.mean())
    table = middle + pd.DataFrame(
        {arm: pd.Series(of, dtype=float) for arm, of in differences.items()}
    )
    table[reference] = middle
    return {str(arm): dict(of) for arm, of in table.items()}


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
