"""The report of a comparison: a page in Markdown and in HTML, and a printed table."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from jinja2 import Environment, FileSystemLoader, select_autoescape
from rich.console import Console
from rich.markdown import Markdown

from as_lightning.bench.run.result import whole_file
from as_lightning.report.advice import advice, recommended, score_name, settings
from as_lightning.report.differences import differences_svg
from as_lightning.report.findings import Findings, Row, findings
from as_lightning.report.record import ComparisonRecord
from as_lightning.statistics.answer import decimals, number
from as_lightning.statistics.printable import printable

LEFT = ("verdict", "settings")  # columns of text, beside the first
FIGURE = "figures/differences.svg"
LEGEND = """\
{} {}: mean ± standard deviation of each candidate's own runs.
Differences are to {}, paired by seed, positive where the candidate is better. In about 95 of 100
such comparisons every interval holds the true difference, even though seeds were added one at a
time. The verdicts are read off the intervals. An interval within ±{:g}{} is equal."""
METRICS = "Means of a candidate's runs; the correlation is Pearson's, over a run's evaluations."
HOW = "Scores are at the weights of the best validation score; training time is without validation."


class ReportPaths(NamedTuple):
    """The files of a written report."""

    html: Path
    markdown: Path


class Fold(NamedTuple):
    """A part of the page that opens on demand; without content it is not shown."""

    title: str
    texts: Sequence[str] = ()
    rows: Sequence[Mapping[str, object]] = ()
    code: str = ""


def print_comparison(record: ComparisonRecord, console: Console | None = None) -> None:
    found = findings(record)
    console = console or Console(width=None if sys.stdout.isatty() else 120)
    title = f"{record.name}: {record.split} {score_name(record.score)}, differences to "
    title += found.reference.name
    rows = deciding(found)
    for row in rows:  # on narrow screens
        if "time ratio" in row:
            row["time ratio"] = row["time ratio"].partition(" ")[0]
    console.print(Markdown(f"{printable(title, 'markdown')}\n\n{table(rows)}"))
    text = "\n".join(printable(sentence) for sentence in advice(found))
    console.print(text, markup=False, highlight=False)


def publish(record: ComparisonRecord, directory: str | Path) -> None:
    """Write the report of a comparison, and print its table, its advice and where it is."""
    paths = write_report(record, directory)
    print_comparison(record)
    print(f"report: {paths.html}\n        {paths.markdown}")


def write_report(record: ComparisonRecord, directory: str | Path) -> ReportPaths:
    """Write the report of a comparison; other files in the directory stay as they are."""
    directory = Path(directory)
    (directory / FIGURE).parent.mkdir(parents=True, exist_ok=True)
    page = _page(findings(record))
    paths = ReportPaths(directory / "report.html", directory / "report.md")
    texts = {directory / FIGURE: page["figure"]}
    for path in paths:
        texts[path] = TEMPLATES.get_template(f"{path.name}.jinja").render(page)
    for path, text in texts.items():
        with whole_file(path) as partial:
            partial.write_text(text, encoding="utf-8")
    return paths


def deciding(found: Findings) -> list[dict[str, str]]:
    """Return the deciding table, without columns that say nothing."""
    rows = [_cells(found, row) for row in found.rows]
    for name in list(rows[0]):
        if all(row[name] == "–" for row in rows):
            for row in rows:
                del row[name]
    return rows


def _cells(found: Findings, row: Row) -> dict[str, str]:
    """The row of a candidate in the deciding table: its cells by their headings."""
    record, time, verdict = found.record, row.time, row.verdict
    spreads = [other.std for other in found.rows]
    for other in found.verdicts:
        spreads.append(other.high - other.low)
    digits = max(decimals(spreads) - 1, 2)
    difference = ratio = epochs = "–"
    name, word, seeds, mean = row.arm, "baseline", str(row.seeds), number(row.mean, digits)
    if not math.isnan(row.std):
        mean += f" ± {number(row.std, digits)}"
    if not math.isnan(row.epochs):
        epochs = f"{row.epochs:g}"
    if row.arm in record.same_as:
        word = f"tuning chose {record.same_as[row.arm]}"
    elif verdict is not None:
        difference, word = number(verdict.difference, digits, "+"), "–"
        if math.isfinite(verdict.low):
            ends = number(verdict.low, digits, "+"), number(verdict.high, digits, "+")
            difference += f" ({' to '.join(ends)})"
        if verdict.judged:
            word = verdict.word
        if verdict.reason:
            word += f" ({verdict.reason})"
        if row.arm in record.behind:
            word = "behind (not pursued)"
        if verdict.seeds < row.seeds:
            seeds += f" ({verdict.seeds} paired)"
        if row is recommended(found) and not record.untuned:
            name += " (advised)"
    if not math.isnan(time.low):  # one or two seeds say nothing
        ratio = f"{time.ratio:.2f}"
        if time.low < time.high:
            ratio += f" ({time.low:.2f} to {time.high:.2f})"
    return {
        "candidate": name,
        "epochs": epochs,
        score_name(record.score): mean,
        f"difference{', points' * bool(record.unit)} (95%)": difference,
        "verdict": word,
        "time ratio": ratio,
        "seeds": seeds,
    }


def table(rows: Sequence[Mapping[str, object]]) -> str:
    """Return rows as a table in Markdown, under their keys; numbers are aligned right."""
    if not rows:
        return ""
    names = list(rows[0])
    cells = pd.DataFrame([names, *(row.values() for row in rows)])
    cells = cells.map(lambda cell: printable(cell, "markdown"))
    lines = [f"| {' | '.join(line)} |" for line in cells.to_numpy()]
    sides = ["---:"] * len(names)
    for column, name in enumerate(names):
        if name in (names[0], *LEFT):
            sides[column] = "---"
    lines.insert(1, f"| {' | '.join(sides)} |")
    return "\n".join(lines)


TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=select_autoescape(["html.jinja"]),
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    finalize=lambda value: printable(value) if type(value) is str and "\n" not in value else value,
)
TEMPLATES.filters.update(md=lambda text: printable(text, "markdown"), table=table)
TEMPLATES.globals["LEFT"] = LEFT


def _page(found: Findings) -> dict[str, Any]:
    record = found.record
    first, *statements = advice(found)
    changes = []
    for name, changed in record.changes.items():
        for key, (before, after) in changed.items():
            if key != "method.name":
                changes.append(f"{name}: {key} {after} in place of {before}")
    return {
        "title": record.name,
        "untuned": bool(record.untuned),
        "first": first,
        "rows": deciding(found),
        "legend": _legend(found),
        "figure": differences_svg(found.verdicts, record.design.equal_within),
        "file": FIGURE,
        "folds": [
            Fold("What is to be known of the verdicts", statements),
            Fold("What each candidate changes", changes),
            Fold("Runs that failed", record.failures),
            Fold("Examples on which predictions differ most often", rows=record.examples),
            Fold("Trials", rows=_trials(record)),
            Fold("Settings and metrics", [METRICS], _metrics(found)),
            _how_made(record),
        ],
    }


def _legend(found: Findings) -> str:
    record = found.record
    score = f"{record.split.capitalize()} {score_name(record.score)}"
    better = {"max": "more is better", "min": "less is better"}[record.mode]
    unit = f"in points (a point is {1 / record.points:g}; {better})"
    if not record.unit:
        unit = f"({better})"
    equal = record.design.equal_within, record.unit
    return LEGEND.format(score, unit, found.reference.name, *equal).replace("\n", " ")


def _trials(record: ComparisonRecord) -> list[dict[str, str]]:
    rows = []
    for candidate, tried in record.tuning.items():
        for trial in tried:
            row = {"trials of": candidate, "settings": settings(trial.settings)}
            rows.append(row | {"mean of the best validation scores": f"{trial.score:.4f}"})
    return rows


def _metrics(found: Findings) -> list[dict[str, str]]:
    columns = {}
    for row in found.rows:
        shown = {"settings": settings(row.settings)}
        for name, value in row.metrics.items():
            shown[name.replace("_", " ")] = f"{value:.4g}"
        columns[row.name] = shown
    table = pd.DataFrame(columns).fillna("–").rename_axis("").reset_index()
    return table.to_dict("records")


def _how_made(record: ComparisonRecord) -> Fold:
    texts: dict[str, None] = {}
    for place in record.final["made_on"].unique():
        made = record.made_on[int(place)]
        for content in (made["machine"], made["versions"]):
            known = [f"{key} {value}" for key, value in content.items() if value]
            texts[", ".join(known)] = None
    texts.pop("", None)
    code = "\n".join(record.commands).replace("```", "")
    return Fold("How it was made", [HOW, *texts], code=code)
