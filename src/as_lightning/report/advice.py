"""From findings to advice in words. The rule is a pure function; ``docs/compare.md``
explains it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from as_lightning.report.findings import Findings, Row, TimeRatio
from as_lightning.report.record import ComparisonRecord
from as_lightning.statistics.answer import decimals, number
from as_lightning.statistics.verdicts import Verdict

UNKNOWN = TimeRatio()
WORSE_CALIBRATED = 0.02  # a difference of calibration errors that is worth a sentence
SPLITS = {
    "per_seed": "Each seed draws its own split: the verdicts hold for other random splits of these "
    "examples.",
    "official": "The verdicts are about the test split that the data come with, "
    "which all seeds share.",
    "fixed": "All seeds share one split: the verdicts are about its examples.",
}
NEW_DATA = "The verdicts are for new data: for other seeds, and other test examples like these."
BEHIND = "behind: not pursued"
SCORES = {"accuracy": "accuracy", "balanced_accuracy": "balanced accuracy", "f1_macro": "macro F1"}
LONG_WORDS = {"equal": "equal within", "not worse": "not worse by", "no gain": "no gain of"}


def recommended(findings: Findings) -> Row:
    """Return what to train: the baseline, unless another candidate is shown to be a better choice.

    Of the candidates that are better, it is the one with the largest difference. If none is better,
    it is the cheapest of those that are surely not worse and take clearly less time. Another
    candidate wins over half the epochs of the baseline only where the intervals of their times do
    not meet.
    """
    better: dict[float, Row] = {}
    cheaper: dict[TimeRatio, Row] = {}
    for row in findings.rows:
        verdict = row.verdict
        if verdict is not None and verdict.word == "better":
            better.setdefault(verdict.difference, row)
        if verdict is not None and _surely_as_good(verdict) and row.time.clearly_less:
            cheaper.setdefault(row.time, row)
    if better:
        return better[max(better)]
    if not cheaper:
        return findings.reference
    cheapest = cheaper[min(cheaper)]
    for row in cheaper.values():
        if row.arm == findings.record.half and cheapest.time.high >= row.time.low:
            return row
    return cheapest


def _surely_as_good(verdict: Verdict) -> bool:
    return verdict.sure and verdict.not_worse


def advice(findings: Findings) -> list[str]:
    """Return what to do, and then what the comparison shows, as plain sentences."""
    record = findings.record
    others = findings.rows[1:]
    sentences = [record.untuned or _recommendation(findings)]
    for row in others:
        if row.verdict is not None and row.arm not in record.same_as:
            verdict = row.verdict
            if row.arm in record.behind:
                verdict = replace(verdict, word=BEHIND)
            shown = in_words(verdict, row.time, record.unit)
            sentences.append(f"{row.arm}: {shown}.")
    for row in others:
        sentences.append(_calibration(row, findings.reference))
    sentences += [*_reservations(findings), _at_an_edge(record)]
    if findings.verdicts:
        verdicts = pd.DataFrame(findings.verdicts)
        size = verdicts["detectable"].median()
        if not math.isnan(size):
            digits = 1 if record.unit else decimals([size])
            of_leader = ", of a candidate that leads the race" * bool(record.behind)
            size = f"A true difference of {number(size, digits)}{record.unit}"
            sentences.append(f"{size} would be decided with 80% probability{of_leader}.")
        if verdicts["same_low"].notna().any():
            sentences.append(NEW_DATA)
        else:
            sentences.append(SPLITS.get(record.splits, ""))
    return [*filter(None, [*sentences, record.stopped, *record.notes])]


def _recommendation(findings: Findings) -> str:
    chosen, reference = recommended(findings), findings.reference
    if not findings.verdicts:
        return f"No advice: there is nothing to compare with {reference.name}."
    unjudged = [verdict.reason for verdict in findings.verdicts if not verdict.judged]
    if len(unjudged) == len(findings.verdicts):
        return f"No advice: {'; '.join(dict.fromkeys(unjudged))}."
    if chosen is reference or chosen.verdict is None:
        return _stay(findings)
    shown = in_words(chosen.verdict, chosen.time, findings.record.unit)
    if costs := _costs(findings, chosen):
        score = findings.record.score
        shown = f"{SCORES.get(score, score)} {shown} ({costs})"
    if chosen.arm == findings.record.half:
        length = f"{chosen.length} in place of {reference.epochs:g}"
        return f"Train {reference.arm} for {length}: {shown}."
    knobs = dict(chosen.settings)
    knobs.pop("lr", None)
    use = f"Use {chosen.arm}"
    if knobs:
        use += f" ({settings(knobs)})"
    sentence = f"{', '.join(filter(None, [use, chosen.length]))}: {shown}."
    size, base_size = chosen.parameters, reference.parameters
    if size and base_size and size != base_size:
        sentence += f" It has {size / base_size:.2g} times the parameters."
    return sentence


def _costs(findings: Findings, chosen: Row) -> str:
    """Return what a change does to the other scores in which someone's classes count the same."""
    parts = []
    points = findings.record.points
    for metric, name in SCORES.items():
        before, after = _metric(findings.reference, metric), _metric(chosen, metric)
        if metric != findings.record.score and not math.isnan(before + after):
            parts.append(f"{name} {points * before:.1f} → {points * after:.1f}")
    return ", ".join(parts)


