"""From findings to advice in words. The rule is a pure function; ``docs/compare.md``
explains it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

from as_lightning.report.findings import Findings, Row, TimeRatio
from as_lightning.report.record import ComparisonRecord
from as_lightning.statistics.verdicts import Verdict

UNKNOWN = TimeRatio()
WORSE_CALIBRATED = 0.02  # a difference of calibration errors that is worth a sentence
SPLITS = {
    "per_seed": "Each seed draws its own split: the verdicts hold for other random splits of these "
    "examples.",
    "official": "The verdicts are about the test split that the data come with, which all seeds share.",
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
            shown = in_words(row.verdict, row.time, row.arm in record.behind)
            sentences.append(f"{row.arm}: {shown}.")
    sentences += [_calibration(row, findings.reference) for row in others]
    sentences += [*_reservations(findings), _at_an_edge(record)]
    sizes = [v.detectable for v in findings.verdicts if math.isfinite(v.detectable)]
    if sizes:
        of_leader = ", of a candidate that leads the race" * bool(record.behind)
        size = f"A true difference of {median(sizes):.1f} points"
        sentences.append(f"{size} would be decided with 80% probability{of_leader}.")
    if any(math.isfinite(verdict.same_low) for verdict in findings.verdicts):
        sentences.append(NEW_DATA)
    elif findings.verdicts:
        sentences.append(SPLITS.get(record.splits, ""))
    return [*filter(None, [*sentences, record.stopped, *record.notes])]


def _recommendation(findings: Findings) -> str:
    chosen, reference = recommended(findings), findings.reference
    if not findings.verdicts:
        return f"No advice: there is nothing to compare with {reference.name}."
    reasons = dict.fromkeys(v.reason for v in findings.verdicts if not v.decided)
    if not any(v.judged for v in findings.verdicts):
        return f"No advice: {'; '.join(reasons)}."
    if chosen is reference or chosen.verdict is None:
        return _stay(findings)
    shown = in_words(chosen.verdict, chosen.time)
    if costs := _costs(findings, chosen):
        score = findings.record.score
        shown = f"{SCORES.get(score, score)} {shown} ({costs})"
    if chosen.arm == findings.record.half:
        length = f"{chosen.length} in place of {reference.epochs:g}"
        return f"Train {reference.arm} for {length}: {shown}."
    knobs = _knobs(chosen.settings)
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
    known = [verdict for verdict in findings.verdicts if verdict.ahead > 0.5]
    if not known:
        return ""
    best = max(known, key=lambda verdict: verdict.difference)
    odds = min(best.ahead, 0.99)
    ahead = f"ahead with probability {odds:.2f} on these {best.seeds} seeds"
    return f" {best.arm} is {ahead}: if a change costs you nothing, these are the odds."


def _reservations(findings: Findings) -> Iterator[str]:
    """Yield sentences on what weakens the verdicts."""
    looks = findings.record.design.looks
    judged = [v for v in findings.verdicts if not v.reason]
    stopped_early = [v for v in judged if v.look < len(looks)]
    if any(verdict.word == "better" for verdict in stopped_early):
        yield "The difference of a candidate that stopped early as better is on average too large."
    for verdict in judged:
        name = findings.row(verdict.arm).name
        unsettled = verdict.word in ("undecided", "not worse") and verdict in stopped_early
        if unsettled and not verdict.in_reach:
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


def _knobs(chosen: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in chosen.items() if name != "lr"}


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


def in_words(verdict: Verdict, time: TimeRatio = UNKNOWN, behind: bool = False) -> str:
    """Return a verdict on one line: interval, time if it clearly differs, word.

    >>> found = Verdict("a", "b", 5, 1, 0.2, -2.2, 2.6, "undecided", 3.0, 0.5)
    >>> in_words(found, TimeRatio(1.16, 1.10, 1.22)), in_words(found, TimeRatio(0.86, 0.30, 2.47))
    ('-2.2 to +2.6 points, 16% slower: undecided', '-2.2 to +2.6 points: undecided')
    """
    difference = f"{verdict.difference:+.1f} points"
    if math.isnan(verdict.difference):
        difference = "no difference measured"
    elif math.isfinite(verdict.low):
        difference = f"{verdict.low:+.1f} to {verdict.high:+.1f} points"
    word = verdict.word
    if word in LONG_WORDS:
        word = f"{LONG_WORDS[word]} {verdict.equal_within:g} points"
    if behind:
        word = BEHIND
    if verdict.reason:
        word = f"{word} ({verdict.reason})" if verdict.decided else verdict.reason
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
