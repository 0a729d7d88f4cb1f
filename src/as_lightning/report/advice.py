"""From findings to advice in words, by the rule that ``docs/compare.md`` explains."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from as_lightning.report.findings import Findings, Row, TimeRatio
from as_lightning.statistics.answer import decimals, number
from as_lightning.statistics.verdicts import Verdict

CALIBRATION, SCALED = "calibration_error_unscaled", "calibration_error_scaled"
WORSE_CALIBRATED = 0.02  # a difference of calibration errors that is worth a sentence
SPLITS = {
    "per_seed": "Each seed draws its own split: the verdicts hold for other random splits of these "
    "examples.",
    "official": "The verdicts are about the test split that the data come with, "
    "which all seeds share.",
    "fixed": "All seeds share one split: the verdicts are about its examples.",
}
NEW_DATA = "The verdicts are for new data: for other seeds, and other test examples like these."
SCORES = ("accuracy", "balanced_accuracy", "f1_macro")  # that count the same classes
SCORE_NAMES = {"f1_micro": "micro F1", "f1_macro": "macro F1", "span_f1": "span F1"}
LONG_WORDS = {"equal": "equal within", "not worse": "not worse by"}


def recommended(findings: Findings) -> Row:
    """Return what to train: the baseline, unless another candidate is shown to be a better choice.

    Of the candidates that are better, it is the one with the largest difference. If none is better,
    it is the one that takes the least time of those that are surely not worse and take clearly less
    time.
    """
    better: dict[float, Row] = {}
    cheaper: dict[float, Row] = {}
    for row, verdict in findings.judged:
        if verdict.word == "better":
            better.setdefault(verdict.difference, row)
        if verdict.sure and verdict.not_worse and row.time.clearly_less:
            cheaper.setdefault(row.time.ratio, row)
    if better:
        return better[max(better)]
    if cheaper:
        return cheaper[min(cheaper)]
    return findings.reference


def advice(findings: Findings) -> list[str]:
    """Return what to do, and then what is to be known of the verdicts, as plain sentences."""
    record = findings.record
    sentences = [record.untuned or _recommendation(findings)]
    sentences += [*_calibration(findings), *_reservations(findings), *_reach(findings)]
    sentences += [record.stopped, *record.notes]
    return [*filter(None, sentences)]


def _recommendation(findings: Findings) -> str:
    chosen, reference = recommended(findings), findings.reference
    unjudged = [verdict.reason for verdict in findings.verdicts if not verdict.judged]
    if len(unjudged) == len(findings.verdicts):
        reasons = "; ".join(dict.fromkeys(unjudged))
        return f"No advice: {reasons or f'there is nothing to compare with {reference.name}'}."
    if chosen.verdict is None:
        return _stay(findings)
    shown = in_words(chosen.verdict, chosen.time, findings.record.unit)
    if costs := _costs(findings, chosen):
        shown = f"{score_name(findings.record.score)} {shown} ({costs})"
    knobs = dict(chosen.settings)
    knobs.pop("lr", None)
    of_knobs = f" ({settings(knobs)})" * bool(knobs)
    return f"Use {chosen.name}{of_knobs}: {shown}."


def _costs(findings: Findings, chosen: Row) -> str:
    """Return what a change does to the other scores in which someone's classes count the same."""
    parts = []
    points, before, after = findings.record.points, findings.reference.metrics, chosen.metrics
    for metric in SCORES:
        if metric != findings.record.score and metric in before and metric in after:
            digits = 1 if points > 1 else 3
            values = [f"{points * of[metric]:.{digits}f}" for of in (before, after)]
            parts.append(f"{score_name(metric)} {' → '.join(values)}")
    return ", ".join(parts)


def _stay(findings: Findings) -> str:
    """Return the advice to keep the baseline, with the odds of the best candidate."""
    close = []
    for row, verdict in findings.judged:
        if verdict.not_worse and row.time.clearly_less:
            close.append(f"{row.name}{row.time.in_words}")
    name = findings.reference.name
    sentence = f"Stay with {name}: nothing here is shown to be better, or as good in less time."
    if close:
        unsure = "not worse, but not surely enough to change for it"
        sentence = f"Stay with {name}, for now: {unsure}: {'; '.join(close)}."
    best = max(findings.verdicts, key=lambda verdict: (verdict.ahead > 0.5, verdict.difference))
    if best.ahead > 0.5:
        odds = min(best.ahead, 0.99)
        sentence += f" {best.arm} is ahead with probability {odds:.2f} on these {best.seeds} seeds"
        sentence += ": if a change costs you nothing, these are the odds."
    return sentence


