"""How much of the training time skipping saves at the same number of epochs, and whether that reaches the aim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from as_lightning.benchmark.published.compared_data_sets import CONTROL
from as_lightning.benchmark.report.findings import Arm, Findings
from as_lightning.benchmark.report.table_cells import difference, ratio, short_verdict
from as_lightning.benchmark.report.verdicts import POINT


class Aim(NamedTuple):
    """At most ``time`` of softmax's time on ``data_sets`` data sets, the score no lower than the margin allows."""

    time: float
    data_sets: int


FIRST, SECOND = Aim(0.60, 3), Aim(0.85, 2)  # those of the second come on top


def saved_time_lines(compared: Sequence[Findings]) -> list[str]:
    """A sentence for each method that skips by a criterion, and the table it is read from; nothing without one."""
    arms = [(found, found.of(method)[0]) for found in compared for method in found.methods]
    arms = [
        (found, arm) for found, arm in arms if arm.left_out is not None and arm.method not in (CONTROL, found.baseline)
    ]
    if not arms:
        return []
    rows = [
        f"| {found.name} | {arm.method} | {arm.left_out:.0%} | {ratio(arm.time)} | {difference(arm.verdict)} | "
        f"{short_verdict(arm.verdict.in_words) if arm.verdict else '–'} |"
        for found, arm in arms
    ]
    methods = dict.fromkeys(arm.method for _, arm in arms)
    margin = compared[0].margin / POINT
    return [
        f"With all epochs the aim was at most {FIRST.time:.2f} of softmax's time on {FIRST.data_sets} data sets, and "
        f"at most {SECOND.time:.2f} on {SECOND.data_sets} more, with a mean score at most {margin:g} points lower. A "
        "method saves about the share of the passes that it leaves out, and less where these are backward passes "
        "alone:",
        "",
        *(aim_sentence(method, arms) for method in methods),
        "",
        "| data set | method | passes left out | time ratio | difference to softmax | verdict |",
        "| --- | --- | --- | --- | --- | --- |",
        *rows,
        "",
    ]


def aim_sentence(method: str, arms: Sequence[tuple[Findings, Arm]]) -> str:
    """On which data sets a method reaches the aims, as an item of a list."""
    kept = [
        (found.name, arm.time.ratio)
        for found, arm in arms
        if arm.method == method and arm.time is not None and arm.mean >= found.reference.mean - found.margin
    ]
    fast = [name for name, time in kept if time <= FIRST.time]
    slower = [name for name, time in kept if FIRST.time < time <= SECOND.time]
    reached = len(fast) >= FIRST.data_sets and len(fast) + len(slower) >= FIRST.data_sets + SECOND.data_sets
    return (
        f"* `{method}` {'reaches' if reached else 'misses'} it: at most {FIRST.time:.2f} on {_listed(fast)}, at most "
        f"{SECOND.time:.2f} on {_listed(slower)}."
    )


def _listed(names: Sequence[str]) -> str:
    return f"{len(names)} ({', '.join(names)})" if names else "none"
