"""What the report of a sweep says in words."""

from __future__ import annotations

import math

import pytest

from as_lightning.benchmark.report.sweep_advice import UNTUNED, sweep_advice

BASE = {"method": "softmax", "verdict": "baseline"}


def row(method: str, verdict: str, difference: float = math.nan, train: float = math.nan) -> dict[str, object]:
    low, high = difference - 0.01, difference + 0.01
    return {
        "method": method,
        "verdict": verdict,
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
            [BASE, row("a", "no evidence", 0.0, 1.0), row("b", "too few seeds"), row("c", "no evidence", 0.0, 1.0)],
            [
                "d: no evidence of a difference to softmax: a, c.",
                "d: no verdict with fewer than 3 seeds in common with softmax: b.",
            ],
        ),
        (
            [BASE, row("a", "no verdict", 0.01)],
            ["d: no verdict where the difference to softmax is the same for every seed: a."],
        ),
        ([row("a", "no baseline")], ["d: there are no runs of a baseline to compare with."]),
        ([BASE], []),
    ],
)
def test_each_verdict_has_its_sentence_and_the_limit_of_a_sweep_comes_last(rows, sentences):
    assert sweep_advice([("d", rows)]) == [*sentences, UNTUNED]
