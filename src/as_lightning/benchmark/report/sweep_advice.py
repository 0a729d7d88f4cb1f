"""What the report of a sweep says in words, before its tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

UNTUNED = (
    "A sweep gives all methods the settings of the command: as-lightning-compare tunes each of them, compares at equal "
    "time and advises."
)


def sweep_advice(experiments: Sequence[tuple[str, Sequence[Mapping[str, Any]]]]) -> list[str]:
    """One sentence for each verdict of each experiment, and what a sweep cannot say.

    Args:
        experiments: the name of each and its rows, as :func:`~as_lightning.benchmark.report.comparison.compare` makes
            them, with the ratio of training times as ``train``; the baseline first.

    Example:
        >>> softmax = {"method": "softmax", "verdict": "baseline"}
        >>> speed = {"method": "as_speed", "verdict": "better", "difference": 0.012, "low": 0.004, "high": 0.02}
        >>> print(sweep_advice([("digits", [softmax, speed | {"train": 0.8}])])[0])
        digits: as_speed is better than softmax by 1.2 points [0.4, 2.0], in 0.80 of the training time.
    """
    sentences: list[str] = []
    for name, rows in experiments:
        baseline = next((row["method"] for row in rows if row["verdict"] == "baseline"), None)
        if baseline is None:
            sentences.append(f"{name}: there are no runs of a baseline to compare with.")
            continue
        sentences += [
            f"{name}: {row['method']} is {row['verdict']} than {baseline} by {_difference(row)}{_time(row)}."
            for row in rows
            if row["verdict"] in ("better", "worse")
        ]
        alike = [row["method"] for row in rows if row["verdict"] == "no evidence"]
        if alike:
            sentences.append(f"{name}: no evidence of a difference to {baseline}: {', '.join(alike)}.")
        few = [row["method"] for row in rows if row["verdict"] == "too few seeds"]
        if few:
            sentences.append(f"{name}: no verdict with fewer than 3 seeds in common with {baseline}: {', '.join(few)}.")
        constant = [row["method"] for row in rows if row["verdict"] == "no verdict"]
        if constant:
            sentences.append(
                f"{name}: no verdict where the difference to {baseline} is the same for every seed: "
                f"{', '.join(constant)}."
            )
    return [*sentences, UNTUNED]


def _difference(row: Mapping[str, Any]) -> str:
    sign = 1 if row["verdict"] == "better" else -1
    low, high = sorted((sign * row["low"], sign * row["high"]))
    return f"{100 * sign * row['difference']:.1f} points [{100 * low:.1f}, {100 * high:.1f}]"


def _time(row: Mapping[str, Any]) -> str:
    return "" if math.isnan(row["train"]) else f", in {row['train']:.2f} of the training time"
