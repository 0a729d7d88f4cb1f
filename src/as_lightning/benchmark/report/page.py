"""The report of comparisons and of sweeps: one page in Markdown, CSV and HTML, and the same table on the terminal."""

from __future__ import annotations

import html
import math
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from as_lightning.benchmark.report.advice import advice, contradiction, epochs, in_words, recommended, settings
from as_lightning.benchmark.report.figures import method_colors, report_figures, score_name
from as_lightning.benchmark.report.findings import Findings, Row, findings
from as_lightning.benchmark.report.record import ComparisonRecord
from as_lightning.benchmark.run.summary import lines_of_report

COLUMNS = ("method", "epochs", "score", "difference", "word", "time", "seeds")
OF_VERDICT = ("word", "difference", "low", "high", "detectable", "look", "reason")
LEGEND = (
    "{} {} in points. Differences are to {}, paired by seed. The 95% intervals are not corrected. The words are, for "
    "the number of methods and looks: all of them are right with probability 95%. Equal, not worse and no gain mean by "
    "{:g} points."
)
SHARED = " (the baseline's)"
DIFFER = "{} and {} differ on {:.1f}% of {} test examples, mean over the seeds."


class ReportPaths(NamedTuple):
    """The files of a written report."""

    html: Path
    markdown: Path
    csv: Path


class Fold(NamedTuple):
    """A part of the page that opens on demand: sentences, and tables of headings and rows."""

    title: str
    sentences: list[str]
    tables: list[tuple[list[str], list[list[Any]]]]


def write_comparison(record: ComparisonRecord, directory: str | Path) -> ReportPaths:
    """Write ``report.html``, ``report.md``, ``report.csv`` and the figures of a comparison into ``directory``."""
    return write_report([record], directory, failed=record.failures)


def print_comparison(record: ComparisonRecord, console: Console | None = None) -> None:
    """Print the table and the advice of a comparison."""
    found, console = findings(record), console or Console(width=None if sys.stdout.isatty() else 120)
    title = f"{record.name}: {record.split} {score_name(record.score)}, differences to {_reference(found)}, in points"
    table = Table(title=escape(title), title_justify="left")
    headings = {"difference": "difference (95%)", "time": "time ratio"}
    for name in COLUMNS:
        table.add_column(headings.get(name, name), justify="left" if name in ("method", "word") else "right")
    for row in found.rows:
        shown = cells(found, row)
        shown["difference"] += f" ({shown['interval']})" if shown["interval"] else ""
        table.add_row(*(escape(str(shown[name])) for name in COLUMNS), style="bold" if shown["advised"] else None)
    console.print(table)
    console.print("\n".join(advice(found)), markup=False, highlight=False)


def publish(
    records: Sequence[ComparisonRecord], directory: str | Path, *, failed: Sequence[str] = (), notes: Sequence[str] = ()
) -> None:
    """Write the report of several experiments, print their tables and advice, and say where the report is."""
    paths = write_report(records, directory, failed=failed, notes=notes)
    for record in records:
        print_comparison(record)
    print("\n".join([*notes, *(f"failed:      {run}" for run in failed), *lines_of_report(*paths)]))


