"""The figures of a report, as SVG: a colour is a method in all of them; the ink is the page's text colour."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from io import StringIO
from typing import Any, NamedTuple

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from as_lightning.benchmark.report.findings import Findings
from as_lightning.benchmark.report.record import arm_of
from as_lightning.benchmark.run.result import Result
from as_lightning.functional.counts import masking_ratio

# Okabe and Ito's colours, told apart by colour-blind readers, without those too pale or too dark for one of the pages
PALETTE = ("#0a7ec2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#8a6fd1", "#7f8c8d", "#b5651d")
KNOWN = ("softmax", "as_softmax", "as_speed")  # the same colour on every page
INK = "#1d2430"
LEGEND_COLUMNS = 3
MIN_SHARE = 0.005  # of the predictions, for a bin of the reliability diagram to be drawn
MOST_POINTS = 200  # of a line: a figure is no wider
SCORE_NAMES = {"f1_micro": "micro F1", "f1_macro": "macro F1", "span_f1": "span F1"}


@dataclass(frozen=True)
class PageFigure:
    """A figure: a name for its file, a title, a text for those who do not see it. It is drawn when first asked for."""

    name: str
    title: str
    alt: str
    draw: Callable[[Axes], None]

    @cached_property
    def svg(self) -> str:
        """The picture as a file, on white."""
        # labels are text, never TeX; the same numbers give the same bytes
        settings: dict[Any, Any] = {"font.size": 10, "text.parse_math": False, "svg.hashsalt": self.name}
        settings |= {f"{name}": INK for name in ("text.color", "axes.labelcolor", "axes.edgecolor")}
        settings |= {"xtick.color": INK, "ytick.color": INK, "svg.fonttype": "none", "font.family": "sans-serif"}
        with rc_context(settings):
            figure = Figure(figsize=(5.2, 3.6), layout="constrained")
            axes = figure.subplots()
            self.draw(axes)
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(alpha=0.25, color=INK)
            handles, labels = axes.get_legend_handles_labels()
            if handles:  # below the axes: inside it would lie on the curves
                columns = min(LEGEND_COLUMNS, len(handles))
                figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)
            text = StringIO()
            figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
        return text.getvalue()

    @property
    def inline(self) -> str:
        """The picture inside a page: its ink is the text's colour, its ground the page's."""
        svg = self.svg[self.svg.index("<svg") :].replace("#ffffff", "none").replace(INK, "currentColor")
        # ids are of one page, and a page has several figures
        return re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{file_name(self.name)}-", svg)


Numbers = Sequence[float] | np.ndarray


class Line(NamedTuple):
    """A line: its points, and below and above them the ends of the band (or bar) around it."""

    x: Numbers
    y: Numbers
    low: Numbers | None = None
    high: Numbers | None = None


def method_colors(methods: Iterable[str]) -> dict[str, str]:
    """The colour of each method: a fixed one where the method is among `KNOWN`, else the next that is free.

    Examples:
        >>> method_colors(["multilabel_softmax", "entmax", "as_speed"])
        {'multilabel_softmax': '#0a7ec2', 'entmax': '#d55e00', 'as_speed': '#009e73'}
    """
    plain = {name: name.removeprefix("multilabel_") for name in methods}
    fixed = {name: PALETTE[KNOWN.index(short)] for name, short in plain.items() if short in KNOWN}
    free = [color for color in PALETTE if color not in fixed.values()] or list(PALETTE)
    others = [name for name in plain if name not in fixed]
    taken = fixed | {name: free[index % len(free)] for index, name in enumerate(others)}
    return {name: taken[name] for name in plain}


def file_name(name: str) -> str:
    """A name from a result as part of a file's name: letters, digits, ``-``, ``_`` and inner dots alone."""
    return re.sub(r"[^\w.-]+", "_", name, flags=re.ASCII).strip(".") or "_"


