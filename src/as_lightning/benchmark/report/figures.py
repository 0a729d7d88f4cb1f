"""The report's figures: score against time and margin, masking per epoch, accumulation per window."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from io import BytesIO
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from as_lightning.benchmark.results import Result
from as_lightning.functional.counts import masking_ratio


class ReportFigure(NamedTuple):
    """A drawn figure: a name for its file, a title, a text for those who do not see it, and the PNG."""

    name: str
    title: str
    alt: str
    png: bytes

    @property
    def data_uri(self) -> str:
        """The picture as a ``data:`` address, so that a page can hold it."""
        return "data:image/png;base64," + base64.b64encode(self.png).decode("ascii")


def _draw(axes: Axes, figure: Figure) -> bytes:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=8)
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=110, metadata={"Software": None})
    return buffer.getvalue()


def _axes() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(6.0, 3.6), layout="constrained")
    return figure, figure.subplots()


SCORE_NAMES = {"f1_micro": "micro F1", "f1_macro": "macro F1", "span_f1": "span F1"}


def score_name(score: str) -> str:
    """A score as a report calls it."""
    score = score.removeprefix("val/").removeprefix("val_")
    return SCORE_NAMES.get(score, score.replace("_", " "))


class MethodRuns(NamedTuple):
    """The runs of one method, and the colour that it has in every figure."""

    method: str
    color: str
    runs: list[Result]


def _by_method(results: Sequence[Result]) -> list[MethodRuns]:
    methods: dict[str, list[Result]] = {}
    for result in results:
        methods.setdefault(result.method, []).append(result)
    return [MethodRuns(method, f"C{index % 10}", runs) for index, (method, runs) in enumerate(methods.items())]


def file_name(name: str) -> str:
    """A name from a result as part of a file's name: letters, digits, ``-``, ``_`` and inner dots alone."""
    return re.sub(r"[^\w.-]+", "_", name).strip(".") or "_"


def score_against_time(name: str, results: Sequence[Result]) -> ReportFigure | None:
    """Validation score against training time, a line a method: means over the seeds, evaluation by evaluation.

    None where no run was validated.
    """
    results = [result for result in results if result.evaluations]
    if not results:
        return None
    figure, axes = _axes()
    endings = []
    for method, color, runs in _by_method(results):
        length = min(len(run.evaluations) for run in runs)
        seconds = np.mean([[e["train_seconds"] for e in run.evaluations[:length]] for run in runs], axis=0)
        scores = np.array([[e["score"] for e in run.evaluations[:length]] for run in runs])
        axes.plot(seconds, scores.mean(0), marker=".", color=color, label=f"{method} ({len(runs)} seeds)")
        axes.fill_between(seconds, scores.min(0), scores.max(0), alpha=0.15, color=color)
        endings.append(f"{method} ends at {scores.mean(0)[-1]:.3f} after {seconds[-1]:.1f} s")
    score = score_name(results[0].score)
    axes.set(xlabel="training time (s)", ylabel=f"validation {score}")
    alt = f"Validation {score} against training time on {name}: " + "; ".join(endings) + "."
    return ReportFigure(f"{file_name(name)}-score", f"{name}: {score} against training time", alt, _draw(axes, figure))


def masking_per_epoch(name: str, results: Sequence[Result]) -> ReportFigure | None:
    """The share of masked samples in each epoch; None where no run masks."""
    masking = [group for group in _by_method(results) if all(run.masking for run in group.runs)]
    if not masking:
        return None
    figure, axes = _axes()
    endings = []
    for method, color, runs in masking:
        length = min(len(run.masking) for run in runs)
        ratios = np.array(
            [
                [masking_ratio(epoch["masked_samples"], epoch["samples"]) for epoch in run.masking[:length]]
                for run in runs
            ]
        )
        epochs = np.arange(1, length + 1)
        axes.plot(epochs, ratios.mean(0), marker=".", color=color, label=method)
        axes.fill_between(epochs, ratios.min(0), ratios.max(0), alpha=0.15, color=color)
        endings.append(f"{method} goes from {ratios.mean(0)[0]:.2f} to {ratios.mean(0)[-1]:.2f}")
    axes.set(xlabel="epoch", ylabel="masked samples / samples", ylim=(0, 1))
    alt = f"Share of training samples with zero loss, by epoch, on {name}: " + "; ".join(endings) + "."
    return ReportFigure(f"{file_name(name)}-masking", f"{name}: masked samples", alt, _draw(axes, figure))


def accumulation_per_window(name: str, results: Sequence[Result]) -> ReportFigure | None:
    """The length of every accumulation window; None where no run adapts it."""
    adaptive = [result for result in results if result.accumulation]
    if not adaptive:
        return None
    figure, axes = _axes()
    for result in adaptive:
        lengths = [window[2] for window in result.accumulation]
        ends = np.cumsum(lengths)
        axes.step(ends, lengths, where="pre", linewidth=1, label=f"{result.method}, seed {result.seed}")
    mean = float(np.mean([window[2] for result in adaptive for window in result.accumulation]))
    axes.set(xlabel="batch", ylabel="batches in the window", ylim=(0, None))
    alt = f"Batches accumulated per optimizer step on {name}; the mean over all windows is {mean:.2f}."
    return ReportFigure(f"{file_name(name)}-accumulation", f"{name}: accumulation windows", alt, _draw(axes, figure))


def score_against_delta(name: str, results: Sequence[Result]) -> ReportFigure | None:
    """The test score of each margin that was tried; None where fewer than three were.

    A line a method, means over the seeds with the range of the seeds; methods without a margin are level lines.
    """
    by_delta: dict[str, dict[float, list[float]]] = {}
    level: dict[str, list[float]] = {}
    for result in results:
        delta = result.config.get("method", {}).get("delta")
        score = result.metrics[result.score]
        if delta is None:
            level.setdefault(result.method, []).append(score)
        else:
            by_delta.setdefault(result.config["method"]["name"], {}).setdefault(float(delta), []).append(score)
    by_delta = {method: scores for method, scores in by_delta.items() if len(scores) >= 3}
    if not by_delta:
        return None
    figure, axes = _axes()
    said = []
    for index, (method, scores) in enumerate(by_delta.items()):
        deltas = sorted(scores)
        means = [float(np.mean(scores[delta])) for delta in deltas]
        low, high = [min(scores[delta]) for delta in deltas], [max(scores[delta]) for delta in deltas]
        axes.plot(deltas, means, marker="o", color=f"C{index}", label=method)
        axes.fill_between(deltas, low, high, alpha=0.15, color=f"C{index}")
        said += [f"{method} at {delta:g}: {mean:.3f}" for delta, mean in zip(deltas, means, strict=True)]
    for index, (method, values) in enumerate(level.items(), start=len(by_delta)):
        mean = float(np.mean(values))
        axes.axhline(mean, color=f"C{index}", linestyle="--", label=method)
        said.append(f"{method}: {mean:.3f}")
    metric = score_name(results[0].score)
    axes.set(xlabel="margin delta", ylabel=f"test {metric}", xscale="log")
    alt = f"Test {metric} against the margin delta on {name}: " + "; ".join(said) + "."
    return ReportFigure(f"{file_name(name)}-delta", f"{name}: test {metric} by margin", alt, _draw(axes, figure))


def report_figures(name: str, results: Sequence[Result]) -> list[ReportFigure]:
    """All figures that the results of one experiment give."""
    drawn = [score_against_time(name, results), masking_per_epoch(name, results)]
    drawn += [accumulation_per_window(name, results), score_against_delta(name, results)]
    return [figure for figure in drawn if figure is not None]
