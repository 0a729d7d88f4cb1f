"""The report of comparisons and sweeps: a page in Markdown and in HTML, all numbers as CSV, a
printed table.
"""

from __future__ import annotations

import json
import math
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
from as_lightning.report.record import TABLE_FILE, ComparisonRecord, runs_table
from as_lightning.statistics.answer import decimals, number
from as_lightning.statistics.printable import printable

OF_VERDICT = ("difference", "low", "high", "same_low", "same_high", "detectable", "look", "reason")
LEFT = ("verdict", "settings")  # columns of text, beside the first
POINTS = {"share": "a point is 0.01", "percent": "in percent", "raw": "a point is 1"}
LEGEND = """\
{} in points ({}; {} is better): mean ± standard deviation of each candidate's own runs.
Differences are to {}, paired by {}, positive where the candidate is better. Of 100 comparisons like
this one about 95 have no interval that misses the true difference, wherever a candidate stopped. The
verdicts are read off the intervals. An interval within ±{:g} points is equal."""
NEW_DATA = " The intervals are for new data: for other seeds and other test examples like these."
SAME_DATA = "Intervals over the seeds alone: narrower, and about no other examples."
DIFFER = "{} and {} differ on {:.1f}% of {} test examples, mean over the seeds."
METRICS = """\
Means of each candidate's own runs. The correlation of loss and score is Pearson's, over the
evaluations of a run: -1 where the score rises as the validation loss falls."""
HOW = """\
Scores are at the weights of the best validation score. Training time leaves out validation; a ratio
is the geometric mean over the seeds, of runs that the same command has made."""


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
    figures: Sequence[PageFigure] = ()
    rows: Sequence[Mapping[str, object]] = ()
    code: str = ""


def print_comparison(record: ComparisonRecord, console: Console | None = None) -> None:
    """Print the table and the advice of a comparison."""
    found = findings(record)
    console = console or Console(width=None if sys.stdout.isatty() else 120)
    title = f"{record.name}: {record.split} {score_name(record.score)}, differences to {found.reference.name}"
    rows: list[dict[str, object]] = []
    for row in deciding(found):
        short = dict[str, object](row)
        for name in {"verdict", "time ratio"} & row.keys():
            short[name] = row[name].text
        rows.append(short)
    console.print(Markdown(f"{printable(title, 'markdown')}\n\n{table(rows)}"))
    text = "\n".join(printable(sentence) for sentence in advice(found))
    console.print(text, markup=False, highlight=False)


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
    paths = None
    if directory is not None:
        paths = write_report(records, directory, failed=failed, notes=notes)
    for record in records:
        print_comparison(record)
    for note in notes:
        print(printable(note))
    for run in _failures(records, failed):
        print(f"failed:      {printable(run)}")
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
    names = ("report.html", "report.md", "report.csv")
    paths = ReportPaths(*(directory / name for name in names))
    texts = {}
    for section in page["sections"]:
        for figure in section["figures"]:
            texts[directory / figure.file] = figure.svg
    for path in paths[:2]:
        texts[path] = TEMPLATES.get_template(f"{path.name}.jinja").render(page)
    texts[paths.csv] = _csv(numbers(records))
    runs = [runs_table(of.results, of.mode).assign(dataset=of.name) for of in records]
    if runs:
        texts[directory / TABLE_FILE] = _csv(pd.concat(runs))
    for path, text in texts.items():
        with whole_file(path) as partial:
            partial.write_text(text, encoding="utf-8")
    return paths


def rendered(records: Sequence[ComparisonRecord], form: str, notes: Sequence[str] = ()) -> str:
    """Return the verdicts as ``json`` or ``latex``, or the page as ``md`` (without pictures) or
    ``html``.
    """
    if form in ("md", "html"):
        page = _page(records, (), notes)
        return TEMPLATES.get_template(f"report.{form}.jinja").render(page, alone=True)
    found = numbers(records)
    found = found.loc[found["verdict"].notna(), ["name", "candidate", "verdict", *OF_VERDICT]]
    found = found.rename(columns={"verdict": "word"})
    if form == "json":
        return json.dumps(json.loads(found.to_json(orient="records")), indent=1)
    shown = found.map(lambda cell: printable(cell, "latex") if isinstance(cell, str) else cell)
    return str(shown.to_latex(index=False, float_format="%.2f", na_rep="--"))


