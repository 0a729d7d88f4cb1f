"""What a paired comparison allows one to say: better, worse, equal within a margin, inconclusive, or nothing."""

from __future__ import annotations

import functools
import numbers
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import numpy as np
from scipy import optimize, stats
from statsmodels.stats.weightstats import ttost_paired

ALPHA = 0.05
POWER = 0.80
MIN_PAIRS = 3
MARGIN_POINTS = 0.5
POINT = 0.01  # of a score in [0, 1]

VerdictWord = Literal["better", "worse", "equal", "inconclusive", "no verdict"]
Arm = TypeVar("Arm", bound=Hashable)


@dataclass(frozen=True)
class Verdict:
    """What the pairs of one comparison say. All differences are in the unit of the score, positive where it is higher.

    Attributes:
        word: ``better`` or ``worse`` (paired t-test), ``equal`` (two one-sided tests: the difference lies within the
            margin), ``inconclusive`` (neither is shown), ``no verdict`` (the tests are not defined; see ``reason``).
        pairs: the number of seeds that both sides have.
        margin: what counts as equal.
        difference: the mean over the pairs.
        low: of the difference's 95% confidence interval (Student's t, not corrected); None where it is not defined.
        high: the same.
        p_difference: of the paired t-test, corrected.
        p_equal: of the two one-sided tests, corrected.
        p_not_worse: of the one-sided test that the difference lies above ``-margin``, corrected.
        spread: the standard deviation of the differences.
        detectable: the smallest true difference that this comparison, with its correction, shows with 80% power.
        bound: the size that the difference does not exceed: the far end of its 90% interval, corrected for all
            comparisons (Bonferroni), which is the interval of the two one-sided tests.
        reason: why there is no verdict; empty where there is one.
    """

    word: VerdictWord
    pairs: int
    margin: float
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    p_difference: float | None = None
    p_equal: float | None = None
    p_not_worse: float | None = None
    spread: float | None = None
    detectable: float | None = None
    bound: float | None = None
    reason: str = ""

    @property
    def not_worse(self) -> bool:
        """Whether the comparison shows that the score is above the other's minus the margin."""
        return self.p_not_worse is not None and self.p_not_worse < ALPHA

    @property
    def in_words(self) -> str:
        """The verdict as a table prints it; differences in points (hundredths of the score).

        >>> Verdict("equal", pairs=5, margin=0.005).in_words
        'equal within 0.5 points'
        >>> Verdict("inconclusive", pairs=5, margin=0.005, detectable=0.009).in_words
        'inconclusive: a difference below 0.9 points could not have been seen'
        """
        if self.word == "equal":
            return f"equal within {self.margin / POINT:g} points"
        if self.word == "inconclusive" and self.detectable is not None:
            return f"inconclusive: a difference below {points(self.detectable)} points could not have been seen"
        return f"no verdict: {self.reason}" if self.word == "no verdict" else self.word


def points(difference: float) -> str:
    """A difference in points with the digits that it deserves.

    >>> points(0.00934), points(0.123)
    ('0.9', '12.3')
    """
    return f"{difference / POINT:.1f}"


def check_seeds(seeds: Iterable[object]) -> list[int]:
    """The seeds as integers.

    Raises:
        ValueError: if a seed is not a whole number of at least 0 (``1.0`` is read as 1), or comes twice.

    >>> check_seeds([0, 1.0])
    [0, 1]
    """
    checked: dict[int, object] = {}
    for seed in seeds:
        whole = isinstance(seed, numbers.Real) and not isinstance(seed, bool) and float(seed).is_integer()
        if not whole or int(seed) < 0:  # type: ignore[call-overload]
            raise ValueError(f"a seed must be a whole number of at least 0, got {seed!r}")
        number = int(seed)  # type: ignore[call-overload]
        if number in checked:
            raise ValueError(f"seed {number} is given twice, as {checked[number]!r} and {seed!r}: give each seed once")
        checked[number] = seed
    return list(checked)


def paired_differences(scores: Mapping[int, float], reference: Mapping[int, float]) -> np.ndarray:
    """``scores - reference`` for the seeds that both have, in the order of the seeds.

    Raises:
        ValueError: if a seed is not a whole number of at least 0, or two keys are the same seed.
    """
    check_seeds(scores)
    check_seeds(reference)
    shared = sorted(scores.keys() & reference.keys())
    return np.array([scores[seed] - reference[seed] for seed in shared], dtype=np.float64)