def write_report(
    records: Sequence[ComparisonRecord], directory: str | Path, *, failed: Sequence[str] = (), notes: Sequence[str] = ()
) -> ReportPaths:
    """Write one report of several experiments; ``failed`` are runs that have ended in an error, in words."""
    directory = Path(directory)
    if (directory / "figures").exists():
        shutil.rmtree(directory / "figures")  # those of methods that are gone would stay
    (directory / "figures").mkdir(parents=True)
    found = [findings(record) for record in records]
    sections = [_section(each) for each in found]
    for number, section in enumerate(sections, start=1):
        for index, figure in enumerate(section["figures"], start=1):
            file = f"{number}-{index}-{figure.name}.svg"  # two experiments may come to one name
            (directory / "figures" / file).write_text(figure.svg, encoding="utf-8")
            section["files"].append(file)
    environment = Environment(
        loader=PackageLoader("as_lightning.benchmark.report"),
        autoescape=select_autoescape(["html.j2"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["md"] = escape_markdown
    runs = [run for record in records for run in record.results]
    content = {
        "sections": sections,
        "commands": [text.replace("```", "") for text in dict.fromkeys(c for each in records for c in each.commands)],
        "failed": failed,
        "notes": notes,
        "made": [*sorted({_described(r.machine) for r in runs}), *sorted({_described(r.versions) for r in runs})],
    }
    paths = ReportPaths(directory / "report.html", directory / "report.md", directory / "report.csv")
    for path, template in ((paths.markdown, "report.md.j2"), (paths.html, "report.html.j2")):
        path.write_text(environment.get_template(template).render(content), encoding="utf-8")
    rows = pd.concat([frame(each) for each in found]) if found else pd.DataFrame()
    rows.to_csv(paths.csv, index=False, float_format="%.6g")
    return paths


def cells(found: Findings, row: Row) -> dict[str, Any]:
    """One arm as the deciding table prints it."""
    verdict, time, same = row.verdict, row.time, row.same_budget
    notes = [] if verdict is None else [verdict.reason or contradiction(verdict)]
    notes += [] if same is None else [f"at this budget: {in_words(same)}"]
    return {
        "method": row.arm.method,
        "epochs": "–" if math.isnan(row.epochs) else f"{row.epochs:g}",
        "score": f"{row.mean:.2f}" + ("" if math.isnan(row.std) else f" ± {row.std:.2f}"),
        "difference": "–" if verdict is None or math.isnan(verdict.difference) else f"{verdict.difference:+.2f}",
        "interval": f"{verdict.low:+.2f} to {verdict.high:+.2f}" if verdict and math.isfinite(verdict.low) else "",
        "word": "baseline" if verdict is None else verdict.word,
        "notes": [note for note in notes if note],
        "time": "–" if math.isnan(time.ratio) else f"{time.ratio:.2f}",
        "time_interval": f"{time.low:.2f} to {time.high:.2f}" if time.low < time.high else "",
        "seeds": row.seeds,
        "advised": row is recommended(found) and verdict is not None,
    }


def frame(found: Findings) -> pd.DataFrame:
    """All numbers, one row for each arm."""
    rows = [
        {"name": found.record.name, "method": row.arm.method, "budget": row.arm.budget, "epochs": row.epochs}
        | {f"setting_{name}": value for name, value in row.settings.items()}
        | {"seeds": row.seeds, "mean": row.mean, "std": row.std, "seconds": row.seconds}
        | {name: getattr(row.verdict, name, None) for name in OF_VERDICT}
        | {"word_at_same_budget": getattr(row.same_budget, "word", None)}
        | {f"time_{name}": value for name, value in row.time._asdict().items()}
        | dict(row.metrics)
        for row in found.rows
    ]
    return pd.DataFrame(rows)


def escape_markdown(text: object) -> str:
    r"""Text that a Markdown page shows as it is, in a table too: no HTML, no links, no cell or line ends.

    Examples:
        >>> print(escape_markdown("a\\|b <img> *c*"))
        a\\\|b &lt;img&gt; \*c\*
    """
    escaped = html.escape(" ".join(str(text).split()), quote=False)
    return re.sub(r"([\\`*|\[\]])", r"\\\1", escaped)


def _described(content: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in content.items() if value)


def _reference(found: Findings) -> str:
    return f"{found.reference.arm.method}, {epochs(found.reference.epochs)}"


def _section(found: Findings) -> dict[str, Any]:
    """What the templates show of one comparison."""
    record, score = found.record, score_name(found.record.score)
    said = advice(found)
    return {
        "name": record.name,
        "score": score,
        "rows": [cells(found, row) for row in found.rows],
        "colors": method_colors(found),
        "advice": said[0],
        "legend": LEGEND.format(record.split.capitalize(), score, _reference(found), record.design.equal_within),
        "figures": report_figures(found),
        "files": [],
        "folds": [Fold("What it shows, method by method", said[1:], []), *_differences(record), *_numbers(found)],
    }


def _differences(record: ComparisonRecord) -> list[Fold]:
    """How often the methods predict something else than the baseline, and on which examples most often."""
    shares = {
        arm.method: DIFFER.format(arm.method, record.baseline, 100 * share, examples)
        for (arm, against), (share, examples) in record.disagreement().items()
        if against == record.reference and arm.budget == against.budget
    }
    headings = ["most often on these", *(f"runs of {method} that differ" for method in shares)]
    rows = [[example.name, *(example.differing.get(m, 0) for m in shares)] for example in record.examples]
    return [Fold("Where predictions differ", [*shares.values()], [(headings, rows)] if rows else [])] if shares else []


def _numbers(found: Findings) -> list[Fold]:
    """The settings, the trials that they were chosen from, and last all metrics."""
    own = [[row.arm.method, f"{row.epochs:g}"] for row in found.rows]
    chosen = [[*arm, settings(row.settings), f"{row.seconds:.1f}"] for arm, row in zip(own, found.rows, strict=True)]
    tables = [(["method", "epochs", "settings", "seconds"], chosen)]
    for method, trials in found.record.tuning.items():
        tried = [[settings(t.settings) + (SHARED if t.shared else ""), f"{t.score:.4f}"] for t in trials]
        tables.append(([f"trials of {method}", "mean of the best validation scores"], tried))
    metrics = pd.DataFrame([dict(row.metrics) for row in found.rows]).map(lambda v: "–" if pd.isna(v) else f"{v:.4g}")
    rows = [[*arm, *values] for arm, values in zip(own, metrics.to_numpy().tolist(), strict=True)]
    headings = ["method", "epochs", *(name.replace("_", " ") for name in metrics)]
    return [Fold("Settings and trials", [], tables), Fold("All metrics", [], [(headings, rows)])]
