"""The picture at the top of the README: score against training time, and the masked share, from the comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from as_lightning.benchmark.published.committed_comparisons import CommittedComparison
from as_lightning.benchmark.report.figures import score_name
from as_lightning.benchmark.report.findings import Findings
from as_lightning.benchmark.report.page_figure import INK, method_colors
from as_lightning.benchmark.report.verdicts import POINT
from as_lightning.functional.counts import masking_ratio

PICTURE = Path("docs/images/first_screen.png")
METHODS = ("softmax", "as_softmax", "as_speed", "as_skip", "softmax_skip")
MASKED = "as_softmax"
PANELS = 3
COLUMNS = 2
LINES = ("-", "--", ":")


def draw_first_screen(compared: Sequence[CommittedComparison], path: Path = PICTURE) -> None:
    """Draw up to three data sets, and the masked share of AS-Softmax on them; nothing without any."""
    shown = [comparison for comparison in compared if MASKED in comparison.findings.methods][:PANELS]
    if not shown:
        return
    ink = INK["light"]
    names = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    with rc_context({"font.size": 10, **dict.fromkeys(names, ink)}):  # type: ignore[arg-type]
        rows = -(-(len(shown) + 1) // COLUMNS)
        # so wide that a page shows the letters in about their own size
        figure = Figure(figsize=(7.6, 2.5 * rows + 0.4), layout="constrained", facecolor="white")
        panels = figure.subplots(rows, COLUMNS).ravel()
        for panel, comparison in zip(panels, shown, strict=False):
            _scores(panel, comparison.findings)
        figure.legend(
            *panels[0].get_legend_handles_labels(), loc="outside lower center", ncol=len(METHODS), frameon=False
        )
        _masked(panels[len(shown)], shown)
        for panel in panels[len(shown) + 1 :]:
            panel.remove()
        for panel in panels[: len(shown) + 1]:
            panel.spines[["top", "right"]].set_visible(False)
            panel.grid(alpha=0.25, color=ink)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=160, metadata={"Software": None})


def _scores(panel: Axes, found: Findings) -> None:
    """The score of each method against its training time, one point for each share of the epochs."""
    colors = method_colors(METHODS)
    low, high = ((found.reference.mean + sign * found.margin) / POINT for sign in (-1, 1))
    panel.axhspan(low, high, color=colors["softmax"], alpha=0.12)
    for method in METHODS:
        arms = sorted((arm for arm in found.of(method) if arm.time is not None), key=lambda arm: arm.seconds)
        panel.plot(
            [arm.time.ratio for arm in arms if arm.time is not None],
            [arm.mean / POINT for arm in arms],
            marker="o",
            markersize=4,
            color=colors[method],
            label=method,
        )
    panel.set(title=found.name, xlabel="training time / softmax, all epochs", ylabel=f"{score_name(found.score)}, %")
    panel.set_xlim(left=0)


def _masked(panel: Axes, shown: Sequence[CommittedComparison]) -> None:
    """The masked share of AS-Softmax over the training of all epochs, one line for each data set."""
    color = method_colors(METHODS)[MASKED]
    for comparison, style in zip(shown, LINES, strict=False):
        found = comparison.findings
        budget = found.of(MASKED)[0].budget
        runs = [
            [float(masking_ratio(epoch["masked_samples"], epoch["samples"])) for epoch in run.masking]
            for run in comparison.stored.comparison.results
            if run.method == MASKED and run.config["comparison"]["budget"] == budget
        ]
        ratios = np.mean(runs, axis=0)
        panel.plot(np.arange(1, len(ratios) + 1) / len(ratios), ratios * 100, style, color=color, label=found.name)
    panel.set(title=f"{MASKED}: masked samples", xlabel="share of the epochs", ylabel="%", ylim=(0, 100))
    panel.legend(frameon=False, fontsize=9)