def paired_verdicts(
    differences: Mapping[Arm, Sequence[float] | np.ndarray], margin: float = MARGIN_POINTS * POINT
) -> dict[Arm, Verdict]:
    r"""The verdicts of all comparisons of one report.

    For the paired differences :math:`d_1 \dots d_n` of a comparison: the paired t-test of :math:`E[d] = 0`, the two
    one-sided tests of :math:`|E[d]| \ge m` and the one-sided test of :math:`E[d] \le -m`. Each kind is corrected
    for all comparisons by Holm's method, so that with probability 95% no comparison is wrongly called better or worse,
    and with the same probability none is wrongly called equal. A difference that is both significant and within the
    margin is called equal.

    Args:
        differences: per comparison the differences of its pairs, a method's score minus the reference's.
        margin: in the unit of the score; choose it before the runs.

    Returns:
        The verdicts, with the keys of ``differences``. Comparisons of fewer than 3 pairs, and of differences that do
        not vary between the seeds, get ``no verdict`` and take no part in the correction.

    Raises:
        ValueError: if ``margin`` is not positive, or a difference is not finite.

    Source: Holm 1979; Schuirmann 1987 (two one-sided tests); statsmodels' ``ttost_paired``.

    >>> verdicts = paired_verdicts({"a": [0.020, 0.022, 0.021, 0.019], "b": [0.0, 0.0, 0.0]})
    >>> verdicts["a"].word, verdicts["b"].word
    ('better', 'no verdict')
    """
    if not margin > 0:
        raise ValueError(f"margin must be positive, got {margin}")
    arrays = {arm: np.asarray(values, dtype=np.float64) for arm, values in differences.items()}
    for arm, values in arrays.items():
        if not np.isfinite(values).all():
            raise ValueError(f"the differences of {arm!r} are not all finite: {values.tolist()}")
    tested = [arm for arm, values in arrays.items() if not _untestable(values)]
    verdicts = {
        arm: _tested(values, margin, len(tested)) if arm in tested else _untested(values, margin)
        for arm, values in arrays.items()
    }
    if not tested:
        return verdicts
    p_difference = _holm([verdicts[arm].p_difference for arm in tested])
    p_equal = _holm([verdicts[arm].p_equal for arm in tested])
    p_not_worse = _holm([verdicts[arm].p_not_worse for arm in tested])
    for arm, *p in zip(tested, p_difference, p_equal, p_not_worse, strict=True):
        corrected = replace(verdicts[arm], p_difference=p[0], p_equal=p[1], p_not_worse=p[2])
        verdicts[arm] = replace(corrected, word=_word(corrected))
    return verdicts


def _holm(p_values: Sequence[float | None]) -> list[float]:
    # as statsmodels' multipletests(method="holm"), which collects all garbage of the process at each call
    raw = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(raw, kind="stable")
    corrected = np.empty_like(raw)
    corrected[order] = np.minimum(np.maximum.accumulate(raw[order] * np.arange(len(raw), 0, -1)), 1.0)
    return [float(p) for p in corrected]


def _word(verdict: Verdict) -> VerdictWord:
    assert verdict.p_equal is not None
    assert verdict.p_difference is not None
    assert verdict.difference is not None
    if verdict.p_equal < ALPHA:
        return "equal"
    if verdict.p_difference < ALPHA:
        return "better" if verdict.difference > 0 else "worse"
    return "inconclusive"


def _untestable(differences: np.ndarray) -> str:
    """Why the tests are not defined for these differences; empty where they are."""
    if len(differences) < MIN_PAIRS:
        seeds = "1 seed" if len(differences) == 1 else f"{len(differences)} seeds"
        return f"{seeds} in common, at least {MIN_PAIRS} are needed"
    # scores are means of float32 numbers: differences that agree to nine digits differ by rounding alone
    if np.ptp(differences) <= 1e-9:
        if np.abs(differences).max() <= 1e-9:
            return "the scores of every seed are the same"
        return "the difference is the same for every seed"
    return ""


def _untested(differences: np.ndarray, margin: float) -> Verdict:
    mean = float(differences.mean()) if len(differences) else None
    return Verdict("no verdict", len(differences), margin, difference=mean, reason=_untestable(differences))


def _tested(differences: np.ndarray, margin: float, comparisons: int) -> Verdict:
    pairs = len(differences)
    mean, spread = float(differences.mean()), float(differences.std(ddof=1))
    error = spread / np.sqrt(pairs)
    low, high = stats.t.interval(1 - ALPHA, pairs - 1, loc=mean, scale=error)
    p_equal, (_, p_not_worse, _), _ = ttost_paired(differences, np.zeros(pairs), -margin, margin)
    return Verdict(
        "inconclusive",
        pairs,
        margin,
        difference=mean,
        low=float(low),
        high=float(high),
        p_difference=float(stats.ttest_1samp(differences, 0.0).pvalue),
        p_equal=float(p_equal),
        p_not_worse=float(p_not_worse),
        spread=spread,
        detectable=spread * detectable_effect(pairs, ALPHA / comparisons),
        bound=abs(mean) + float(stats.t.isf(ALPHA / comparisons, pairs - 1)) * float(error),
    )


@functools.lru_cache(maxsize=256)
def detectable_effect(pairs: int, alpha: float = ALPHA, power: float = POWER) -> float:
    """The smallest difference, in standard deviations of the differences, that a paired t-test shows with ``power``.

    Args:
        pairs: the number of pairs, at least 3.
        alpha: the two-sided significance level; for the first step of Holm's method the level divided by the number of
            comparisons.
        power: the probability of showing it.

    >>> round(detectable_effect(5), 2)
    1.68
    """
    degrees = pairs - 1
    critical = stats.t.isf(alpha / 2, degrees)
    # the power as a mean over the sampled standard deviation: scipy's noncentral t is NaN this far out in the tails
    deviations = np.sqrt(stats.chi2.ppf((np.arange(4096) + 0.5) / 4096, degrees) / degrees)

    def missing_power(effect: float) -> float:
        shift = effect * np.sqrt(pairs)
        tails = stats.norm.sf(critical * deviations - shift) + stats.norm.cdf(-critical * deviations - shift)
        return float(tails.mean()) - power

    return float(optimize.brentq(missing_power, 0.0, 10.0 * (critical + 10.0)))
