"""How often a comparison's words, intervals and advice are right: simulated comparisons, judged by
the project itself.

python results/statistics/simulation.py                # ten minutes on one core
python results/statistics/simulation.py --comparisons 200 --output /tmp

It writes simulation.json and simulation.md.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

from as_lightning.comparison.plan import LAST_LOOK
from as_lightning.comparison.race import (
    LEAD_SEEDS,
    RACERS,
    needs_more_seeds,
    racing,
    still_open,
)
from as_lightning.comparison.search import (
    Range,
    best_of,
    finalists,
    learning_rates,
    next_trial,
)
from as_lightning.report.record import Trial
from as_lightning.statistics.example_spread import ExampleSpread
from as_lightning.statistics.verdicts import (
    BETTER,
    EQUAL,
    NO_GAIN,
    NOT_WORSE,
    UNDECIDED,
    WORDS,
    WORSE,
    Design,
    Verdict,
    detectable_difference,
    estimate,
    limit_levels,
    verdicts,
)

EFFECTS = (-1.0, -0.5, -0.25, 0.0, 0.25, 0.5, 1.0)  # true differences to the baseline, in points
NOISES, CORRELATIONS, FAMILIES = (0.3, 0.6, 1.2), (0.0, 0.5), (1, 2, 4, 8)
DESIGNS = {race: Design(looks=tuple(range(5, last + 1))) for race, last in LAST_LOOK.items()}
TRIALS, TUNING_SEEDS = 5, 2  # the defaults of a comparison
# what a case changes of normal scores with equal spreads
CASES = {
    "plain": "normal scores, equal spreads",
    "unequal": "spreads of 1/3 and 3 times the baseline's",
    "alike": "candidates whose scores correlate by 0.95",
    "noisy baseline": "a baseline with ten times the candidates' spread",
    "rounded": "scores of 360 test examples: steps of 0.28 points",
    "crashes": "2% of all runs lose 30 points",
    "skewed": "the candidates' scores have an exponential tail below",
    "collapses": "15% of the candidates' runs lose 3 spreads, a quiet baseline",
    "tails": "exponential tails below, a quiet baseline",
}
EXAMPLES, CRASH, CRASH_RATE = 360, 30.0, 0.02
LOSS, LOSS_RATE, QUIET = 3.0, 0.15, 0.1  # of collapses; the spread of a quiet baseline
TEST_SIZES = (100, 500, 2000, 5000)


@dataclass(frozen=True)
class Cell:
    """What is simulated: true ``effects`` of the candidates; whether they take 30% less time
    (``cheaper``); a race, or all open candidates.
    """

    case: str
    effects: tuple[float, ...]
    noise: float
    correlation: float
    cheaper: bool = False
    race: bool = False

    def scores(self, comparisons: int, seeds: int, generator: np.random.Generator) -> np.ndarray:
        """Return scores in points, of shape ``(comparisons, arms, seeds)``; noise is the deviation
        of a baseline's run.
        """
        shape = (comparisons, len(self.effects) + 1, seeds)
        shared, own = (
            generator.standard_normal((comparisons, 1, seeds)),
            generator.standard_normal(shape),
        )
        if self.case in ("skewed", "tails"):
            own[:, 1:] = 1.0 - generator.exponential(size=own[:, 1:].shape)
        if self.case == "collapses":
            own[:, 1:] -= LOSS * ((generator.random(own[:, 1:].shape) < LOSS_RATE) - LOSS_RATE)
        noise = math.sqrt(self.correlation) * shared + math.sqrt(1 - self.correlation) * own
        spreads = np.ones(shape[1])
        if self.case == "unequal":
            spreads[1:] = list(itertools.islice(itertools.cycle((1 / 3, 3.0)), shape[1] - 1))
        if self.case == "noisy baseline":
            spreads[0] = 10.0
        if self.case in ("collapses", "tails"):
            spreads[0] = QUIET
        scores = self.noise * spreads[:, None] * noise + np.array([0.0, *self.effects])[:, None]
        if self.case == "crashes":
            scores -= CRASH * (generator.random(shape) < CRASH_RATE)
        step = 100 / EXAMPLES
        return np.round(scores / step) * step if self.case == "rounded" else scores


def grid() -> list[Cell]:
    """Return all cells: of normal scores in full, of other cases those where a word is most easily
    wrong.
    """
    cells = []
    for effect, noise, correlation, cheaper in itertools.product(
        EFFECTS, NOISES, CORRELATIONS, (False, True)
    ):
        cells.append(Cell("plain", (effect,) * 2, noise, correlation, cheaper, race=True))
    for size, correlation, race in itertools.product(FAMILIES, CORRELATIONS, (True, False)):
        cells.append(Cell("plain", (0.5,) + (0.0,) * (size - 1), 0.6, correlation, race=race))
        cells.append(Cell("plain", (0.0,) * size, 0.6, correlation, race=race))
    for case, effect, noise, size, race in itertools.product(
        CASES, (0.0, 0.5, -0.5), NOISES, (1, 2, 8), (True, False)
    ):
        correlation = {"alike": 0.95, "collapses": 0.0, "tails": 0.0}.get(case, 0.5)
        cells.append(Cell(case, (effect,) * size, noise, correlation, race=race))
    return list(dict.fromkeys(cells))


@dataclass
class Judged:
    """What comparisons have come to, arrays of shape ``(comparisons, candidates)``."""

    word: np.ndarray
    sure: np.ndarray
    seeds: np.ndarray
    difference: np.ndarray
    error: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @property
    def trainings(self) -> float:
        """The mean number of final runs of a comparison."""
        return float((self.seeds.max(-1) + self.seeds.sum(-1)).mean())


def judged(
    scores: np.ndarray,
    design: Design,
    cheaper: bool = False,
    race: bool = False,
    examples: Callable[[int], np.ndarray] | None = None,
) -> Judged:
    """Return comparisons look by look, as the command makes them; ``examples`` has the error that
    the test examples make, after so many seeds.
    """
    differences = scores[:, 1:] - scores[:, :1]
    shape = differences.shape[:2]
    going, sure = np.ones(shape, dtype=bool), np.zeros(shape, dtype=bool)
    word, seeds = np.full(shape, UNDECIDED), np.zeros(shape, dtype=np.int64)
    difference, error, low, high = np.full((4, *shape), np.nan)
    for look, count in enumerate(design.looks):
        spread: Any = ExampleSpread()
        if examples is not None:
            spread = spread._replace(error=examples(count)[going])
        at = estimate(differences[going][:, :count], design, shape[1], look, spread)
        flat = at.error == 0  # nothing can be tested
        word[going], sure[going] = np.where(flat, UNDECIDED, at.word), at.sure & ~flat
        seeds[going], error[going] = count, np.hypot(at.error, spread.error)
        difference[going], low[going], high[going] = at.difference, at.low, at.high
        more = needs_more_seeds(at.word, at.sure, at.in_reach, at.sure_in_reach, cheaper)
        going[going] = more & ~flat
        if race and not cheaper:
            places = RACERS if count < LEAD_SEEDS else 1
            runners = np.where(going | (word == BETTER), -difference, np.inf)
            going &= runners.argsort(-1).argsort(-1) < places
        if not going.any():
            break
    return Judged(word, sure, seeds, difference, error, low, high)


def judged_one_by_one(
    scores: np.ndarray, design: Design, cheaper: bool, race: bool = False
) -> list[Verdict]:
    """Return one comparison through `verdicts`, `still_open` and `racing`, as the command calls
    them.
    """
    arms = [f"candidate {index}" for index in range(len(scores))]
    made: dict[str, dict[int, float]] = {arm: {} for arm in arms}
    going = arms[1:]
    for count in design.looks:
        for arm in (arms[0], *going):
            made[arm] = dict(enumerate(scores[arms.index(arm), :count].tolist()))
        found = verdicts(made, reference=arms[0], design=design)
        unsettled = still_open(found, cheaper=arms[1:] if cheaper else ())
        going = [arm for arm in going if arm in unsettled]
        if race and not cheaper:
            going = racing(found, going, count)
        if not going:
            break
    return found


def wrong_words(word: np.ndarray, effects: Any, within: float) -> np.ndarray:
    """Return which words are false for these true differences."""
    effects = np.asarray(effects)
    false = {
        BETTER: effects <= 0,
        WORSE: effects >= 0,
        EQUAL: np.abs(effects) >= within,
        NOT_WORSE: effects <= -within,
        NO_GAIN: effects >= within,
    }
    return np.any([(word == index) & is_false for index, is_false in false.items()], axis=0)


def advised(found: Judged, cheaper: bool) -> np.ndarray:
    """Return which arm the advice names: the best of the better ones, else a cheaper one that is
    surely not worse.
    """
    better = found.word == BETTER
    candidates = better
    if cheaper:
        as_good = found.sure & np.isin(found.word, (EQUAL, NOT_WORSE))
        candidates = better | (as_good & ~better.any(-1, keepdims=True))
    best = np.where(candidates, found.difference, -np.inf).argmax(-1)
    chosen = np.zeros_like(candidates)
    np.put_along_axis(chosen, best[:, None], candidates.any(-1, keepdims=True), -1)
    return chosen


def simulate(cell: Cell, comparisons: int, seed: int) -> dict[str, float]:
    """Return the shares of one cell."""
    design = DESIGNS[cell.race]
    scores = cell.scores(comparisons, design.looks[-1], np.random.default_rng(seed))
    found = judged(scores, design, cell.cheaper, cell.race)
    effects, within, word = np.array(cell.effects), design.equal_within, found.word
    chosen = advised(found, cell.cheaper)
    # right: better where it is, as good where that is cheaper; a difference of equal_within is a
    # difference
    good = (effects > -within) if cell.cheaper else (effects > 0)
    better = word == BETTER
    false_better = better & (effects <= 0)
    missed = (found.low > effects) | (found.high < effects)
    spread = np.median(found.error * np.sqrt(found.seeds))
    level, last = limit_levels(design, len(effects))[-1, 0], design.looks[-1]
    return {
        "wrong_word": float(wrong_words(word, effects, within).any(-1).mean()),
        "false_better": float(false_better.any(-1).mean()),
        "seen": float((better & (effects > 0)).any(-1).mean()),
        **{name: float((word == index).mean()) for index, name in enumerate(WORDS)},
        "wrong_advice": float(((chosen & ~good) | (chosen & false_better)).any(-1).mean()),
        "right_advice": float((chosen & good & ~false_better).any(-1).mean()),
        "covered": float(1 - missed.mean()),
        "too_large": float((found.difference - effects)[better].mean())
        if better.any()
        else math.nan,
        "detectable": detectable_difference(spread / math.sqrt(last), last - 1, level),
        "seeds": float(found.seeds.mean()),
        "trainings": found.trainings,
    }


# --- new data


class Population:
    """Test examples that each candidate is right on with a probability of their own."""

    def __init__(self, gain: float, noise: float = 0.3) -> None:
        self.noise = noise  # of a run, in points, beside the luck with single examples
        hard, own = np.random.default_rng(0).standard_normal((2, 1_000_000))
        logits = 2.0 + 2.5 * hard + own
        shifts = np.linspace(0.0, 1.0, 11)
        reached = [100 * special.expit(logits + shift).mean() for shift in shifts]
        self.shift = float(np.interp(gain, np.array(reached) - reached[0], shifts))

    def drawn(
        self, examples: int, size: int, comparisons: int, seeds: int, generator: np.random.Generator
    ) -> tuple[np.ndarray, Callable[[int], np.ndarray]]:
        """Return the scores on drawn examples ``(comparisons, size + 1, seeds)``, of which the
        first candidate gains, and the error of the examples after so many seeds.
        """
        means = np.empty((comparisons, size + 1))
        flips = np.empty_like(means)  # the variance of an answer, mean over the examples
        apart = np.empty((comparisons, size))  # the variance of a difference over the examples
        for row in range(comparisons):
            hard = generator.standard_normal(examples, dtype=np.float32)
            own = generator.standard_normal((size + 1, examples), dtype=np.float32)
            own[1] += self.shift
            right = special.expit(2.0 + 2.5 * hard + own)
            means[row], flips[row] = right.mean(-1), (right * (1 - right)).mean(-1)
            apart[row] = (right[1:] - right[0]).var(-1, ddof=1)
        noise = np.sqrt(1e4 * flips / examples + self.noise**2)[..., None]
        scores = 100 * means[..., None] + noise * generator.standard_normal((*means.shape, seeds))
        both = flips[:, 1:] + flips[:, :1]
        luck = math.sqrt(2 / examples) * generator.standard_normal(apart.shape)

        def error(count: int) -> np.ndarray:
            """Return the error as it is estimated from so many seeds, luck of the seeds left out."""
            return 100 * np.sqrt(np.maximum(apart + luck * (apart + both / count), 0) / examples)

        return scores, error


@functools.cache
def population(gain: float) -> Population:
    """Return the examples of which one candidate has so many points more right."""
    return Population(gain)


def new_data(gain: float, examples: int, size: int, comparisons: int) -> dict[str, float]:
    """Return how often words on new data are false and true; ``these`` are those of the narrower
    interval, about the test examples at hand.
    """
    generator = np.random.default_rng(round(1000 * gain) + examples + size)
    design = DESIGNS[True]
    scores, error = population(gain).drawn(examples, size, comparisons, design.looks[-1], generator)
    effects = np.zeros(size)
    effects[0] = gain
    row: dict[str, float] = {"gain": gain, "examples": examples, "candidates": size}
    for name, spread in (("new", error), ("these", None)):
        found = judged(scores, design, race=True, examples=spread)
        better = found.word == BETTER
        row[f"{name}_seen"] = float(better[:, 0].mean()) if gain else math.nan
        row[f"{name}_false_better"] = float((better & (effects <= 0)).any(-1).mean())
        row[f"{name}_wrong"] = float(wrong_words(found.word, effects, 0.5).any(-1).mean())
        missed = (found.low > effects) | (found.high < effects)
        row[f"{name}_covered"] = float(1 - missed.mean())
        row[f"{name}_trainings"] = found.trainings
    return row


# --- what a user gains


def choices(comparisons: int, size: int = 8) -> dict[str, float]:
    """Return what a choice gains where the effects are N(0, 0.5): by the advice alone, by the best
    mean where that is positive, and the most that could be; and how the odds hold.
    """
    generator = np.random.default_rng(1)
    effects = generator.normal(0.0, 0.5, (comparisons, size))
    cell = Cell("plain", (0.0,) * size, 0.6, 0.5)
    scores = cell.scores(comparisons, DESIGNS[True].looks[-1], generator)
    scores[:, 1:] += effects[..., None]
    found = judged(scores, DESIGNS[True], race=True)
    best = found.difference.argmax(-1)[:, None]

    def at_best(values: np.ndarray) -> np.ndarray:
        return np.take_along_axis(values, best, -1)[:, 0]

    gained = at_best(effects) * (at_best(found.difference) > 0)
    undecided = ~(found.word == BETTER).any(-1) & (at_best(found.difference) > 0)
    t = at_best(found.difference) / at_best(found.error)
    odds = special.stdtr(at_best(found.seeds) - 1, t)[undecided]
    return {
        "reachable": float(effects.max(-1).clip(0).mean()),
        "best_mean": float(gained.mean()),
        "best_mean_worse": float((gained < 0).mean()),
        "advice": float((effects * advised(found, False)).sum(-1).mean()),
        "odds": float(odds.mean()),
        "odds_hold": float((at_best(effects)[undecided] > 0).mean()),
    }


def at_what_is_said(comparisons: int) -> float:
    """Return how often one candidate is better whose gain is what a report says to be decided in
    80%.
    """
    cell = Cell("plain", (0.5,), 0.6, 0.0, race=True)
    said = simulate(cell, comparisons, 0)["detectable"]
    return simulate(replace(cell, effects=(said,)), comparisons, 1)["seen"]


def peeking(comparisons: int) -> tuple[float, float]:
    """Return how often *better* or *worse* is said of two candidates without a true difference: of
    a folder that is judged with 5, 6 and 8 seeds and then by the looks, each as if planned, and by
    the one design.
    """
    design = DESIGNS[True]
    cell = Cell("plain", (0.0, 0.0), 0.6, 0.5)
    scores = cell.scores(comparisons, design.looks[-1], np.random.default_rng(0))
    locked = np.isin(judged(scores, design, race=True).word, (BETTER, WORSE)).any(-1)
    ever = locked.copy()
    for seeds in (5, 6, 8):
        words = judged(scores[..., :seeds], Design(looks=(seeds,))).word
        ever |= np.isin(words, (BETTER, WORSE)).any(-1)
    return float(ever.mean()), float(locked.mean())


RATE = learning_rates(0.01, 4.0)
DELTA = Range(0.1, 1.0, default=0.1, limits=(0.0, 1.0))


class Surface:
    """True scores of settings: a parabola in the logarithm of the learning rate, whose best place
    is drawn; a margin gains up to ``gain`` at 0.4, and nothing at 1, where the candidate is the
    baseline.
    """

    def __init__(self, gain: float, generator: np.random.Generator, noise: float) -> None:
        self.gain, self.noise, self.generator = gain, noise, generator
        self.place = generator.uniform(-1.0, 1.0)
        # of a tuning seed, on all candidates
        self.shared = generator.normal(0.0, math.sqrt(0.5) * noise, 10)

    def true(self, settings: dict[str, Any]) -> float:
        """Return the score that settings have in the mean of all seeds."""
        away = math.log(settings["lr"] / 0.01, 4.0) - self.place
        delta = settings.get("delta", 1.0)
        return self.gain * (1 - ((delta - 0.4) / 0.6) ** 2) * (0.0 <= delta <= 1.0) - away**2

    def trial(self, settings: dict[str, Any], seed: int) -> Trial:
        """Return a validation with one tuning seed."""
        own = self.generator.normal(0.0, math.sqrt(0.5) * self.noise)
        return Trial(settings, self.true(settings) + self.shared[seed] + own)

    def tuned(self) -> tuple[float, float]:
        """Return the true scores of what tuning chooses for the baseline and for the candidate."""
        chosen = []
        for space in ({"lr": RATE}, {"lr": RATE, "delta": DELTA}):
            tried: list[Trial] = []
            while settings := next_trial(space, tried, TRIALS, 1.0):
                tried.append(self.trial(settings, 0))
            for trial in finalists(tried, 1.0):
                more = [self.trial(dict(trial.settings), seed) for seed in range(1, TUNING_SEEDS)]
                scores = [trial.score, *(each.score for each in more)]
                mean = trial._replace(score=float(np.mean(scores)), by_seed=scores)
                tried[tried.index(trial)] = mean
            best = best_of(tried, 1.0)
            assert best is not None
            chosen.append(self.true(dict(best.settings)))
        return chosen[0], chosen[1]


def end_to_end(gain: float, comparisons: int) -> dict[str, float]:
    """Return tuning and comparison of a baseline and two candidates with a true gain at their best
    settings.
    """
    generator = np.random.default_rng(round(10 * gain) + 100)
    rows = []
    for _ in range(comparisons):
        surfaces = [Surface(gain, generator, 0.6) for _ in range(2)]
        surfaces[1].place, surfaces[1].shared = surfaces[0].place, surfaces[0].shared
        (base, first), (_, second) = (surface.tuned() for surface in surfaces)
        rows.append((base, first, second))
    base, first, second = np.array(rows).T
    effects = np.stack([first - base, second - base], -1)
    cell = Cell("plain", (0.0, 0.0), 0.6, 0.5)
    scores = cell.scores(comparisons, DESIGNS[True].looks[-1], generator)
    scores[:, 1:] += effects[..., None]
    found = judged(scores, DESIGNS[True], race=True)
    better = found.word == BETTER
    return {
        "gain": gain,
        "stay": float((~better.any(-1)).mean()),
        "wrong_advice": float((better & (effects <= 0)).any(-1).mean()),
        "regret": float(gain - np.stack([first, second]).mean()),
    }


# --- tables

# the name of a share, and its bar: the least where that is negative, else the most
WORST = {
    "wrong_word": ("any wrong word", 0.05),
    "false_better": ("false better", 0.025),
    "wrong_advice": ("wrong advice", 0.02),
    "covered": ("intervals that hold at the stop, each", -0.95),
}


def worst_cells(
    cells: Sequence[Cell], rows: pd.DataFrame, comparisons: int
) -> list[dict[str, Any]]:
    """Return of each case and share the worst cell, measured anew: the first measurement has chosen
    it.
    """
    found = []
    for what, case, race in itertools.product(WORST, CASES, (True, False)):
        of_case = rows.loc[(rows["case"] == case) & (rows["race"] == race), what]
        index = int(of_case.idxmin() if WORST[what][1] < 0 else of_case.idxmax())
        measured = simulate(cells[index], comparisons, len(cells) + index)[what]
        found.append({"what": what, **asdict(cells[index]), "measured": measured})
    return found


def bars(rows: pd.DataFrame, other: dict[str, Any]) -> list[tuple[str, float, str, float]]:
    """Return what is measured, its value, how it is shown, and the bar: the least where that is
    negative, else the most.
    """
    percent = "{:.1%}"
    of_two = rows.query("case == 'plain' and race and not cheaper and noise == 0.6 and size == 2")
    by_effect = of_two[of_two["same"]].groupby("effect")
    one_of = rows.query("case == 'plain' and noise == 0.6 and not cheaper and effect == 0.5")
    one_of = (
        one_of[(one_of["size"] == 1) | ~one_of["same"]]
        .set_index(["size", "race", "correlation"])
        .sort_index()
    )
    tuned = {row["gain"]: row for row in other["end_to_end"]}
    chosen, new = other["choices"], pd.DataFrame(other["new_data"])
    found = []
    for size in (8, 2):
        share = one_of.loc[(size, True)]["seen"].min()
        bar = -0.5 if size == 8 else -0.45
        found.append((f"better at +0.5: one of {size} candidates, a race", share, percent, bar))
    saved = one_of.loc[(8, True)]["trainings"] / one_of.loc[(8, False)]["trainings"]
    found += [
        ("trainings of this race of 8, to those without a race", saved.max(), "{:.2f}", 1.0),
        ("better at +1: one of two that both gain", by_effect["seen"].min()[1.0], percent, -0.95),
        (
            "better at the difference that is said to be decided in 80%",
            other["said"],
            percent,
            math.inf,
        ),
        ("stay with the baseline at +1, tuning included", tuned[1.0]["stay"], percent, 0.05),
        ("wrong advice at +0, tuning included", tuned[0.0]["wrong_advice"], percent, 0.02),
    ]
    for race in (True, False):
        for worst in other["worst"]:
            if worst["race"] == race:
                name, bar = WORST[worst["what"]]
                how = "" if race else "no race: "
                found.append(
                    (f"{how}{name}, {CASES[worst['case']]}", worst["measured"], percent, bar)
                )
    refused, kept = other["peeking"]
    found += [
        ("false better for new data", new["new_false_better"].max(), percent, 0.025),
        ("wrong words for new data", new["new_wrong"].max(), percent, 0.05),
        ("intervals for new data that hold, each", new["new_covered"].min(), percent, -0.95),
        (
            "false better of new data, by the narrower interval",
            new["these_false_better"].max(),
            percent,
            math.inf,
        ),
        ("better or worse without any difference: one design", kept, percent, 0.05),
        (
            "the same, judged at 5, 6, 8 and all seeds, each as if planned (refused)",
            refused,
            percent,
            math.inf,
        ),
        (
            "effects N(0, 0.5) of 8: points that the best choice would gain",
            chosen["reachable"],
            "{:.3f}",
            math.inf,
        ),
        ("the best mean where positive", chosen["best_mean"], "{:.3f}", math.inf),
        ("the advice alone", chosen["advice"], "{:.3f}", math.inf),
        ("choices by the best mean that are worse", chosen["best_mean_worse"], percent, math.inf),
        (
            "odds said of the best one where nothing is better, mean",
            chosen["odds"],
            percent,
            math.inf,
        ),
        ("how often it is ahead", chosen["odds_hold"], percent, math.inf),
    ]
    return found


HEAD = """# How often words, intervals and advice are right

