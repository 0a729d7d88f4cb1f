"""The figures of a report, as SVG: a colour is a method in all of them; the ink is the page's text colour."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import StringIO
from typing import Any

import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from as_lightning.benchmark.report.findings import Findings
from as_lightning.benchmark.report.record import ComparisonRecord, arm_of
from as_lightning.benchmark.run.result import Result
from as_lightning.functional.counts import masking_ratio

# Okabe and Ito's colours, told apart by colour-blind readers, without those too pale or too dark for one of the pages
PALETTE = ("#0a7ec2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#8a6fd1", "#7f8c8d", "#b5651d")
INK = "#1d2430"
LEGEND_COLUMNS = 3
RELIABILITY_BINS = 15
MIN_SHARE = 0.005  # of the predictions, for a bin of the reliability diagram to be drawn
MOST_POINTS = 200  # of a line: a figure is no wider
SCORE_NAMES = {"f1_micro": "micro F1", "f1_macro": "macro F1", "span_f1": "span F1"}
# of each figure its title and the labels of its axes, the main one first
FIGURES = {
    "time": ("{score} against training time", "training time (s)", "{split} {score} (points)"),
    "learning-rate": ("validation {score} against the learning rate", "learning rate", "validation {score}"),
    "training": ("validation {score} while training", "training time (s)", "validation {score}"),
    "masking": ("masked samples, by epoch", "epoch", "masked samples / samples"),
    "accumulation": ("batches per optimizer step", "share of the training", "batches in the step's window"),
    "reliability": ("reliability, with a temperature fitted on validation", "confidence", "share of right predictions"),
}
LIMITS: dict[str, dict[str, Any]] = {
    "learning-rate": {"xscale": "log"},
    "masking": {"ylim": (0, 1)},
    "reliability": {"xlim": (0, 1), "ylim": (0, 1)},
}
# labels are text, never TeX; SVG keeps them as text
STYLE: dict[Any, Any] = {"font.size": 10, "text.parse_math": False, "svg.fonttype": "none", "font.family": "sans-serif"}
STYLE |= dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK)


@dataclass(frozen=True)
class PageFigure:
    """A figure of a line for each method; its file's name, its title, and the arguments of ``Axes.set``.

    ``lines`` has the columns ``method``, ``x`` and ``y``, and ``low`` and ``high`` where a spread is drawn: as bars
    where there is a ``level``, the ends of what counts as equal to the first method; else as a band.
    """

    name: str
    title: str
    lines: pd.DataFrame
    colors: Mapping[str, str]
    axes: Mapping[str, Any]
    level: tuple[float, float] | None = None

    @property
    def alt(self) -> str:
        """The figure in words, for those who do not see it."""
        last = self.lines.groupby("method", sort=False).tail(1)
        ends = "; ".join(f"{row.method}: {row.y:.4g} at {row.x:.4g}" for row in last.itertuples())
        return f"{self.title}. {self.axes['ylabel']} at the last {self.axes['xlabel']}: {ends}."

    @cached_property
    def svg(self) -> str:
        """The picture as a file, on white; the same numbers give the same bytes."""
        with rc_context(STYLE | {"svg.hashsalt": self.name}):
            figure = Figure(figsize=(5.2, 3.6), layout="constrained")
            axes = figure.subplots()
            if self.level:
                axes.axhspan(*self.level, color=next(iter(self.colors.values())), alpha=0.12, linewidth=0)
            for method, color in self.colors.items():
                line = self.lines[self.lines["method"] == method]
                if line.empty:
                    continue
                axes.plot(line.x, line.y, marker="o", markersize=4, color=color, label=method)
                if self.level:
                    axes.vlines(line.x, line.low, line.high, color=color, linewidth=1)
                elif "low" in line:
                    axes.fill_between(line.x, line.low, line.high, alpha=0.15, color=color, linewidth=0)
            axes.set(**self.axes)
            if self.axes.get("xscale") == "log":  # its own labels are TeX
                axes.xaxis.set_major_formatter("{x:g}")
                axes.xaxis.set_minor_formatter(NullFormatter())
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(alpha=0.25, color=INK)
            # below the axes: inside it would lie on the curves
            columns = min(LEGEND_COLUMNS, self.lines["method"].nunique())
            figure.legend(loc="outside lower center", ncols=columns, frameon=False, fontsize=9)
            text = StringIO()
            figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
        return text.getvalue()

    @property
    def inline(self) -> str:
        """The picture inside a page: its ink is the text's colour, its ground the page's."""
        svg = self.svg[self.svg.index("<svg") :].replace("#ffffff", "none").replace(INK, "currentColor")
        # ids are of one page, and a page has several figures
        return re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{file_name(self.name)}-", svg)


def method_colors(findings: Findings) -> dict[str, str]:
    """The colour of each method that has runs or trials."""
    methods = dict.fromkeys([*findings.methods, *findings.record.tuning])
    return dict(zip(methods, itertools.cycle(PALETTE), strict=False))


def file_name(name: str) -> str:
    """A name from a result as part of a file's name: letters, digits, ``-``, ``_`` and inner dots alone."""
    return re.sub(r"[^\w.-]+", "_", name, flags=re.ASCII).strip(".") or "_"


