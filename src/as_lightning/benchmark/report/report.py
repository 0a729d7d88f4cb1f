"""The report: Markdown, CSV and one self-contained HTML page from the results of a sweep."""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from as_lightning.benchmark.report.comparison import BASELINES, baseline_of, compare, runs_frame, time_ratios
from as_lightning.benchmark.report.figures import report_figures, score_name
from as_lightning.benchmark.report.like_with_like import comparable_results
from as_lightning.benchmark.report.old_verdicts import MARGIN_POINTS
from as_lightning.benchmark.report.page_figure import PageFigure, method_colors
from as_lightning.benchmark.report.page_templates import page_templates
from as_lightning.benchmark.report.sweep_advice import sweep_advice
from as_lightning.benchmark.report.table_cells import short_verdict, with_interval
from as_lightning.benchmark.run.result import Result
from as_lightning.benchmark.run.settings import SettingError, nearest

# metrics that not every task has
OPTIONAL_COLUMNS = (
    "accuracy",
    "f1_macro",
    "f1_micro",
    "span_f1",
    "perplexity",
    "calibration_error",
    "memorised",
    "recovered",
)


@dataclass(frozen=True)
class Report:
    """The paths of a written report."""

    markdown: Path
    csv: Path
    html: Path


@dataclass(frozen=True)
class FailedRun:
    """A run of a sweep that ended in an error."""

    folder: str
    error: str


@dataclass(frozen=True)
class Experiment:
    """What the report says of one experiment: one row for each method."""

    name: str
    score: str
    baseline: str
    rows: list[dict[str, Any]]
    figures: list[PageFigure]
    target_score: float
    memorisation: bool


def summarize(results: Sequence[Result], baseline: str | None = None) -> list[Experiment]:
    """The numbers and figures of the report, experiment by experiment; runs that are not alike are kept apart.

    Raises:
        SettingError: if no run is of the method ``baseline``.
    """
    results, _ = comparable_results(results)
    if not results:
        return []
    methods = {result.method for result in results}
    if baseline is not None and baseline not in methods:
        raise SettingError(f"no run is of the method {baseline}: {nearest(baseline, methods)}")
    table = compared(results, baseline)
    experiments: list[Experiment] = []
    for name, rows in table.groupby("name", sort=False):
        runs = [result for result in results if result.name == name]
        base = baseline_of((result.method for result in runs), baseline)
        runs.sort(key=lambda result: result.method != base)  # the baseline first, as in the tables
        experiments.append(
            Experiment(
                name=str(name),
                score=score_name(runs[0].score),
                baseline=base,
                rows=rows.to_dict("records"),
                figures=_named_apart(report_figures(str(name), runs), experiments),
                target_score=float(rows["target_score"].iloc[0]),
                memorisation=bool(rows["memorised"].notna().any()),
            )
        )
    return experiments


def compared(results: Sequence[Result], baseline: str | None = None) -> pd.DataFrame:
    """One row for each method of each experiment: comparison with the baseline, ratios of times, means.

    Args:
        results: at least one; those of one ``name`` can be compared.
        baseline: the method to compare with.
    """
    frame = runs_frame(results)
    table = compare(frame, "score", baseline)
    means = frame.groupby(["name", "method"], sort=False).mean(numeric_only=True).reset_index()
    times = time_ratios(results, baseline)
    for column in OPTIONAL_COLUMNS:
        if column not in means:
            means[column] = math.nan
    table = table.merge(means.drop(columns=["seed", "score"]), on=["name", "method"]).merge(
        times, on=["name", "method"]
    )
    table["best"] = table["mean"] == table.groupby("name")["mean"].transform("max")
    return table


def _named_apart(figures: Sequence[PageFigure], before: Sequence[Experiment]) -> list[PageFigure]:
    """The figures, with a number where an experiment before has one of that name (``a/b`` and ``a?b`` are ``a_b``)."""
    taken = {figure.name for experiment in before for figure in experiment.figures}
    return [
        replace(figure, name=f"{figure.name}-{len(before) + 1}") if figure.name in taken else figure
        for figure in figures
    ]


