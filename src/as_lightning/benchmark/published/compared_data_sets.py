"""What the fair comparisons of several data sets have found, side by side, as lines of Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import PurePath

import numpy as np

from as_lightning.benchmark.report.across_data_sets import MIN_DATA_SETS, AcrossDataSets, across_data_sets
from as_lightning.benchmark.report.figures import score_name
from as_lightning.benchmark.report.findings import Arm, ArmKey, Findings, findings, left_out
from as_lightning.benchmark.report.table_cells import difference, ratio, short_verdict
from as_lightning.benchmark.report.verdicts import (
    MARGIN_POINTS,
    POINT,
    Verdict,
    paired_differences,
    paired_verdicts,
)
from as_lightning.benchmark.run.result import Result

CONTROL = "random_skip"
LEAST_LEFT_OUT = 0.01  # with less, it is the learning rates that are compared
WHERE_SKIPPED = f" where they leave out at least {LEAST_LEFT_OUT:.0%} of the passes"


def scores(compared: Sequence[Findings]) -> list[str]:
    """Methods as rows, data sets as columns: the score at the full budget, and the verdict."""
    return _table(compared, [f"{found.name}, {score_name(found.score)}" for found in compared], _score)


def training_times(compared: Sequence[Findings]) -> list[str]:
    """Methods as rows, data sets as columns: the training time of as many epochs, relative to the baseline's."""
    return _table(compared, [found.name for found in compared], lambda _, arm: ratio(arm.time))


def times_to_score(compared: Sequence[Findings]) -> list[str]:
    """Methods as rows, data sets as columns: the time of the cheapest budget that is shown to be not worse."""

    def cell(found: Findings, arm: Arm) -> str:
        reached = found.time_to_score(arm.method)
        return "not reached" if reached is None else ratio(reached.time)

    return _table(compared, [found.name for found in compared], cell)


def against_control(results: Sequence[Result], margin: float = MARGIN_POINTS * POINT) -> list[Findings]:
    """The method that skips by a criterion, beside the control that skips as many samples at random, for each budget.

    The control is no control of other methods: they leave out more, or fewer.

    Args:
        results: the final runs of one comparison, of which more of the score is better.
        margin: what counts as equal, in the unit of the score.

    Returns:
        The largest budget first; none where the comparison has no such control, or where the method leaves out (next
        to) nothing. Verdicts are corrected for all budgets together.
    """
    groups: list[list[Result]] = []
    differences: dict[ArmKey, np.ndarray] = {}
    for budget in sorted({run.config["comparison"]["budget"] for run in results}, reverse=True):
        by_method: dict[str, list[Result]] = {}
        for run in results:
            if run.config["comparison"]["budget"] == budget:
                by_method.setdefault(run.method, []).append(run)
        control = by_method.get(CONTROL, [])
        followed = [
            method
            for method in {followed_method(run) for run in control}
            if method in by_method and left_out(by_method[method]) >= LEAST_LEFT_OUT
        ]
        if followed:
            groups.append([run for method in (*followed, CONTROL) for run in by_method[method]])
            control_scores = _by_seed(control)
            for method in followed:
                key = ArmKey(method, float(budget))
                differences[key] = paired_differences(_by_seed(by_method[method]), control_scores)
    verdicts = paired_verdicts(differences, margin)
    return [findings(group, baseline=CONTROL, margin=margin, verdicts=verdicts) for group in groups]


def _by_seed(runs: Sequence[Result]) -> dict[int, float]:
    return {run.seed: run.metrics[run.score] for run in runs}


def followed_method(control: Result) -> str:
    """The method whose run a run of the control has followed; empty if none."""
    like = control.config["method"].get("like")  # .../runs/METHOD/budget=1.0,seed=0
    return PurePath(like).parent.name if like else ""


def arm_rows(compared: Sequence[Findings]) -> list[str]:
    """The rows of a table: data set, epochs, method, difference to the reference, verdict, ratio of the times."""
    return [
        f"| {found.name} | {arm.epochs:g} | {arm.method} | {difference(arm.verdict)} | "
        f"{short_verdict(arm.verdict.in_words)} | {ratio(arm.time)} |"
        for found in compared
        for arm in found.arms
        if arm.verdict is not None
    ]


