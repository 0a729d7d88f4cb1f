"""The verdict on each candidate, look by look: one of six words, read off a confidence interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from as_lightning.statistics.boundaries import nominal_levels
from as_lightning.statistics.example_spread import ExampleSpread

WORDS = ("better", "worse", "equal", "not worse", "no gain", "undecided")
BETTER, WORSE, EQUAL, NOT_WORSE, NO_GAIN, UNDECIDED = range(len(WORDS))
MIN_PAIRS = 3
# chosen by simulation (results/statistics/simulation.py): the share of the error of each end of an
# interval, with a reserve since the spread is estimated, and the power by which the looks spend it
LOW, HIGH = (0.3, 5.0), (0.65, 1.4)
ADVICE_ALPHA = 0.01  # the error of a family for the stricter "not worse" of advice
LUCK = 0.9  # standard errors by which more seeds may still move an estimate
POWER = 0.80
KNOWN = 1e6  # degrees of freedom of an error that is known
UNKNOWN = ExampleSpread()
COPY = "the scores of every seed are the same"
CONSTANT = "the difference is the same for every seed"
FEW = f"at least {MIN_PAIRS} runs of each are needed"
IDENTICAL = 1e-7  # the share of a score that float32 rounds away, which is no difference

Arm = str  # a candidate's name
Scores = Mapping[Arm, Mapping[int, float]]
Spreads = Mapping[tuple[Arm, Arm], ExampleSpread]  # of a candidate and the baseline


@dataclass(frozen=True)
class Design:
    """How a comparison decides; fixed before its runs."""

    equal_within: float = 0.5  # the difference, in points, that counts as none
    alpha: float = 0.05  # the probability that any interval misses the true difference
    # numbers of seeds, ascending; a fixed design has one look
    looks: tuple[int, ...] = tuple(range(5, 21))
    seeds: tuple[int, ...] = ()  # in their order; empty where any are taken
    candidates: tuple[str, ...] = ()  # the baseline, and the family that is compared with it

    def __post_init__(self) -> None:
        if not 0 < self.equal_within < math.inf:
            raise ValueError(
                f"equal_within must be a positive number of points, got {self.equal_within!r}"
            )

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Design:
        lists = {name: tuple(of) for name, of in stored.items() if isinstance(of, list)}
        return cls(**{**stored, **lists})


@dataclass(frozen=True)
class Verdict:
    """What runs show of one arm against another; positive differences are better, in points."""

    arm: Arm
    against: Arm  # the baseline
    seeds: int  # that both have at the last look
    look: int  # the last one at which the arm was present; 0 for none, 1 for the first
    difference: float  # the mean over the seeds; NaN without seeds
    low: float = math.nan  # of the interval that the word is read off
    high: float = math.nan
    word: str = "undecided"  # one of `WORDS`
    detectable: float = math.nan  # the true difference that the last look finds with `POWER`
    equal_within: float = Design.equal_within
    sure: bool = False  # whether "not worse" also holds at the stricter error that advice asks for
    reason: str = ""  # why nothing can be tested
    in_reach: bool = True  # whether more seeds may still show a gain, or that there is none
    sure_in_reach: bool = True  # or that the arm is worse, or surely not worse
    ahead: float = math.nan  # the probability that the true difference is above 0, by these seeds
    skewed: bool = False  # whether the interval may miss more often than stated
    same_low: float = math.nan  # of the narrower interval for these very test examples
    same_high: float = math.nan

    @property
    def judged(self) -> bool:
        """Whether something could be tested, if only with the result that nothing is decided."""
        return self.word != "undecided" or not self.reason

    @property
    def not_worse(self) -> bool:
        """Whether the arm is shown to be less than ``equal_within`` points below."""
        return self.word in ("better", "equal", "not worse")


def verdicts(
    scores: Scores,
    *,
    reference: Arm,
    design: Design,
    spreads: Spreads | None = None,
    tried: int = 0,
) -> list[Verdict]:
    r"""Return the verdict on every arm but the reference, from all scores.

    Differences are paired by seed; each arm has its own spread over the n seeds, with n - 1 degrees
    of freedom, and a floor. At each look, which uses its first seeds in ascending order, an arm has
    a repeated confidence interval: those of all arms and all looks together hold the true
    differences with probability 95%, whenever an arm stops. The word is read off the interval of
    the last look, in this order: within ``equal_within`` on both sides equal, above 0 better, below
    0 worse, above ``-equal_within`` not worse, below ``equal_within`` no gain.

    With ``spreads`` the interval is for new examples like the test examples: its distances from the
    mean are those that both errors would give, as the sides of a right angle. The error is divided
    over the arms by Bonferroni's method, over both ends of an interval by `LOW` and `HIGH`, over
    the looks by `nominal_levels`. A copy of the baseline is equal, and counts for nothing.

    Args:
        scores: per arm and seed, in points, higher is better; NaN for a run that has failed.
        reference: the baseline.
        design: the design of the comparison.
        spreads: for an arm and the baseline, what their test examples show.
        tried: candidates that were tried before and are not in ``scores``; they share the error.

    Source: Jennison and Turnbull 1989 (repeated confidence intervals).

    >>> better = {"softmax": {0: 90.1, 1: 90.4, 2: 89.9}, "as_softmax": {0: 93.2, 1: 93.3, 2: 93.1}}
    >>> found = verdicts(better, reference="softmax", design=Design(looks=(3,)))
    >>> [verdict.word for verdict in found]
    ['better']
    """
    spreads = spreads or {}
    pairs = [(arm, reference) for arm in scores if arm != reference]
    copies = [pair for pair in pairs if _is_copy(scores, pair, spreads.get(pair, UNKNOWN))]
    family = tried + len(pairs) - len(copies)
    found = []
    for pair in pairs:
        if pair in copies:
            same = Verdict(*pair, len(scores[pair[0]]), 1, 0.0, 0.0, 0.0, "equal", sure=True)
            found.append(replace(same, equal_within=design.equal_within, reason=COPY))
        else:
            found.append(_verdict(scores, pair, design, family, spreads.get(pair, UNKNOWN)))
    return found


class Estimate(NamedTuple):
    """The differences of arms at a look, arrays of one shape: `Verdict` has the meanings."""

    difference: np.ndarray
    error: np.ndarray  # that the seeds make
    low: np.ndarray
    high: np.ndarray
    word: np.ndarray  # the index in `WORDS`
    sure: np.ndarray
    in_reach: np.ndarray
    sure_in_reach: np.ndarray


def estimate(
    differences: np.ndarray, design: Design, family: int, look: int, spread: Any = UNKNOWN
) -> Estimate:
    """Return each arm's interval at a look (counted from 0), its word, and what seeds may show.

    ``differences`` ``(..., seeds)`` are NaN where a run has failed; at least two are finite. The
    parts of ``spread`` may be arrays ``(...)``.
    """
    levels, last, within = limit_levels(design, family), design.looks[-1], design.equal_within
    pairs = np.isfinite(differences).sum(-1)
    mean = np.nanmean(differences, -1)
    deviation = np.maximum(np.nanstd(differences, -1, ddof=1), spread.floor)

    def distances(levels: np.ndarray, pairs: Any) -> np.ndarray:
        of_seeds = special.stdtrit(np.asarray(pairs)[..., None] - 1, 1.0 - levels)
        of_seeds = of_seeds * (deviation / np.sqrt(pairs))[..., None]
        of_examples = special.ndtri(1.0 - levels) * np.asarray(spread.error)[..., None]
        return np.moveaxis(np.hypot(of_seeds, of_examples), -1, 0)

    below, above, strictly_below = distances(levels[look], pairs)
    low, high, error = mean - below, mean + above, deviation / np.sqrt(pairs)
    # what the last look may show, with this spread and a lucky estimate
    lucky, unlucky = mean + LUCK * error, mean - LUCK * error
    below, above, strictly_below_last = distances(levels[-1], last)
    return Estimate(
        difference=mean,
        error=error,
        low=low,
        high=high,
        word=np.select(
            [(low > -within) & (high < within), low > 0, high < 0, low > -within, high < within],
            [EQUAL, BETTER, WORSE, NOT_WORSE, NO_GAIN],
            UNDECIDED,
        ),
        sure=mean - strictly_below > -within,
        in_reach=(lucky - below > 0) | (unlucky + above < within),
        sure_in_reach=(lucky - strictly_below_last > -within) | (unlucky + above < 0),
    )


def limit_levels(design: Design, family: int) -> np.ndarray:
    """Return the levels of the lower end, the upper end and "surely not worse", ``(looks, 3)``."""
    strict = min(ADVICE_ALPHA / design.alpha, LOW[0]), LOW[1]
    alpha, looks = design.alpha / family, design.looks
    ends = [nominal_levels(looks, share * alpha, power) for share, power in (LOW, HIGH, strict)]
    return np.array(ends).T


def detectable_difference(error: Any, degrees: Any, level: float) -> Any:
    """Return the true difference whose one-sided t-test at ``level`` succeeds in 80%.

    >>> round(float(detectable_difference(1.0, 4, 0.025)), 2)
    3.76
    """
    return error * special.nctdtrinc(degrees, 1 - POWER, special.stdtrit(degrees, 1 - level))


def is_skewed(differences: np.ndarray) -> np.ndarray:
    """Return whether the skewness over the last axis lies two of its standard errors from 0.

    >>> is_skewed(np.array([[0.4, 0.6, 0.5, 0.3, 0.7], [0.4, 0.6, 0.5, 0.3, -9.0]])).tolist()
    [False, True]
    """
    n = np.isfinite(differences).sum(-1)
    centred = differences - np.nanmean(differences, -1, keepdims=True)
    spread = np.sqrt(np.nanmean(centred**2, -1))
    error = np.sqrt(6.0 * (n - 2) / ((n + 1) * (n + 3)))
    return np.asarray((np.abs(np.nanmean(centred**3, -1)) > 2.0 * error * spread**3) & (spread > 0))


def _table(scores: Scores, arms: Sequence[Arm], seeds: Sequence[int]) -> np.ndarray:
    return np.array([[scores[arm].get(seed, math.nan) for seed in seeds] for arm in arms])


def _is_copy(scores: Scores, pair: tuple[Arm, Arm], spread: ExampleSpread) -> bool:
    """Whether both arms have the same scores in all seeds of both."""
    table = _table(scores, pair, sorted(scores[pair[0]].keys() & scores[pair[1]].keys()))
    # as often right on other examples is no copy
    if spread.floor or np.isfinite(table).all(0).sum() < MIN_PAIRS:
        return False
    return np.allclose(table[0], table[1], rtol=IDENTICAL, atol=0, equal_nan=True)


def _verdict(
    scores: Scores, pair: tuple[Arm, Arm], design: Design, family: int, spread: ExampleSpread
) -> Verdict:
    """The verdict on an arm against a baseline; ``family`` arms share the error."""
    arm, against = pair
    seeds = sorted(scores[against])
    own = scores[arm].keys()
    looks = [n for n in design.looks if len(seeds) >= n and own >= set(seeds[:n])]
    table = _table(scores, [against, arm], seeds[: looks[-1]] if looks else seeds)
    differences = np.diff(table, axis=0)[0]
    differences = differences[np.isfinite(differences)]
    pairs, look = len(differences), len(looks) - 1
    mean = float(differences.mean()) if pairs else math.nan
    verdict = Verdict(arm, against, pairs, len(looks), mean, equal_within=design.equal_within)
    if pairs < MIN_PAIRS:
        return replace(verdict, reason=FEW)
    if not looks:
        return verdict
    at_look = estimate(differences, design, family, look, spread)
    values = {name: value.item() for name, value in at_look._asdict().items()}
    error, word = values.pop("error"), WORDS[values.pop("word")]
    if error <= IDENTICAL * np.abs(table[np.isfinite(table)]).max():
        return replace(verdict, reason=CONSTANT)
    if spread.error:
        same = estimate(differences, design, family, look, spread._replace(error=0.0))
        values |= {"same_low": float(same.low), "same_high": float(same.high)}
    last = design.looks[-1] if len(design.looks) > 1 else pairs
    level = float(limit_levels(design, family)[-1, 0])
    of_seeds = detectable_difference(error * math.sqrt(pairs / last), last - 1, level)
    of_examples = detectable_difference(spread.error, KNOWN, level)
    total = math.hypot(error, spread.error)
    degrees = (pairs - 1) * (total / error) ** 4  # as Welch and Satterthwaite have them
    return replace(
        verdict,
        **values,
        word=word,
        detectable=math.hypot(of_seeds, of_examples),
        ahead=float(special.stdtr(degrees, mean / total)),
        skewed=bool(is_skewed(differences)),
    )
