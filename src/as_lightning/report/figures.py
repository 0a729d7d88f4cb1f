"""The figures of a report, as SVG: a candidate keeps its colour and marker; the ink is the page's
text colour.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any, NamedTuple

import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from as_lightning.bench.run.result import Result
from as_lightning.functional.counts import masking_ratio
from as_lightning.report.differences import Difference, differences_svg, in_words
from as_lightning.report.findings import Findings
from as_lightning.report.record import ComparisonRecord
from as_lightning.statistics.printable import printable

# Okabe and Ito's colours, told apart by colour-blind readers, without those too pale or too dark
# for one of the pages
PALETTE = ("#0a7ec2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#8a6fd1", "#7f8c8d", "#b5651d")
INK = "#1d2430"
MARKERS = ("o-", "s-", "^-", "v-")  # the marker changes where the colours begin anew
LEGEND_COLUMNS, LEGEND_CHARACTERS = 3, 60  # a name takes its characters and 8 more
SCORE_NAMES = {"f1_micro": "micro F1", "f1_macro": "macro F1", "span_f1": "span F1"}
# labels are text, never TeX; SVG keeps them as text
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "text.parse_math": False,
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


class PageFigure(NamedTuple):
    """A figure of a page, with its words for those who do not see it."""

    name: str
    title: str
    alt: str
    svg: str

    @property
    def file(self) -> str:
        """Its path in a report."""
        return f"figures/{self.name}.svg"

    @property
    def inline(self) -> str:
        """The picture inside a page: its ink is the text's colour, its ground the page's."""
        svg = self.svg[self.svg.index("<svg") :]
        svg = svg.replace("#ffffff", "none").replace(INK, "currentColor")
        # an id is unique in a page, which has several figures
        return re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{self.name}-", svg)


def score_name(score: str) -> str:
    """Return the name of a score in a report."""
    score = score.removeprefix("val/").removeprefix("val_")
    return SCORE_NAMES.get(score, score.replace("_", " "))


def report_figures(found: Findings, number: int) -> list[PageFigure]:
    """Return the figures of a comparison that have data, the differences first; ``number`` is the
    comparison's place.
    """
    record, score = found.record, score_name(found.record.score)
    names = dict.fromkeys([*found.candidates, *record.tuning])
    colors = dict(zip(names, itertools.cycle(PALETTE), strict=False))
    rows = [Difference.of(verdict) for verdict in found.verdicts]
    differences = differences_svg(rows, record.design.equal_within)
    figures = []
    if differences:
        title = f"differences to {found.reference.name}, with what counts as equal"
        figures.append(PageFigure(f"differences-{number}", title, in_words(rows), differences))
    lines = by_time(found)
    axes: dict[str, Any] = {"xlabel": "training time (s)"}
    axes["ylabel"] = f"{record.split} {score} (points)"
    axes["xlim"] = (0, 1.05 * lines["x"].max() or 1.0)
    figures.append(
        line_figure(f"time-{number}", f"{score} against training time", lines, colors, axes)
    )
    axes = {"xlabel": "learning rate", "ylabel": f"validation {score}", "xscale": "log"}
    title = f"validation {score} against the learning rate"
    rates = _by_learning_rate(record)
    figures.append(line_figure(f"learning-rate-{number}", title, rates, colors, axes))
    axes = {"xlabel": "epoch", "ylabel": "masked samples / samples", "ylim": (0, 1)}
    masked = _masked(record.results)
    figures.append(
        line_figure(f"masking-{number}", "masked samples, by epoch", masked, colors, axes)
    )
    return [figure for figure in figures if figure.svg]


def line_figure(
    name: str, title: str, lines: pd.DataFrame, colors: Mapping[str, str], axes: Mapping[str, Any]
) -> PageFigure:
    """Return a figure with a line for each candidate, empty without lines.

    ``lines`` has the columns ``candidate``, ``x`` and ``y``, and ``std`` where a spread is drawn;
    ``axes`` are arguments of ``Axes.set``. The same numbers give the same bytes.
    """
    if lines.empty:
        return PageFigure(name, title, "", "")
    drawn = [candidate for candidate in colors if candidate in set(lines["candidate"])]
    ends: list[str] = []
    handles: list[Any] = []
    with rc_context(STYLE | {"svg.hashsalt": name}):
        figure = Figure(figsize=(5.2, 3.6), layout="constrained")
        plot = figure.subplots()
        for candidate in drawn:
            line = lines[lines["candidate"] == candidate]
            number = list(colors).index(candidate)
            marker = MARKERS[number // len(PALETTE) % len(MARKERS)]
            style: Any = {"fmt": marker, "markersize": 4, "elinewidth": 1}
            bars = plot.errorbar(line.x, line.y, line.get("std"), color=colors[candidate], **style)
            handles.append(bars)
            ends.append(f"{candidate}: {line.y.iloc[-1]:.4g} at {line.x.iloc[-1]:.4g}")
        plot.set(**axes)
        if axes.get("xscale") == "log":  # its own labels are TeX
            plot.xaxis.set_major_formatter("{x:g}")
            plot.xaxis.set_minor_formatter(NullFormatter())
        plot.spines[["top", "right"]].set_visible(False)
        plot.grid(alpha=0.25, color=INK)
        # below the axes: inside it would lie on the curves. Names come last, since matplotlib
        # leaves out those that begin with an underscore
        longest = 8 + max(map(len, drawn))
        columns = min(LEGEND_COLUMNS, len(drawn), max(1, LEGEND_CHARACTERS // longest))
        labels = ["m" * len(candidate) for candidate in drawn]
        place: Any = {"loc": "outside lower center", "ncols": columns}
        legend = figure.legend(handles, labels, frameon=False, fontsize=9, **place)
        for text, candidate in zip(legend.get_texts(), drawn, strict=True):
            text.set_text(printable(candidate))
        buffer = StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    alt = f"{title}. {axes['ylabel']} at the last {axes['xlabel']}: {'; '.join(ends)}."
    return PageFigure(name, title, alt, buffer.getvalue())


def _table(rows: Sequence[tuple[Any, ...]], *columns: str) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["candidate", *columns]).astype(dict.fromkeys(columns, float))


def by_time(found: Findings) -> pd.DataFrame:
    """Return the time and score of each candidate, by its ratio and difference to the baseline;
    none without a comparable time.
    """
    base, sign = found.reference, 1.0 if found.record.mode == "max" else -1.0
    rows = []
    for row in found.rows:
        y = row.mean
        if row.verdict is not None and not math.isnan(row.verdict.difference):
            y = base.mean + sign * row.verdict.difference
        rows.append((row.arm, base.seconds * row.time.ratio, y, row.std))
    timed = _table(rows, "x", "y", "std").dropna(subset="x")
    if len(timed) < min(2, len(rows)):  # the baseline alone compares nothing
        timed = timed.head(0)
    return timed.sort_values("x", kind="stable")


def _by_learning_rate(record: ComparisonRecord) -> pd.DataFrame:
    """The best trial of a candidate at each learning rate; none of a candidate with one rate."""
    rows = []
    for candidate, tried in record.tuning.items():
        for trial in tried:
            if "lr" in trial.settings:
                rows.append((candidate, trial.settings["lr"], trial.score))
    trials = _table(rows, "x", "y").dropna()
    best = trials.groupby(["candidate", "x"], as_index=False).agg(record.mode)
    return best[best.groupby("candidate")["x"].transform("size") > 1]


def _masked(runs: Sequence[Result]) -> pd.DataFrame:
    """The masked share of each epoch, as mean and spread over the runs."""
    rows = []
    for run in runs:
        for epoch, counts in enumerate(run.masking, start=1):
            share = float(masking_ratio(counts["masked_samples"], counts["samples"]))
            rows.append((run.candidate, epoch, share))
    shares = _table(rows, "x", "y").groupby(["candidate", "x"])["y"]
    return shares.agg(y="mean", std="std").reset_index()