def control_sentence(compared: Sequence[Findings]) -> str:
    """How often the criterion was better or worse than chance, in one sentence."""
    arms = [arm for found in compared for arm in found.arms if arm.verdict is not None]
    methods = " and ".join(f"`{method}`" for method in dict.fromkeys(arm.method for arm in arms))
    return (
        f"Compared with leaving out as many samples at random (`{CONTROL}`), {methods}, where it leaves out at least "
        f"{LEAST_LEFT_OUT:.0%} of the passes, is {counted([arm.verdict for arm in arms])}"
    )


def counted(verdicts: Sequence[Verdict | None]) -> str:
    """How often each verdict was given, as the end of a sentence."""
    words = [verdict.word for verdict in verdicts if verdict is not None]
    sentence = (
        f"better in {words.count('better')} of {len(words)} comparisons, worse in {words.count('worse')}, equal in "
        f"{words.count('equal')} and inconclusive in {words.count('inconclusive')}."
    )
    reasons = Counter(verdict.reason for verdict in verdicts if verdict is not None and verdict.word == "no verdict")
    if not reasons:
        return sentence
    named = [f"{reason} ({count})" if len(reasons) > 1 else reason for reason, count in sorted(reasons.items())]
    return f"{sentence} No verdict in {reasons.total()}: {'; '.join(named)}."


def reference(compared: Sequence[Findings]) -> str:
    """What the methods are compared with, in words."""
    first, *others = dict.fromkeys(found.baseline for found in compared)
    return f"{first} (with several labels {', '.join(others)})" if others else first


def over_all(compared: Sequence[Findings]) -> list[str]:
    """One line for each method that enough data sets have: the Bayesian signed-rank test against the baseline.

    A data set where a method that skips leaves out (next to) nothing is none of its data sets.
    """
    return [f"`{method}` {found.in_words}." for method, found in _across(compared).items()]


def over_all_in_short(compared: Sequence[Findings]) -> list[str]:
    """The same in one line for each number of data sets."""
    skipping = {arm.method for found in compared for arm in found.arms if arm.left_out is not None}
    by_count: dict[tuple[int, bool], list[str]] = {}
    for method, found in _across(compared).items():
        shares = f"{found.better:.0%} / {found.equal:.0%} / {found.worse:.0%}"
        by_count.setdefault((found.data_sets, method in skipping), []).append(f"`{method}` {shares}")
    return [
        f"Over {count} data sets{WHERE_SKIPPED * skips}, the probabilities of *better* / *equal within "
        f"{compared[0].margin / POINT:g} points* / *worse* than {reference(compared)}, with all epochs: "
        f"{', '.join(methods)} (Bayesian signed-rank test)."
        for (count, skips), methods in by_count.items()
    ]


def _across(compared: Sequence[Findings]) -> dict[str, AcrossDataSets]:
    pairs: dict[str, list[tuple[float, float]]] = {}
    for found in compared:
        for method in found.methods:
            arm = found.of(method)[0]
            if method != found.baseline and (arm.left_out is None or arm.left_out >= LEAST_LEFT_OUT):
                pair = (arm.mean, found.reference.mean)
                pairs.setdefault(method.removeprefix("multilabel_"), []).append(pair)
    found_of = {}
    for method, found_pairs in pairs.items():
        if len(found_pairs) >= MIN_DATA_SETS:
            own, reference = zip(*found_pairs, strict=True)
            found_of[method] = across_data_sets(own, reference, compared[0].margin)
    return found_of


def _table(compared: Sequence[Findings], headings: Sequence[str], cell: Callable[[Findings, Arm], str]) -> list[str]:
    methods = dict.fromkeys(method for found in compared for method in found.methods)
    lines = ["| method | " + " | ".join(headings) + " |", "| --- |" + " --- |" * len(headings)]
    for method in methods:
        cells = [cell(found, found.of(method)[0]) if method in found.methods else "–" for found in compared]
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return lines


def _score(found: Findings, arm: Arm) -> str:
    spread = "" if arm.std is None else f" ± {arm.std / POINT:.2f}"
    word = "reference" if arm.verdict is None else short_verdict(arm.verdict.in_words)
    return f"{arm.mean / POINT:.2f}{spread} ({word})"