def score_name(score: str) -> str:
    """A score as a report calls it."""
    score = score.removeprefix("val/").removeprefix("val_")
    return SCORE_NAMES.get(score, score.replace("_", " "))


def _figure(
    name: str, title: str, lines: Mapping[str, Line], colors: Mapping[str, str], *, bars: bool = False, **axes: Any
) -> PageFigure | None:
    """A figure of one line for each method; None without lines. Further arguments are those of ``Axes.set``."""
    if not lines:
        return None

    def draw(on: Axes) -> None:
        for method, line in lines.items():
            on.plot(line.x, line.y, marker="o", markersize=4, color=colors[method], label=method)
            if line.low is not None and line.high is not None:
                if bars:
                    on.vlines(line.x, line.low, line.high, color=colors[method], linewidth=1)
                else:
                    on.fill_between(line.x, line.low, line.high, alpha=0.15, color=colors[method], linewidth=0)
        on.set(**axes)
        if axes.get("xscale") == "log":  # its own labels are TeX
            on.xaxis.set_major_formatter("{x:g}")
            on.xaxis.set_minor_formatter(NullFormatter())

    ends = "; ".join(f"{m}: {line.y[-1]:.4g} at {line.x[-1]:.4g}" for m, line in lines.items() if len(line.y))
    return PageFigure(name, title, f"{title}. {axes.get('ylabel')} at the last {axes.get('xlabel')}: {ends}.", draw)


def _means(
    results: Mapping[str, Sequence[Result]], values: Callable[[Result], Sequence[float]], x: Callable[[Result], Any]
) -> dict[str, Line]:
    """Per method the mean of a curve over its runs, with the range, up to the end of the shortest."""
    lines = {}
    for method, runs in results.items():
        curves = [(x(run), values(run)) for run in runs if len(values(run))]
        if curves:
            length = min(len(y) for _, y in curves)
            table = np.array([y[:length] for _, y in curves], dtype=np.float64)
            places = np.mean([place[:length] for place, _ in curves], axis=0)
            lines[method] = Line(places.tolist(), table.mean(0).tolist(), table.min(0).tolist(), table.max(0).tolist())
    return lines


