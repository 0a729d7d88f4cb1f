"""The report of a comparison: verdict and advice first, on the terminal, in Markdown, CSV and one HTML page."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from as_lightning.benchmark.compare.engine import Comparison
from as_lightning.benchmark.report.advice import advice, folded_advice, recommended, why_no_advice
from as_lightning.benchmark.report.comparison_figures import comparison_figures
from as_lightning.benchmark.report.figures import score_name
from as_lightning.benchmark.report.findings import Arm, Findings
from as_lightning.benchmark.report.old_verdicts import POINT, points
from as_lightning.benchmark.report.page_figure import method_colors
from as_lightning.benchmark.report.page_templates import page_templates
from as_lightning.benchmark.report.report import described
from as_lightning.benchmark.report.table_cells import difference, epochs_in_words, ratio, settings_cell, short_verdict


@dataclass(frozen=True)
class ComparisonPage:
    """The paths of a written report."""

    html: Path
    markdown: Path
    csv: Path


def row(findings: Findings, arm: Arm) -> dict[str, Any]:
    """One arm as the deciding table prints it."""
    verdict = arm.verdict
    if arm is findings.reference or verdict is None:
        in_words = "reference" if arm.seeds else "reference: no run has finished"
    else:
        in_words = verdict.in_words
    spread = "" if arm.std is None else f" ± {arm.std / POINT:.2f}"
    return {
        "method": arm.method,
        "epochs": f"{arm.epochs:g}",
        "score": f"{arm.mean / POINT:.2f}{spread}" if arm.seeds else "–",
        "difference": difference(verdict),
        "verdict": in_words,
        "short_verdict": short_verdict(in_words),
        "detectable": "–" if verdict is None or verdict.detectable is None else points(verdict.detectable),
        "time": ratio(arm.time),
        "seeds": arm.seeds,
        "recommended": arm is recommended(findings) and not why_no_advice(findings),
        "settings": settings_cell(arm.settings),
        "seconds": f"{arm.seconds:.1f}" if arm.seeds else "–",
    }


def print_findings(findings: Findings, console: Console | None = None) -> None:
    """Print the deciding table and the advice."""
    console = console or Console(width=None if sys.stdout.isatty() else 120)
    reference = findings.reference
    title = f"{findings.name}: {findings.split} {score_name(findings.score)}, paired by seed with "
    title += f"{reference.method}, {epochs_in_words(reference.epochs)}"
    table = Table(title=escape(title), title_justify="left")
    columns = {
        "method": "method",
        "epochs": "epochs",
        "score": "score",
        "difference": "difference [95% CI]",
        "short_verdict": "verdict",
        "detectable": "detectable",
        "time": "time ratio",
    }
    for heading in columns.values():
        table.add_column(heading, justify="left" if heading in ("method", "verdict") else "right")
    for arm in findings.arms:
        cells = row(findings, arm)
        values = [escape(str(cells[key])) for key in columns]
        table.add_row(*values, style="bold" if cells["recommended"] else None)
    console.print(table)
    console.print("\n".join(advice(findings)), markup=False, highlight=False)


def write_comparison(
    findings: Findings, comparison: Comparison, directory: str | Path, *, commands: Sequence[str] = ()
) -> ComparisonPage:
    """Write ``report.html``, ``report.md`` and ``report.csv`` into ``directory``, with the figures beside them."""
    directory = Path(directory)
    (directory / "figures").mkdir(parents=True, exist_ok=True)
    figures = comparison_figures(findings, comparison.results)
    for figure in figures:
        (directory / "figures" / f"{figure.name}.png").write_bytes(figure.light)
    environment = page_templates()
    sentences, folded = advice(findings), folded_advice(findings)
    content = {
        "findings": findings,
        "score": score_name(findings.score),
        "advice": sentences,
        "shown": [sentence for sentence in sentences if sentence not in folded],
        "folded": folded,
        "rows": [row(findings, arm) for arm in findings.arms],
        "times": [_time_row(findings, method) for method in findings.methods],
        "colors": method_colors(findings.methods),
        "figures": figures,
        "metrics": _metrics(findings),
        "tuning": {
            method: [(settings_cell(settings), score) for settings, score in trials]
            for method, trials in comparison.tuning.items()
        },
        "plan": comparison.plan,
        "failures": [str(failure) for failure in comparison.failures],
        "commands": list(commands),
        "machines": sorted({described(result.machine) for result in comparison.results}),
        "versions": sorted({described(result.versions) for result in comparison.results}),
    }
    page = ComparisonPage(directory / "report.html", directory / "report.md", directory / "report.csv")
    for path, template in ((page.html, "comparison.html.j2"), (page.markdown, "comparison.md.j2")):
        path.write_text(environment.get_template(template).render(content), encoding="utf-8")
    frame(findings).to_csv(page.csv, index=False, float_format="%.6g")
    (directory / "advice.json").write_text(json.dumps(sentences, indent=1) + "\n", encoding="utf-8")
    return page


def frame(findings: Findings) -> pd.DataFrame:
    """All numbers, one row for each arm."""
    rows = []
    for arm in findings.arms:
        verdict, time = arm.verdict, arm.time
        rows.append(
            {
                "name": findings.name,
                "method": arm.method,
                "budget": arm.budget,
                "epochs": arm.epochs,
                **{f"setting_{name}": value for name, value in arm.settings.items()},
                "seeds": arm.seeds,
                "mean": arm.mean,
                "std": arm.std,
                "verdict": "reference" if verdict is None else verdict.word,
                "difference": None if verdict is None else verdict.difference,
                "low": None if verdict is None else verdict.low,
                "high": None if verdict is None else verdict.high,
                "p_difference": None if verdict is None else verdict.p_difference,
                "p_equal": None if verdict is None else verdict.p_equal,
                "p_not_worse": None if verdict is None else verdict.p_not_worse,
                "detectable": None if verdict is None else verdict.detectable,
                "seconds": arm.seconds,
                "time_ratio": None if time is None else time.ratio,
                "time_low": None if time is None else time.low,
                "time_high": None if time is None else time.high,
                **arm.metrics,
            }
        )
    return pd.DataFrame(rows)


def _time_row(findings: Findings, method: str) -> dict[str, str]:
    reached = findings.time_to_score(method)
    if reached is None:
        return {"method": method, "epochs": "–", "time": "not reached"}
    epochs = next(arm.epochs for arm in findings.of(method) if arm.budget == reached.budget)
    return {"method": method, "epochs": f"{epochs:g}", "time": ratio(reached.time)}


def _metrics(findings: Findings) -> tuple[list[str], list[list[str]]]:
    names = list(dict.fromkeys(name for arm in findings.arms for name in arm.metrics))
    body = []
    for arm in findings.arms:
        values = [arm.metrics.get(name, math.nan) for name in names]
        body.append([arm.method, f"{arm.epochs:g}", *("–" if math.isnan(v) else f"{v:.4f}" for v in values)])
    return ["method", "epochs", *names], body
