"""How often a comparison's words and advice are right: simulated comparisons, judged by the project's own functions.

python results/statistics/simulation.py                # some minutes on one core; writes simulation.json and .md
python results/statistics/simulation.py --comparisons 200 --output /tmp
"""

from __future__ import annotations

import argparse
import itertools
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from as_lightning.benchmark.report.verdicts import (
    ADVICE_ALPHA,
    PROMISING,
    WORDS,
    Arm,
    Design,
    LookTest,
    Verdict,
    still_open,
    verdicts,
    words,
)

EFFECTS = (0.0, 0.25, 0.5, 1.0, 2.0)
NOISES = (0.3, 0.6, 1.2)
CORRELATIONS = (0.0, 0.5)
SPREADS = {"equal": (1.0,), "unequal": (1.0, 1 / 3, 3.0)}  # of the baseline and, in turns, of the others
METHODS = (3, 6)
TUNING = 30  # full trainings: 3 methods, 5 trials, 2 seeds
HALF_BUDGET = 0.5  # the baseline also runs for half the epochs, in each of its seeds
CHEAPER = (False, True)
BETTER, WORSE, EQUAL, NOT_WORSE, NO_GAIN, UNDECIDED = range(len(WORDS))

HEAD = """# How often words and advice are right

{comparisons:,} simulated comparisons in each of {cells} cells; looks at {looks} seeds, equal within {within} points. \
Noise is the standard deviation of a run's score over the seeds, in points; unequal spreads are 1/3 and 3 times the \
baseline's. Noise is normal, and times are taken as known. All cells are in simulation.json.

| what | measured | bar |
| --- | ---: | ---: |
"""
TRAININGS = "full trainings of the undecided bar's comparisons, {} of tuning included (mean of the correlations; {})"
BY_EFFECT = """
Three methods, equal spreads, all effects the same; of the words the shares of methods, in %.

"""
CHEAPER_HEAD = """
The same where the other methods take 30% less time: each goes on until it is worse or surely not worse.

| noise | correlation | effect | right advice | wrong advice | seeds |
| ---: | ---: | ---: | ---: | ---: | ---: |
"""


@dataclass(frozen=True)
class Cell:
    """What is simulated: effects all the ``same``, or with ``both`` signs in turns; whether they take 30% less time."""

    effect: float
    signs: str
    noise: float
    correlation: float
    spreads: str
    methods: int
    cheaper: bool

    @property
    def effects(self) -> np.ndarray:
        """The true differences of all methods but the baseline."""
        signs = np.where(np.arange(self.methods - 1) % 2, -1.0, 1.0) if self.signs == "both" else 1.0
        return self.effect * signs * np.ones(self.methods - 1)

    def scores(self, comparisons: int, seeds: int, generator: np.random.Generator) -> np.ndarray:
        """Scores in points, of shape ``(comparisons, methods, seeds)``; noise is the deviation of a baseline's run."""
        pattern = SPREADS[self.spreads]
        rest = pattern[1:] or pattern
        deviations = self.noise * np.array([pattern[0], *itertools.islice(itertools.cycle(rest), self.methods - 1)])
        shared = generator.standard_normal((comparisons, 1, seeds))
        own = generator.standard_normal((comparisons, self.methods, seeds))
        noise = np.sqrt(self.correlation) * shared + np.sqrt(1 - self.correlation) * own
        return deviations[:, None] * noise + np.concatenate([[0.0], self.effects])[:, None]


def grid() -> list[Cell]:
    """All cells; both signs only where there is an effect."""
    signed = [(sign * effect, "same") for effect in EFFECTS for sign in ((1, -1) if effect else (1,))]
    signed += [(effect, "both") for effect in EFFECTS[1:]]
    return [
        Cell(*effect, *rest)  # type: ignore[arg-type]
        for effect in signed
        for rest in itertools.product(NOISES, CORRELATIONS, SPREADS, METHODS, CHEAPER)
    ]