def report_figures(findings: Findings) -> list[PageFigure]:
    """All figures that the runs and trials of a comparison give, the main one first."""
    record = findings.record
    name, score = file_name(record.name), score_name(record.score)
    colors = method_colors(dict.fromkeys([*findings.methods, *record.tuning]))
    full = {findings.full(method).arm for method in findings.methods}
    runs: dict[str, list[Result]] = {method: [] for method in findings.methods}
    for result in record.results:
        if arm_of(result) in full:
            runs[result.method].append(result)

    def scores(run: Result) -> list[float]:
        return [evaluation["score"] for evaluation in run.evaluations]

    def masked(run: Result) -> list[float]:
        return [float(masking_ratio(epoch["masked_samples"], epoch["samples"])) for epoch in run.masking]

    def windows(run: Result) -> list[int]:
        lengths = [window[2] for window in run.accumulation for _ in range(window[2])]
        return lengths[:: 1 + len(lengths) // MOST_POINTS]

    def seconds(run: Result) -> list[float]:
        return [evaluation["train_seconds"] for evaluation in run.evaluations]

    def share(values: Callable[[Result], Sequence[float]]) -> Callable[[Result], np.ndarray]:
        return lambda run: np.linspace(0, 1, len(values(run)) + 1)[1:]

    validation = f"validation {score}"
    curves: list[tuple[str, str, dict[str, Line], str, str, dict[str, Any]]] = [
        (
            "training",
            f"{validation} while training",
            _means(runs, scores, seconds),
            "training time (s)",
            validation,
            {},
        ),
        (
            "masking",
            "masked samples, by epoch",
            _means(runs, masked, lambda run: range(1, len(run.masking) + 1)),
            "epoch",
            "masked samples / samples",
            {"ylim": (0, 1)},
        ),
        (
            "accumulation",
            "batches per optimizer step",
            _means(runs, windows, share(windows)),
            "share of the training",
            "batches in the step's window",
            {},
        ),
    ]
    figures = [
        _score_against_time(findings, name, score, colors),
        _score_against_learning_rate(findings, name, score, colors),
        *(
            _figure(f"{name}-{kind}", title, lines, colors, xlabel=x, ylabel=y, **more)
            for kind, title, lines, x, y, more in curves
        ),
        _reliability(runs, name, colors),
    ]
    return [figure for figure in figures if figure is not None]


def _score_against_time(findings: Findings, name: str, score: str, colors: Mapping[str, str]) -> PageFigure | None:
    record, reference = findings.record, findings.reference
    lines = {}
    for method in findings.methods:
        rows = sorted((r for r in findings.rows if r.arm.method == method and r.seeds), key=lambda row: row.seconds)
        mean = np.array([row.mean for row in rows])
        spread = np.nan_to_num([row.std for row in rows])
        if rows:
            lines[method] = Line([row.seconds for row in rows], mean, mean - spread, mean + spread)
    longest = max((row.seconds for row in findings.rows if row.seeds), default=1.0) or 1.0
    labels: dict[str, Any] = {"xlabel": "training time (s)", "ylabel": f"{record.split} {score} (points)"}
    labels["xlim"] = (0, 1.05 * longest)
    figure = _figure(f"{name}-time", f"{score} against training time", lines, colors, bars=True, **labels)
    if figure is None or not reference.seeds:
        return figure

    def draw(axes: Axes) -> None:
        m = record.design.equal_within
        axes.axhspan(reference.mean - m, reference.mean + m, color=colors[record.baseline], alpha=0.12, linewidth=0)
        figure.draw(axes)

    return replace(figure, draw=draw)


def _score_against_learning_rate(
    findings: Findings, name: str, score: str, colors: Mapping[str, str]
) -> PageFigure | None:
    """The trials of the tuning: at each learning rate the best of a method's trials."""
    lines = {}
    better = max if findings.record.mode == "max" else min
    for method, trials in findings.record.tuning.items():
        by_rate: dict[float, list[float]] = {}
        for trial in trials:
            if "lr" in trial.settings and math.isfinite(trial.score):
                by_rate.setdefault(float(trial.settings["lr"]), []).append(float(trial.score))
        if len(by_rate) > 1:
            rates = sorted(by_rate)
            lines[method] = Line(rates, [better(by_rate[rate]) for rate in rates])
    labels: dict[str, Any] = {"xlabel": "learning rate", "ylabel": f"validation {score}", "xscale": "log"}
    return _figure(f"{name}-learning-rate", f"validation {score} against the learning rate", lines, colors, **labels)


def _reliability(
    runs: Mapping[str, Sequence[Result]], name: str, colors: Mapping[str, str], bins: int = 15
) -> PageFigure | None:
    """How often predictions of a confidence are right, with the temperature where there is one."""
    lines = {}
    for method, of_method in runs.items():
        sums: dict[int, np.ndarray] = {}
        for point in (
            p for run in of_method for p in run.reliability.get("scaled", run.reliability.get("unscaled", []))
        ):
            index = min(int(point["confidence"] * bins), bins - 1)
            weighted = np.array([1.0, point["confidence"], point["accuracy"]]) * point["count"]
            sums[index] = sums.get(index, np.zeros(3)) + weighted
        enough = MIN_SHARE * sum(total[0] for total in sums.values())
        ordered = [sums[index] for index in sorted(sums) if sums[index][0] >= enough]
        if ordered:
            lines[method] = Line([s[1] / s[0] for s in ordered], [s[2] / s[0] for s in ordered])
    labels: dict[str, Any] = {
        "xlabel": "confidence",
        "ylabel": "share of right predictions",
        "xlim": (0, 1),
        "ylim": (0, 1),
    }
    return _figure(
        f"{name}-reliability", "reliability, with a temperature fitted on validation", lines, colors, **labels
    )
