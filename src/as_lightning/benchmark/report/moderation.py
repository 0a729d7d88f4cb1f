"""The spread of scores over seeds: without the seed's own effect, and steadied by the other methods' spreads."""

from __future__ import annotations

import numpy as np
from scipy.special import digamma, polygamma

SMALLEST = 1e-5  # of the median variance: a smaller one has no meaningful logarithm


def seed_residual_variances(scores: np.ndarray, present: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    r"""Each method's variance over the seeds, with the effect of the seed that all methods share taken out.

    With the residuals $r_{ms} = y_{ms} - \bar y_{m\cdot} - \bar y_{\cdot s} + \bar y_{\cdot\cdot}$ of the two-way
    layout the variance of method m is $\sum_s r_{ms}^2 / \nu$, $\nu = (n - 1)(M - 1) / M$. For two methods
    the sum of both variances is the variance of their paired differences.

    ``scores`` has shape ``(..., methods, seeds)``; the others ``(..., methods)``. At least two methods are ``present``;
    the variance of one that is not is NaN.
    """
    seeds, counted = scores.shape[-1], present[..., None]
    methods = np.maximum(present.sum(-1, keepdims=True), 2)  # where none is present nothing is divided by 0
    centred = np.where(counted, scores - scores.mean(-1, keepdims=True), 0.0)
    residuals = np.where(counted, centred - centred.sum(-2, keepdims=True) / methods[..., None], 0.0)
    degrees = np.broadcast_to((seeds - 1) * (methods - 1) / methods, present.shape).astype(np.float64)
    return np.where(present, (residuals**2).sum(-1) / degrees, np.nan), degrees


def variance_prior(variances: np.ndarray, degrees: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    r"""What the methods' variances have in common (empirical Bayes, as limma's ``squeezeVar``).

    The true variances are taken as draws of a scaled inverse chi-squared distribution around $s_0^2$ with
    $d_0$ degrees of freedom. With $e_g = \log s_g^2 - \psi(d_g/2) + \log(d_g/2)$ over the G methods,

    * $\psi'(d_0/2) = \sum (e_g - \bar e)^2/(G-1) - \overline{\psi'(d_g/2)}$; where the right side is not positive
      $d_0$ is infinite, and $s_0^2$ the pooled variance;
    * else $\log s_0^2 = \bar e + \psi(d_0/2) - \log(d_0/2)$.

    Both arguments have shape ``(..., methods)``; $s_0^2$ and $d_0$ are returned, of shape ``(..., 1)``.

    Source: Smyth, Statistical Applications in Genetics and Molecular Biology 3 (2004), article 3, section 6.2.

    >>> variance, degrees = variance_prior(np.array([1.0, 1.0, 1.0]), np.array([4.0, 4.0, 4.0]))
    >>> variance.tolist(), degrees.tolist()
    ([1.0], [inf])
    """
    smallest = SMALLEST * np.median(variances, -1, keepdims=True)
    logarithms = np.log(np.maximum(np.maximum(variances, smallest), np.finfo(np.float64).tiny))
    evidence = logarithms - digamma(degrees / 2) + np.log(degrees / 2)
    mean = evidence.mean(-1, keepdims=True)
    spread = evidence.var(-1, ddof=1, keepdims=True) - polygamma(1, degrees / 2).mean(-1, keepdims=True)
    finite = spread > 0
    prior = np.where(finite, 2 * inverse_trigamma(np.where(finite, spread, 1.0)), np.inf)
    half = np.where(finite, prior / 2, 1.0)
    centre = np.exp(np.where(finite, mean + digamma(half) - np.log(half), 0.0))
    pooled = (degrees * variances).sum(-1, keepdims=True) / degrees.sum(-1, keepdims=True)
    return np.where(finite, centre, pooled), prior


def moderate(
    variances: np.ndarray, degrees: np.ndarray | float, prior_variance: np.ndarray, prior_degrees: np.ndarray
) -> np.ndarray:
    """Variances between their own value and the prior's, each weighed by its degrees of freedom."""
    weight = 1.0 / (1.0 + degrees / prior_degrees)  # 1 where the prior's degrees are infinite
    return weight * prior_variance + (1.0 - weight) * variances


def inverse_trigamma(values: np.ndarray) -> np.ndarray:
    """The x with trigamma(x) = value, for positive values: Newton's method on 1 / trigamma (Smyth 2004, appendix).

    >>> inverse_trigamma(np.array([np.pi**2 / 6])).round(12).tolist()
    [1.0]
    """
    x = 0.5 + 1.0 / values
    for _ in range(50):
        trigamma = polygamma(1, x)
        step = trigamma * (1 - trigamma / values) / polygamma(2, x)
        x = x + step
        if np.all(np.abs(step) <= 1e-12 * x):
            break
    return x
