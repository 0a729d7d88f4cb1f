"""An answer in words: on one screen, or as JSON."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from as_lightning.statistics.judge import ACTIONS, Answer, verdict_table
from as_lightning.statistics.printable import printable
from as_lightning.statistics.verdicts import Verdict

NAME = 22  # the most characters of a name in a line
WHISKERS = 12  # the fewest in which an interval is drawn
LINE = "{0:{5}} {1:{6}} {2:>{7}} {3:>{8}} {4:>{9}}"  # of five cells and their widths
POWER = "8 times in 10"


def decimals(spreads: Iterable[float]) -> int:
    """Return the decimals that fit the smallest of some spreads: two of its digits.

    >>> decimals([0.31, 4.0]), decimals([0.00012]), decimals([250.0]), decimals([])
    (2, 5, 0, 2)
    """
    smallest = min((spread for spread in spreads if 0 < spread < math.inf), default=0.1)
    return min(max(1 - math.floor(math.log10(smallest)), 0), 9)


def number(value: float, digits: int, sign: str = "") -> str:
    """Return a number with that many decimals, never as ``-0.00``.

    >>> number(-0.0004, 2, "+"), number(0.00031, 5, "+"), number(float("nan"), 2)
    ('0.00', '+0.00031', '–')
    """
    if math.isnan(value):
        return "–"
    rounded = round(value, digits) + 0.0
    if not rounded:
        sign = ""
    return f"{rounded:{sign}.{digits}f}"


def digits_of(answer: Answer) -> int:
    """Return the decimals that fit the spreads of an answer."""
    widths = [row.high - row.low for row in answer.candidates]
    return decimals([answer.baseline.std, *[row.std for row in answer.candidates], *widths])


def cells(answer: Answer) -> list[list[str]]:
    """Return name, word, score, difference and interval of each candidate, the baseline first."""
    digits, rows = digits_of(answer), []
    for row in [answer.baseline, *answer.candidates]:
        score, ends = number(row.mean, digits), ""
        if row.std > 0:
            score += f" ± {number(row.std, digits)}"
        if math.isfinite(row.low):
            ends = f"{number(row.low, digits, '+')} to {number(row.high, digits, '+')}"
        word = row.word if row.judged else "–"
        rows.append([row.arm, word, score, number(row.difference, digits, "+"), ends])
    rows[0][1:] = ["baseline", rows[0][2], "", ""]
    return rows


def head(answer: Answer) -> str:
    """Return how the scores were read, as the first line of an answer."""
    reading = answer.reading
    title = f"{answer.title}: " if answer.title else ""
    direction = "lower is better (a + is lower)"
    if reading.higher_is_better:
        direction = "higher is better"
    unit = reading.unit + " (shares times 100)" * (reading.factor > 1)
    equal = "nothing is called equal (no --equal-within)"
    if reading.equal_within:
        equal = f"equal within {reading.equal_within:g}"
    return f"{title}{reading.score}, {direction}, {unit}; {equal}"


def sentences(answer: Answer) -> list[str]:
    """Return what to do next, what weakens each verdict, and the noise floor."""
    digits, base = digits_of(answer), answer.baseline
    found = []
    for row in answer.candidates:
        name, mean = row.arm, number(row.baseline_mean, digits)
        of_both = name if base.arm.startswith("target ") else f"{name} and of {base.arm}"
        more = f"{row.next_seeds} more seed{'s' * (row.next_seeds > 1)} of {of_both}"
        if math.isfinite(row.next_difference) and row.next_seeds:
            size = number(row.next_difference, digits)
            found.append(f"Next: {more} would decide a difference of {size} ({POWER}).")
        elif row.next_seeds:
            found.append(f"Next: {more} would allow a verdict.")
        if row.missing:
            lost = f"{row.missing} of {row.runs + row.missing} runs of {name} are missing"
            found.append(f"{lost}: if they diverged, it is worse than this.")
        if mean != number(base.mean, digits):
            found.append(f"{name}: in the seeds of both, {base.arm} has a mean of {mean}.")
        if row.skewed:
            found.append(f"{name}: the differences are skewed; its interval misses more often.")
    unpaired = ", ".join(row.arm for row in answer.candidates if not row.pairs)
    if unpaired:
        few = f"few or none of the seeds of {base.arm}"
        found.append(f"Independent samples (Welch's t-test), with {few}: {unpaired}.")
    floor = max((row.detectable for row in answer.candidates if row.detectable > 0), default=0.0)
    if floor:
        size = number(floor, digits)
        found.append(f"Noise floor: a true difference of {size} is found {POWER}.")
        found.append("Intervals: 95% for all candidates together, wider towards worse.")
    return found


def _whiskers(verdict: Verdict, answer: Answer, width: int) -> str:
    """An interval on the scale of its answer: ``:`` is the zone of equality."""
    within = answer.reading.equal_within
    ends = [-within, within]
    for row in answer.candidates:
        if math.isfinite(row.low):
            ends += [row.low, row.high]
    low, size = min(ends), max(ends) - min(ends) + 1e-12

    def place(value: float) -> int:
        return round((value - low) / size * (width - 1))

    drawn = [" "] * width
    for sign, start, end in ((":", -within, within), ("-", verdict.low, verdict.high)):
        first, last = place(start), place(end)
        drawn[first : last + 1] = sign * (last + 1 - first)
    drawn[place(0.0)] = "|"
    drawn[place(verdict.difference)] = "o"
    return "".join(drawn)


def screen(answers: Sequence[Answer], width: int = 80) -> str:
    """Return answers as text of that width, the verdicts first."""
    lines: list[str] = []
    for answer in answers:
        lines += [*textwrap.wrap(printable(head(answer)), width), *_table(answer, width)]
        for sentence in [*sentences(answer), *answer.notes]:
            lines += textwrap.wrap(printable(sentence), width, subsequent_indent="  ")
        lines.append("")
    return "\n".join(lines[:-1])


def _table(answer: Answer, width: int) -> list[str]:
    rows = cells(answer)
    for row in rows:
        row[0] = printable(row[0])
        if len(row[0]) > NAME:
            row[0] = f"…{row[0][1 - NAME :]}"  # its settings are at its end
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    room = width - sum(widths) - len(widths)
    lines = []
    for judged, row in zip([answer.baseline, *answer.candidates], rows, strict=True):
        line = LINE.format(*row, *widths)
        if room >= WHISKERS and row[-1]:
            line += f" {_whiskers(judged, answer, room)}"
        lines.append(line.rstrip())
        if judged.reason:
            reason = f"({judged.reason})"
            lines += textwrap.wrap(reason, width, initial_indent=" " * (widths[0] + 1))
    return lines


def as_json(answers: Sequence[Answer]) -> str:
    """Return answers as JSON, with the most urgent ``action`` of the first one at the top."""
    first = min(answers[0].candidates, key=lambda row: ACTIONS.index(row.action))
    content: dict[str, Any] = {"action": first.action, "candidate": first.arm}
    content |= {"next_seeds": first.next_seeds, "answers": []}
    for answer in answers:
        rows = json.loads(verdict_table([answer]).to_json(orient="records"))
        about = vars(answer.reading) | {"title": answer.title, "baseline": answer.baseline.arm}
        mean = answer.baseline.mean
        about |= {"baseline_mean": None if math.isnan(mean) else mean, "candidates": rows}
        content["answers"].append(about | {"notes": [*sentences(answer), *answer.notes]})
    return json.dumps(content, indent=1)