def _calibration(findings: Findings) -> Iterator[str]:
    """Yield a sentence on each candidate whose probabilities are worse calibrated."""
    base = findings.reference.metrics
    for row, _ in findings.judged:
        own = row.metrics
        error, of_base = own.get(CALIBRATION, math.nan), base.get(CALIBRATION, math.nan)
        if error - of_base > WORSE_CALIBRATED:
            sentence = f"The probabilities of {row.arm} are worse calibrated ({error:.2f} against "
            sentence += f"{of_base:.2f})"
            if SCALED in own and SCALED in base:
                sentence += "; after one temperature, fitted on validation, the errors are "
                sentence += f"{own[SCALED]:.3f} and {base[SCALED]:.3f}"
            yield f"{sentence}."


def _reservations(findings: Findings) -> Iterator[str]:
    """Yield sentences on what weakens the verdicts."""
    record = findings.record
    for verdict in findings.verdicts:
        if verdict.word == "better" and verdict.look < len(record.design.looks):
            yield f"{verdict.arm} stopped early as better: its difference is on average too large."
        if verdict.skewed:
            wrong = "this verdict is wrong more often than stated"
            yield f"{verdict.arm}: the differences are skewed; {wrong}."
    names = []
    for name, trials in record.tuning.items():
        rates: set[Any] = {trial.settings.get("lr") for trial in trials}
        best = record.settings.get(name, {}).get("lr")
        if len(rates) > 1 and name not in record.same_as and best in (min(rates), max(rates)):
            names.append(name)
    if names:
        edge = "the best learning rate is the smallest or largest that was tried"
        yield f"{', '.join(names)}: {edge}: a better one may lie beyond it."


def _reach(findings: Findings) -> Iterator[str]:
    """Yield what difference would be found, and what the verdicts are about."""
    record, verdicts = findings.record, pd.DataFrame(findings.verdicts)
    if verdicts.empty:
        return
    size = verdicts["detectable"].median()
    if not math.isnan(size):
        digits = 1 if record.unit else decimals([size])
        of_leader = ", of a candidate that leads the race" * bool(record.behind)
        size = f"A true difference of {number(size, digits)}{record.unit}"
        yield f"{size} would be decided with 80% probability{of_leader}."
    if verdicts["same_low"].notna().any():
        yield NEW_DATA
    else:
        yield SPLITS[record.splits]


def in_words(verdict: Verdict, time: TimeRatio, unit: str) -> str:
    """Return a verdict on one line: interval, time if it clearly differs, word.

    Points have one decimal, a score without a unit those that its interval needs.

    >>> found = Verdict("a", "b", 5, 1, 0.2, -0.2, 2.6, "not worse", 3.0, 0.5)
    >>> in_words(found, TimeRatio(0.86, 0.80, 0.91), " points")
    '-0.2 to +2.6 points, 14% less time: not worse by 0.5 points'
    >>> found = Verdict("a", "b", 5, 1, 0.002, 0.0011, 0.0031, "better")
    >>> in_words(found, TimeRatio(0.86, 0.30, 2.47), "")
    '+0.0011 to +0.0031: better'
    """
    digits = 1 if unit else decimals([verdict.high - verdict.low])
    difference = f"{verdict.low:+.{digits}f} to {verdict.high:+.{digits}f}{unit}"
    word = verdict.word
    if word in LONG_WORDS:
        word = f"{LONG_WORDS[word]} {verdict.equal_within:g}{unit}"
    return f"{difference}{time.in_words}: {word}"


def score_name(score: str) -> str:
    score = score.removeprefix("val/").removeprefix("val_")
    return SCORE_NAMES.get(score, score.replace("_", " "))


def settings(values: Mapping[str, Any]) -> str:
    """Return settings and their values; an en dash where there are none.

    >>> settings({"lr": 0.0031622, "k": 4}), settings({})
    ('lr 0.00316, k 4', '–')
    """
    shown = []
    for name, value in values.items():
        if isinstance(value, float):
            value = f"{value:.3g}"
        shown.append(f"{name} {value}")
    return ", ".join(shown) or "–"
