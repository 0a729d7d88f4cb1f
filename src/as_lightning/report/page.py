"""The report of a comparison: a page in Markdown and in HTML, and a printed table."""

from __future__ import annotations

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
from as_lightning.report.differences import differences_svg, in_words
from as_lightning.report.findings import Findings, Row, findings
from as_lightning.report.record import ComparisonRecord
from as_lightning.statistics.answer import decimals, number
from as_lightning.statistics.printable import printable
from as_lightning.statistics.verdicts import Verdict

LEFT = ("verdict", "settings")  # columns of text, beside the first
SCORE_NAMES = {"f1_micro": "micro F1", "f1_macro": "macro F1", "span_f1": "span F1"}
FIGURE = "figures/differences.svg"
LEGEND = """\
{} {}: mean ± standard deviation of each candidate's own runs.
Differences are to {}, paired by seed, positive where the candidate is better. In about 95 of 100
such comparisons every interval holds the true difference, even though seeds were added one at a
time. The verdicts are read off the intervals. An interval within ±{:g} points is equal."""
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
    rows: Sequence[Mapping[str, object]] = ()
    code: str = ""


def print_comparison(record: ComparisonRecord, console: Console | None = None) -> None:
    """Print the table and the advice of a comparison."""
    found = findings(record)
    console = console or Console(width=None if sys.stdout.isatty() else 120)
    title = f"{record.name}: {record.split} {score_name(record.score)}, differences to "
    title += found.reference.name
    rows: list[dict[str, object]] = []
    for row in deciding(found):
        short = dict[str, object](row)
        for name in {"verdict", "time ratio"} & row.keys():
            short[name] = row[name].text
        rows.append(short)
    console.print(Markdown(f"{printable(title, 'markdown')}\n\n{table(rows)}"))
    text = "\n".join(printable(sentence) for sentence in advice(found))
    console.print(text, markup=False, highlight=False)


def publish(record: ComparisonRecord, directory: str | Path) -> None:
    """Write the report of a comparison, and print its table, its advice and where it is."""
    paths = write_report(record, directory)
    print_comparison(record)
    for run in record.failures:
        print(f"failed:      {printable(run)}")
    print(f"report:      {paths.html}\n             {paths.markdown}")
    url = shlex.quote(paths.html.resolve().as_uri())
    print(f"open it:     {Path(sys.executable).name} -m webbrowser -t {url}")


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


def score_name(score: str) -> str:
    """Return the name of a score in a report."""
    score = score.removeprefix("val/").removeprefix("val_")
    return SCORE_NAMES.get(score, score.replace("_", " "))


def deciding(found: Findings) -> list[dict[str, Cell]]:
    """Return the deciding table, without columns that say nothing."""
    rows = [_cells(found, row) for row in found.rows]
    for name in list(rows[0]):
        if all(row[name].text == "–" for row in rows):
            for row in rows:
                del row[name]
    return rows


