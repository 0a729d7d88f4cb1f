"""Group-sequential boundaries: how much evidence each look needs, so that all looks together keep the error."""

from __future__ import annotations

import functools

import numpy as np
from scipy import optimize, stats

GRID = 1001


@functools.lru_cache(maxsize=512)
def nominal_levels(looks: tuple[int, ...], alpha: float, exponent: float) -> tuple[float, ...]:
    r"""The one-sided p-value that each look needs, so that the chance of a false positive at any look is ``alpha``.

    After the share :math:`t` of the last look's seeds the error :math:`\alpha t^\rho` may be spent (Lan and DeMets
    1983; Kim and DeMets 1987). The boundary of each look follows from the ones before by recursive integration over the
    sum of the differences, a Brownian motion under the null hypothesis (Armitage, McPherson and Rowe 1969).

    Args:
        looks: the numbers of seeds, ascending.
        alpha: of all looks together.
        exponent: rho; 1 is close to Pocock's boundary (early decisions), 3 to O'Brien and Fleming's (late ones).

    >>> nominal_levels((5,), 0.05, 2.0)
    (0.05,)
    >>> [round(level, 4) for level in nominal_levels((5, 10), 0.05, 1.0)]
    [0.025, 0.0354]
    """
    times = np.array(looks, dtype=np.float64) / looks[-1]
    spent = np.diff(alpha * times**exponent, prepend=0.0)
    levels = [float(spent[0])]
    grid = np.linspace(-8.0 * np.sqrt(times[0]), stats.norm.isf(levels[0]) * np.sqrt(times[0]), GRID)
    density = stats.norm.pdf(grid, scale=np.sqrt(times[0]))
    for look in range(1, len(looks)):
        weights = density * np.gradient(grid)
        weights[[0, -1]] = density[[0, -1]] * (grid[1] - grid[0]) / 2  # the trapezoidal rule
        step, root = np.sqrt(times[look] - times[look - 1]), np.sqrt(times[look])

        bound = optimize.brentq(_excess, -8.0 * root, 10.0 * root, (weights, grid, step, spent[look]), xtol=1e-10)
        levels.append(float(stats.norm.sf(bound / root)))
        following = np.linspace(-8.0 * root, bound, GRID)
        density = stats.norm.pdf((following[:, None] - grid) / step) @ weights / step
        grid = following
    return tuple(levels)


def _excess(bound: float, weights: np.ndarray, grid: np.ndarray, step: float, spent: float) -> float:
    return float(weights @ stats.norm.sf((bound - grid) / step)) - spent