def numbers(records: Sequence[ComparisonRecord]) -> pd.DataFrame:
    """Return all numbers of comparisons, a row for each candidate."""
    rows: list[dict[str, Any]] = []
    for record in records:
        for row in findings(record).rows:
            entry: dict[str, Any] = {"name": record.name, "candidate": row.arm}
            for name in ("epochs", "seeds", "mean", "std", "seconds"):
                entry[name] = getattr(row, name)
            entry["verdict"] = getattr(row.verdict, "word", None)
            for name in OF_VERDICT:
                entry[name] = getattr(row.verdict, name, None)
            for name, value in row.time._asdict().items():
                entry[f"time_{name}"] = value
            for name, value in row.settings.items():
                entry[f"setting_{name}"] = value
            for name, value in row.metrics.items():
                entry.setdefault(name, value)
            rows.append(entry)
    return pd.DataFrame(rows)


def _csv(frame: pd.DataFrame) -> str:
    safe = frame.map(lambda cell: printable(cell, "csv") if isinstance(cell, str) else cell)
    return str(safe.to_csv(index=False, float_format="%.6g"))


def deciding(found: Findings) -> list[dict[str, Cell]]:
    """Return the deciding table, without columns that say nothing."""
    rows = [_cells(found, row) for row in found.rows]
    kept = [name for name in rows[0] if any(row[name].text != "–" for row in rows)]
    return [{name: row[name] for name in kept} for row in rows]


def _cells(found: Findings, row: Row) -> dict[str, Cell]:
    """The row of a candidate in the deciding table: its cells by their headings."""
    record, time, verdict = found.record, row.time, row.verdict
    spreads = [other.std for other in found.rows]
    digits = decimals([*spreads, *(of.high - of.low for of in found.verdicts)])
    digits = max(digits - 1, 2)
    mean = Cell(number(row.mean, digits))
    if not math.isnan(row.std):
        mean = Cell(f"{mean.text} ± {number(row.std, digits)}")
    chosen = record.same_as.get(row.arm)  # the candidate whose runs these are
    difference = ratio = size = Cell("–")
    word, seeds, name = Cell("baseline"), Cell(str(row.seeds)), Cell(row.arm)
    if chosen:
        word = Cell(f"tuning chose {chosen}")
    elif verdict is not None:
        ends = _interval(verdict.low, verdict.high, digits)
        difference = Cell(number(verdict.difference, digits, "+"), ends)
        judged = verdict.decided or not verdict.reason
        word = Cell(verdict.word if judged else "–", verdict.reason)
        if row.arm in record.behind:
            word = Cell("behind", "not pursued")
        if row.arm in record.unpaired:
            seeds = Cell(seeds.text, "not paired")
        elif verdict.seeds < row.seeds:
            seeds = Cell(seeds.text, f"{verdict.seeds} paired")
        if row is recommended(found) and not record.untuned:
            name = Cell(row.arm, "advised")
    if not math.isnan(time.low):  # one or two seeds say nothing
        ends = f"{time.low:.2f} to {time.high:.2f}" if time.low < time.high else ""
        ratio = Cell(f"{time.ratio:.2f}", ends)
    if row.parameters and len({other.parameters for other in found.rows}) > 1:
        size = Cell(f"{row.parameters:,}")
    return {
        "candidate": name,
        "epochs": Cell("–" if math.isnan(row.epochs) else f"{row.epochs:g}"),
        score_name(record.score): mean,
        "difference, points (95%)": difference,
        "verdict": word,
        "parameters": size,
        "time ratio": ratio,
        f"{record.pairs}s": seeds,
    }


def _interval(low: float, high: float, digits: int) -> str:
    if not math.isfinite(low):
        return ""
    return f"{number(low, digits, '+')} to {number(high, digits, '+')}"


