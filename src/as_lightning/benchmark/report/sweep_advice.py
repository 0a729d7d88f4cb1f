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
    """What each verdict of each experiment says, and what a sweep cannot say.

    Args:
        experiments: the name of each and its rows, as :func:`~as_lightning.benchmark.report.comparison.compare` makes
            them, with the ratio of training times as ``train``; the baseline first.

    Example:
        >>> softmax = {"method": "softmax", "verdict": "baseline", "in_words": "baseline"}
        >>> speed = {"method": "as_speed", "verdict": "better", "in_words": "better", "train": 0.8}
        >>> numbers = {"difference": 0.012, "low": 0.004, "high": 0.02}
        >>> print(sweep_advice([("digits", [softmax, speed | numbers])])[0])
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
        groups: dict[str, list[str]] = {}
        for row in rows:
            opening = _opening(row, baseline)
            if opening:
                groups.setdefault(opening, []).append(row["method"])
        sentences += [f"{name}: {opening}: {', '.join(methods)}." for opening, methods in groups.items()]
    return [*sentences, UNTUNED]


def _opening(row: Mapping[str, Any], baseline: str) -> str:
    """What is said of all methods with the same verdict; empty for the baseline, better and worse."""
    words, _, reason = row["in_words"].partition(": ")
    if row["verdict"] == "equal":
        return f"equal to {baseline} {words.removeprefix('equal ')}"
    if row["verdict"] == "inconclusive":
        return f"inconclusive against {baseline} (neither a difference nor equality is shown)"
    return f"no verdict against {baseline} ({reason})" if row["verdict"] == "no verdict" else ""


def _difference(row: Mapping[str, Any]) -> str:
    sign = 1 if row["verdict"] == "better" else -1
    low, high = sorted((sign * row["low"], sign * row["high"]))
    return f"{100 * sign * row['difference']:.1f} points [{100 * low:.1f}, {100 * high:.1f}]"


def _time(row: Mapping[str, Any]) -> str:
    return "" if math.isnan(row["train"]) else f", in {row['train']:.2f} of the training time"
