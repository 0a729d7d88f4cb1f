"""How often a comparison's words, intervals and advice are right: simulated comparisons, judged by
the project itself.

python results/statistics/simulation.py                # half an hour on one core; writes
simulation.json and .md python results/statistics/simulation.py --comparisons 200 --output /tmp
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from as_lightning.comparison.search import (
    FINALISTS,
    Range,
    as_neutral,
    best_of,
    finalists,
    learning_rates,
    next_trials,
)
from as_lightning.report.record import Trial
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
    estimate,
    is_skewed,
    needs_more_seeds,
    still_open,
    verdicts,
)

EFFECTS = (-1.0, -0.5, -0.25, 0.0, 0.25, 0.5, 1.0)  # true differences to the baseline, in points
NOISES, CORRELATIONS = (0.3, 0.6, 1.2), (0.0, 0.5)
TRIALS, TUNING_SEEDS = 5, 2  # the defaults of a comparison
HALF_BUDGET, HALF_EFFECTS = 0.5, (-2.0, -1.0, -0.5, 0.0)
# what a case changes of normal scores with equal spreads
CASES = {
    "plain": "normal scores, equal spreads",
    "unequal": "spreads of 1/3 and 3 times the baseline's",
    "alike": "methods whose scores correlate by 0.95",
    "noisy baseline": "a baseline with ten times the methods' spread",
    "rounded": "scores of 360 test examples: steps of 0.28 points",
    "crashes": "2% of all runs lose 30 points",
    "skewed": "the methods' scores have an exponential tail below",
}
EXAMPLES, CRASH, CRASH_RATE = 360, 30.0, 0.02
SETTLED: dict[float, tuple[int, ...]] = {
    effect: (BETTER,) if effect >= 0.5 else (NO_GAIN, EQUAL, WORSE) for effect in EFFECTS
}
SETTLED[0.25] = (BETTER, NO_GAIN, EQUAL, WORSE)


@dataclass(frozen=True)
class Cell:
    """What is simulated: true ``effects`` of the methods; whether they take 30% less time
    (``cheaper``).
    """

    case: str
    effects: tuple[float, ...]
    noise: float
    correlation: float
    cheaper: bool = False

    def scores(self, comparisons: int, seeds: int, generator: np.random.Generator) -> np.ndarray:
        """Scores in points, of shape ``(comparisons, methods, seeds)``; noise is the deviation of a
        baseline's run.
        """
        shape = (comparisons, len(self.effects) + 1, seeds)
        shared, own = (
            generator.standard_normal((comparisons, 1, seeds)),
            generator.standard_normal(shape),
        )
        if self.case == "skewed":
            own[:, 1:] = 1.0 - generator.exponential(size=own[:, 1:].shape)
        noise = math.sqrt(self.correlation) * shared + math.sqrt(1 - self.correlation) * own
        spreads = np.ones(shape[1])
        if self.case == "unequal":
            spreads[1:] = list(itertools.islice(itertools.cycle((1 / 3, 3.0)), shape[1] - 1))
        if self.case == "noisy baseline":
            spreads[0] = 10.0
        scores = self.noise * spreads[:, None] * noise + np.array([0.0, *self.effects])[:, None]
        if self.case == "crashes":
            scores -= CRASH * (generator.random(shape) < CRASH_RATE)
        step = 100 / EXAMPLES
        return np.round(scores / step) * step if self.case == "rounded" else scores


def grid() -> list[Cell]:
    """All cells: the plain ones in full, the other cases at the effects where a word is most easily
    wrong.
    """
    cells = [
        Cell("plain", (effect,) * others, noise, correlation, cheaper)
        for effect, noise, correlation, others, cheaper in itertools.product(
            EFFECTS, NOISES, CORRELATIONS, (2, 5), (False, True)
        )
    ]
    edges = [effects for effect in (0.0, 0.5, -0.5) for effects in ((effect,), (effect, effect))]
    edges += [(0.5, -0.5), (0.0, -0.5)]
    for case, effects, noise, cheaper in itertools.product(CASES, edges, NOISES, (False, True)):
        correlation = 0.95 if case == "alike" else 0.5
        cells.append(Cell(case, effects, noise, correlation, cheaper))
    return list(dict.fromkeys(cells))


@dataclass
class Judged:
    """What comparisons have come to, arrays of shape ``(comparisons, arms)``."""

    word: np.ndarray
    sure: np.ndarray
    seeds: np.ndarray
    difference: np.ndarray
    low: np.ndarray
    high: np.ndarray


def judged(scores: np.ndarray, design: Design, cheaper: bool, family: int | None = None) -> Judged:
    """Comparisons look by look, as the command makes them."""
    differences = scores[:, 1:] - scores[:, :1]
    shape = differences.shape[:2]
    going, sure = np.ones(shape, dtype=bool), np.zeros(shape, dtype=bool)
    word, seeds = np.full(shape, UNDECIDED), np.zeros(shape, dtype=np.int64)
    difference, low, high = np.full((3, *shape), np.nan)
    for look, count in enumerate(design.looks):
        at = estimate(differences[going][:, :count], design, family or shape[1], look)
        flat = at.error == 0  # nothing can be tested
        word[going], sure[going], seeds[going] = (
            np.where(flat, UNDECIDED, at.word),
            at.sure & ~flat,
            count,
        )
        difference[going], low[going], high[going] = at.difference, at.low, at.high
        going[going] = (
            needs_more_seeds(at.word, at.sure, at.in_reach, at.sure_in_reach, cheaper) & ~flat
        )
        if not going.any():
            break
    return Judged(word, sure, seeds, difference, low, high)


def judged_one_by_one(scores: np.ndarray, design: Design, cheaper: bool) -> list[Verdict]:
    """One comparison through :func:`verdicts` and :func:`still_open`, as the command calls them."""
    arms = [f"method {index}" for index in range(len(scores))]
    made: dict[str, dict[int, float]] = {arm: {} for arm in arms}
    going = arms
    for count in design.looks:
        for arm in going:
            made[arm] = dict(enumerate(scores[arms.index(arm), :count].tolist()))
        found = verdicts(made, reference=arms[0], design=design)
        going = [arms[0], *still_open(found, cheaper=arms[1:] if cheaper else ())]
        if len(going) == 1:
            break
    return found


def wrong_words(word: np.ndarray, effects: np.ndarray, within: float) -> np.ndarray:
    """Which words are false for these true differences."""
    false = {
        BETTER: effects <= 0,
        WORSE: effects >= 0,
        EQUAL: np.abs(effects) >= within,
        NOT_WORSE: effects <= -within,
        NO_GAIN: effects >= within,
    }
    return np.any([(word == index) & is_false for index, is_false in false.items()], axis=0)


def advised(found: Judged, cheaper: bool) -> np.ndarray:
    """Which arm the advice names: the best of the better ones, else a cheaper one that is surely
    not worse.
    """
    better = found.word == BETTER
    fallback = (
        cheaper
        & found.sure
        & np.isin(found.word, (EQUAL, NOT_WORSE))
        & ~better.any(-1, keepdims=True)
    )
    candidates = better | fallback
    best = np.where(candidates, found.difference, -np.inf).argmax(-1)
    chosen = np.zeros_like(candidates)
    np.put_along_axis(chosen, best[:, None], candidates.any(-1, keepdims=True), -1)
    return chosen


def simulate(cell: Cell, design: Design, comparisons: int, seed: int) -> dict[str, float]:
    """The shares of one cell."""
    scores = cell.scores(comparisons, design.looks[-1], np.random.default_rng(seed))
    found = judged(scores, design, cell.cheaper)
    effects, within, word = np.array(cell.effects), design.equal_within, found.word
    chosen = advised(found, cell.cheaper)
    # right: better where it is, as good where that is cheaper; a difference of equal_within is a
    # difference
    good = (effects > -within) if cell.cheaper else (effects > 0)
    false_better = (word == BETTER) & (effects <= 0)
    any_better = bool((word == BETTER).any())
    missed = (found.low > effects) | (found.high < effects)
    seen = np.where(
        np.arange(scores.shape[-1]) < found.seeds[..., None], scores[:, 1:] - scores[:, :1], np.nan
    )
    return {
        "wrong_word": float(wrong_words(word, effects, within).any(-1).mean()),
        "false_better": float(false_better.any(-1).mean()),
        "settled": float(
            np.mean([np.isin(word[:, i], SETTLED.get(e, ())) for i, e in enumerate(cell.effects)])
        ),
        **{name: float((word == index).mean()) for index, name in enumerate(WORDS)},
        "wrong_advice": float(((chosen & ~good) | (chosen & false_better)).any(-1).mean()),
        "right_advice": float((chosen & good & ~false_better).any(-1).mean()),
        "covered": float(1 - missed.mean()),
        "covered_if_better": float(1 - missed[word == BETTER].mean()) if any_better else math.nan,
        "too_large": float((found.difference - effects)[word == BETTER].mean())
        if any_better
        else math.nan,
        "said_to_be_skewed": float(is_skewed(seen).mean()),
        "seeds": float(found.seeds.mean()),
        "full_trainings": float((found.seeds.max(-1) + found.seeds.sum(-1)).mean()),
        "baseline_seeds": float(found.seeds.max(-1).mean()),
    }


def half_budget(
    effect: float, noise: float, correlation: float, design: Design, comparisons: int
) -> dict[str, float]:
    """The baseline for half the epochs against itself: a family of its own, in half the time."""
    cell = Cell("plain", (effect,), noise, correlation, True)
    generator = np.random.default_rng(round(1000 * (10 + effect)) + round(100 * correlation))
    found = judged(cell.scores(comparisons, design.looks[-1], generator), design, True)
    chosen = advised(found, True)
    return {
        "half_effect": effect,
        "half_seeds": float(found.seeds.mean()),
        "wrong_word": float(
            wrong_words(found.word, np.array(cell.effects), design.equal_within).mean()
        ),
        "wrong_advice": float((chosen & (effect <= -design.equal_within)).mean()),
    }


def peeking(design: Design, comparisons: int) -> tuple[float, float]:
    """A folder judged with 5, 6 and 8 seeds and then by the looks, each as if planned, against the
    one design.

    Two methods without a true difference: how often *better* or *worse* is said at any of these
        times.
    """
    scores = Cell("plain", (0.0, 0.0), 0.6, 0.5).scores(
        comparisons, design.looks[-1], np.random.default_rng(0)
    )
    ever = np.zeros(comparisons, dtype=bool)
    for seeds in (5, 6, 8):
        words = judged(scores[..., :seeds], replace(design, looks=(seeds,)), False).word
        ever |= np.isin(words, (BETTER, WORSE)).any(-1)
    locked = np.isin(judged(scores, design, False).word, (BETTER, WORSE)).any(-1)
    return float((ever | locked).mean()), float(locked.mean())


RATE, DELTA = (
    learning_rates(0.01, 4.0),
    Range(0.1, 1.0, default=0.1, neutral=1.0, limits=(0.0, 1.0)),
)


class Surface:
    """True scores of settings: a parabola in the logarithm of the learning rate, whose best place
    is drawn; a margin gains up to ``gain`` at 0.4, and nothing at 1, where the method is the
    baseline.
    """

    def __init__(self, gain: float, generator: np.random.Generator, noise: float) -> None:
        self.gain, self.noise, self.generator = gain, noise, generator
        self.place = generator.uniform(-1.0, 1.0)
        self.shared = generator.normal(
            0.0, math.sqrt(0.5) * noise, 10
        )  # of a tuning seed, on all methods

    def true(self, settings: dict[str, Any]) -> float:
        """The score that settings have in the mean of all seeds."""
        away = math.log(settings["lr"] / 0.01, 4.0) - self.place
        delta = settings.get("delta", 1.0)
        return self.gain * (1 - ((delta - 0.4) / 0.6) ** 2) * (0.0 <= delta <= 1.0) - away**2

    def trial(self, settings: dict[str, Any], seed: int) -> Trial:
        """A validation with one tuning seed."""
        own = self.generator.normal(0.0, math.sqrt(0.5) * self.noise)
        return Trial(settings, self.true(settings) + self.shared[seed] + own)

    def tuned(self, tuning_seeds: int, raced: bool = True) -> tuple[float, float, int]:
        """The true scores of what tuning chooses for the baseline and for the method, and the
        trainings of both.
        """
        baseline, method = {"lr": RATE}, {"lr": RATE, "delta": DELTA}
        spent, chosen = 0, []
        shared: list[Trial] = []
        first = 1 if raced else tuning_seeds
        for space in (baseline, method):
            tried = [as_neutral(method, trial) for trial in shared]
            own: list[Trial] = []
            while proposed := next_trials(space, own, tried, TRIALS, 1.0):
                own += [
                    self.mean([self.trial(settings, seed) for seed in range(first)])
                    for settings in proposed
                ]
            spent += first * len(own)
            shared, both = own, [*tried, *own]
            for trial in finalists(both, 1.0) if raced else ():
                more = [
                    trial,
                    *(self.trial(dict(trial.settings), seed) for seed in range(1, tuning_seeds)),
                ]
                both[both.index(trial)] = self.mean(more)._replace(shared=trial.shared)
                spent += tuning_seeds - 1
            best = best_of(both, 1.0)
            assert best is not None
            chosen.append(self.true(dict(best.settings)))
        return chosen[0], chosen[1], spent

    @staticmethod
    def mean(trials: Sequence[Trial]) -> Trial:
        """One trial with the mean score of several seeds."""
        scores = tuple(trial.score for trial in trials)
        return Trial(trials[0].settings, float(np.mean(scores)), by_seed=scores)


def end_to_end(
    gain: float,
    design: Design,
    comparisons: int,
    tuning_seeds: int = TUNING_SEEDS,
    raced: bool = True,
) -> dict[str, float]:
    """Tuning and comparison of a baseline and two methods with a true gain at their
    best settings.
    """
    generator = np.random.default_rng(round(10 * gain) + 100)
    noise, rows = 0.6, []
    for _ in range(comparisons):
        surfaces = [Surface(gain, generator, noise) for _ in range(2)]
        surfaces[1].place, surfaces[1].shared = surfaces[0].place, surfaces[0].shared
        (base, first, spent), (_, second, more) = (
            each.tuned(tuning_seeds, raced) for each in surfaces
        )
        rows.append((base, first, second, spent + more / 2))
    base, first, second, _ = np.array(rows).T
    effects = np.stack([first - base, second - base], -1)
    cell = Cell("plain", (0.0, 0.0), noise, 0.5)
    scores = cell.scores(comparisons, design.looks[-1], generator)
    scores[:, 1:] += effects[..., None]
    # a method that is tuned to be the baseline has its runs, and is equal
    same = effects == 0
    found = judged(scores, design, False)
    found.word[same] = EQUAL
    better = found.word == BETTER
    return {
        "gain": gain,
        "tuning_seeds": tuning_seeds,
        "raced": raced,
        "stay": float((~better.any(-1)).mean()),
        "wrong_advice": float((better & (effects <= 0)).any(-1).mean()),
        "tuned_to_the_baseline": float(same.mean()),
        "regret": float(gain - np.stack([first, second]).mean()),
        "regret_of_the_baseline": float(-base.mean()),
    }


def another_method_crashes(design: Design, comparisons: int) -> tuple[float, float]:
    """How often a method with a gain of 3.1 is better where another one has crashed in a seed, and
    where it has not.
    """
    scores = Cell("plain", (3.1, 0.0), 0.6, 0.5).scores(
        comparisons, design.looks[-1], np.random.default_rng(3)
    )
    without = judged(scores, design, False).word[:, 0]
    scores[:, 2, 2] -= 80.0
    crashed = judged(scores, design, False).word[:, 0]
    return float((crashed == BETTER).mean()), float((without == BETTER).mean())


# the name of a share, and its bar: the least where that is negative, else the most
WORST = {
    "wrong_word": ("any wrong word", 0.05),
    "false_better": ("false better", 0.025),
    "wrong_advice": ("wrong advice", 0.02),
    "covered": ("intervals that hold at the stop, each", -0.95),
}


def worst_cells(
    cells: Sequence[Cell], rows: pd.DataFrame, design: Design, comparisons: int
) -> list[dict[str, Any]]:
    """Of each case and share the worst cell, measured anew: the first measurement has chosen it."""
    found = []
    for what, case in itertools.product(WORST, CASES):
        of_case = rows.loc[rows["case"] == case, what]
        index = int(of_case.idxmin() if WORST[what][1] < 0 else of_case.idxmax())
        measured = simulate(cells[index], design, comparisons, len(cells) + index)[what]
        found.append({"what": what, **asdict(cells[index]), "measured": measured})
    return found


def bars(cells: pd.DataFrame, other: dict[str, Any]) -> list[tuple[str, float, str, float]]:
    """What is measured, its value, how it is shown, and the bar: the least where that is negative,
    else the most.
    """
    main = cells.query("case == 'plain' and others == 2 and same and noise == 0.6 and not cheaper")
    gains = {effect: main.loc[main["effect"] == effect, "better"].min() for effect in (0.5, 1.0)}
    tuning = TRIALS * 3 + FINALISTS * 3 * (TUNING_SEEDS - 1)
    half = {row["half_effect"]: HALF_BUDGET * row["half_seeds"] for row in other["half_budget"]}
    raced = {(row["gain"], row["tuning_seeds"], row["raced"]): row for row in other["end_to_end"]}
    rows = [
        (
            f"full trainings at the defaults, {tuning} of tuning, half the epochs lose "
            f"{abs(loss):g} points",
            tuning + main["full_trainings"].mean() + trainings,
            "{:.1f}",
            62.0 if loss == -1.0 else math.inf,
        )
        for loss, trainings in half.items()
    ]
    percent = "{:.1%}"
    rows += [
        (
            "settled, noise 0.6, effects -1 to 1, two methods",
            main["settled"].mean(),
            percent,
            -0.80,
        ),
        ("better at +0.5, the lower of two correlations", gains[0.5], percent, -0.45),
        ("better at +1, the lower of two correlations", gains[1.0], percent, -0.95),
        (
            "stay with the baseline at +1, tuning included",
            raced[1.0, TUNING_SEEDS, True]["stay"],
            percent,
            0.05,
        ),
    ]
    for worst in other["worst"]:
        name, bar = WORST[worst["what"]]
        rows.append((f"{name}, {CASES[worst['case']]}", worst["measured"], percent, bar))
    warned = cells.groupby("case")["said_to_be_skewed"].mean()
    rows += [
        (f"said to be skewed, {CASES[case]}", warned[case], percent, math.inf)
        for case in ("plain", "skewed")
    ]
    wrong = max(row["wrong_advice"] for row in other["half_budget"])
    rows.append(("wrong advice by the half budget, a family of its own", wrong, percent, 0.02))
    wrong = max(row["wrong_advice"] for row in other["end_to_end"])
    rows.append(("wrong advice, tuning included", wrong, percent, 0.02))
    refused, kept = other["peeking"]
    rows += [
        ("better or worse without any difference: one design", kept, percent, 0.05),
        (
            "the same, judged at 5, 6, 8 and all seeds, each as if planned (refused)",
            refused,
            percent,
            math.inf,
        ),
    ]
    crashed, without = other["another_method_crashes"]
    name = "better at +3.1: less often if another method crashes in a seed"
    rows.append((name, without - crashed, percent, 0.01))
    for gain in (0.0, 0.5, 1.0):
        lost = {key: raced[(gain, *key)]["regret"] for key in ((2, False), (2, True), (3, True))}
        for key, name in (((2, True), "raced"), ((3, True), "raced with two further seeds")):
            more = lost[key] - lost[2, False]
            rows.append(
                (
                    f"regret of tuning at +{gain:g}, {name}, more than both seeds for all",
                    more,
                    "{:+.2f}",
                    0.03,
                )
            )
    return rows


HEAD = """# How often words, intervals and advice are right

