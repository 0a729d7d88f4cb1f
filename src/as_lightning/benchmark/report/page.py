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

from as_lightning.benchmark.report import advice as words
from as_lightning.benchmark.report.figures import method_colors, report_figures, score_name
from as_lightning.benchmark.report.findings import Findings, Row, findings
from as_lightning.benchmark.report.like_with_like import comparable_results
from as_lightning.benchmark.report.record import ComparisonRecord
from as_lightning.benchmark.report.verdicts import Design
from as_lightning.benchmark.run.result import Result
from as_lightning.benchmark.run.settings import SettingError, nearest

BASELINES = ("softmax", "multilabel_softmax")
UNTUNED = "A sweep gives all methods the settings of the command; as-lightning-compare tunes each of them."
COLUMNS = ("method", "epochs", "score", "difference", "word", "time", "seeds")


class ReportPaths(NamedTuple):
    """The files of a written report."""

    html: Path
    markdown: Path
    csv: Path


class FailedRun(NamedTuple):
    """A run of a sweep that ended in an error."""

    folder: str
    error: str


def advice(record: ComparisonRecord) -> list[str]:
    """What to do, and what the comparison shows, as plain sentences."""
    return words.advice(findings(record))


def write_comparison(record: ComparisonRecord, directory: str | Path) -> ReportPaths:
    """Write ``report.html``, ``report.md``, ``report.csv`` and the figures of a comparison into ``directory``."""
    return _write([findings(record)], directory, record.commands, failed=[FailedRun("", e) for e in record.failures])


def print_comparison(record: ComparisonRecord, console: Console | None = None) -> None:
    """Print the table and the advice of a comparison."""
    _print(findings(record), console or Console(width=None if sys.stdout.isatty() else 120))


def write_sweep(
    results: Sequence[Result],
    directory: str | Path,
    *,
    baseline: str | None = None,
    commands: Sequence[str] | None = None,
    failed: Sequence[FailedRun] = (),
) -> ReportPaths:
    """Write the report of a sweep's runs; those that are not alike are kept apart."""
    found = [findings(record) for record in sweep_records(results, baseline)]
    if commands is None:
        commands = list(dict.fromkeys(" ".join(result.command.split()) for result in results if result.command))
    return _write(found, directory, commands, failed=failed, notes=[*comparable_results(results)[1], UNTUNED])


def print_sweep(results: Sequence[Result], baseline: str | None = None, console: Console | None = None) -> None:
    """Print the table of each experiment of a sweep, and what it says."""
    for record in sweep_records(results, baseline):
        _print(findings(record), console or Console(width=None if sys.stdout.isatty() else 120))


def sweep_records(results: Sequence[Result], baseline: str | None = None) -> list[ComparisonRecord]:
    """A sweep's runs as comparisons of a fixed design, one for each experiment, at one budget and without tuning.

    Raises:
        SettingError: if no run is of the method ``baseline``.
    """
    named, _ = comparable_results(results)
    methods = {result.method for result in named}
    if baseline is not None and named and baseline not in methods:
        raise SettingError(f"no run is of the method {baseline}: {nearest(baseline, methods)}")
    records = []
    for name in dict.fromkeys(result.name for result in named):
        runs = [result for result in named if result.name == name]
        present = list(dict.fromkeys(run.method for run in runs))
        base = next((known for known in (baseline, *BASELINES) if known in present), present[0])
        seeds = sorted({run.seed for run in runs})
        record = ComparisonRecord(
            name=name,
            score=runs[0].score,
            baseline=base,
            methods=sorted(present, key=lambda method: method != base),
            design=Design.fixed(len({run.seed for run in runs if run.method == base})),
        )
        for run in runs:
            about: dict[str, Any] = {"budget": 1.0, "epochs": len(run.epoch_seconds) or math.nan, "settings": {}}
            record.results.append(Result(**{**vars(run), "config": run.config | {"comparison": about}}))
        made = {(run.method, run.seed) for run in runs}
        record.missing = [(method, 1.0, seed) for method in present for seed in seeds if (method, seed) not in made]
        records.append(record)
    return records


def cells(found: Findings, row: Row) -> dict[str, Any]:
    """One arm as the deciding table prints it."""
    verdict, time = row.verdict, row.time
    known = verdict is not None and not math.isnan(verdict.difference)
    spread = "" if math.isnan(row.std) else f" ± {row.std:.2f}"
    reference = "baseline" if row.seeds else "baseline: no run has finished"
    same = row.same_budget
    return {
        "method": row.arm.method,
        "epochs": "–" if math.isnan(row.epochs) else f"{row.epochs:g}",
        "score": f"{row.mean:.2f}{spread}" if row.seeds else "–",
        "difference": f"{verdict.difference:+.2f}" if verdict is not None and known else "–",
        "interval": f"{verdict.low:+.2f} to {verdict.high:+.2f}" if verdict and math.isfinite(verdict.low) else "",
        "word": reference if row is found.reference else "–" if verdict is None else verdict.word,
        "note": "" if verdict is None else verdict.reason or words.contradiction(verdict),
        "same": "" if same is None else f"at this budget: {words.in_words(same, None)}",
        "time": "–" if time is None else f"{time.ratio:.2f}",
        "time_interval": "" if time is None or time.low == time.high else f"{time.low:.2f} to {time.high:.2f}",
        "seeds": row.seeds,
        "advised": row is words.recommended(found) and bool(row.verdict),
        "settings": words.settings(row.settings),
        "seconds": f"{row.seconds:.1f}" if row.seeds else "–",
    }