def score_name(score: str) -> str:
    """A score as a report calls it."""
    score = score.removeprefix("val/").removeprefix("val_")
    return SCORE_NAMES.get(score, score.replace("_", " "))


def report_figures(findings: Findings) -> list[PageFigure]:
    """All figures that the runs and trials of a comparison give, the main one first."""
    record, base, m = findings.record, findings.reference.mean, findings.record.design.equal_within
    name, score, colors = file_name(record.name), score_name(record.score), method_colors(findings)
    runs = [run for run in record.results if arm_of(run) == findings.full(run.method).arm]
    lines = {
        "time": _scores_by_time(findings),
        "learning-rate": _scores_by_learning_rate(record),
        "training": _means(runs, _validations),
        "masking": _means(runs, _masked),
        "accumulation": _means(runs, _windows),
        "reliability": _reliability(runs),
    }
    longest = max(row.seconds for row in findings.rows) or 1.0
    limits = {"time": {"xlim": (0, 1.05 * longest)}} | LIMITS
    figures = []
    for kind, (title, xlabel, ylabel) in FIGURES.items():
        if not lines[kind].empty:
            axes = {"xlabel": xlabel, "ylabel": ylabel.format(score=score, split=record.split)} | limits.get(kind, {})
            level = (base - m, base + m) if kind == "time" else None
            figures.append(PageFigure(f"{name}-{kind}", title.format(score=score), lines[kind], colors, axes, level))
    return figures


def _table(rows: Sequence[tuple[Any, ...]], *columns: str) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["method", *columns]).astype(dict.fromkeys(columns, float))


def _scores_by_time(findings: Findings) -> pd.DataFrame:
    rows = [(row.arm.method, row.seconds, row.mean, 0.0 if math.isnan(row.std) else row.std) for row in findings.rows]
    table = _table(rows, "x", "y", "std").sort_values("x", kind="stable")
    return table.assign(low=table["y"] - table["std"], high=table["y"] + table["std"])


def _scores_by_learning_rate(record: ComparisonRecord) -> pd.DataFrame:
    """At each learning rate the best of a method's trials, where there is more than one rate."""
    trials = [(method, trial) for method, tried in record.tuning.items() for trial in tried]
    rows = [(method, float(trial.settings["lr"]), trial.score) for method, trial in trials if "lr" in trial.settings]
    table = _table(rows, "x", "y").dropna().groupby(["method", "x"], as_index=False)
    best = table.agg(record.mode).sort_values("x")
    return best[best.groupby("method")["x"].transform("size") > 1]


def _means(runs: Sequence[Result], curve: Callable[[Result], list[tuple[float, float]]]) -> pd.DataFrame:
    """Per method the mean of a curve over its runs, with the range, up to the end of the shortest."""
    rows = [(run.method, place, *point) for run in runs for place, point in enumerate(curve(run))]
    table = _table(rows, "place", "x", "y").groupby(["method", "place"], sort=False)
    y = table["y"]
    means = pd.DataFrame({"x": table["x"].mean(), "y": y.mean(), "low": y.min(), "high": y.max()})
    return means[y.size() == y.size().groupby("method").transform("max")].reset_index()


def _validations(run: Result) -> list[tuple[float, float]]:
    return [(evaluation["train_seconds"], evaluation["score"]) for evaluation in run.evaluations]


def _masked(run: Result) -> list[tuple[float, float]]:
    ratios = (float(masking_ratio(epoch["masked_samples"], epoch["samples"])) for epoch in run.masking)
    return list(enumerate(ratios, start=1))


def _windows(run: Result) -> list[tuple[float, float]]:
    lengths = [window[2] for window in run.accumulation for _ in range(window[2])]
    lengths = lengths[:: 1 + len(lengths) // MOST_POINTS]
    return [(number / len(lengths), length) for number, length in enumerate(lengths, start=1)]


def _reliability(runs: Sequence[Result]) -> pd.DataFrame:
    """How often predictions of a confidence are right, with the temperature where there is one."""
    diagrams = [(run.method, run.reliability.get("scaled", run.reliability.get("unscaled", []))) for run in runs]
    rows = [(method, p["confidence"], p["accuracy"], p["count"]) for method, points in diagrams for p in points]
    points = _table(rows, "x", "y", "count")
    bins = (points["x"] * RELIABILITY_BINS).clip(upper=RELIABILITY_BINS - 1).astype(int).rename("bin")
    weighted = points.assign(x=points["x"] * points["count"], y=points["y"] * points["count"])
    sums = weighted.groupby(["method", bins]).sum()
    sums = sums[sums["count"] >= MIN_SHARE * sums.groupby("method")["count"].transform("sum")]
    return sums.div(sums["count"], axis=0).reset_index()
