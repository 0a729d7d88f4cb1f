"""An answer in words: on one screen, or as JSON."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from as_lightning.statistics.judge import ACTIONS, Answer, Judged, verdict_table
from as_lightning.statistics.printable import printable

NAME, WORD, LEAST_WHISKERS = 22, 9, 11  # characters of a line
POWER = "8 times in 10"


def decimals(spreads: Iterable[float]) -> int:
    """Return the decimals that fit the smallest of some spreads: two of its digits.

    >>> decimals([0.31, 4.0]), decimals([0.00012]), decimals([250.0]), decimals([])
    (2, 5, 0, 2)
    """
    known = [spread for spread in spreads if 0 < spread < math.inf]
    if not known:
        return 2
    return min(max(1 - math.floor(math.log10(min(known))), 0), 9)


def digits_of(answer: Answer) -> int:
    """Return the decimals that fit the spreads of an answer."""
    spreads = [answer.baseline.std]
    for row in answer.candidates:
        spreads += [row.std, row.verdict.high - row.verdict.low]
    return decimals(spreads)


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


def scored(row: Judged, digits: int) -> str:
    """Return the mean of a candidate and its standard deviation."""
    if not row.std > 0:
        return number(row.mean, digits)
    return f"{number(row.mean, digits)} ± {number(row.std, digits)}"


def interval(row: Judged, digits: int) -> str:
    """Return the ends of a candidate's interval; empty where there is none."""
    if not math.isfinite(row.verdict.low):
        return ""
    return f"{number(row.verdict.low, digits, '+')} to {number(row.verdict.high, digits, '+')}"


def word(row: Judged) -> str:
    """Return the verdict, or a dash where there is none."""
    return row.verdict.word if row.judged else "–"


def head(answer: Answer) -> str:
    """Return how the scores were read, as the first line of an answer."""
    reading = answer.reading
    direction = "higher is better"
    if not reading.higher_is_better:
        direction = "lower is better (a + is lower)"
    unit = reading.unit
    if reading.factor > 1:
        unit = "points (shares times 100)"
    equal = "nothing is called equal (no --equal-within)"
    if reading.equal_within is not None:
        equal = f"equal within {reading.equal_within:g}"
    title = f"{answer.title}: " if answer.title else ""
    return f"{title}{reading.score}, {direction}, {unit}; {equal}"


def sentences(answer: Answer) -> list[str]:
    """Return what to do next, the noise floor, and what weakens each verdict."""
    digits, base = digits_of(answer), answer.baseline.name
    found = []
    for row in answer.candidates:
        more = f"{row.next_seeds} more seed{'s' * (row.next_seeds > 1)} of {row.name}"
        if row.next_seeds and math.isfinite(row.next_difference):
            size = number(row.next_difference, digits)
            found.append(f"Next: {more} would decide a difference of {size} ({POWER}).")
        elif row.next_seeds:
            found.append(f"Next: {more}, or of {base}, would allow a verdict.")
        elif row.judged and math.isfinite(row.next_difference):
            found.append(f"Next: 50 more seeds of {row.name} would not decide it.")
    seen = [row.verdict.detectable for row in answer.candidates]
    seen = [size for size in seen if math.isfinite(size)]
    if seen:
        size = number(max(seen), digits)
        found.append(f"Noise floor: a true difference of {size} is found {POWER}.")
        found.append("Intervals: 95% for all candidates together, wider towards worse.")
    for row in answer.candidates:
        found += _weaknesses(row, answer, digits)
    if answer.baseline.missing:
        found.append(f"{answer.baseline.missing} runs of {base} have no score.")
    return found


def _weaknesses(row: Judged, answer: Answer, digits: int) -> list[str]:
    base = answer.baseline
    found = []
    if row.missing:
        planned = row.runs + row.missing
        found.append(
            f"{row.missing} of {planned} runs of {row.name} are missing: if they diverged, it is "
            "worse than this."
        )
    if not row.paired:
        found.append(
            f"{row.name} and {base.name} have {row.runs} and {base.runs} runs, few or none of the "
            "same seeds: compared as independent samples (Welch's t-test)."
        )
    if row.paired and number(row.baseline_mean, digits) != number(base.mean, digits):
        mean = number(row.baseline_mean, digits)
        found.append(
            f"{row.name}: in the {row.verdict.seeds} seeds of both, {base.name} has a mean of {mean}."
        )
    if row.verdict.skewed:
        found.append(f"{row.name}: the differences are skewed; its interval misses more often.")
    return found


