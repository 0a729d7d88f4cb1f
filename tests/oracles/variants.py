"""Every variant of softmax from its formula, float64, row by row, by NumPy and SciPy only: the
oracle of the tests.
"""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import integrate, optimize, special
from scipy.special import logsumexp, softmax

Row = NDArray[np.float64]


def t_softmax(x, tau):
    return softmax(x / tau)


def t_softmax_loss(x, t, tau):
    return logsumexp(x / tau) - x[t] / tau


def sparse_softmax(x, k):
    largest = np.argsort(-x, kind="stable")[:k]
    p = np.zeros_like(x)
    p[largest] = softmax(x[largest])
    return p


def sparse_softmax_loss(x, t, k):
    kept = set(np.argsort(-x, kind="stable")[:k].tolist()) | {t}
    return logsumexp(x[sorted(kept)]) - x[t]


def sparsemax_threshold(x):
    return float(
        optimize.brentq(
            lambda tau: np.maximum(x - tau, 0).sum() - 1, x.max() - 1, x.max(), xtol=1e-15
        )
    )


def sparsemax(x):
    return np.maximum(x - sparsemax_threshold(x), 0)


def sparsemax_loss(x, t):
    # the loss does not change; the squares of large logits would lose their digits
    shifted = x - x.max()
    tau = sparsemax_threshold(shifted)
    support = shifted > tau
    return float(0.5 - shifted[t] + (shifted[support] ** 2 - tau**2).sum() / 2)


def entmax(x, alpha):
    z = (alpha - 1) * (x - x.max())

    def p_of(threshold):
        return np.maximum(z - threshold, 0) ** (1 / (alpha - 1))

    return p_of(
        float(optimize.brentq(lambda threshold: p_of(threshold).sum() - 1, -1.0, 0.0, xtol=1e-16))
    )


def entmax_loss(x, t, alpha):
    p, shifted = entmax(x, alpha), x - x.max()
    entropy = (1 - (p**alpha).sum()) / (alpha * (alpha - 1))
    return float(p @ shifted - shifted[t] + entropy)


def taylor_polynomial(x, order):
    return sum((x**i / math.factorial(i) for i in range(order + 1)), np.zeros_like(x))


def taylor_softmax(x, order):
    f = taylor_polynomial(x, order)
    return f / f.sum()


def taylor_softmax_loss(x, t, order):
    return float(-np.log(taylor_softmax(x, order)[t]))


def am_softmax(x, tau):
    return softmax(x / tau)


def am_softmax_loss(x, t, margin, tau):
    lowered = x.copy()
    lowered[t] -= margin
    return logsumexp(lowered / tau) - lowered[t] / tau


# (log density, log distribution function); scipy.stats has the same, a hundred times slower a call
DISTRIBUTIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "gumbel": (lambda u: -u - np.exp(-u), lambda u: -np.exp(-u)),
    "normal": (lambda u: -(u**2) / 2 - math.log(math.sqrt(2 * math.pi)), special.log_ndtr),
    "logistic": (lambda u: special.log_expit(u) + special.log_expit(-u), special.log_expit),
}


def perturb_max_log_probability(x, i, noise):
    """The log of the winning integral, taken around the integrand's maximum so that it does not
    underflow.
    """
    log_pdf, log_cdf = DISTRIBUTIONS[noise]
    others = np.delete(x, i)

    def log_integrand(e):
        return float(log_pdf(e - x[i]) + log_cdf(e - others).sum())

    low, high = x.min() - 60, x.max() + 60
    best = optimize.minimize_scalar(
        lambda e: -log_integrand(e), bounds=(low, high), method="bounded"
    )
    top = log_integrand(best.x)
    cuts = sorted(
        {low, high, *(float(c) for c in np.linspace(best.x - 12, best.x + 12, 9) if low < c < high)}
    )
    total = sum(
        integrate.quad(
            lambda e: math.exp(log_integrand(e) - top), a, b, epsabs=1e-14, epsrel=1e-12
        )[0]
        for a, b in itertools.pairwise(cuts)
    )
    return top + math.log(total)


def perturb_max(x, noise):
    return np.exp([perturb_max_log_probability(x, i, noise) for i in range(len(x))])


def perturb_max_loss(x, t, noise):
    return -perturb_max_log_probability(x, t, noise)


def negative_log_likelihood(x, t):
    return float(logsumexp(x - x[t]))  # which has the digits of a loss near 0


def class_counts(classes):
    """Examples of each class, frequent and rare ones in turn, the same for the first classes of any
    number.
    """
    return 1 + (np.arange(classes) * 37 + 13) ** 2 % 101


def logit_adjusted_loss(x, t, tau):
    counts = class_counts(len(x))
    return negative_log_likelihood(x + tau * np.log(counts / counts.sum()), t)


def class_weights(classes, power, beta):
    counts = class_counts(classes)
    effective = counts if beta == 1 else (1 - beta**counts) / (1 - beta)
    weights = effective**-power
    return classes * weights / weights.sum()


def focal_loss(x, t, gamma):
    loss = negative_log_likelihood(x, t)
    return float((-np.expm1(-loss)) ** gamma * loss)


def generalised_cross_entropy_loss(x, t, q):
    return (1 - math.exp(-negative_log_likelihood(x, t)) ** q) / q


def encouraging_loss(x, t, log_end):
    loss = negative_log_likelihood(x, t)
    p = math.exp(-loss)
    tangent = math.log(1 - log_end) - (p - log_end) / (1 - log_end)
    return loss + (math.log(1 - p) if p <= log_end else tangent)


def asymmetric(x, y, gamma_negative, gamma_positive, clip):
    p = special.expit(x)
    shifted = np.maximum(p - clip, 0)
    positive = special.expit(-x) ** gamma_positive * np.logaddexp(0, -x)
    missing = np.logaddexp(0, x) if clip == 0 else -np.log1p(-shifted)
    return np.where(y == 1, positive, shifted**gamma_negative * missing)


def log_one_plus_sum_exp(x):
    return float(np.logaddexp.reduce(np.append(x, 0.0)))


def multilabel_softmax_loss(x, y):
    return log_one_plus_sum_exp(x[y == 0]) + log_one_plus_sum_exp(-x[y == 1])


def multilabel_sparse_loss(x, y, k):
    strongest = np.sort(x[y == 0])[::-1][:k]
    return log_one_plus_sum_exp(strongest) + log_one_plus_sum_exp(-x[y == 1])


def bce(x, y):
    return np.logaddexp(0.0, np.where(y == 1, -x, x))


def by_rows(row_loss, x, targets, **arguments):
    """The loss of every row of ``(N, C)`` logits."""
    return np.array([row_loss(row, int(t), **arguments) for row, t in zip(x, targets, strict=True)])
