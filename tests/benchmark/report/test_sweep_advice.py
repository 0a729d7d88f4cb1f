"""What the report of a sweep says in words."""

from __future__ import annotations

import math

import pytest

from as_lightning.benchmark.report.sweep_advice import UNTUNED, sweep_advice

BASE = {"method": "softmax", "verdict": "baseline", "in_words": "baseline"}
EQUAL = "equal within 0.5 points"
OPEN = "inconclusive: a difference below 0.9 points could not have been seen"
FEW = "no verdict: 2 seeds in common, at least 3 are needed"


def row(method: str, in_words: str, difference: float = math.nan, train: float = math.nan) -> dict[str, object]:
    low, high = difference - 0.01, difference + 0.01
    return {
        "method": method,
        "verdict": next(
            (word for word in ("equal", "inconclusive", "no verdict") if in_words.startswith(word)), in_words
        ),
        "in_words": in_words,
        "difference": difference,
        "low": low,
        "high": high,
        "train": train,
    }


@pytest.mark.parametrize(
    ("rows", "sentences"),
    [
        (
            [BASE, row("a", "better", 0.02, 0.5)],
            ["d: a is better than softmax by 2.0 points [1.0, 3.0], in 0.50 of the training time."],
        ),
        ([BASE, row("a", "worse", -0.02)], ["d: a is worse than softmax by 2.0 points [1.0, 3.0]."]),
        (
            [
                BASE,
                row("a", OPEN),
                row("b", FEW),
                row("c", OPEN.replace("0.9", "1.2")),
                row("e", EQUAL),
                row("f", EQUAL),
            ],
            [
                "d: inconclusive against softmax (neither a difference nor equality is shown): a, c.",
                "d: no verdict against softmax (2 seeds in common, at least 3 are needed): b.",
                "d: equal to softmax within 0.5 points: e, f.",
            ],
        ),
        (
            [BASE, row("a", "no verdict: the difference is the same for every seed", 0.01)],
            ["d: no verdict against softmax (the difference is the same for every seed): a."],
        ),
        ([row("a", "no baseline")], ["d: there are no runs of a baseline to compare with."]),
        ([BASE], []),
    ],
)
def test_each_verdict_has_its_sentence_and_the_limit_of_a_sweep_comes_last(rows, sentences):
    assert sweep_advice([("d", rows)]) == [*sentences, UNTUNED]