def _stay(findings: Findings) -> str:
    """Return the advice to keep the baseline, with the odds of the best candidate."""
    close = []
    for row in findings.rows:
        if row.verdict and row.verdict.not_worse and row.time.clearly_less:
            close.append(f"{row.name}{row.time.in_words}")
    name = findings.reference.name
    sentence = f"Stay with {name}: nothing here is shown to be better, or as good in less time."
    if close:
        unsure = "not worse, but not surely enough to change for it"
        sentence = f"Stay with {name}, for now: {unsure}: {'; '.join(close)}."
    return sentence + _odds(findings)


def _odds(findings: Findings) -> str:
    """Return a sentence on the candidate with the largest difference, if it is above 0."""
    best = max(findings.verdicts, key=lambda verdict: (verdict.ahead > 0.5, verdict.difference))
    if not best.ahead > 0.5:
        return ""
    odds = min(best.ahead, 0.99)
    ahead = f"ahead with probability {odds:.2f} on these {best.seeds} seeds"
    return f" {best.arm} is {ahead}: if a change costs you nothing, these are the odds."


def _reservations(findings: Findings) -> Iterator[str]:
    """Yield sentences on what weakens the verdicts."""
    looks = findings.record.design.looks
    early = [verdict for verdict in findings.verdicts if verdict.look < len(looks)]
    if "better" in [verdict.word for verdict in early]:
        yield "The difference of a candidate that stopped early as better is on average too large."
    for verdict in findings.verdicts:
        if verdict.reason:
            continue
        name = findings.row(verdict.arm).name
        unsettled = verdict.word in ("undecided", "not worse") and not verdict.in_reach
        if unsettled and verdict in early:
            seeds = f"stopped after {verdict.seeds} seeds"
            yield f"{name} {seeds}: even {looks[-1]} would probably not settle it."
        if verdict.skewed:
            wrong = "this verdict is wrong more often than stated"
            yield f"{name}: the differences are skewed; {wrong}."


def _at_an_edge(record: ComparisonRecord) -> str:
    """Return a sentence on candidates whose best learning rate is at an edge, or an empty one."""
    names = []
    for name, trials in record.tuning.items():
        rates: list[float] = [t.settings["lr"] for t in trials if "lr" in t.settings]
        best = record.settings.get(name, {}).get("lr")
        own = name not in record.same_as and len(set(rates)) > 1
        if own and best in (min(rates), max(rates)):
            names.append(name)
    if not names:
        return ""
    edge = "the best learning rate is the smallest or largest that was tried"
    return f"{', '.join(names)}: {edge}: a better one may lie beyond it."


def _calibration(row: Row, reference: Row) -> str:
    """Return a sentence if probabilities are worse calibrated, else an empty one."""
    error, base = _metric(row, "calibration_error"), _metric(reference, "calibration_error")
    if not error - base > WORSE_CALIBRATED:  # NaN: not known
        return ""
    sentence = (
        f"The probabilities of {row.arm} are worse calibrated ({error:.2f} against {base:.2f})"
    )
    scaled = _metric(row, "calibration_error_scaled")
    base_scaled = _metric(reference, "calibration_error_scaled")
    if not math.isnan(scaled + base_scaled):
        sentence += "; those of the logits at one temperature, fitted on validation, have "
        sentence += f"{scaled:.3f} against {base_scaled:.3f}"
    return f"{sentence}."


def _metric(row: Row, name: str) -> float:
    return row.metrics.get(name, math.nan)


def in_words(verdict: Verdict, time: TimeRatio = UNKNOWN, unit: str = " points") -> str:
    """Return a verdict on one line: interval, time if it clearly differs, word.

    Points have one decimal, a score without a unit those that its interval needs.

    >>> found = Verdict("a", "b", 5, 1, 0.2, -2.2, 2.6, "undecided", 3.0, 0.5)
    >>> in_words(found, TimeRatio(1.16, 1.10, 1.22)), in_words(found, TimeRatio(0.86, 0.30, 2.47))
    ('-2.2 to +2.6 points, 16% slower: undecided', '-2.2 to +2.6 points: undecided')
    >>> in_words(Verdict("a", "b", 5, 1, 0.002, 0.0011, 0.0031, "better"), unit="")
    '+0.0011 to +0.0031: better'
    """
    digits = 1 if unit else decimals([verdict.high - verdict.low])
    difference = f"{verdict.difference:+.{digits}f}{unit}"
    if math.isnan(verdict.difference):
        difference = "no difference measured"
    elif math.isfinite(verdict.low):
        difference = f"{verdict.low:+.{digits}f} to {verdict.high:+.{digits}f}{unit}"
    word = verdict.word
    if word in LONG_WORDS:
        word = f"{LONG_WORDS[word]} {verdict.equal_within:g}{unit}"
    if verdict.reason and verdict.decided:
        word = f"{word} ({verdict.reason})"
    elif verdict.reason:
        word = verdict.reason
    return f"{difference}{time.in_words}: {word}"


def settings(values: Mapping[str, Any]) -> str:
    """Return settings and their values; an en dash where there are none.

    >>> settings({"lr": 0.0031622, "k": 4, "schedule": None}), settings({})
    ('lr 0.00316, k 4, schedule null', '–')
    """
    shown = []
    for name, value in values.items():
        if value is None:
            value = "null"
        if isinstance(value, float):
            value = f"{value:.3g}"
        shown.append(f"{name} {value}")
    return ", ".join(shown) or "–"