def whiskers(row: Judged, answer: Answer, width: int) -> str:
    """Return a candidate's interval on the scale of its answer: ``:`` is the zone of equality."""
    low, high = scale(answer)
    within = answer.reading.equal_within or 0.0
    step = (high - low) / (width - 1)

    def place(value: float) -> int:
        return round((value - low) / step)

    cells = [" "] * width
    for position in range(place(-within), place(within) + 1):
        cells[position] = ":"
    if math.isfinite(row.verdict.low):
        for position in range(place(row.verdict.low), place(row.verdict.high) + 1):
            cells[position] = "-"
        cells[place(row.verdict.difference)] = "o"
    if cells[place(0.0)] != "o":
        cells[place(0.0)] = "|"
    return "".join(cells)


def scale(answer: Answer) -> tuple[float, float]:
    """Return the ends of the scale of an answer's differences."""
    within = answer.reading.equal_within or 0.0
    ends = [-within, within, 0.0]
    for row in answer.candidates:
        if math.isfinite(row.verdict.low):
            ends += [row.verdict.low, row.verdict.high]
    return min(ends), max(max(ends), min(ends) + 1e-12)


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
    digits = digits_of(answer)
    rows = [answer.baseline, *answer.candidates]
    names = [printable(row.name) for row in rows]
    name_width = min(max(map(len, names)), NAME)
    cells = [[scored(row, digits)] for row in rows]
    cells[0] += ["", ""]
    for row, texts in zip(answer.candidates, cells[1:], strict=True):
        texts += [number(row.verdict.difference, digits, "+"), interval(row, digits)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    room = width - name_width - WORD - sum(widths) - 5
    lines = []
    if any(map(len, [texts[2] for texts in cells])) and room >= LEAST_WHISKERS:
        ends = [number(end, digits, "+") for end in scale(answer)]
        gap = room - len(ends[0]) - len(ends[1])
        if gap > 0:
            lines.append(f"{'':{width - room}}{ends[0]}{'':{gap}}{ends[1]}")
    for row, name, texts in zip(rows, names, cells, strict=True):
        if len(name) > name_width:
            name = f"…{name[1 - name_width :]}"  # its settings are at its end
        of_baseline = row is answer.baseline
        line = [f"{name:{name_width}}", f"{'baseline' if of_baseline else word(row):{WORD}}"]
        line += [f"{text:>{size}}" for text, size in zip(texts, widths, strict=True)]
        reason = row.verdict.reason
        if lines and not of_baseline and texts[2]:
            line.append(whiskers(row, answer, room))
        lines.append(" ".join(line).rstrip())
        if reason:
            lines += textwrap.wrap(f"({reason})", width, initial_indent=" " * (name_width + 1))
    return lines


def as_json(answers: Sequence[Answer]) -> str:
    """Return answers as JSON; its ``action`` is that of the candidate which asks for most."""
    rows = [row for answer in answers[:1] for row in answer.candidates]
    first = min(rows, key=lambda row: ACTIONS.index(row.action))
    content: dict[str, Any] = {
        "action": first.action,
        "candidate": first.name,
        "next_seeds": first.next_seeds,
        "answers": [],
    }
    for answer in answers:
        table = verdict_table([answer])
        table.insert(2, "mean", [row.mean for row in answer.candidates])
        table.insert(3, "std", [row.std for row in answer.candidates])
        table.insert(4, "runs", [row.runs for row in answer.candidates])
        about = vars(answer.reading) | {"title": answer.title}
        base = answer.baseline
        mean = base.mean if base.runs else None
        about["baseline"] = {"candidate": base.name, "mean": mean, "runs": base.runs}
        about["candidates"] = json.loads(table.to_json(orient="records"))
        about["notes"] = [*sentences(answer), *answer.notes]
        content["answers"].append(about)
    return json.dumps(content, indent=1)