def frame(found: Findings) -> pd.DataFrame:
    """All numbers, one row for each arm."""
    rows = []
    for row in found.rows:
        verdict, time = row.verdict, row.time
        of_verdict = ("word", "difference", "low", "high", "detectable", "look", "reason")
        rows.append(
            {"name": found.record.name, "method": row.arm.method, "budget": row.arm.budget, "epochs": row.epochs}
            | {f"setting_{name}": value for name, value in row.settings.items()}
            | {"seeds": row.seeds, "mean": row.mean, "std": row.std, "seconds": row.seconds}
            | {name: None if verdict is None else getattr(verdict, name) for name in of_verdict}
            | {"word_at_same_budget": None if row.same_budget is None else row.same_budget.word}
            | ({} if time is None else {"time_ratio": time.ratio, "time_low": time.low, "time_high": time.high})
            | dict(row.metrics)
        )
    return pd.DataFrame(rows)


def escape_markdown(text: object) -> str:
    r"""Text that a Markdown page shows as it is, in a table too: no HTML, no links, no cell or line ends.

    Examples:
        >>> print(escape_markdown("a|b <img> *c*"))
        a\|b &lt;img&gt; \*c\*
        >>> print(escape_markdown("as_softmax\\|x"))
        as_softmax\\\|x
    """
    escaped = html.escape(" ".join(str(text).split()), quote=False)
    return re.sub(r"([\\`*|\[\]])", r"\\\1", escaped)


def _described(content: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in content.items() if value)


def _section(found: Findings) -> dict[str, Any]:
    """What the templates show of one comparison."""
    record = found.record
    names = list(dict.fromkeys(name for row in found.rows for name in row.metrics))
    body = [
        [row.arm.method, f"{row.epochs:g}"]
        + ["–" if name not in row.metrics else f"{row.metrics[name]:.4g}" for name in names]
        for row in found.rows
    ]
    return {
        "record": record,
        "score": score_name(record.score),
        "reference": f"{found.reference.arm.method}, {words.epochs(found.reference.epochs)}",
        "advice": words.advice(found),
        "rows": [cells(found, row) for row in found.rows],
        "colors": method_colors(found.methods),
        "figures": report_figures(found),
        "metrics": (["method", "epochs", *names], body),
        "disagreement": [
            (arm.method, f"{100 * share:.1f}%", examples)
            for (arm, against), (share, examples) in record.disagreement().items()
            if against == record.reference and arm.budget == against.budget
        ],
        "tuning": {
            method: [(words.settings(trial.settings), trial.score, trial.shared) for trial in trials]
            for method, trials in record.tuning.items()
        },
    }


def _write(
    found: Sequence[Findings],
    directory: str | Path,
    commands: Sequence[str],
    *,
    failed: Sequence[FailedRun] = (),
    notes: Sequence[str] = (),
) -> ReportPaths:
    directory = Path(directory)
    if (directory / "figures").exists():
        shutil.rmtree(directory / "figures")  # those of methods that are gone would stay
    (directory / "figures").mkdir(parents=True)
    sections = [_section(each) for each in found]
    for number, section in enumerate(sections):
        for index, figure in enumerate(section["figures"]):
            file = f"{number + 1}-{index + 1}-{figure.name}.svg"  # two experiments may come to one name
            (directory / "figures" / file).write_text(figure.svg, encoding="utf-8")
            section.setdefault("files", []).append(file)
    environment = Environment(
        loader=PackageLoader("as_lightning.benchmark.report"),
        autoescape=select_autoescape(["html.j2"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["md"] = escape_markdown
    runs = [result for each in found for result in each.record.results]
    content = {
        "sections": sections,
        "commands": [command.replace("```", "") for command in commands],
        "failed": list(failed),
        "notes": list(notes),
        "machines": sorted({_described(run.machine) for run in runs}),
        "versions": sorted({_described(run.versions) for run in runs}),
    }
    paths = ReportPaths(directory / "report.html", directory / "report.md", directory / "report.csv")
    for path, template in ((paths.markdown, "report.md.j2"), (paths.html, "report.html.j2")):
        path.write_text(environment.get_template(template).render(content), encoding="utf-8")
    rows = pd.concat([frame(each) for each in found]) if found else pd.DataFrame()
    rows.to_csv(paths.csv, index=False, float_format="%.6g")
    return paths


def _print(found: Findings, console: Console) -> None:
    record, reference = found.record, found.reference
    title = f"{record.name}: {record.split} {score_name(record.score)}, differences to {reference.arm.method}, "
    table = Table(title=escape(f"{title}{words.epochs(reference.epochs)}, in points"), title_justify="left")
    headings = {"difference": "difference (95%)", "time": "time ratio"}
    for name in COLUMNS:
        table.add_column(headings.get(name, name), justify="left" if name in ("method", "word") else "right")
    for row in found.rows:
        shown = cells(found, row)
        shown["difference"] += f" ({shown['interval']})" if shown["interval"] else ""
        table.add_row(*(escape(str(shown[name])) for name in COLUMNS), style="bold" if shown["advised"] else None)
    console.print(table)
    console.print("\n".join(words.advice(found)), markup=False, highlight=False)
