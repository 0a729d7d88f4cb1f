"""The figures of one experiment: score against time and margin, masking per epoch, accumulation over training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from as_lightning.benchmark.report.page_figure import PageFigure, file_name, method_colors
from as_lightning.benchmark.run.result import Result
from as_lightning.functional.counts import masking_ratio

ByMethod = Mapping[str, Sequence[Result]]

SCORE_NAMES = {"f1_micro": "micro F1", "f1_macro": "macro F1", "span_f1": "span F1"}


def score_name(score: str) -> str:
    """A score as a report calls it."""
    score = score.removeprefix("val/").removeprefix("val_")
    return SCORE_NAMES.get(score, score.replace("_", " "))


def by_method(results: Sequence[Result]) -> dict[str, list[Result]]:
    """The runs of each method, in the order in which they came."""
    methods: dict[str, list[Result]] = {}
    for result in results:
        methods.setdefault(result.method, []).append(result)
    return methods


def score_against_training_time(name: str, results: Sequence[Result]) -> PageFigure:
    """The test score of each method against its training time: means over the seeds, bars of one deviation."""
    methods = by_method(results)
    colors = method_colors(methods)
    score = score_name(results[0].score)
    points = {}
    for method, runs in methods.items():
        scores = [run.metrics[run.score] for run in runs]
        deviation = float(np.std(scores, ddof=1)) if len(scores) > 1 else 0.0
        points[method] = (float(np.mean([run.train_seconds for run in runs])), float(np.mean(scores)), deviation)

    def draw(axes: Axes) -> None:
        for method, (seconds, mean, deviation) in points.items():
            axes.errorbar(seconds, mean, deviation, fmt="o", capsize=3, color=colors[method], label=method)
        axes.set(xlabel="training time (s)", ylabel=f"test {score}")
        axes.set_xlim(0, 1.08 * max(seconds for seconds, _, _ in points.values()) or 1.0)

    said = "; ".join(f"{method}: {mean:.4f} after {seconds:.1f} s" for method, (seconds, mean, _) in points.items())
    alt = f"Test {score} against training time on {name}. {said}."
    title = f"{name}: test {score} against training time, one point for each method"
    return PageFigure(f"{file_name(name)}-time", title, alt, draw)


def score_while_training(name: str, results: Sequence[Result]) -> PageFigure | None:
    """Validation score against training time, one line for each method: means over the seeds, evaluation by evaluation.

    None where no run was validated.
    """
    results = [result for result in results if result.evaluations]
    if not results:
        return None
    methods = by_method(results)
    colors = method_colors(methods)
    lines = {}
    for method, runs in methods.items():
        length = min(len(run.evaluations) for run in runs)
        seconds = np.mean([[e["train_seconds"] for e in run.evaluations[:length]] for run in runs], axis=0)
        lines[method] = seconds, np.array([[e["score"] for e in run.evaluations[:length]] for run in runs])
    score = score_name(results[0].score)

    def draw(axes: Axes) -> None:
        for method, (seconds, scores) in lines.items():
            axes.plot(seconds, scores.mean(0), marker=".", color=colors[method], label=method)
            axes.fill_between(seconds, scores.min(0), scores.max(0), alpha=0.15, color=colors[method])
        axes.set(xlabel="training time (s)", ylabel=f"validation {score}")

    endings = "; ".join(
        f"{method} ends at {scores.mean(0)[-1]:.3f} after {seconds[-1]:.1f} s"
        for method, (seconds, scores) in lines.items()
    )
    alt = f"Validation {score} against training time on {name}: {endings}."
    return PageFigure(f"{file_name(name)}-score", f"{name}: validation {score} while training", alt, draw)


def masked_share(name: str, methods: ByMethod, colors: Mapping[str, str]) -> PageFigure | None:
    """The share of masked samples in each epoch; None where nothing is masked."""
    series = {}
    for method, runs in methods.items():
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
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))

    ends = "; ".join(f"{method} from {r.mean(0)[0]:.2f} to {r.mean(0)[-1]:.2f}" for method, r in series.items())
    alt = f"Share of training samples with zero loss, by epoch, on {name}: {ends}."
    return PageFigure(f"{file_name(name)}-masking", f"{name}: masked samples, by epoch", alt, draw)


def accumulation(name: str, methods: ByMethod, colors: Mapping[str, str]) -> PageFigure | None:
    """The batches gathered for one optimizer step, over training, mean of the seeds; None where nothing is gathered."""
    series = {}
    for method, runs in methods.items():
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
    alt = f"Batches per optimizer step on {name}. {means}."
    return PageFigure(f"{file_name(name)}-accumulation", f"{name}: batches per optimizer step", alt, draw)


def score_against_delta(name: str, results: Sequence[Result]) -> PageFigure | None:
    """The test score of each margin that was tried; None where fewer than three were.

    One line for each method: means over the seeds, with their range. Methods without a margin are level lines.
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
    colors = method_colors([*by_delta, *level])
    metric = score_name(results[0].score)

    def draw(axes: Axes) -> None:
        for method, scores in by_delta.items():
            deltas = sorted(scores)
            axes.plot(deltas, [np.mean(scores[d]) for d in deltas], marker="o", color=colors[method], label=method)
            low, high = [min(scores[d]) for d in deltas], [max(scores[d]) for d in deltas]
            axes.fill_between(deltas, low, high, alpha=0.15, color=colors[method])
        for method, values in level.items():
            axes.axhline(float(np.mean(values)), color=colors[method], linestyle="--", label=method)
        axes.set(xlabel="margin delta", ylabel=f"test {metric}", xscale="log")

    said = [
        f"{method} at {delta:g}: {np.mean(scores[delta]):.3f}"
        for method, scores in by_delta.items()
        for delta in sorted(scores)
    ]
    said += [f"{method}: {np.mean(values):.3f}" for method, values in level.items()]
    alt = f"Test {metric} against the margin delta on {name}: " + "; ".join(said) + "."
    return PageFigure(f"{file_name(name)}-delta", f"{name}: test {metric} by margin", alt, draw)


def report_figures(name: str, results: Sequence[Result]) -> list[PageFigure]:
    """All figures that the results of one experiment give, the main one first."""
    methods = by_method(results)
    colors = method_colors(methods)
    drawn = [score_against_training_time(name, results), score_against_delta(name, results)]
    drawn += [score_while_training(name, results), masked_share(name, methods, colors)]
    drawn += [accumulation(name, methods, colors)]
    return [figure for figure in drawn if figure is not None]
