"""The figures of a report, as SVG: a colour is a method in all of them; the ink is the page's text colour."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import StringIO
from typing import Any, NamedTuple

import numpy as np
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
# labels are text, never TeX; SVG keeps them as text
STYLE: dict[Any, Any] = {"font.size": 10, "text.parse_math": False, "svg.fonttype": "none", "font.family": "sans-serif"}
STYLE |= dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK)


class Line(NamedTuple):
    """A line: its points, and below and above them the ends of the band (or bars) around it."""

    x: Sequence[float] | np.ndarray
    y: Sequence[float] | np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None


Level = tuple[float, float, str] | None


@dataclass(frozen=True)
class PageFigure:
    """A figure of a line for each method; its file's name, its title, and the arguments of ``Axes.set``.

    ``level`` has the lower and the upper end of what counts as equal to the baseline, and its colour; then the spread
    around a line is drawn as bars, else as a band.
    """

    name: str
    title: str
    lines: Mapping[str, Line]
    colors: Mapping[str, str]
    axes: Mapping[str, Any]
    level: Level = None

    @property
    def alt(self) -> str:
        """The figure in words, for those who do not see it."""
        ends = "; ".join(f"{m}: {line.y[-1]:.4g} at {line.x[-1]:.4g}" for m, line in self.lines.items())
        return f"{self.title}. {self.axes['ylabel']} at the last {self.axes['xlabel']}: {ends}."

    @cached_property
    def svg(self) -> str:
        """The picture as a file, on white; the same numbers give the same bytes."""
        with rc_context(STYLE | {"svg.hashsalt": self.name}):
            figure = Figure(figsize=(5.2, 3.6), layout="constrained")
            axes = figure.subplots()
            if self.level:
                low, high, of_baseline = self.level
                axes.axhspan(low, high, color=of_baseline, alpha=0.12, linewidth=0)
            for method, line in self.lines.items():
                color = self.colors[method]
                axes.plot(line.x, line.y, marker="o", markersize=4, color=color, label=method)
                if line.low is None or line.high is None:
                    continue
                if self.level:
                    axes.vlines(line.x, line.low, line.high, color=color, linewidth=1)
                else:
                    axes.fill_between(line.x, line.low, line.high, alpha=0.15, color=color, linewidth=0)
            axes.set(**self.axes)
            if self.axes.get("xscale") == "log":  # its own labels are TeX
                axes.xaxis.set_major_formatter("{x:g}")
                axes.xaxis.set_minor_formatter(NullFormatter())
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(alpha=0.25, color=INK)
            # below the axes: inside it would lie on the curves
            columns = min(LEGEND_COLUMNS, len(self.lines))
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
    return dict(
        zip(dict.fromkeys([*findings.methods, *findings.record.tuning]), itertools.cycle(PALETTE), strict=False)
    )


def file_name(name: str) -> str:
    """A name from a result as part of a file's name: letters, digits, ``-``, ``_`` and inner dots alone."""
    return re.sub(r"[^\w.-]+", "_", name, flags=re.ASCII).strip(".") or "_"


def score_name(score: str) -> str:
    """A score as a report calls it."""
    score = score.removeprefix("val/").removeprefix("val_")
    return SCORE_NAMES.get(score, score.replace("_", " "))


