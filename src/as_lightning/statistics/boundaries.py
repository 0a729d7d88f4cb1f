"""Group-sequential boundaries: the evidence that each look needs, for one error in all looks."""

from __future__ import annotations

import functools
import math

import numpy as np
from scipy import special

GRID = 401  # odd, for Simpson's rule


@functools.lru_cache(maxsize=512)
def nominal_levels(looks: tuple[int, ...], alpha: float, power: float = 1.0) -> tuple[float, ...]:
    r"""The one-sided p-values that the looks need, so that ``alpha`` is the chance of a false
    positive at any of them.

    After the share $t$ of the last look's seeds $\alpha t^{\rho}$ is spent, with $\rho$ the
    ``power`` (Lan and DeMets 1983; Kim and DeMets 1987): a larger one spends less at the early
    looks. The boundary of each look follows from the ones before by recursive integration over the
    sum of the differences, a Brownian motion under the null hypothesis (Armitage, McPherson and
    Rowe 1969).

    >>> nominal_levels((5,), 0.05)
    (0.05,)
    >>> [round(level, 4) for level in nominal_levels((5, 10), 0.05)]
    [0.025, 0.0354]
    """
    if len(looks) == 1:
        return (alpha,)
    # here, since a fixed design, as of a table of scores, needs not wait for them
    from scipy import integrate, optimize

    times = np.array(looks, dtype=np.float64) / looks[-1]
    spent = np.diff(alpha * times**power, prepend=0.0)
    levels = [float(spent[0])]
    root = np.sqrt(times[0])
    grid = np.linspace(-8.0 * root, -special.ndtri(levels[0]) * root, GRID)
    density = _normal(grid / root) / root
    for look in range(1, len(looks)):
        step, root = np.sqrt(times[look] - times[look - 1]), np.sqrt(times[look])
        bound = optimize.brentq(
            _excess, -8.0 * root, 10.0 * root, (density, grid, step, spent[look]), xtol=1e-10
        )
        levels.append(float(special.ndtr(-bound / root)))
        next_grid = np.linspace(-8.0 * root, bound, GRID)
        transition = _normal((next_grid[:, None] - grid) / step) / step
        density = integrate.simpson(transition * density, x=grid)
        grid = next_grid
    return tuple(levels)


def _normal(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.exp(-(x**2) / 2.0) / math.sqrt(2.0 * math.pi))


def _excess(
    bound: float, density: np.ndarray, grid: np.ndarray, step: float, spent: float
) -> float:
    from scipy import integrate

    return float(integrate.simpson(density * special.ndtr((grid - bound) / step), x=grid)) - spent
