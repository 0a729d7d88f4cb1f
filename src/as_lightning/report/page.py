"""The report of comparisons, sweeps and tables: a page in Markdown and in HTML, all numbers as CSV,
a printed table.
"""

from __future__ import annotations

import html
import json
import math
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from jinja2 import Environment, FileSystemLoader, select_autoescape
from rich.console import Console
from rich.markdown import Markdown

from as_lightning.bench.run.result import whole_file
from as_lightning.report.advice import advice, recommended, settings
from as_lightning.report.figures import PageFigure, report_figures, score_name
from as_lightning.report.findings import Findings, Row, findings
from as_lightning.report.record import ComparisonRecord
from as_lightning.report.table import RUNS_TABLE, numbers, verdict_table, write_runs

POINTS = {"share": "a point is 0.01", "percent": "in percent", "raw": "a point is 1"}
LEGEND = (
    "{} in points ({}; {} is better): mean ± standard deviation of each candidate's own runs. "
    "Differences are to {}, "
    "paired by {}, positive where the candidate is better. Of 100 comparisons like this one about "
    "95 have no interval "
    "that misses the true difference, wherever a candidate stopped. The verdicts "
    "are read off the intervals. An interval within ±{:g} points is equal.{}"
)
NEW_DATA = " The verdicts are about these test examples; the interval for new data is about others like them, one at a time."
SHARED = "the baseline's"
VALIDATED = "mean of the best validation scores"
DIFFER = "{} and {} differ on {:.1f}% of {} test examples, mean over the seeds."
CORRELATION = (
    "The correlation of loss and score is Pearson's, over the evaluations of a run: -1 where the "
    "score rises as the "
    "validation loss falls, 0 where they have nothing to do with one another."
)
MEANS = (
    "Means of each candidate's own runs. The figure of times places a candidate by its difference "
    "and its ratio to the "
    "baseline, in the seeds that both have."
)
HOW = (
    "Scores are at the weights of the best validation score. Training time leaves out validation; "
    "a ratio is the "
    "geometric mean over the seeds, of runs that the same command has made."
)


class ReportPaths(NamedTuple):
    """The files of a written report."""

    html: Path
    markdown: Path
    csv: Path


class Cell(NamedTuple):
    """A cell of the deciding table, with a note on it."""

    text: str
    note: str = ""

    def __str__(self) -> str:
        return f"{self.text} ({self.note})" if self.note else self.text


class Fold(NamedTuple):
    """A part of the page that opens on demand; without content it is not shown."""

    title: str
    texts: Sequence[str] = ()
    bullets: Sequence[str] = ()
    figures: Sequence[PageFigure] = ()
    rows: Sequence[Mapping[str, object]] = ()
    code: str = ""


def print_comparison(record: ComparisonRecord, console: Console | None = None) -> None:
    """Print the table and the advice of a comparison."""
    found, console = (
        findings(record),
        console or Console(width=None if sys.stdout.isatty() else 120),
    )
    title = f"{record.name}: {record.split} {score_name(record.score)}, differences to {found.reference.name}"
    short = ("verdict", "time ratio")  # without their notes
    rows = [
        {name: cell.text if name in short else cell for name, cell in row.items()}
        for row in deciding(found)
    ]
    console.print(Markdown(f"{md(title)}\n\n{table(rows)}"))
    console.print("\n".join(advice(found)), markup=False, highlight=False)


