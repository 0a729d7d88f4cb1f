"""What skips samples, beside softmax trained for as long: for fewer epochs, that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from as_lightning.benchmark.published.committed_comparisons import CommittedComparison
from as_lightning.benchmark.published.compared_data_sets import CONTROL, LEAST_LEFT_OUT, counted
from as_lightning.benchmark.report.findings import left_out
from as_lightning.benchmark.report.table_cells import difference, short_verdict
from as_lightning.benchmark.report.verdicts import POINT, Verdict, paired_verdicts
from as_lightning.benchmark.run.result import Result

HEADING = (
    "| data set | epochs | method | time ratio | softmax in that time | difference | verdict |",
    "| --- | --- | --- | --- | --- | --- | --- |",
)


class EqualTime(NamedTuple):
    """A method at a budget, and its baseline in the same time.

    Attributes:
        name: of the data set.
        epochs: of the budget.
        method: what skips.
        time: its training time relative to the baseline at all epochs, mean over the seeds.
        baseline_score: what the baseline reaches in that time, mean over the seeds.
        verdict: of the differences, paired by seed.
    """

    name: str
    epochs: float
    method: str
    time: float
    baseline_score: float
    verdict: Verdict


def at_equal_time(results: Sequence[Result], baseline: str, margin: float) -> list[EqualTime]:
    """The methods that skip, each compared with the baseline trained for the same time.

    The score that the baseline reaches in that time is interpolated between its budgets, each with its own full
    schedule: linearly in the time, for each seed. That is too low where the curve flattens, which favours skipping, and
    too high where it still steepens.

    Args:
        results: the final runs of one comparison, of which more of the score is better.
        baseline: the method that skips nothing.
        margin: what counts as equal, in the unit of the score.

    Returns:
        A row for each method and budget that leaves out at least 1% of the passes, and that takes no less time than the
        baseline's smallest budget, for each seed. Verdicts are corrected for all of them.
    """
    arms: dict[tuple[str, float], dict[int, Result]] = {}
    for run in results:
        arms.setdefault((run.method, float(run.config["comparison"]["budget"])), {})[run.seed] = run
    curves: dict[int, list[Result]] = {}
    for (method, _), runs in arms.items():
        if method == baseline:
            for seed, run in runs.items():
                curves.setdefault(seed, []).append(run)
    reached = {
        (method, budget): _reached(runs, curves)
        for (method, budget), runs in arms.items()
        if method != baseline and left_out(list(runs.values())) >= LEAST_LEFT_OUT
    }
    reached = {arm: scores for arm, scores in reached.items() if scores}
    differences = {
        arm: [arms[arm][seed].metrics[arms[arm][seed].score] - score for seed, score in sorted(scores.items())]
        for arm, scores in reached.items()
    }
    verdicts = paired_verdicts(differences, margin)
    rows = []
    for (method, budget), scores in sorted(reached.items(), key=lambda item: (item[0][0], -item[0][1])):
        runs = arms[method, budget]
        full = {seed: max(curves[seed], key=lambda run: run.config["comparison"]["budget"]) for seed in scores}
        rows.append(
            EqualTime(
                name=next(iter(runs.values())).name,
                epochs=next(iter(runs.values())).config["comparison"]["epochs"],
                method=method,
                time=float(np.mean([runs[seed].train_seconds / full[seed].train_seconds for seed in scores])),
                baseline_score=float(np.mean(list(scores.values()))),
                verdict=verdicts[method, budget],
            )
        )
    return rows


def _reached(runs: Mapping[int, Result], curves: Mapping[int, Sequence[Result]]) -> dict[int, float]:
    """What the baseline reaches in the time of each run, by seed; empty if a run is shorter than all of its runs."""
    scores = {}
    for seed, run in runs.items():
        curve = sorted(curves.get(seed, []), key=lambda point: point.train_seconds)
        if not curve or run.train_seconds < curve[0].train_seconds:
            return {}
        times = [point.train_seconds for point in curve]
        scores[seed] = float(np.interp(run.train_seconds, times, [point.metrics[point.score] for point in curve]))
    return scores


def equal_time_rows(comparisons: Sequence[CommittedComparison]) -> list[EqualTime]:
    """The rows of all comparisons."""
    return [
        row
        for comparison in comparisons
        for row in at_equal_time(
            comparison.stored.comparison.results, comparison.findings.baseline, comparison.findings.margin
        )
    ]


def equal_time_sentence(rows: Sequence[EqualTime]) -> str:
    """How often skipping was better or worse than fewer epochs: by a criterion, and at random."""
    by_criterion = [row.verdict for row in rows if row.method != CONTROL]
    at_random = [row.verdict for row in rows if row.method == CONTROL]
    sentence = (
        "Compared with softmax trained for the same time, for fewer epochs, skipping by a criterion is "
        f"{counted(by_criterion)}"
    )
    return f"{sentence} Skipping at random (`{CONTROL}`) is {counted(at_random)}" if at_random else sentence


def equal_time_lines(rows: Sequence[EqualTime]) -> list[str]:
    """The sentence, how the time was made equal, and the table."""
    if not rows:
        return []
    return [
        equal_time_sentence(rows),
        "",
        "The time ratio is to softmax at all epochs. What softmax reaches in the same time is interpolated for each",
        "seed, linearly between its budgets, which have their own full schedules. Where the score flattens with time,",
        "as it mostly does, that is too little and favours skipping; where it still steepens, it is too much.",
        "",
        *HEADING,
        *(
            f"| {row.name} | {row.epochs:g} | {row.method} | {row.time:.2f} | {row.baseline_score / POINT:.2f} | "
            f"{difference(row.verdict)} | {short_verdict(row.verdict.in_words)} |"
            for row in rows
        ),
        "",
    ]
