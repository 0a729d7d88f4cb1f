"""From findings to advice in words. The rule is a pure function; ``docs/compare.md``
explains it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import fmean
from typing import Any

from as_lightning.report.findings import Findings, Row, TimeRatio
from as_lightning.report.record import ComparisonRecord, Trial
from as_lightning.statistics.verdicts import Verdict

UNKNOWN = TimeRatio()
WORSE_CALIBRATED = 0.02  # a difference of calibration errors that is worth a sentence
SPLITS = {
    "per_seed": "Each seed draws its own split: the verdicts hold for other random splits of these "
    "examples.",
    "official": "The verdicts are about the test split that the data come with, which all seeds share.",
    "fixed": "All seeds share one split: the verdicts are about its examples.",
    "repeated": "Each seed is another random split of the same examples, which the intervals allow "
    "for.",
    "": "",
}


def recommended(findings: Findings) -> Row:
    """What to train: the baseline at its full budget, unless another arm is shown to be a better
    choice.

    Of the arms that are better, it is the one with the largest difference. If none is better, it is
    the cheapest of those that are surely not worse and take clearly less time. A candidate wins
    over fewer epochs of the baseline only where the intervals of their times do not meet.
    """
    compared = [(row, row.verdict) for row in findings.rows if row.verdict is not None]
    better = [(verdict.difference, row) for row, verdict in compared if verdict.word == "better"]
    if better:
        return max(better, key=lambda pair: pair[0])[1]
    good = [
        row
        for row, verdict in compared
        if verdict.sure and verdict.not_worse and row.time.clearly_less
    ]
    cheaper = sorted(good, key=lambda row: row.time)
    fewer_epochs = [row for row in cheaper if row.arm.candidate == findings.reference.arm.candidate]
    if fewer_epochs and cheaper[0].time.high >= fewer_epochs[0].time.low:
        return fewer_epochs[0]
    return cheaper[0] if cheaper else findings.reference


def advice(findings: Findings) -> list[str]:
    """What to do, and what the comparison shows, as plain sentences; the recommendation is the
    first.
    """
    record, reference = findings.record, findings.reference
    rows = [findings.full(candidate) for candidate in findings.candidates[1:]]
    sentences = [record.untuned or _recommendation(findings)]
    judged = [
        (row, row.verdict)
        for row in rows
        if row.verdict and row.arm.candidate not in record.same_as
    ]
    sentences += [f"{row.arm.candidate}: {in_words(verdict, row.time)}." for row, verdict in judged]
    sentences += [_calibration(row, reference) for row in rows]
    sentences += [_lost_on_validation(record, candidate) for candidate in record.same_as]
    sentences += [*_reservations(findings), _at_an_edge(record)]
    sizes = [
        verdict.detectable
        for verdict in findings.verdicts
        if verdict.arm.budget == reference.arm.budget
    ]
    if sizes := [size for size in sizes if math.isfinite(size)]:
        sentences.append(
            f"A true difference of {max(sizes):.1f} points would be decided with 80% probability."
        )
    if findings.verdicts:
        sentences.append(SPLITS[record.splits])
    return [sentence for sentence in (*sentences, record.stopped, *record.notes) if sentence]


def _recommendation(findings: Findings) -> str:
    chosen, reference = recommended(findings), findings.reference
    if not findings.verdicts:
        return f"No advice: there is nothing to compare with {reference.name}."
    if all(verdict.reason and not verdict.decided for verdict in findings.verdicts):
        return f"No advice: {'; '.join(dict.fromkeys(verdict.reason for verdict in findings.verdicts))}."
    if chosen is reference or chosen.verdict is None:
        close = [
            row
            for row in findings.rows
            if row.verdict and row.verdict.not_worse and row.time.clearly_less
        ]
        if not close:
            return f"Stay with {reference.name}: nothing here is shown to be better, or as good in less time."
        names = "; ".join(f"{row.name}{row.time.in_words}" for row in close)
        return f"Stay with {reference.name}, for now: not worse, but not surely enough to change for it: {names}."
    shown = in_words(chosen.verdict, chosen.time)
    if chosen.arm.candidate == reference.arm.candidate:
        return f"Train {chosen.arm.candidate} for {chosen.length} in place of {reference.epochs:g}: {shown}."
    knobs, (size, base_size) = _knobs(chosen.settings), (chosen.parameters, reference.parameters)
    larger = (
        f" It has {size / base_size:.2g} times the parameters."
        if size and base_size and size != base_size
        else ""
    )
    return f"Use {chosen.arm.candidate}{f' ({settings(knobs)})' if knobs else ''}, {chosen.length}: {shown}.{larger}"


def _reservations(findings: Findings) -> list[str]:
    """Sentences on what weakens the verdicts: an early stop, a stop without a chance of a word,
    skewed differences.
    """
    looks = findings.record.design.looks
    compared = [
        (row, row.verdict)
        for row in findings.rows
        if row.verdict is not None and not row.verdict.reason
    ]
    early = [
        verdict for _, verdict in compared if verdict.word == "better" and verdict.look < len(looks)
    ]
    sentences = (
        ["The difference of a candidate that stopped early as better is on average too large."]
        if early
        else []
    )
    for row, verdict in compared:
        if (
            verdict.word in ("undecided", "not worse")
            and not verdict.in_reach
            and verdict.look < len(looks)
        ):
            reach = f"{looks[-1]} are unlikely to show a gain, or that there is none"
            sentences.append(f"{row.name}: stopped after {verdict.seeds} seeds; {reach}.")
        if verdict.skewed:
            sentences.append(
                f"{row.name}: the differences are skewed; this verdict is wrong more often than "
                "stated."
            )
    return sentences


def _at_an_edge(record: ComparisonRecord) -> str:
    """A sentence on candidates whose best learning rate is the smallest or largest tried; else
    empty.
    """
    tried = {
        name: [t.settings["lr"] for t in trials if "lr" in t.settings]
        for name, trials in record.tuning.items()
    }
    best = {
        name: record.settings.get(name, {}).get("lr")
        for name in tried
        if name not in record.same_as
    }
    names = [
        n for n, lr in best.items() if len({*tried[n]}) > 1 and lr in (min(tried[n]), max(tried[n]))
    ]
    note = "the best learning rate is the smallest or largest that was tried: a better one may lie beyond it."
    return f"{', '.join(names)}: {note}" if names else ""


def _lost_on_validation(record: ComparisonRecord, candidate: str) -> str:
    """A sentence on what a candidate's best setting beside the baseline's lost on validation; empty
    if unknown.
    """
    sign, chosen = (1.0 if record.mode == "max" else -1.0), _knobs(record.settings[candidate])
    best: list[Trial] = []  # at the baseline's setting, and at another
    for of_baseline in (True, False):
        trials = [trial for trial in record.tuning.get(candidate, ()) if math.isfinite(trial.score)]
        trials = [
            trial
            for trial in trials
            if (trial.shared or _knobs(trial.settings) == chosen) == of_baseline
        ]
        best += sorted(trials, key=lambda trial: (-trial.seeds, -sign * trial.score))[:1]
    if len(best) < 2:
        return ""
    common_seeds = min(trial.seeds for trial in best)
    at_baseline, other = (fmean(trial.by_seed[:common_seeds] or [trial.score]) for trial in best)
    lost = record.points * sign * (at_baseline - other)
    shown = settings(_knobs(best[1].settings))
    choice = f"{candidate}: tuning chose {record.same_as[candidate]}"
    return f"{choice}; the best other setting ({shown}) lost {lost:.2f} points in validation."


def _knobs(chosen: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in chosen.items() if name != "lr"}


def _calibration(row: Row, reference: Row) -> str:
    """A sentence if probabilities are worse calibrated, with the errors at one fitted temperature;
    else empty.
    """
    names = ("calibration_error", "calibration_error_scaled")
    (error, scaled), (base, base_scaled) = (
        [r.metrics.get(n, math.nan) for n in names] for r in (row, reference)
    )
    if not error - base > WORSE_CALIBRATED:  # NaN: not known
        return ""
    sentence = f"The probabilities of {row.arm.candidate} are worse calibrated ({error:.2f} against {base:.2f})"
    if not math.isnan(scaled + base_scaled):
        sentence += "; those of the logits at one temperature, fitted on validation, have "
        sentence += f"{scaled:.3f} against {base_scaled:.3f}"
    return f"{sentence}."


def in_words(verdict: Verdict, time: TimeRatio = UNKNOWN) -> str:
    """A verdict on one line: the interval of the difference, the time if it clearly differs, the
    word.

    >>> from as_lightning.statistics.verdicts import Arm
    >>> found = Verdict(Arm("a"), Arm("b"), 5, 1, 0.2, -2.2, 2.6, "undecided", 3.0, 0.5)
    >>> in_words(found, TimeRatio(1.16, 1.10, 1.22)), in_words(found, TimeRatio(0.86, 0.30, 2.47))
    ('-2.2 to +2.6 points, 16% slower: undecided', '-2.2 to +2.6 points: undecided')
    """
    difference = (
        "no difference measured"
        if math.isnan(verdict.difference)
        else f"{verdict.difference:+.1f} points"
    )
    if math.isfinite(verdict.low):
        difference = f"{verdict.low:+.1f} to {verdict.high:+.1f} points"
    within = f"{verdict.equal_within:g} points"
    long = {"equal": "equal within", "not worse": "not worse by", "no gain": "no gain of"}
    word = f"{long[verdict.word]} {within}" if verdict.word in long else verdict.word
    word = (
        f"{word} ({verdict.reason})"
        if verdict.reason and verdict.decided
        else verdict.reason or word
    )
    return f"{difference}{time.in_words}: {word}"


def settings(values: Mapping[str, Any]) -> str:
    """Settings and their values; an en dash where there are none.

    >>> settings({"lr": 0.0031622, "k": 4, "schedule": None}), settings({})
    ('lr 0.00316, k 4, schedule null', '–')
    """
    short = {
        name: f"{value:.3g}" if isinstance(value, float) else value
        for name, value in values.items()
    }
    return (
        ", ".join(f"{name} {'null' if value is None else value}" for name, value in short.items())
        or "–"
    )