def _cells(found: Findings, row: Row) -> dict[str, Cell]:
    """The row of a candidate in the deciding table: its cells by their headings."""
    record, time, verdict = found.record, row.time, row.verdict
    spreads = [other.std for other in found.rows]
    for other in found.verdicts:
        spreads.append(other.high - other.low)
    digits = max(decimals(spreads) - 1, 2)
    mean = Cell(number(row.mean, digits))
    if not math.isnan(row.std):
        mean = Cell(f"{mean.text} ± {number(row.std, digits)}")
    chosen = record.same_as.get(row.arm)  # the candidate whose runs these are
    difference = ratio = size = epochs = Cell("–")
    word, seeds, name = Cell("baseline"), Cell(str(row.seeds)), Cell(row.arm)
    if not math.isnan(row.epochs):
        epochs = Cell(f"{row.epochs:g}")
    if chosen:
        word = Cell(f"tuning chose {chosen}")
    elif verdict is not None:
        ends = _interval(verdict.low, verdict.high, digits)
        difference = Cell(number(verdict.difference, digits, "+"), ends)
        word = Cell("–", verdict.reason)
        if verdict.judged:
            word = Cell(verdict.word, verdict.reason)
        if row.arm in record.behind:
            word = Cell("behind", "not pursued")
        if verdict.seeds < row.seeds:
            seeds = Cell(seeds.text, f"{verdict.seeds} paired")
        if row is recommended(found) and not record.untuned:
            name = Cell(row.arm, "advised")
    if not math.isnan(time.low):  # one or two seeds say nothing
        ratio = Cell(f"{time.ratio:.2f}")
        if time.low < time.high:
            ratio = Cell(ratio.text, f"{time.low:.2f} to {time.high:.2f}")
    if row.parameters and len({other.parameters for other in found.rows}) > 1:
        size = Cell(f"{row.parameters:,}")
    return {
        "candidate": name,
        "epochs": epochs,
        score_name(record.score): mean,
        _difference(record): difference,
        "verdict": word,
        "parameters": size,
        "time ratio": ratio,
        "seeds": seeds,
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
    """The variables of the templates."""
    record = found.record
    first, *statements = advice(found)
    changes = []
    for name, changed in record.changes.items():
        texts = []
        for key, (before, after) in changed.items():
            if key != "method.name":
                texts.append(f"{key} {after} in place of {before}")
        if texts:
            changes.append(f"{name}: {', '.join(texts)}")
    return {
        "title": record.name,
        "changes": changes,
        "untuned": bool(record.untuned),
        "first": first,
        "rows": deciding(found),
        "legend": _legend(found),
        "figure": differences_svg(found.verdicts, record.design.equal_within),
        "file": FIGURE,
        "alt": in_words(found.verdicts),
        "failures": record.failures,
        "folds": [
            Fold("What it shows, candidate by candidate", statements),
            _same_examples(found),
            _differing(record),
            _trials(record),
            _metrics(found),
        ],
        "made": _how_made(record),
    }


def _legend(found: Findings) -> str:
    record = found.record
    score = f"{record.split} {score_name(record.score)}".strip()
    direction = {"max": "more is better", "min": "less is better"}[record.mode]
    about = f"({direction})"
    if record.unit:
        about = f"in points (a point is {1 / record.points:g}; {direction})"
    legend = LEGEND.format(
        score[:1].upper() + score[1:], about, found.reference.name, record.design.equal_within
    )
    if _for_new_data(found):
        legend += NEW_DATA
    return legend.replace("\n", " ")


def _difference(record: ComparisonRecord) -> str:
    """The heading of differences."""
    return "difference, points (95%)" if record.unit else "difference (95%)"


def _for_new_data(found: Findings) -> list[Verdict]:
    return [verdict for verdict in found.verdicts if math.isfinite(verdict.same_low)]


def _same_examples(found: Findings) -> Fold:
    known = _for_new_data(found)
    if not known:
        return Fold("For these test examples alone")
    digits = max(decimals(verdict.same_high - verdict.same_low for verdict in known) - 1, 2)
    rows = []
    for verdict in known:
        ends = _interval(verdict.same_low, verdict.same_high, digits)
        difference = Cell(number(verdict.difference, digits, "+"), ends)
        rows.append({"candidate": verdict.arm, _difference(found.record): difference})
    return Fold("For these test examples alone", [SAME_DATA], rows)


def _differing(record: ComparisonRecord) -> Fold:
    texts = []
    for name, (share, examples) in record.disagreed.items():
        if name != record.half:
            texts.append(DIFFER.format(name, record.baseline, 100 * share, examples))
    return Fold("Where predictions differ", texts, record.examples)


def _trials(record: ComparisonRecord) -> Fold:
    rows = []
    for candidate, tried in record.tuning.items():
        for trial in tried:
            chosen = Cell(settings(trial.settings))
            if trial.shared:
                chosen = Cell(chosen.text, "the baseline's")
            score = f"{trial.score:.4f}"
            row = {"trials of": candidate, "settings": chosen}
            rows.append(row | {"mean of the best validation scores": score})
    return Fold("Trials", rows=rows)


def _metrics(found: Findings) -> Fold:
    columns: dict[str, dict[str, object]] = {}
    for row in found.rows:
        shown: dict[str, object] = {"settings": settings(row.settings)}
        for name, value in {"seconds": row.seconds, **row.metrics}.items():
            shown[name] = f"{value:.4g}"
        columns[row.name] = shown
    if not any(len(row.metrics) > 1 for row in found.rows):  # no more than the score
        return Fold("Settings and metrics")
    rows = []
    for name, values in pd.DataFrame(columns).fillna("–").iterrows():
        rows.append({"": str(name).replace("_", " "), **values})
    return Fold("Settings and metrics", [METRICS.replace("\n", " ")], rows=rows)


def _how_made(record: ComparisonRecord) -> Fold:
    """The machines, the packages and the commands."""
    texts: dict[str, None] = {}
    for place in record.final["made_on"].unique():
        made = record.made_on[int(place)]
        for content in (made["machine"], made["versions"]):
            known = [f"{key} {value}" for key, value in content.items() if value]
            texts[", ".join(known)] = None
    texts.pop("", None)
    said = []
    if texts:
        said = [HOW.replace("\n", " "), *texts]
    return Fold("How it was made", said, code="\n".join(record.commands).replace("```", ""))
