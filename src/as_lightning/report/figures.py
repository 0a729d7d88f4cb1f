"""The figures of a report, as SVG: a candidate keeps its colour and marker; the ink is the page's
text colour.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import StringIO
from typing import Any

import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from as_lightning.bench.run.result import Result
from as_lightning.functional.counts import masking_ratio
from as_lightning.report.findings import Findings
from as_lightning.report.record import ComparisonRecord

# Okabe and Ito's colours, told apart by colour-blind readers, without those too pale or too dark
# for one of the pages
PALETTE = ("#0a7ec2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#8a6fd1", "#7f8c8d", "#b5651d")
INK, MARKERS = (
    "#1d2430",
    ("o-", "s-", "^-", "v-"),
)  # the marker changes where the colours begin anew
LEGEND_COLUMNS, LEGEND_CHARACTERS = 3, 60  # a name takes its characters and 8 more
SCORE_NAMES = {"f1_micro": "micro F1", "f1_macro": "macro F1", "span_f1": "span F1"}
# labels are text, never TeX; SVG keeps them as text
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "text.parse_math": False,
    "svg.fonttype": "none",
    "font.family": "sans-serif",
}
STYLE |= dict.fromkeys(
    ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK
)


@dataclass(frozen=True)
class PageFigure:
    """A figure of a line for each candidate; its file's name, its title, and the arguments of
    ``Axes.set``.

    ``lines`` has the columns ``candidate``, ``x`` and ``y``, and ``std`` where a spread is drawn.
    ``level`` are the ends of what counts as equal to the first candidate.
    """

    name: str
    title: str
    lines: pd.DataFrame
    colors: Mapping[str, str]
    axes: Mapping[str, Any]
    level: tuple[float, float] | None = None

    @property
    def file(self) -> str:
        """Its path in a report."""
        return f"figures/{self.name}.svg"

    @property
    def alt(self) -> str:
        """The figure in words, for those who do not see it."""
        last = self.lines.groupby("candidate")[["x", "y"]].last()
        shown = [candidate for candidate in self.colors if candidate in last.index]
        ends = "; ".join(
            f"{candidate}: {last.at[candidate, 'y']:.4g} at {last.at[candidate, 'x']:.4g}"
            for candidate in shown
        )
        return f"{self.title}. {self.axes['ylabel']} at the last {self.axes['xlabel']}: {ends}."

    @cached_property
    def svg(self) -> str:
        """The picture as a file, on white; the same numbers give the same bytes."""
        with rc_context(STYLE | {"svg.hashsalt": self.name}):
            figure = Figure(figsize=(5.2, 3.6), layout="constrained")
            axes = figure.subplots()
            if self.level:
                band: Any = {"alpha": 0.12, "linewidth": 0, "label": "counts as equal"}
                axes.axhspan(*self.level, color=next(iter(self.colors.values())), **band)
            for number, (candidate, color) in enumerate(self.colors.items()):
                style: Any = {
                    "fmt": MARKERS[number // len(PALETTE) % len(MARKERS)],
                    "markersize": 4,
                    "elinewidth": 1,
                }
                line = self.lines[self.lines["candidate"] == candidate]
                if not line.empty:
                    axes.errorbar(
                        line.x, line.y, line.get("std"), color=color, label=candidate, **style
                    )
            axes.set(**self.axes)
            if self.axes.get("xscale") == "log":  # its own labels are TeX
                axes.xaxis.set_major_formatter("{x:g}")
                axes.xaxis.set_minor_formatter(NullFormatter())
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(alpha=0.25, color=INK)
            # below the axes: inside it would lie on the curves
            longest = 8 + max(map(len, self.colors))
            entries = self.lines["candidate"].nunique() + (self.level is not None)
            columns = min(LEGEND_COLUMNS, entries, max(1, LEGEND_CHARACTERS // longest))
            figure.legend(loc="outside lower center", ncols=columns, frameon=False, fontsize=9)
            buffer = StringIO()
            figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
        return buffer.getvalue()

    @property
    def inline(self) -> str:
        """The picture inside a page: its ink is the text's colour, its ground the page's."""
        svg = (
            self.svg[self.svg.index("<svg") :]
            .replace("#ffffff", "none")
            .replace(INK, "currentColor")
        )
        # an id is unique in a page, which has several figures
        return re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{self.name}-", svg)


def score_name(score: str) -> str:
    """The name of a score in a report."""
    score = score.removeprefix("val/").removeprefix("val_")
    return SCORE_NAMES.get(score, score.replace("_", " "))


def report_figures(findings: Findings, number: int) -> list[PageFigure]:
    """The figures of a comparison that have data, the main one first; ``number`` is the
    comparison's place.
    """
    record, base, within = (
        findings.record,
        findings.reference.mean,
        findings.record.design.equal_within,
    )
    colors = dict(
        zip(
            dict.fromkeys([*findings.candidates, *record.tuning]),
            itertools.cycle(PALETTE),
            strict=False,
        )
    )
    score, by_time = score_name(record.score), _by_time(findings)
    points, validation = f"{record.split} {score} (points)", f"validation {score}"
    of_time = {
        "xlabel": "training time (s)",
        "ylabel": points,
        "xlim": (0, 1.05 * by_time["x"].max() or 1.0),
    }
    of_rate = {"xlabel": "learning rate", "ylabel": validation, "xscale": "log"}
    of_epoch = {"xlabel": "epoch", "ylabel": "masked samples / samples", "ylim": (0, 1)}
    titles = (
        f"{score} against training time",
        f"{validation} against the learning rate",
        "masked samples, by epoch",
    )
    figures = [
        PageFigure(
            f"time-{number}", titles[0], by_time, colors, of_time, (base - within, base + within)
        ),
        PageFigure(
            f"learning-rate-{number}", titles[1], _by_learning_rate(record), colors, of_rate
        ),
        PageFigure(f"masking-{number}", titles[2], _masked(record.results), colors, of_epoch),
    ]
    return [figure for figure in figures if not figure.lines.empty]


def _table(rows: Sequence[tuple[Any, ...]], *columns: str) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["candidate", *columns]).astype(dict.fromkeys(columns, float))


def _by_time(findings: Findings) -> pd.DataFrame:
    """The time and score of each arm, by its ratio and difference to the baseline; none without a
    comparable time.
    """
    base, sign = findings.reference, 1.0 if findings.record.mode == "max" else -1.0
    rows = []
    for row in findings.rows:
        difference = 0.0 if row.verdict is None else sign * row.verdict.difference
        y = row.mean if math.isnan(difference) else base.mean + difference
        rows.append((row.arm, base.seconds * row.time.ratio, y, row.std))
    timed = _table(rows, "x", "y", "std").dropna(subset="x")
    if len(timed) < min(2, len(rows)):  # the baseline alone compares nothing
        timed = timed.head(0)
    return timed.sort_values("x", kind="stable")


def _by_learning_rate(record: ComparisonRecord) -> pd.DataFrame:
    """The best trial of a candidate at each learning rate; none of a candidate with one rate."""
    trials = [(candidate, trial) for candidate, tried in record.tuning.items() for trial in tried]
    rows = [
        (candidate, trial.settings["lr"], trial.score)
        for candidate, trial in trials
        if "lr" in trial.settings
    ]
    best = (
        _table(rows, "x", "y").dropna().groupby(["candidate", "x"], as_index=False).agg(record.mode)
    )
    return best[best.groupby("candidate")["x"].transform("size") > 1]


def _masked(runs: Sequence[Result]) -> pd.DataFrame:
    """The masked share of each epoch, as mean and spread over the runs."""
    rows = [
        (run.candidate, epoch, float(masking_ratio(counts["masked_samples"], counts["samples"])))
        for run in runs
        for epoch, counts in enumerate(run.masking, start=1)
    ]
    shares = _table(rows, "x", "y").groupby(["candidate", "x"])["y"]
    return shares.agg(y="mean", std="std").reset_index()