def report_figures(findings: Findings) -> list[PageFigure]:
    """All figures that the runs and trials of a comparison give, the main one first."""
    record, reference = findings.record, findings.reference
    name, score = file_name(record.name), score_name(record.score)
    colors = method_colors(findings)
    runs: dict[str, list[Result]] = {method: [] for method in findings.methods}
    for run in record.results:
        if arm_of(run) == findings.full(run.method).arm:
            runs[run.method].append(run)

    base, m, longest = reference.mean, record.design.equal_within, max(row.seconds for row in findings.rows)
    lines = {
        "time": _scores_by_time(findings),
        "learning-rate": _scores_by_learning_rate(record),
        "training": _means(runs, _validations),
        "masking": _means(runs, _masked),
        "accumulation": _means(runs, _windows),
        "reliability": _reliability(runs),
    }
    limits: dict[str, dict[str, Any]] = {
        "time": {"xlim": (0, 1.05 * longest or 1.0)},
        "learning-rate": {"xscale": "log"},
        "masking": {"ylim": (0, 1)},
        "reliability": {"xlim": (0, 1), "ylim": (0, 1)},
    }
    figures = []
    for kind in filter(lines.get, FIGURES):
        title, xlabel, ylabel = (text.format(score=score, split=record.split) for text in FIGURES[kind])
        axes = {"xlabel": xlabel, "ylabel": ylabel} | limits.get(kind, {})
        level = (base - m, base + m, colors[record.baseline]) if kind == "time" else None
        figures.append(PageFigure(f"{name}-{kind}", title, lines[kind], colors, axes, level))
    return figures


def _scores_by_time(findings: Findings) -> dict[str, Line]:
    lines = {}
    for method in findings.methods:
        rows = sorted((row for row in findings.rows if row.arm.method == method), key=lambda row: row.seconds)
        mean, spread = np.array([row.mean for row in rows]), np.nan_to_num([row.std for row in rows])
        lines[method] = Line([row.seconds for row in rows], mean, mean - spread, mean + spread)
    return lines


def _scores_by_learning_rate(record: ComparisonRecord) -> dict[str, Line]:
    """At each learning rate the best of a method's trials."""
    lines = {}
    for method, trials in record.tuning.items():
        tried = [(float(t.settings["lr"]), t.score) for t in trials if "lr" in t.settings and math.isfinite(t.score)]
        best = pd.DataFrame(tried, columns=["lr", "score"]).groupby("lr")["score"].agg(record.mode)
        if len(best) > 1:
            lines[method] = Line(best.index.to_numpy(), best.to_numpy())
    return lines


def _means(
    results: Mapping[str, Sequence[Result]], curve: Callable[[Result], list[tuple[float, float]]]
) -> dict[str, Line]:
    """Per method the mean of a curve over its runs, with the range, up to the end of the shortest."""
    lines = {}
    for method, runs in results.items():
        curves = [points for run in runs if (points := curve(run))]
        if curves:
            table = np.array([points[: min(map(len, curves))] for points in curves], dtype=np.float64)
            y = table[..., 1]
            lines[method] = Line(table[..., 0].mean(0), y.mean(0), y.min(0), y.max(0))
    return lines


def _validations(run: Result) -> list[tuple[float, float]]:
    return [(evaluation["train_seconds"], evaluation["score"]) for evaluation in run.evaluations]


def _masked(run: Result) -> list[tuple[float, float]]:
    ratios = (float(masking_ratio(epoch["masked_samples"], epoch["samples"])) for epoch in run.masking)
    return list(enumerate(ratios, start=1))


def _windows(run: Result) -> list[tuple[float, float]]:
    lengths = [window[2] for window in run.accumulation for _ in range(window[2])]
    lengths = lengths[:: 1 + len(lengths) // MOST_POINTS]
    return [(number / len(lengths), length) for number, length in enumerate(lengths, start=1)]


def _reliability(results: Mapping[str, Sequence[Result]]) -> dict[str, Line]:
    """How often predictions of a confidence are right, with the temperature where there is one."""
    lines = {}
    for method, runs in results.items():
        diagrams = [run.reliability.get("scaled", run.reliability.get("unscaled", [])) for run in runs]
        points = pd.DataFrame([*itertools.chain(*diagrams)], columns=["confidence", "accuracy", "count"], dtype=float)
        bins = (points["confidence"] * RELIABILITY_BINS).astype(int).clip(upper=RELIABILITY_BINS - 1)
        sums = points.assign(**points[["confidence", "accuracy"]].mul(points["count"], axis=0)).groupby(bins).sum()
        sums = sums[sums["count"] >= MIN_SHARE * sums["count"].sum()]
        if len(sums):
            means = sums.div(sums["count"], axis=0).to_numpy()
            lines[method] = Line(means[:, 0], means[:, 1])
    return lines