def judged(scores: np.ndarray, design: Design, cheaper: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Comparisons look by look, as the command makes them: the words' indices, whether sure, and each arm's seeds."""
    comparisons, methods, _ = scores.shape
    test = LookTest(design, methods - 1, shape=(comparisons,))
    strict = LookTest(replace(design, alpha=ADVICE_ALPHA), methods - 1, shape=(comparisons,))
    going = np.ones((comparisons, methods - 1), dtype=bool)
    seeds = np.zeros(going.shape, dtype=np.int64)
    for count in design.looks:
        for tests in (test, strict):
            tests.look(scores[:, :, :count], going)
        seeds[going] = count
        word, sure = words(test.rejected), strict.rejected[..., 0]
        promising = (word == NOT_WORSE) & (test.difference > PROMISING * design.equal_within)
        going = going & ((word == UNDECIDED) | promising | (cheaper & (word != WORSE) & ~sure))
    return word, sure, seeds


def judged_one_by_one(scores: np.ndarray, design: Design, cheaper: bool) -> list[Verdict]:
    """One comparison through :func:`verdicts` and :func:`still_open`, as the command calls them."""
    arms = [Arm(f"method {index}") for index in range(len(scores))]
    made: dict[Arm, dict[int, float]] = {arm: {} for arm in arms}
    going = arms
    for count in design.looks:
        for arm in going:
            made[arm] = dict(enumerate(scores[arms.index(arm), :count].tolist()))
        found = verdicts(made, reference=arms[0], design=design)
        going = [arms[0], *still_open(found, design, cheaper=arms[1:] if cheaper else ())]
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


def advised(word: np.ndarray, sure: np.ndarray, differences: np.ndarray, cheaper: bool) -> np.ndarray:
    """Which arm the advice names: the best of the better ones, else a cheaper one that is surely not worse."""
    better = word == BETTER
    fallback = cheaper & sure & np.isin(word, (EQUAL, NOT_WORSE)) & ~better.any(-1, keepdims=True)
    candidates = better | fallback
    best = np.where(candidates, differences, -np.inf).argmax(-1)
    chosen = np.zeros_like(candidates)
    np.put_along_axis(chosen, best[:, None], candidates.any(-1, keepdims=True), -1)
    return chosen


def simulate(cell: Cell, design: Design, comparisons: int, seed: int) -> dict[str, float]:
    """The shares of one cell."""
    scores = cell.scores(comparisons, design.looks[-1], np.random.default_rng(seed))
    word, sure, seeds = judged(scores, design, cell.cheaper)
    effects, within = cell.effects, design.equal_within
    differences = scores[:, 1:].mean(-1) - scores[:, :1].mean(-1)
    chosen = advised(word, sure, differences, cell.cheaper)
    # right: better where it is, as good where that is cheaper; a difference of equal_within is a difference
    good = (effects > -within) if cell.cheaper else (effects > 0)
    false_better = chosen & (word == BETTER) & (effects <= 0)
    most = seeds.max(-1)
    return {
        "wrong_word": float(wrong_words(word, effects, within).any(-1).mean()),
        "undecided": float((word == UNDECIDED).mean()),
        **{name: float((word == index).mean()) for index, name in enumerate(WORDS[:-1])},
        "wrong_advice": float(((chosen & ~good) | false_better).any(-1).mean()),
        "right_advice": float((chosen & good & ~false_better).any(-1).mean()),
        "seeds": float(seeds.mean()),
        "full_trainings": float((most + seeds.sum(-1)).mean()),
        "half_trainings": float(most.mean()),
    }


def markdown(cells: pd.DataFrame, design: Design, comparisons: int) -> str:
    """The bars and, for three methods, the words by effect."""
    cells = cells.assign(trainings=TUNING + cells["full_trainings"] + HALF_BUDGET * cells["half_trainings"])
    same = cells.query("methods == 3 and spreads == 'equal' and signs == 'same'")
    decided = same.query("noise == 0.6 and not cheaper and abs(effect) <= 1")
    right = cells.query("effect == 0 and noise == 0.6 and methods == 3 and spreads == 'equal' and cheaper")
    wrong = cells.groupby("spreads")["wrong_word"].max()
    bars = [
        ("any wrong verdict, equal spreads, largest of all cells", wrong["equal"], "5%"),
        ("any wrong verdict, unequal spreads, largest of all cells", wrong["unequal"], "7%"),
        ("undecided, noise 0.6, 3 methods, effects -1 to 1", decided["undecided"].mean(), "20%"),
        ("wrong advice, largest of all cells", cells["wrong_advice"].max(), "2%"),
        ("right advice, equal and 30% cheaper, noise 0.6, 3 methods", right["right_advice"].mean(), "at least 60%"),
    ]
    trainings = decided.groupby("correlation")["trainings"].mean()
    each = ", ".join(f"{correlation}: {value:.1f}" for correlation, value in trainings.items())
    looks, within = ", ".join(map(str, design.looks)), f"{design.equal_within:g}"
    text = HEAD.format(comparisons=comparisons, cells=len(cells), looks=looks, within=within)
    text += "".join(_row(name, f"{100 * value:.1f}%", bar) for name, value, bar in bars)
    text += _row(TRAININGS.format(TUNING, each), f"{trainings.mean():.1f}", 62)
    text += BY_EFFECT + _row("noise", "correlation", "effect", *WORDS, "any wrong verdict", "seeds", "full trainings")
    text += f"|{' ---: |' * 12}\n"
    for row in same.query("not cheaper").to_dict("records"):
        shares = [f"{100 * row[word]:.0f}" for word in WORDS] + [f"{100 * row['wrong_word']:.1f}"]
        cost = f"{row['seeds']:.1f}", f"{row['trainings']:.1f}"
        text += _row(row["noise"], row["correlation"], f"{row['effect']:+g}", *shares, *cost)
    text += CHEAPER_HEAD
    for row in same.query("cheaper").to_dict("records"):
        shares = [f"{100 * row[advice]:.1f}" for advice in ("right_advice", "wrong_advice")]
        text += _row(row["noise"], row["correlation"], f"{row['effect']:+g}", *shares, f"{row['seeds']:.1f}")
    return text


def _row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |\n"


def main() -> None:
    """Simulate all cells and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--comparisons", type=int, default=5_000)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    design = Design()
    rows = [asdict(cell) | simulate(cell, design, options.comparisons, seed) for seed, cell in enumerate(grid())]
    about = {"design": asdict(design), "comparisons": options.comparisons, "tuning": TUNING}
    lines = ",\n".join(json.dumps({k: round(v, 4) if type(v) is float else v for k, v in row.items()}) for row in rows)
    text = json.dumps(about)[:-1] + ', "cells": [\n' + lines + "\n]}\n"
    (options.output / "simulation.json").write_text(text, encoding="utf-8")
    table = markdown(pd.DataFrame(rows), design, options.comparisons)
    (options.output / "simulation.md").write_text(table, encoding="utf-8")
    print(table)


if __name__ == "__main__":
    main()