{comparisons:,} simulated comparisons in each cell of {cells}; a race looks at 5 to {last} seeds, without one 5 to \
{without}; equal within {within:g} points. Noise is the standard deviation of a run's score over the seeds, in points. \
Rows that name a kind of scores are of the worst of its cells (1, 2 and 8 candidates), simulated once more with other \
random numbers. A quiet baseline has a tenth of the candidates' spread. All cells are in simulation.json.

| what | measured | bar | |
| --- | ---: | ---: | --- |
"""
BY_SIZE = """
One candidate of several gains 0.5 points, noise 0.6. *Seen* is how often it is called better; *said to be seen* is the \
difference that the report says would be decided in 80%.

"""
BY_EXAMPLES = """
New data: a race whose test examples are drawn, noise 0.3 beside the luck with examples; one candidate gains, the others \
do not. *These* is the word of the narrower interval, about the test examples at hand.

"""
BY_EFFECT = """
A race of two candidates, normal scores of noise 0.6, both effects the same; of the words the shares of candidates, in %. \
The last column says by how many points the estimate of a *better* candidate is too large on average.

"""
CHEAPER = """
The same where the candidates take 30% less time: each goes on until it is worse or surely not worse.

"""


def markdown(rows: pd.DataFrame, other: dict[str, Any], comparisons: int) -> str:
    """Return the bars and the tables by candidates, by test examples, by effect."""
    design = DESIGNS[True]
    text = HEAD.format(
        comparisons=comparisons,
        cells=len(rows),
        last=design.looks[-1],
        without=DESIGNS[False].looks[-1],
        within=design.equal_within,
    )
    for name, value, shown, bar in bars(rows, other):
        limit, missed = "", ""
        if math.isfinite(bar):
            limit = f"{'at least ' * (bar < 0)}{shown.format(abs(bar))}"
            missed = "missed" * bool(value < -bar if bar < 0 else value > bar)
        text += f"| {name} | {shown.format(value)} | {limit} | {missed} |\n"
    plain = rows.query("case == 'plain' and noise == 0.6 and (not cheaper)")
    sizes = plain[(plain["effect"] == 0.5) & ((plain["size"] == 1) | ~plain["same"])]
    sizes = sizes.sort_values(["size", "correlation", "race"], ascending=[True, True, False])
    columns = [
        "size",
        "correlation",
        "race",
        "seen",
        "false_better",
        "wrong_word",
        "trainings",
        "detectable",
    ]
    text += BY_SIZE + table(
        sizes[columns].rename(columns={"size": "candidates", "detectable": "said to be seen"})
    )
    new = pd.DataFrame(other["new_data"])
    shown_new = [
        "gain",
        "examples",
        "candidates",
        "new_seen",
        "these_seen",
        "new_false_better",
        "these_false_better",
        "new_wrong",
        "new_trainings",
    ]
    text += BY_EXAMPLES + table(new[shown_new])
    main = rows.query("case == 'plain' and noise == 0.6 and size == 2 and same and race")
    columns = ["correlation", "effect", *WORDS, "wrong_word", "seeds", "trainings", "too_large"]
    text += BY_EFFECT + table(main[~main["cheaper"]][columns])
    columns = ["correlation", "effect", "right_advice", "wrong_advice", "seeds"]
    return text + CHEAPER + table(main[main["cheaper"]][columns])


SHARES = {*WORDS, "seen", "false_better", "wrong_word", "right_advice", "wrong_advice"}


def table(frame: pd.DataFrame) -> str:
    """Return a table in Markdown: shares in %, other numbers with two decimals at most."""
    lines = [list(frame), ["---:"] * frame.shape[1]]
    for row in frame.to_dict("records"):
        cells = []
        for name, value in row.items():
            cell = f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
            if isinstance(value, bool):
                cell = "yes" if value else "no"
            elif math.isnan(value):
                cell = "–"
            elif str(name).removeprefix("new_").removeprefix("these_") in {*SHARES, "wrong"}:
                cell = f"{100 * value:.1f}%"
            elif name in ("trainings", "new_trainings", "seeds"):
                cell = f"{value:.1f}"
            cells.append(cell)
        lines.append(cells)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines).replace("_", " ")


def rounded(values: dict[str, Any]) -> dict[str, Any]:
    """Return numbers as the file has them."""
    kept = dict(values)
    for name, value in values.items():
        if isinstance(value, float):
            kept[name] = round(value, 4)
    return kept


def main() -> None:
    """Simulate all cells and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--comparisons", type=int, default=4000)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    count, cells = options.comparisons, grid()
    rows = [asdict(cell) | simulate(cell, count, seed) for seed, cell in enumerate(cells)]
    frame = pd.DataFrame(rows)
    drawn = itertools.product((0.0, 1.0, 3.0), TEST_SIZES, (2, 8))
    other = {
        "new_data": [new_data(*each, max(count // 2, 1)) for each in drawn],
        "end_to_end": [end_to_end(gain, max(count // 4, 1)) for gain in (0.0, 0.5, 1.0)],
        "choices": choices(2 * count),
        "peeking": peeking(2 * count),
        "said": at_what_is_said(2 * count),
        "worst": worst_cells(cells, frame, 2 * count),
    }
    about: dict[str, Any] = {"designs": {}, "comparisons": count}
    for race, design in DESIGNS.items():
        about["designs"]["race" if race else "without"] = asdict(design)
    for name, found in other.items():
        about[name] = [rounded(row) for row in found] if isinstance(found, list) else found
    lines = ",\n".join(json.dumps(rounded(row)) for row in rows)
    text = json.dumps(about)[:-1] + ', "cells": [\n' + lines + "\n]}\n"
    (options.output / "simulation.json").write_text(text, encoding="utf-8")
    frame["size"] = frame["effects"].map(len)
    frame["effect"] = frame["effects"].map(lambda effects: effects[0])
    frame["same"] = frame["effects"].map(lambda effects: len(set(effects)) == 1)
    page = markdown(frame, other, count)
    (options.output / "simulation.md").write_text(page, encoding="utf-8")
    print(page)


if __name__ == "__main__":
    main()