def percent(value: float, digits: int = 2) -> str:
    """A share as a percentage; an en dash for a missing one."""
    return "–" if value is None or math.isnan(value) else f"{100 * value:.{digits}f}"


def number(value: float, digits: int = 2) -> str:
    """A plain number; an en dash for a missing one."""
    return "–" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def difference(row: dict[str, Any]) -> str:
    """A paired difference in percentage points with its interval."""
    return with_interval(100 * row["difference"], 100 * row["low"], 100 * row["high"], "+.2f")


def described(content: dict[str, Any]) -> str:
    """A machine, or versions, on one line."""
    return ", ".join(f"{key} {value}" for key, value in content.items() if value)


def commands_of(results: Sequence[Result]) -> list[str]:
    """The commands that made the runs, each once."""
    return list(dict.fromkeys(" ".join(result.command.split()) for result in results if result.command))


def write_report(
    results: Sequence[Result],
    directory: str | Path,
    *,
    baseline: str | None = None,
    commands: Sequence[str] | None = None,
    failed: Sequence[FailedRun] = (),
) -> Report:
    """Write ``report.md``, ``report.csv``, ``report.html`` and the figures into ``directory``.

    Args:
        results: of the finished runs.
        directory: made where it does not exist.
        baseline: the method to compare with.
        commands: that made the runs; by default those that the results name.
        failed: the runs that did not finish.

    Raises:
        SettingError: if no run is of the method ``baseline``.
        OSError: if the files cannot be written.
    """
    experiments = summarize(results, baseline)
    _, notes = comparable_results(results)
    directory = Path(directory)
    if (directory / "figures").exists():
        shutil.rmtree(directory / "figures")  # those of methods that are gone would stay
    (directory / "figures").mkdir(parents=True)
    for figure in (figure for experiment in experiments for figure in experiment.figures):
        (directory / "figures" / f"{figure.name}.png").write_bytes(figure.light)
    environment = page_templates()
    environment.filters |= {
        "percent": percent,
        "number": number,
        "difference": difference,
        "short_verdict": short_verdict,
    }
    methods = list(dict.fromkeys(row["method"] for experiment in experiments for row in experiment.rows))
    content = {
        "experiments": experiments,
        "advice": sweep_advice([(experiment.name, experiment.rows) for experiment in experiments]),
        "colors": method_colors(methods),
        "baselines": " or ".join(dict.fromkeys(experiment.baseline for experiment in experiments)) or BASELINES[0],
        "commands": commands_of(results) if commands is None else list(commands),
        "margin": f"{MARGIN_POINTS:g}",
        "notes": notes,
        "failed": list(failed),
        "methods": methods,
        "machines": sorted({described(result.machine) for result in results}),
        "versions": sorted({described(result.versions) for result in results}),
    }
    report = Report(directory / "report.md", directory / "report.csv", directory / "report.html")
    for path, template in ((report.markdown, "report.md.j2"), (report.html, "report.html.j2")):
        path.write_text(environment.get_template(template).render(content), encoding="utf-8")
    rows = pd.DataFrame([row for experiment in experiments for row in experiment.rows])
    rows.to_csv(report.csv, index=False, float_format="%.6g")
    return report


def print_comparison(results: Sequence[Result], baseline: str | None = None, console: Console | None = None) -> None:
    """Print the comparison table of every experiment."""
    console = console or Console(width=None if sys.stdout.isatty() else 120)
    for experiment in summarize(results, baseline):
        title = f"{experiment.name}: test {experiment.score}, paired with {experiment.baseline} by seed"
        table = Table(title=escape(title))
        for column in (
            "method",
            "seeds",
            f"{experiment.score} %",
            "difference [95% CI]",
            "verdict",
            "time ratio",
            "masked %",
        ):
            table.add_column(column, justify="left" if column in ("method", "verdict") else "right")
        for row in experiment.rows:
            score = f"{percent(row['mean'])} ± {percent(row['std'])}"
            table.add_row(
                escape(row["method"]),
                str(row["seeds"]),
                f"[bold]{score}[/bold]" if row["best"] else score,
                escape(difference(row)),
                short_verdict(row["in_words"]),
                number(row["train"]),
                percent(row["final_masking_ratio"], 1),
            )
        console.print(table)
