"""The figures of a comparison: score against training time, reliability, masking, accumulation windows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from as_lightning.benchmark.report.figures import accumulation, masked_share, score_name
from as_lightning.benchmark.report.findings import Findings
from as_lightning.benchmark.report.old_verdicts import POINT
from as_lightning.benchmark.report.page_figure import PageFigure, file_name, method_colors
from as_lightning.benchmark.run.result import Result

MIN_SHARE = 0.005  # of the predictions, for a bin to be drawn


def score_against_budget_time(findings: Findings) -> PageFigure:
    """The score of each arm against its training time: one line for each method, one point for each budget."""
    colors = method_colors(findings.methods)
    metric = score_name(findings.score)
    finished = [arm for arm in findings.arms if arm.seeds]

    def draw(axes: Axes) -> None:
        if findings.reference.seeds:
            low, high = ((findings.reference.mean + sign * findings.margin) / POINT for sign in (-1, 1))
            axes.axhspan(low, high, color=colors[findings.baseline], alpha=0.12)
        for method in findings.methods:
            arms = sorted((arm for arm in finished if arm.method == method), key=lambda arm: arm.seconds)
            axes.errorbar(
                [arm.seconds for arm in arms],
                [arm.mean / POINT for arm in arms],
                [(arm.std or 0.0) / POINT for arm in arms],
                marker="o",
                markersize=6,
                linewidth=1.5,
                capsize=3,
                color=colors[method],
                label=method,
            )
        axes.set(xlabel="training time (s)", ylabel=f"{findings.split} {metric} (points)")
        axes.set_xlim(0, 1.05 * max(arm.seconds for arm in finished) or 1.0)

    points = "; ".join(
        f"{arm.method}, {arm.epochs:g} epochs: {arm.mean / POINT:.2f} after {arm.seconds:.1f} s" for arm in finished
    )
    alt = f"{findings.split.capitalize()} {metric} in points against training time. {points}."
    return PageFigure(f"{file_name(findings.name)}-time", f"{metric} against training time", alt, draw)


def _full_budget(findings: Findings, results: Sequence[Result]) -> dict[str, list[Result]]:
    """Per method its runs at its largest budget."""
    full = {method: findings.of(method)[0].budget for method in findings.methods}
    return {
        method: [run for run in results if run.method == method and run.config["comparison"]["budget"] == full[method]]
        for method in findings.methods
    }


def reliability_diagram(findings: Findings, results: Sequence[Result]) -> PageFigure | None:
    """How often predictions of a confidence are right, without (dotted) and with the temperature (solid).

    The confidence is that of the softmax (of several labels: the sigmoid) of the logits, whatever the method.
    """
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
            label, style = (method, "-") if kind == "scaled" else (None, ":")
            axes.plot(confidence, correct, style, marker=".", color=colors[method], label=label)
        axes.set(xlabel="confidence", ylabel="share of right predictions", xlim=(0, 1), ylim=(0, 1))

    errors = []
    for method in findings.methods:
        arm = findings.of(method)[0]
        metrics = arm.metrics
        if "calibration_error_scaled" in metrics:
            before, after = metrics["calibration_error_unscaled"], metrics["calibration_error_scaled"]
            of = " of the softmax of its logits" if arm.has_own_probabilities else ""
            errors.append(f"{method}: calibration error{of} {before:.3f} as it is, {after:.3f} with a temperature")
    return PageFigure(
        f"{file_name(findings.name)}-reliability",
        "reliability without (dotted) and with a temperature (solid)",
        "; ".join(errors) + ".",
        draw,
    )


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
    full, colors = _full_budget(findings, results), method_colors(findings.methods)
    drawn = [
        score_against_budget_time(findings),
        reliability_diagram(findings, results),
        masked_share(findings.name, full, colors),
        accumulation(findings.name, full, colors),
    ]
    return [figure for figure in drawn if figure is not None]