def table(rows: Sequence[Mapping[str, object]]) -> str:
    """Return a table in Markdown: the keys of the rows are the headings, and columns of numbers are
    aligned right.
    """
    if not rows:
        return ""
    names = list(rows[0])
    sides = ["---" if name in (names[0], *LEFT) else "---:" for name in names]
    lines = [[printable(name, "markdown") for name in names], sides]
    lines += [[printable(cell, "markdown") for cell in row.values()] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


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


def _failures(records: Sequence[ComparisonRecord], failed: Sequence[str]) -> list[str]:
    return [*failed, *(failure for record in records for failure in record.failures)]


def _page(
    records: Sequence[ComparisonRecord], failed: Sequence[str], notes: Sequence[str]
) -> dict[str, Any]:
    """The variables of the templates."""
    sections = [_section(findings(record), place) for place, record in enumerate(records, 1)]
    return {
        "title": ", ".join(record.name for record in records),
        "sections": sections,
        "notes": notes,
        "failures": _failures(records, failed),
        "made": _how_made(records),
    }


def _section(found: Findings, place: int) -> dict[str, Any]:
    """The part of the page on one comparison: variables of the templates."""
    record, figures = found.record, report_figures(found, place)
    first, *statements = advice(found)
    score = f"{record.split} {score_name(record.score)}".strip()
    legend = LEGEND.format(
        score[:1].upper() + score[1:],
        POINTS[record.known_unit],
        "more" if record.mode == "max" else "less",
        found.reference.name,
        record.pairs,
        record.design.equal_within,
    )
    if any(math.isfinite(verdict.same_low) for verdict in found.verdicts):
        legend += NEW_DATA
    changes = []
    for name, changed in record.changes.items():
        keys = [key for key in changed if key != "method.name"]
        texts = [f"{key} {changed[key][1]} in place of {changed[key][0]}" for key in keys]
        if texts:
            changes.append(f"{name}: {', '.join(texts)}")
    return {
        "title": record.name,
        "changes": changes,
        "untuned": bool(record.untuned),
        "first": first,
        "rows": deciding(found),
        "legend": legend.replace("\n", " "),
        "figures": figures,
        "folds": [
            Fold("What it shows, candidate by candidate", statements),
            Fold("More figures", figures=figures[1:]),
            _same_examples(found),
            _differing(record),
            _trials(record),
            _metrics(found),
        ],
    }


def _same_examples(found: Findings) -> Fold:
    known = [verdict for verdict in found.verdicts if math.isfinite(verdict.same_low)]
    digits = max(decimals(verdict.same_high - verdict.same_low for verdict in known) - 1, 2)
    rows = []
    for verdict in known:
        ends = _interval(verdict.same_low, verdict.same_high, digits)
        difference = Cell(number(verdict.difference, digits, "+"), ends)
        rows.append({"candidate": verdict.arm, "difference, points (95%)": difference})
    return Fold("For these test examples alone", [SAME_DATA] if rows else [], rows=rows)


def _differing(record: ComparisonRecord) -> Fold:
    texts, names = [], []
    for name, (share, examples) in record.disagreed.items():
        if name != record.half:
            names.append(name)
            texts.append(DIFFER.format(name, record.baseline, 100 * share, examples))
    rows = []
    for example in record.examples:
        row: dict[str, object] = {"most often on these": example.name}
        for name in names:
            row[f"runs of {name} that differ"] = example.differing.get(name, 0)
        if example.target:
            row["true label"] = example.target
        for name, label in example.predicted.items():
            row[f"{name} predicts"] = label
        rows.append(row)
    return Fold("Where predictions differ", texts, rows=rows)


def _trials(record: ComparisonRecord) -> Fold:
    rows = []
    for candidate, tried in record.tuning.items():
        for trial in tried:
            chosen = Cell(settings(trial.settings), "the baseline's" if trial.shared else "")
            score = f"{trial.score:.4f}"
            row = {"trials of": candidate, "settings": chosen}
            rows.append(row | {"mean of the best validation scores": score})
    return Fold("Trials", rows=rows)


def _metrics(found: Findings) -> Fold:
    columns: dict[str, dict[str, object]] = {}
    for row in found.rows:
        numbers_of = {"seconds": row.seconds, **row.metrics}
        shown = {name: f"{value:.4g}" for name, value in numbers_of.items()}
        columns[row.name] = {"settings": settings(row.settings), **shown}
    if not any(len(row.metrics) > 1 for row in found.rows):  # no more than the score
        return Fold("Settings and metrics")
    rows = []
    for name, values in pd.DataFrame(columns).fillna("–").iterrows():
        rows.append({"": str(name).replace("_", " "), **values})
    return Fold("Settings and metrics", [METRICS.replace("\n", " ")], rows=rows)


def _how_made(records: Sequence[ComparisonRecord]) -> Fold:
    """The machines, the packages and the commands."""
    texts: dict[str, None] = {}
    for record in records:
        for run in record.results:
            for content in (run.machine, run.versions):
                known = [f"{key} {value}" for key, value in content.items() if value]
                texts[", ".join(known)] = None
    texts.pop("", None)
    commands = dict.fromkeys(command for record in records for command in record.commands)
    said = [HOW.replace("\n", " "), *texts] if texts else []
    return Fold("How it was made", said, code="\n".join(commands).replace("```", ""))
