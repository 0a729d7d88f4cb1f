"""From findings to advice in words. The rule is a pure function; ``docs/compare.md`` explains it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from as_lightning.benchmark.report.findings import Findings, Row, TimeRatio
from as_lightning.benchmark.report.verdicts import Verdict

WORSE_CALIBRATED = 0.02  # a difference of calibration errors that is worth a sentence
SPLITS = {
    "per_seed": "Each seed has a split of its own: the words are about new data of this kind.",
    "official": "The words are about the official test split, which all seeds share.",
    "fixed": "All seeds share one split: the words are about its test examples.",
}


def recommended(findings: Findings) -> Row:
    """What to train: the baseline at its full budget, unless another arm is shown to be a better choice.

    Of the arms that are better the one with the largest difference. If there is none: of those that are surely not
    worse and take clearly less time the cheapest; a method wins over fewer epochs of the baseline only where the
    intervals of their times do not meet.
    """
    compared = [(row, row.verdict) for row in findings.rows if row.verdict is not None]
    better = [(verdict.difference, row) for row, verdict in compared if verdict.word == "better"]
    if better:
        return max(better, key=lambda found: found[0])[1]
    cheaper = [
        (row.time, row)
        for row, verdict in compared
        if verdict.sure and verdict.not_worse and row.time is not None and row.time.clearly_less
    ]
    if not cheaper:
        return findings.reference
    time, best = min(cheaper, key=lambda found: found[0])
    own = [found for found in cheaper if found[1].arm.method == findings.reference.arm.method]
    if own:
        shortest, fewer = min(own, key=lambda found: found[0])
        return best if (time.high or 1.0) < (shortest.low or 0.0) else fewer
    return best


def advice(findings: Findings) -> list[str]:
    """What to do, and what the comparison shows, as plain sentences: the recommendation, a line for each method at its
    full budget, calibration where it is worse, what the comparison can decide, and its notes."""
    record, reference = findings.record, findings.reference
    sentences = [_recommendation(findings)]
    for method in findings.methods[1:]:
        row = findings.full(method)
        if row.verdict is not None:
            sentences.append(f"{row.arm.method}: {in_words(row.verdict, row.time)}.")
    for method in findings.methods[1:]:
        sentences += _calibration(findings.full(method), reference)
    sizes = [v.detectable for v in findings.verdicts if v.family == "full" and math.isfinite(v.detectable)]
    if sizes:
        sentences.append(f"A true difference of {max(sizes):.1f} points would be decided with 80% probability.")
    if reference.seeds and findings.verdicts:
        sentences.append(SPLITS[record.splits])
    return [*sentences, *filter(None, [record.stopped]), *record.notes]


def _recommendation(findings: Findings) -> str:
    chosen, reference = recommended(findings), findings.reference
    full = f"{reference.arm.method}, {epochs(reference.epochs)}"
    if not reference.seeds:
        return f"No advice: {full}, which all are compared with, has no finished run."
    if not findings.verdicts:
        return f"No advice: there is nothing to compare with {full}."
    reasons = [verdict.reason for verdict in findings.verdicts]
    if reasons and all(reasons) and not any(verdict.decided for verdict in findings.verdicts):
        return f"No advice: {'; '.join(dict.fromkeys(reasons))}."
    if chosen is reference:
        close = [row for row in findings.rows if row.verdict and row.verdict.not_worse and row.time]
        close = [row for row in close if row.time is not None and row.time.clearly_less]
        if not close:
            return f"Stay with {full}: nothing here is shown to be better, or as good in less time."
        names = "; ".join(f"{row.arm.method}, {epochs(row.epochs)}{in_time(row.time)}" for row in close)
        return f"Stay with {full}, for now: not worse, but not surely enough to change for it: {names}."
    assert chosen.verdict is not None
    shown = f"{in_words(chosen.verdict, None)}{in_time(chosen.time)}"
    if chosen.arm.method == reference.arm.method:
        return f"Train {chosen.arm.method} for {epochs(chosen.epochs)} in place of {reference.epochs:g}: {shown}."
    own = {name: value for name, value in chosen.settings.items() if name != "lr"}
    return f"Use {chosen.arm.method}{f' ({settings(own)})' if own else ''}, {epochs(chosen.epochs)}: {shown}."


def _calibration(row: Row, reference: Row) -> list[str]:
    own, base = (found.metrics.get("calibration_error", math.nan) for found in (row, reference))
    if not own - base > WORSE_CALIBRATED:  # NaN: not known
        return []
    said = f"The probabilities of {row.arm.method} are worse calibrated ({own:.2f} against {base:.2f})"
    scaled, base_scaled = (found.metrics.get("calibration_error_scaled") for found in (row, reference))
    if scaled is None or base_scaled is None:
        return [f"{said}."]
    brings = "the softmax of its logits at one temperature, fitted on validation, has"
    if not row.has_own_probabilities:
        brings = "one temperature, fitted on validation, brings them to"
    return [f"{said}; {brings} {scaled:.3f} against {base_scaled:.3f}."]


def in_words(verdict: Verdict, time: TimeRatio | None) -> str:
    """A verdict on one line: the interval of the difference, the time, the word.

    Examples:
        >>> from as_lightning.benchmark.report.verdicts import Arm
        >>> found = Verdict(Arm("a"), Arm("b"), 5, 1, 0.2, -2.2, 2.6, "undecided", 3.0, 0.5)
        >>> in_words(found, TimeRatio(1.16)), in_words(found, TimeRatio(0.71))
        ('-2.2 to +2.6 points, 16% slower: undecided', '-2.2 to +2.6 points, 29% less time: undecided')
    """
    difference = "no difference measured" if math.isnan(verdict.difference) else f"{verdict.difference:+.1f} points"
    if math.isfinite(verdict.low):
        difference = f"{verdict.low:+.1f} to {verdict.high:+.1f} points"
    return f"{difference}{_slower(time)}: {word(verdict)}"


def word(verdict: Verdict) -> str:
    """The word, with what counts as equal where it is meant, or with the reason why there is none."""
    within = f"{verdict.equal_within:g} points"
    long = {
        "equal": f"equal within {within}",
        "not worse": f"not worse by {within}",
        "no gain": f"no gain of {within}",
    }.get(verdict.word, verdict.word)
    return f"{long} ({verdict.reason})" if verdict.reason else long


def contradiction(verdict: Verdict) -> str:
    """A note where the uncorrected interval, read alone, says something else than the word; else empty."""
    low, high, m = verdict.low, verdict.high, verdict.equal_within
    if math.isnan(low) or verdict.reason:
        return ""
    readings = {
        "equal": -m < low and high < m,
        "better": low > 0,
        "worse": high < 0,
        "not worse": low > -m,
        "no gain": high < m,
        "undecided": True,
    }
    alone = next(reading for reading, holds in readings.items() if holds)
    if alone == verdict.word:
        return ""
    return f"by its interval alone: {alone}"


def _slower(time: TimeRatio | None) -> str:
    if time is None:
        return ""
    percent = round(100 * (time.ratio - 1))
    return f", {percent}% slower" if percent > 0 else f", {-percent}% less time" if percent < 0 else ", same time"


def in_time(time: TimeRatio | None) -> str:
    """The training time of an arm as a share of the baseline's, at the end of a sentence."""
    return "" if time is None else f", in {time.ratio:.2f} of the time"


def epochs(number: float) -> str:
    """A number of epochs.

    Examples:
        >>> epochs(1), epochs(6.0)
        ('1 epoch', '6 epochs')
    """
    return "full budget" if math.isnan(number) else "1 epoch" if number == 1 else f"{number:g} epochs"


def settings(values: Mapping[str, Any]) -> str:
    """Settings and their values; an en dash where there are none.

    Examples:
        >>> settings({"lr": 0.0031622, "k": 4, "schedule": None}), settings({})
        ('lr 0.00316, k 4, schedule null', '–')
    """

    def short(value: Any) -> str:
        return "null" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)

    return ", ".join(f"{name} {short(value)}" for name, value in values.items()) or "–"