def publish(
    records: Sequence[ComparisonRecord],
    directory: str | Path | None,
    *,
    failed: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> None:
    """Print the tables and the advice of several experiments; with a directory, write their report
    and print where.
    """
    paths = (
        None if directory is None else write_report(records, directory, failed=failed, notes=notes)
    )
    for record in records:
        print_comparison(record)
    failures = [*failed, *(failure for record in records for failure in record.failures)]
    for line in [*notes, *(f"failed:      {run}" for run in failures)]:
        print(line)
    if paths is not None:
        print(f"report:      {paths.html}\n             {paths.markdown}\n             {paths.csv}")
        url = shlex.quote(paths.html.resolve().as_uri())
        print(f"open it:     {Path(sys.executable).name} -m webbrowser -t {url}")


def write_report(
    records: Sequence[ComparisonRecord],
    directory: str | Path,
    *,
    failed: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> ReportPaths:
    """Write one report of several experiments; ``failed`` are runs that have ended in an error, in
    words.

    Other files in the directory stay as they are.
    """
    directory = Path(directory)
    (directory / "figures").mkdir(parents=True, exist_ok=True)
    page = _page(records, failed, notes)
    paths = ReportPaths(
        directory / "report.html", directory / "report.md", directory / "report.csv"
    )
    texts = {
        directory / figure.file: figure.svg
        for part in page["sections"]
        for figure in part["figures"]
    }
    texts |= {path: TEMPLATES.get_template(f"{path.name}.jinja").render(page) for path in paths[:2]}
    texts[paths.csv] = numbers(records).to_csv(index=False, float_format="%.6g")
    for path, text in texts.items():
        with whole_file(path) as partial:
            partial.write_text(text, encoding="utf-8")
    write_runs(records, directory / RUNS_TABLE)
    return paths


def rendered(records: Sequence[ComparisonRecord], form: str, notes: Sequence[str] = ()) -> str:
    """The verdicts as ``json`` or ``latex``, or the page as ``md`` (without pictures)
    or ``html``.
    """
    verdicts = verdict_table(records)
    if form == "json":
        return json.dumps(json.loads(verdicts.to_json(orient="records")), indent=1)
    if form == "latex":
        return verdicts.to_latex(index=False, escape=True, float_format="%.2f", na_rep="--")
    return TEMPLATES.get_template(f"report.{form}.jinja").render(
        _page(records, (), notes), alone=True
    )


def cells(found: Findings, row: Row) -> dict[str, Cell]:
    """The row of an arm in the deciding table: its cells by their headings."""
    chosen = found.record.same_as.get(row.arm)  # the candidate whose runs these are
    verdict, time = None if chosen else row.verdict, row.time
    notes = [] if verdict is None else [verdict.reason]
    word = (
        "–" if verdict and verdict.reason and not verdict.decided else getattr(verdict, "word", "")
    )
    advised = row is recommended(found) and verdict is not None and not found.record.untuned
    difference = (
        "–" if verdict is None or math.isnan(verdict.difference) else f"{verdict.difference:+.2f}"
    )
    interval = _interval(verdict.low, verdict.high) if verdict else ""
    new_interval = _interval(verdict.new_low, verdict.new_high) if verdict else ""
    ratio = "–" if math.isnan(time.low) else f"{time.ratio:.2f}"  # one or two seeds say nothing
    independent = row.arm in found.record.unpaired
    sizes = {arm_row.parameters for arm_row in found.rows}
    pairs = (
        "not paired"
        if independent
        else f"{verdict.seeds} paired"
        if verdict and verdict.seeds < row.seeds
        else ""
    )
    return {
        "candidate": Cell(row.arm, "advised" if advised else ""),
        "epochs": Cell("–" if math.isnan(row.epochs) else f"{row.epochs:g}"),
        score_name(found.record.score): Cell(
            f"{row.mean:.2f}{'' if math.isnan(row.std) else f' ± {row.std:.2f}'}"
        ),
        "difference, points (95%)": Cell(difference, interval),
        "for new data (95%)": Cell(new_interval or "–"),
        "verdict": Cell(
            word or (f"tuning chose {chosen}" if chosen else "baseline"),
            "; ".join(filter(None, notes)),
        ),
        "parameters": Cell(
            "–" if len(sizes) == 1 or row.parameters is None else f"{row.parameters:,}"
        ),
        "time ratio": Cell(
            ratio, f"{time.low:.2f} to {time.high:.2f}" if time.low < time.high else ""
        ),
        f"{found.record.pairs}s": Cell(str(row.seeds), pairs),
    }


def deciding(found: Findings) -> list[dict[str, Cell]]:
    """The deciding table, without columns that say nothing."""
    rows = [cells(found, row) for row in found.rows]
    return [
        {name: row[name] for name in row if any(other[name].text != "–" for other in rows)}
        for row in rows
    ]


def _interval(low: float, high: float) -> str:
    return f"{low:+.2f} to {high:+.2f}" if math.isfinite(low) else ""


def md(text: object) -> str:
    r"""Text that a Markdown page shows as it is, in a table too: no HTML, no links, no cell or line
    ends.

    >>> print(md("a\\|b <img> *c* _d_ as_softmax"))
    a\\\|b &lt;img&gt; \*c\* \_d\_ as_softmax
    """
    escaped = html.escape(" ".join(str(text).split()), quote=False)
    return re.sub(r"([\\`*~|\[\]]|(?<!\w)_|_(?!\w))", r"\\\1", escaped)


TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=select_autoescape(["html.jinja"]),
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
TEMPLATES.filters["md"] = md


def table(rows: Sequence[Mapping[str, object]]) -> str:
    """A table in Markdown: the keys of the rows are the headings, and columns of numbers are
    aligned right.
    """
    macros: Any = TEMPLATES.get_template("table.md.jinja").module
    return str(macros.table(rows)).strip() if rows else ""


def _page(
    records: Sequence[ComparisonRecord], failed: Sequence[str], notes: Sequence[str]
) -> dict[str, Any]:
    """The variables of the templates."""
    failures = [*failed, *(failure for record in records for failure in record.failures)]
    sections = [
        _section(findings(record), number) for number, record in enumerate(records, start=1)
    ]
    title = ", ".join(record.name for record in records)
    return {
        "title": title,
        "sections": sections,
        "notes": notes,
        "failures": failures,
        "made": _how_made(records),
    }


def _section(found: Findings, number: int) -> dict[str, Any]:
    """The part of the page on one comparison: variables of the templates."""
    record, (first, *statements), figures = (
        found.record,
        advice(found),
        report_figures(found, number),
    )
    score = f"{record.split} {score_name(record.score)}".strip()
    facts = (
        score[:1].upper() + score[1:],
        POINTS[record.known_unit],
        "more" if record.mode == "max" else "less",
    )
    new_data = NEW_DATA if any(math.isfinite(verdict.new_low) for verdict in found.verdicts) else ""
    shares = {
        arm: DIFFER.format(arm, record.baseline, 100 * share, examples)
        for arm, (share, examples) in record.disagreed.items()
        if arm != record.half
    }
    examples = [
        {"most often on these": example.name}
        | {
            f"runs of {candidate} that differ": example.differing.get(candidate, 0)
            for candidate in shares
        }
        | ({"true label": example.target} if example.target else {})
        | {f"{name} predicts": label for name, label in example.predicted.items()}
        for example in record.examples
    ]
    trials = [
        {"trials of": candidate}
        | {
            "settings": Cell(settings(trial.settings), SHARED * trial.shared),
            VALIDATED: f"{trial.score:.4f}",
        }
        for candidate, tried in record.tuning.items()
        for trial in tried
    ]
    arms = {
        row.name: {"settings": settings(row.settings), "seconds": row.seconds, **row.metrics}
        for row in found.rows
    }
    arms = arms if any(len(row.metrics) > 1 for row in found.rows) else {}  # more than the score
    texts = (
        pd.DataFrame(arms)
        .fillna("–")
        .map(lambda value: value if isinstance(value, str) else f"{value:.4g}")
    )
    metric_rows = [{"": str(name).replace("_", " ")} | dict(row) for name, row in texts.iterrows()]
    changes = {
        name: [
            f"{key} {value} in place of {base}"
            for key, (base, value) in changed.items()
            if key != "method.name"
        ]
        for name, changed in record.changes.items()
    }
    return {
        "title": record.name,
        "changes": [f"{name}: {', '.join(texts)}" for name, texts in changes.items() if texts],
        "untuned": bool(record.untuned),
        "first": first,
        "rows": deciding(found),
        "legend": LEGEND.format(
            *facts, found.reference.name, record.pairs, record.design.equal_within, new_data
        ),
        "figures": figures,
        "folds": [
            Fold("What it shows, candidate by candidate", bullets=statements),
            Fold("More figures", figures=figures[1:]),
            Fold("Where predictions differ", texts=list(shares.values()), rows=examples),
            Fold("Trials", rows=trials),
            Fold(
                "Settings and metrics",
                [MEANS] * bool(arms)
                + [CORRELATION] * ("correlation of loss and score" in texts.index),
                rows=metric_rows,
            ),
        ],
    }


def _how_made(records: Sequence[ComparisonRecord]) -> Fold:
    """The machines, the packages and the commands."""
    runs = [run for record in records for run in record.results]
    descriptions = [
        ", ".join(f"{key} {value}" for key, value in content.items() if value)
        for content in [*(run.machine for run in runs), *(run.versions for run in runs)]
    ]
    commands = "\n".join(
        dict.fromkeys(command for record in records for command in record.commands)
    )
    texts = [HOW, *filter(None, dict.fromkeys(descriptions))] if any(descriptions) else []
    return Fold("How it was made", texts, code=commands.replace("```", ""))