{comparisons:,} simulated comparisons in each cell of the tables and each worst cell, an eighth of these in the others \
of {cells}; looks at {looks} seeds, equal within {within} points. \
Noise is the standard deviation of a run's score over the seeds, in points. Rows that name a kind of scores are of the \
worst of its cells, simulated once more with other random numbers. Times are taken as known. All cells are in \
simulation.json.

| what | measured | bar | |
| --- | ---: | ---: | --- |
"""
BY_EFFECT = """
Two methods beside the baseline, normal scores, all effects the same; of the words the shares of methods, in %. The \
last column says by how many points the estimate of a *better* method is too large on average.

"""
CHEAPER = """
The same where the methods take 30% less time: each goes on until it is worse or surely not worse.

| noise | correlation | effect | right advice | wrong advice | seeds |
| ---: | ---: | ---: | ---: | ---: | ---: |
"""


def markdown(cells: pd.DataFrame, other: dict[str, Any], design: Design, comparisons: int) -> str:
    """The bars and, for two methods, the words by effect."""
    looks, within = f"{design.looks[0]} to {design.looks[-1]}", f"{design.equal_within:g}"
    text = HEAD.format(comparisons=comparisons, cells=len(cells), looks=looks, within=within)
    for name, value, shown, bar in bars(cells, other):
        limit = (
            "" if math.isinf(bar) else f"{'at least ' if bar < 0 else ''}{shown.format(abs(bar))}"
        )
        missed = "" if (value >= -bar if bar < 0 else value <= bar) else "missed"
        text += _row(name, shown.format(value), limit, missed)
    head = [
        "noise",
        "correlation",
        "effect",
        *WORDS,
        "any wrong word",
        "seeds",
        "full trainings",
        "too large",
    ]
    text += BY_EFFECT + _row(*head) + f"|{' ---: |' * len(head)}\n"
    main = cells.query("case == 'plain' and others == 2 and same")
    for row in main.query("not cheaper").to_dict("records"):
        shares = [f"{100 * row[word]:.0f}" for word in WORDS] + [f"{100 * row['wrong_word']:.1f}"]
        cost = [f"{row['seeds']:.1f}", f"{row['full_trainings']:.1f}"]
        cost.append("–" if math.isnan(row["too_large"]) else f"{row['too_large']:+.2f}")
        text += _row(row["noise"], row["correlation"], f"{row['effect']:+g}", *shares, *cost)
    text += CHEAPER
    for row in main.query("cheaper").to_dict("records"):
        shares = [f"{100 * row[advice]:.1f}" for advice in ("right_advice", "wrong_advice")]
        text += _row(
            row["noise"], row["correlation"], f"{row['effect']:+g}", *shares, f"{row['seeds']:.1f}"
        )
    return text


def _row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |\n"


def rounded(values: dict[str, Any]) -> dict[str, Any]:
    """Numbers as the file has them."""
    return {
        name: round(value, 4) if isinstance(value, float) else value
        for name, value in values.items()
    }


def main() -> None:
    """Simulate all cells and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--comparisons", type=int, default=40_000)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    design, few = Design(), max(options.comparisons // 8, 1)
    cells = grid()
    many = [
        cell.case == "plain" and cell.effects in [(effect, effect) for effect in EFFECTS]
        for cell in cells
    ]
    counts = [options.comparisons if of_tables else few for of_tables in many]
    rows = [
        asdict(cell) | simulate(cell, design, count, seed)
        for seed, (cell, count) in enumerate(zip(cells, counts, strict=True))
    ]
    table = pd.DataFrame(rows)
    halves = itertools.product(HALF_EFFECTS, (0.6,), CORRELATIONS)
    half = pd.DataFrame([half_budget(*each, design, options.comparisons) for each in halves])
    searches = itertools.product((0.0, 0.5, 1.0), ((2, False), (2, True), (3, True)))
    other = {
        "half_budget": half.groupby("half_effect").mean().reset_index().to_dict("records"),
        "end_to_end": [end_to_end(gain, design, 2 * few, *search) for gain, search in searches],
        "peeking": peeking(design, options.comparisons),
        "another_method_crashes": another_method_crashes(design, few),
        "worst": worst_cells(cells, table, design, options.comparisons),
    }
    about = {"design": asdict(design), "comparisons": options.comparisons}
    about |= {
        name: list(map(rounded, of)) if name.endswith(("budget", "end", "worst")) else of
        for name, of in other.items()
    }
    lines = ",\n".join(json.dumps(rounded(row)) for row in rows)
    text = json.dumps(about)[:-1] + ', "cells": [\n' + lines + "\n]}\n"
    (options.output / "simulation.json").write_text(text, encoding="utf-8")
    table["others"] = table["effects"].map(len)
    table["effect"] = table["effects"].map(lambda effects: effects[0])
    table["same"] = table["effects"].map(lambda effects: len(set(effects)) == 1)
    page = markdown(table, other, design, options.comparisons)
    (options.output / "simulation.md").write_text(page, encoding="utf-8")
    print(page)


if __name__ == "__main__":
    main()
