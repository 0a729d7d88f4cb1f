"""Differences for runs that are not paired, such that a paired t-test of them is right."""

from __future__ import annotations

import numpy as np
import pandas as pd

from as_lightning.statistics.verdicts import MIN_PAIRS


def are_paired(own: pd.Series, base: pd.Series) -> bool:
    """Return whether the seeds that both have, their labels, are most of the runs of both.

    Of 7 and 3 runs with 3 common seeds, the pairs alone give an interval twice as wide as
    independent samples do.

    >>> runs = pd.Series(range(7))
    >>> are_paired(runs, runs), are_paired(runs[:3], runs)
    (True, False)
    """
    common = own.index.intersection(base.index)
    return own.empty or 2 * len(common) > max(len(own), len(base))


def differences(own: pd.Series, base: pd.Series) -> list[float]:
    """Return differences with the mean and the standard error that the runs of both allow.

    They are those of the seeds if runs are paired; else as many as Welch's degrees of freedom
    (rounded down) and one more, or none of fewer than `MIN_PAIRS` runs.
    """
    if are_paired(own, base):
        return list((own - base).dropna())
    sizes = np.array([len(own), len(base)])
    if sizes.min() < MIN_PAIRS:
        return []
    variances = np.array([own.var(), base.var()]) / sizes
    error, degrees = variances.sum(), sizes.min() - 1.0
    if error > 0:
        degrees = error**2 / (variances**2 / (sizes - 1)).sum()
    positions = np.arange(int(degrees + 1e-9) + 1.0)
    spread = (positions - positions.mean()) / positions.std(ddof=1)
    return list(own.mean() - base.mean() + spread * np.sqrt(error * len(positions)))
