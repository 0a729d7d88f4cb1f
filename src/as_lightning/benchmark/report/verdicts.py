"""What a comparison allows one to say of each method, look by look: six words, all right with probability 95%."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import special

from as_lightning.benchmark.report.boundaries import nominal_levels
from as_lightning.benchmark.report.moderation import moderate, seed_residual_variances, variance_prior
from as_lightning.functional.argument_checks import check_number

WORDS = ("better", "worse", "equal", "not worse", "no gain", "undecided")
MIN_PAIRS = 3
# chosen by simulation (results/statistics/simulation.py), so that the stated errors hold for few seeds and any spreads
SMALL_SAMPLES = 0.8  # of the level: t-tests at several looks err a little more often than their limit for many seeds
SIGN_SHARE = 0.2  # of an arm's level for "better", and for "worse": false advice stays below 2%
ADVICE_ALPHA = 0.01  # a family's error of the "not worse" that advice asks for
PROMISING = 1.75  # times equal_within: an arm that is not worse by such a lead goes on, as it may be better
POWER = 0.80
IDENTICAL = 1e-7  # points: scores are means of float32 numbers


class Arm(NamedTuple):
    """A tuned method at a share of the full training."""

    method: str
    budget: float = 1.0


Scores = Mapping[Arm, Mapping[int, float]]
Floors = Mapping[tuple[Arm, Arm], float]


@dataclass(frozen=True)
class Design:
    """How a comparison decides; fixed before its runs."""

    equal_within: float = 0.5  # the difference, in points, that counts as none
    alpha: float = 0.05  # the probability that any word of a family of comparisons is wrong
    looks: tuple[int, ...] = (5, 8, 12, 20)  # numbers of seeds, ascending; a fixed design has one look

    def __post_init__(self) -> None:
        check_number("equal_within", self.equal_within, lambda points: points > 0, "a positive number of points")


@dataclass(frozen=True)
class Verdict:
    """What is known of one arm against another. Differences are in points, positive where the arm is better."""

    arm: Arm
    against: Arm  # the baseline at the full or at the same budget
    seeds: int  # that both have at the last look
    look: int  # at which the word fell, or the last one where there is none; 1 for the first
    difference: float  # the mean over the seeds; NaN without seeds
    low: float = math.nan  # of its 95% interval, corrected neither for the number of methods nor for the looks
    high: float = math.nan
    word: str = "undecided"  # one of `WORDS`
    detectable: float = math.nan  # the true difference that would be found better or worse with 80% probability
    equal_within: float = Design.equal_within
    sure: bool = False  # whether "not worse" also holds at the stricter error that advice asks for
    reason: str = ""  # why nothing can be tested

    @property
    def decided(self) -> bool:
        """Whether there is a word."""
        return self.word != "undecided"

    @property
    def not_worse(self) -> bool:
        """Whether the arm is shown to be less than ``equal_within`` points below."""
        return self.word in ("better", "equal", "not worse")


def verdicts(scores: Scores, *, reference: Arm, design: Design, floors: Floors | None = None) -> list[Verdict]:
    r"""The word of every arm, from all scores that there are; those at the full budget come first.

    Differences are paired by seed. Their variance is moderated by those of all methods, without the effect that a seed
    has on all of them (`seed_residual_variances`, `variance_prior`), and has a floor.

    Each look tests four hypotheses of each arm: $\theta \le -m$ (rejected: not worse), $\theta \ge m$ (no
    gain; with the former: equal), $\theta \le 0$ (better) and $\theta \ge 0$ (worse). The last two are
    tested at 0.2 of the level: whatever the true difference, the false ones among an arm's words together keep its
    level. Over the arms of a family the level is divided by Holm's method with Shaffer's count of the hypotheses that
    can still be true, over the looks by `nominal_levels`. The arms at the full budget are one family; those at
    smaller budgets, each against the baseline at the full and at the same budget, another. Arms whose scores are the
    same in every seed count once; one that is the same as the baseline is equal.

    Each look uses its own seeds alone, the first ones in ascending order: an arm without the seeds of a look was
    stopped before, and more runs change no word that has fallen.

    Args:
        scores: per arm and seed, in points, higher is better; NaN for a run that has failed.
        reference: the baseline at its full budget.
        design: of the comparison.
        floors: the smallest standard deviation of the differences of an arm and the baseline's, in points.

    Source: Holm 1979; Shaffer 1986; Ye, Li, Liu and Yao 2013 (Holm's method over looks).

    >>> better = {Arm("softmax"): {0: 90.1, 1: 90.4, 2: 89.9}, Arm("as_softmax"): {0: 93.2, 1: 93.3, 2: 93.1}}
    >>> [verdict.word for verdict in verdicts(better, reference=Arm("softmax"), design=Design(looks=(3,)))]
    ['better']
    """
    full_budget = {reference: [arm for arm in scores if arm.budget == reference.budget and arm != reference]}
    smaller = [arm for arm in scores if arm.budget != reference.budget]
    bases = [arm for arm in smaller if arm.method == reference.method]
    at_same_budget = {base: [arm for arm in smaller if arm.budget == base.budget and arm != base] for base in bases}
    found: list[Verdict] = []
    for family in (full_budget, {reference: smaller} | at_same_budget):
        twins = {against: _twins(scores, against, arms, floors or {}) for against, arms in family.items()}
        members = sum(arm == twin for of_group in twins.values() for arm, twin in of_group.items())
        for against, of_group in twins.items():
            found += _judged(scores, against, of_group, design, floors or {}, max(members, 1))
    return found


def still_open(found: Sequence[Verdict], design: Design, *, cheaper: Collection[Arm] = ()) -> list[Arm]:
    """The arms that need the seeds of the next look.

    An arm stops at its first word, with two exceptions, since both can change what one does: an arm that is not worse
    and leads by 1.75 times ``equal_within`` may be better, and one whose training takes clearly less time (``cheaper``)
    goes on until it is worse, or surely not worse.
    """

    def goes_on(found: Verdict) -> bool:
        promising = found.word == "not worse" and found.difference > PROMISING * design.equal_within
        unsure = found.arm in cheaper and found.word != "worse" and not found.sure
        return not found.reason and (not found.decided or promising or unsure)

    return list(dict.fromkeys(verdict.arm for verdict in found if goes_on(verdict)))


class LookTest:
    """The tests of a baseline with its arms, look after look, of many comparisons at once (leading axes of ``shape``).

    ``family`` is how many comparisons share the error, by default these arms. ``rejected``, of shape ``(..., arms, 4)``
    (not worse, no gain, better, worse), is kept from look to look; ``difference``, its standard ``error`` with
    ``degrees`` of freedom, and ``pairs``, the seeds in which neither the arm nor the baseline has failed, are of the
    last look.
    """

    def __init__(self, design: Design, arms: int, *, family: int | None = None, shape: tuple[int, ...] = ()) -> None:
        self.design, self.looks = design, 0
        self.rejected = np.zeros((*shape, arms, 4), dtype=bool)
        self.difference, self.error, self.degrees = np.full((3, *shape, arms), np.nan)
        self._variances, self._degrees = np.ones((2, *shape, arms + 1))
        # one table for each number of halves by which Holm's method has reduced the number of hypotheses
        self._levels = np.array([level_table(design, (family or arms) - halves / 2) for halves in range(arms + 1)])

    def look(self, scores: np.ndarray, present: np.ndarray, floor: np.ndarray | float = 0.0) -> None:
        """Test at the next look; at the first one all arms must be present.

        ``scores`` has shape ``(..., 1 + arms, seeds)``, the baseline first, NaN where a run has failed; ``present``,
        the arms that go on, and ``floor``, the smallest standard deviation of a difference, ``(..., arms)``.
        """
        counted = np.concatenate([present.any(-1, keepdims=True), present], -1)
        paired = scores[..., 1:, :] - scores[..., :1, :]
        self.pairs = np.isfinite(paired).sum(-1)
        pairs = np.maximum(self.pairs, 1)
        known = np.isfinite(scores) | ~counted[..., None]
        complete = known.all(tuple(range(scores.ndim - 1)))  # the variances are of the seeds in which no arm has failed
        variances, degrees = seed_residual_variances(scores[..., complete], counted)
        self._variances = np.where(counted, variances, self._variances)  # an arm that has stopped keeps its own
        self._degrees = np.where(counted, degrees, self._degrees)
        variance, prior = variance_prior(self._variances, self._degrees)
        freedom = int(complete.sum()) - 1
        combined = moderate(paired[..., complete].var(-1, ddof=1), freedom, 2 * variance, prior)
        pooled = self._degrees.sum(-1, keepdims=True)  # no more than all methods have together
        error = np.sqrt(np.maximum(combined, np.square(floor)) / pairs)
        self.difference = np.where(present, np.nansum(paired, -1) / pairs, self.difference)
        self.error = np.where(present, error, self.error)
        self.degrees = np.where(present, np.minimum(freedom + prior, pooled), self.degrees)
        m = self.design.equal_within
        distance = np.stack([self.difference + m, m - self.difference, self.difference, -self.difference], -1)
        testable = (present & (self.error > 0))[..., None]
        t = np.divide(distance, self.error[..., None], out=np.zeros_like(distance), where=testable)
        p_values = special.stdtr(self.degrees[..., None], -t)
        for _ in range(self.rejected.shape[-2] + 1):
            self.rejected |= testable & (p_values <= self.levels())
        self.looks += 1

    def levels(self) -> np.ndarray:
        """The level of each hypothesis now, of shape ``(..., 1, 4)``; an arm between two bounds counts half."""
        not_worse, no_gain, better, worse = np.moveaxis(self.rejected, -1, 0)
        located = (not_worse & no_gain & (better | worse)).sum(-1)
        return np.asarray(self._levels[:, self.looks][located][..., None, :])


def level_table(design: Design, hypotheses: float) -> np.ndarray:
    """The nominal levels of the four tests, of shape ``(looks, 4)``, where so many arms' hypotheses can be true."""
    level = SMALL_SAMPLES * design.alpha / hypotheses
    bound, sign = (nominal_levels(design.looks, share * level) for share in (1.0, SIGN_SHARE))
    return np.array([bound, bound, sign, sign]).T


def words(rejected: np.ndarray) -> np.ndarray:
    """The index in `WORDS` of each arm, from what is rejected (last axis)."""
    not_worse, no_gain, better, worse = np.moveaxis(rejected, -1, 0)
    return np.select([not_worse & no_gain, better, worse, not_worse, no_gain], [2, 0, 1, 3, 4], 5)


def detectable_difference(error: float, degrees: float, level: float) -> float:
    """The true difference whose one-sided t-test at ``level`` succeeds with 80% probability.

    >>> round(detectable_difference(1.0, 4, 0.025), 2)
    3.76
    """
    return error * float(special.nctdtrinc(degrees, 1 - POWER, special.stdtrit(degrees, 1 - level)))


def _table(scores: Scores, arms: Sequence[Arm], seeds: Sequence[int]) -> np.ndarray:
    """The scores of arms in some seeds, NaN where there is none."""
    return np.array([[scores[arm].get(seed, math.nan) for seed in seeds] for arm in arms])


def _twins(scores: Scores, against: Arm, arms: Sequence[Arm], floors: Floors) -> dict[Arm, Arm]:
    """Of each arm the first one with the same scores in all seeds of both: itself, another, or ``against``."""

    def same(arm: Arm, other: Arm) -> bool:
        own, others = table = _table(scores, [arm, other], sorted(scores[arm].keys() & scores[other].keys()))
        alike = floors.get((arm, against), 0.0) == floors.get((other, against), 0.0)  # right on as many other examples
        several = np.isfinite(table).all(0).sum() >= MIN_PAIRS
        return alike and several and np.allclose(own, others, rtol=0, atol=IDENTICAL, equal_nan=True)

    twins: dict[Arm, Arm] = {}
    for arm in arms:
        twins[arm] = next((other for other in (against, *twins) if same(arm, other)), arm)
    return twins


def _judged(
    scores: Scores, against: Arm, twins: Mapping[Arm, Arm], design: Design, floors: Floors, family: int
) -> list[Verdict]:
    """The verdicts of arms against the same baseline's arm; ``family`` arms share the error."""

    def complete(arms: Sequence[Arm]) -> int:
        return int(np.isfinite(_table(scores, [against, *arms], first)).all(0).sum())

    seeds = sorted(scores[against])
    first = seeds[: design.looks[0]]
    found = {}
    for arm in twins:
        differences = np.diff(_table(scores, [against, arm], seeds), axis=0)
        pairs = int(np.isfinite(differences).sum())
        mean = float(np.nanmean(differences)) if pairs else math.nan
        few = f"{pairs} seed{'' if pairs == 1 else 's'} in common, at least {MIN_PAIRS} are needed"
        reason = few if pairs < MIN_PAIRS else ""
        found[arm] = Verdict(arm, against, pairs, 0, mean, equal_within=design.equal_within, reason=reason)
    judged = [arm for arm, twin in twins.items() if arm == twin and not found[arm].reason]
    judged = [arm for arm in judged if scores[arm].keys() >= set(first)]
    while judged and complete(judged) < MIN_PAIRS:
        judged.remove(min(judged, key=lambda arm: complete([arm])))  # it has failed in seeds that the others have
    test = LookTest(design, len(judged), family=family)
    strict = LookTest(replace(design, alpha=min(ADVICE_ALPHA, design.alpha)), len(judged), family=family)
    floor = np.array([floors.get((arm, against), 0.0) for arm in judged])
    going = judged
    for number, count in enumerate(design.looks, start=1):
        going = [arm for arm in going if scores[arm].keys() >= set(seeds[:count])]
        if not going or len(seeds) < count:
            break
        present = np.array([arm in going for arm in judged])
        table = _table(scores, [against, *judged], seeds[:count])
        before, level = words(test.rejected), float(test.levels()[0, 2])
        for tests in (test, strict):
            tests.look(table, present, floor)
        after = words(test.rejected)
        for index in np.flatnonzero(present):
            mean, error, degrees = (float(of[index]) for of in (test.difference, test.error, test.degrees))
            half = float(special.stdtrit(degrees, 0.975)) * error if error > 0 else 0.0
            arm, word = judged[index], WORDS[after[index]]
            found[arm] = replace(
                found[arm],
                seeds=int(test.pairs[index]),
                look=number if after[index] != before[index] or word == "undecided" else found[arm].look,
                difference=mean,
                low=mean - half,
                high=mean + half,
                word=word,
                sure=bool(strict.rejected[index, 0]),
                detectable=detectable_difference(error, degrees, level) if error > 0 else math.nan,
                reason="" if error > 0 else "the difference is the same for every seed",
            )
    for arm, twin in twins.items():
        if twin == against:
            found[arm] = replace(found[arm], look=1, difference=0.0, low=0.0, high=0.0, word="equal", sure=True)
            found[arm] = replace(found[arm], reason="the scores of every seed are the same")
        else:
            found[arm] = replace(found[twin], arm=arm)
    return list(found.values())
