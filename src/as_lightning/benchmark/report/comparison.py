"""What the runs show: per method the mean over seeds, and its paired difference to the baseline with a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from as_lightning.benchmark.report.old_verdicts import Verdict, paired_verdicts
from as_lightning.benchmark.run.result import Result
from as_lightning.functional.counts import masking_ratio

TARGET_SHARE = 0.98
BASELINES = ("softmax", "multilabel_softmax")


def runs_frame(results: Sequence[Result]) -> pd.DataFrame:
    """One row for each run: what it was, and its numbers."""
    rows = []
    for result in results:
        last = result.masking[-1] if result.masking else None
        rows.append(
            {
                "name": result.name,
                "method": result.method,
                "seed": result.seed,
                # with one class per sample (or token) micro F1 is the accuracy
                "f1_micro": result.metrics.get("accuracy", np.nan),
                **result.metrics,
                "score": result.metrics[result.score],
                "train_seconds": result.train_seconds,
                "peak_memory": np.nan if result.peak_memory is None else result.peak_memory,
                "optimizer_steps": result.optimizer_steps,
                "final_masking_ratio": masking_ratio(last["masked_samples"], last["samples"]) if last else np.nan,
                "loss_accuracy_correlation": np.nan
                if result.loss_accuracy_correlation is None
                else result.loss_accuracy_correlation,
            }
        )
    return pd.DataFrame(rows)


def baseline_of(methods: Iterable[str], baseline: str | None = None) -> str:
    """What the methods of an experiment are compared with: ``baseline``, or the first of :data:`BASELINES` present."""
    if baseline is not None:
        return baseline
    present = set(methods)
    return next((name for name in BASELINES if name in present), BASELINES[0])


def compare(frame: pd.DataFrame, metric: str = "score", baseline: str | None = None) -> pd.DataFrame:
    """Per experiment and method: seeds, mean, standard deviation, and the paired difference to the baseline.

    The difference is paired by seed; its interval is Student's t at 95%, its p-value the paired t-test's. Holm's
    method corrects the p-values for all comparisons of the report
    (:func:`~as_lightning.benchmark.report.old_verdicts.paired_verdicts`). A verdict is one of the words of
    :class:`~as_lightning.benchmark.report.old_verdicts.Verdict`, with its margin of 0.5 points, ``baseline`` for the
    baseline and ``no baseline`` where it is missing.

    Returns:
        A frame with the columns ``name, method, seeds, mean, std, difference, low, high, p, p_equal, detectable,
        verdict, in_words``, experiments and methods in the order in which they came, the baseline first; ``in_words``
        is the verdict with its margin or its reason.
    """
    rows = []
    differences: dict[tuple[str, str], np.ndarray] = {}
    for name, runs in frame.groupby("name", sort=False):
        by_seed = {method: group.set_index("seed")[metric] for method, group in runs.groupby("method", sort=False)}
        base = baseline_of(by_seed, baseline)
        for method in sorted(by_seed, key=lambda method: method != base):
            values = by_seed[method]
            if method != base and base in by_seed:
                paired = values.sub(by_seed[base]).to_numpy(dtype=np.float64)
                differences[name, method] = paired[np.isfinite(paired)]
            without = "baseline" if method == base else "no baseline"
            rows.append(
                {
                    "name": name,
                    "method": method,
                    "seeds": len(values),
                    "mean": values.mean(),
                    "std": values.std(ddof=1) if len(values) > 1 else np.nan,
                    "difference": np.nan,
                    "low": np.nan,
                    "high": np.nan,
                    "p": np.nan,
                    "p_equal": np.nan,
                    "detectable": np.nan,
                    "verdict": without,
                    "in_words": without,
                }
            )
    verdicts = paired_verdicts(differences)
    for row in rows:
        if (row["name"], row["method"]) in verdicts:
            row |= _cells(verdicts[row["name"], row["method"]])
    return pd.DataFrame(rows)


def _cells(verdict: Verdict) -> dict[str, float | str]:
    """What the table shows of a verdict."""
    numbers = {
        "difference": verdict.difference,
        "low": verdict.low,
        "high": verdict.high,
        "p": verdict.p_difference,
        "p_equal": verdict.p_equal,
        "detectable": verdict.detectable,
    }
    words = {"verdict": verdict.word, "in_words": verdict.in_words}
    return {name: np.nan if number is None else number for name, number in numbers.items()} | words


def seconds_to_score(result: Result, target: float) -> float:
    """Training time until a validation reached the score ``target``; NaN if none did."""
    reached = (evaluation for evaluation in result.evaluations if evaluation["score"] >= target)
    return next((evaluation["train_seconds"] for evaluation in reached), np.nan)


def time_ratios(results: Sequence[Result], baseline: str | None = None) -> pd.DataFrame:
    """Per experiment and method the ratio of times to the baseline's: the median over the seeds of paired ratios.

    ``train`` compares the whole training; ``to_target`` the time to 98% of the baseline's best validation score
    (its mean over seeds), ``reached`` says how many of the method's runs got there.
    """
    experiments: dict[str, dict[str, dict[int, Result]]] = {}
    for result in results:
        experiments.setdefault(result.name, {}).setdefault(result.method, {})[result.seed] = result
    rows = []
    for name, methods in experiments.items():
        base = methods.get(baseline_of(methods, baseline), {})
        best = [max(evaluation["score"] for evaluation in run.evaluations) for run in base.values() if run.evaluations]
        target = TARGET_SHARE * float(np.mean(best)) if best else np.nan
        for method, runs in methods.items():
            pairs = [(run, base[seed]) for seed, run in runs.items() if seed in base]
            times = [(run.train_seconds, other.train_seconds) for run, other in pairs]
            reaching = [(seconds_to_score(run, target), seconds_to_score(other, target)) for run, other in pairs]
            to_target = [seconds / others for seconds, others in reaching if others]
            rows.append(
                {
                    "name": name,
                    "method": method,
                    "train": _median([seconds / others for seconds, others in times if others]),
                    "target_score": target,
                    "to_target": _median(to_target),
                    "reached": sum(not np.isnan(seconds_to_score(run, target)) for run in runs.values()),
                }
            )
    return pd.DataFrame(rows)


def _median(ratios: Sequence[float]) -> float:
    finite = [ratio for ratio in ratios if np.isfinite(ratio)]
    return float(np.median(finite)) if finite else np.nan
