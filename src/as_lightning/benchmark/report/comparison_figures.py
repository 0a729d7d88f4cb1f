"""The figures of a comparison: a colour is a method in all of them; each is drawn for light and for dark pages."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from as_lightning.benchmark.report.figures import score_name
from as_lightning.benchmark.report.findings import Findings
from as_lightning.benchmark.results import Result
from as_lightning.functional.counts import masking_ratio

# Okabe and Ito's colours, told apart by colour-blind readers, without those too pale or too dark for one of the pages
PALETTE = ("#0a7ec2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#8a6fd1", "#7f8c8d", "#b5651d")
MIN_SHARE = 0.005  # of the predictions, for a bin to be drawn
INK = {"light": "#1d2430", "dark": "#e7eaf0"}


class PageFigure(NamedTuple):
    """A figure: a name for its files, a title, a text for those who do not see it, and a PNG per colour scheme."""

    name: str
    title: str
    alt: str
    light: bytes
    dark: bytes

    @property
    def light_uri(self) -> str:
        """The picture for light pages as a ``data:`` address."""
        return _data_uri(self.light)

    @property
    def dark_uri(self) -> str:
        """The picture for dark pages as a ``data:`` address."""
        return _data_uri(self.dark)


def _data_uri(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def method_colors(methods: Sequence[str]) -> dict[str, str]:
    """The colour of each method, the same in every figure."""
    return {method: PALETTE[index % len(PALETTE)] for index, method in enumerate(methods)}


def _drawn(draw: Callable[[Axes], None], scheme: str) -> bytes:
    ink = INK[scheme]
    settings: dict[Any, Any] = {"font.size": 10}
    for name in ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"):
        settings[name] = ink
    with rc_context(settings):
        figure = Figure(figsize=(5.2, 3.4), layout="constrained")
        axes = figure.subplots()
        draw(axes)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25, color=ink)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False, fontsize=9)
        buffer = BytesIO()
        figure.savefig(buffer, format="png", dpi=200, transparent=True, metadata={"Software": None})
    return buffer.getvalue()


def _figure(name: str, title: str, alt: str, draw: Callable[[Axes], None]) -> PageFigure:
    return PageFigure(name, title, alt, _drawn(draw, "light"), _drawn(draw, "dark"))


def score_against_budget_time(findings: Findings) -> PageFigure:
    """The score of each arm against its training time: one point a budget, a line a method, bars of one deviation."""
    colors = method_colors(findings.methods)
    metric = score_name(findings.score)

    def draw(axes: Axes) -> None:
        reference = findings.reference.mean
        axes.axhspan(
            reference - findings.margin, reference + findings.margin, color=colors[findings.baseline], alpha=0.12
        )
        for method in findings.methods:
            arms = sorted(findings.of(method), key=lambda arm: arm.seconds)
            axes.errorbar(
                [arm.seconds for arm in arms],
                [arm.mean for arm in arms],
                [arm.std or 0.0 for arm in arms],
                marker="o",
                markersize=6,
                linewidth=1.5,
                capsize=3,
                color=colors[method],
                label=method,
            )
        axes.set(xlabel="training time (s)", ylabel=f"{findings.split} {metric}")
        axes.set_xlim(left=0)

    points = "; ".join(
        f"{arm.method}, {arm.epochs:g} epochs: {arm.mean:.4f} after {arm.seconds:.1f} s" for arm in findings.arms
    )
    alt = f"{findings.split.capitalize()} {metric} against training time. {points}."
    return _figure("score-against-time", f"{metric} against training time, one point a budget", alt, draw)


def _full_budget(findings: Findings, results: Sequence[Result]) -> dict[str, list[Result]]:
    """Per method its runs at its largest budget."""
    full = {method: findings.of(method)[0].budget for method in findings.methods}
    return {
        method: [run for run in results if run.method == method and run.config["comparison"]["budget"] == full[method]]
        for method in findings.methods
    }


def masked_share(findings: Findings, results: Sequence[Result]) -> PageFigure | None:
    """The share of masked samples in each epoch of the full budget; None where nothing is masked."""
    colors, series = method_colors(findings.methods), {}
    for method, runs in _full_budget(findings, results).items():
        masking = [run.masking for run in runs if run.masking]
        if masking:
            length = min(map(len, masking))
            series[method] = np.array(
                [[float(masking_ratio(e["masked_samples"], e["samples"])) for e in run[:length]] for run in masking]
            )
    if not series:
        return None

    def draw(axes: Axes) -> None:
        for method, ratios in series.items():
            epochs = np.arange(1, ratios.shape[1] + 1)
            axes.plot(epochs, ratios.mean(0), marker=".", color=colors[method], label=method)
            axes.fill_between(epochs, ratios.min(0), ratios.max(0), alpha=0.15, color=colors[method])
        axes.set(xlabel="epoch", ylabel="masked samples / samples", ylim=(0, 1))

    ends = "; ".join(f"{method} from {r.mean(0)[0]:.2f} to {r.mean(0)[-1]:.2f}" for method, r in series.items())
    return _figure("masked-share", "masked samples, by epoch", f"Share of samples with zero loss: {ends}.", draw)


def accumulation(findings: Findings, results: Sequence[Result]) -> PageFigure | None:
    """The batches gathered for one optimizer step, over training, mean of the seeds; None where nothing is gathered."""
    colors, series = method_colors(findings.methods), {}
    for method, runs in _full_budget(findings, results).items():
        lengths = [
            np.repeat([window[2] for window in run.accumulation], [window[2] for window in run.accumulation])
            for run in runs
            if run.accumulation
        ]
        if lengths:
            shortest = min(map(len, lengths))
            series[method] = np.mean([length[:shortest] for length in lengths], axis=0)
    if not series:
        return None

    def draw(axes: Axes) -> None:
        for method, lengths in series.items():
            axes.plot(np.arange(1, len(lengths) + 1), lengths, color=colors[method], linewidth=1, label=method)
        axes.set(xlabel="batch", ylabel="batches in the step's window", ylim=(0, None))

    means = "; ".join(f"{method}: {lengths.mean():.2f} on average" for method, lengths in series.items())
    return _figure("accumulation", "batches gathered for a step", f"Batches gathered for a step. {means}.", draw)


def reliability_diagram(findings: Findings, results: Sequence[Result]) -> PageFigure | None:
    """How often predictions of a confidence are right, without (dashed) and with the temperature (full lines)."""
    colors, series = method_colors(findings.methods), {}
    for method, runs in _full_budget(findings, results).items():
        for kind in ("unscaled", "scaled"):
            points = [point for run in runs for point in run.reliability.get(kind, [])]
            if points:
                series[method, kind] = _pooled(points)
    if not series:
        return None

    def draw(axes: Axes) -> None:
        axes.plot([0, 1], [0, 1], color="#888888", linewidth=1)
        for (method, kind), (confidence, correct) in series.items():
            scaled = kind == "scaled"
            label = f"{method}, {'with temperature' if scaled else 'as it is'}"
            style = "-" if scaled else ":"
            axes.plot(confidence, correct, style, marker=".", color=colors[method], label=label)
        axes.set(xlabel="confidence", ylabel="share that is right", xlim=(0, 1), ylim=(0, 1))

    errors = []
    for method in findings.methods:
        metrics = findings.of(method)[0].metrics
        if "calibration_error_scaled" in metrics:
            before, after = metrics["calibration_error_unscaled"], metrics["calibration_error_scaled"]
            errors.append(f"{method}: calibration error {before:.3f} as it is, {after:.3f} with a temperature")
    return _figure("reliability", "reliability of the probabilities", "; ".join(errors) + ".", draw)


def _pooled(points: Sequence[dict[str, float]], bins: int = 15) -> tuple[list[float], list[float]]:
    """Mean confidence and share that is right, of the runs' bins together; bins of few predictions would be noise."""
    sums: dict[int, np.ndarray] = {}
    for point in points:
        index = min(int(point["confidence"] * bins), bins - 1)
        weighted = np.array([1.0, point["confidence"], point["accuracy"]]) * point["count"]
        sums[index] = sums.get(index, np.zeros(3)) + weighted
    enough = MIN_SHARE * sum(total[0] for total in sums.values())
    ordered = [sums[index] for index in sorted(sums) if sums[index][0] >= enough]
    return [float(s[1] / s[0]) for s in ordered], [float(s[2] / s[0]) for s in ordered]


def comparison_figures(findings: Findings, results: Sequence[Result]) -> list[PageFigure]:
    """All figures that a comparison gives, the main one first."""
    drawn = [
        score_against_budget_time(findings),
        reliability_diagram(findings, results),
        masked_share(findings, results),
        accumulation(findings, results),
    ]
    return [figure for figure in drawn if figure is not None]
