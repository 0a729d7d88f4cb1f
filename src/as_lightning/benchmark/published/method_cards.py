"""The numbers on the method cards, ``docs/methods/*.md``, from the committed results."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from as_lightning.benchmark.published.committed_comparisons import MAIN, CommittedComparison
from as_lightning.benchmark.published.marked_place import write_between_marks
from as_lightning.benchmark.report.report import Experiment, percent
from as_lightning.benchmark.report.table_cells import difference, ratio, settings_cell, short_verdict
from as_lightning.benchmark.report.verdicts import POINT

CARDS = Path("docs/methods")
COST = Path("results/performance/variants.json")
START, END = "<!-- numbers written by as_lightning.benchmark.published.results_readme -->", "<!-- end of numbers -->"


def fair_rows(method: str, compared: Sequence[CommittedComparison]) -> list[str]:
    """A table of what the fair comparisons have found of a method, one data set per row; empty if it is in none."""
    rows, baselines = [], set()
    for comparison in compared:
        found = comparison.findings
        if method not in found.methods or (method == found.baseline and comparison.folder.name != MAIN):
            continue
        baselines.add(found.baseline)
        arm = found.of(method)[0]
        reached = found.time_to_score(method)
        word = "reference" if arm.verdict is None else short_verdict(arm.verdict.in_words)
        rows.append(
            f"| [{comparison.title}](../../results/{comparison.report}) | {settings_cell(arm.settings)} | "
            f"{arm.mean / POINT:.2f} | {difference(arm.verdict)} | {word} | {ratio(arm.time)} | "
            f"{'not reached' if reached is None else ratio(reached.time)} |"
        )
    if not rows:
        return []
    baseline = " and ".join(sorted(baselines))
    return [
        f"Compared fairly with {baseline}: tuned equally, all epochs. The last column is the time of the cheapest",
        f"share of the epochs that is shown to be not worse than {baseline} at all epochs. Verdicts are corrected for",
        "the number of comparisons (Holm), intervals are not: one without 0 can be inconclusive.",
        "",
        "| data set | tuned settings | score | difference | verdict | time ratio | time to the score |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *rows,
        "",
    ]


def single_rate_rows(method: str, experiments: Sequence[Experiment]) -> list[str]:
    """A table of the sweeps at one learning rate, one data set per row."""
    rows = []
    for experiment in experiments:
        for row in experiment.rows:
            if row["method"] == method and row["method"] != experiment.baseline:
                base = next(other for other in experiment.rows if other["method"] == experiment.baseline)
                own_score, base_score = (f"{percent(r['mean'])} ± {percent(r['std'])}" for r in (row, base))
                rows.append(
                    f"| [{experiment.name}](../../results/{experiment.name}/report/report.md) | {row['seeds']} | "
                    f"{own_score} | {base_score} | {short_verdict(row['in_words'])} |"
                )
    if not rows:
        return []
    return [
        "At one learning rate, nothing tuned (a check, not a ranking):",
        "",
        "| data set | seeds | score | baseline | verdict |",
        "| --- | --- | --- | --- | --- |",
        *rows,
        "",
    ]


def cost_line(method: str, ratios: Mapping[str, Mapping[str, Mapping[str, float]]]) -> list[str]:
    """What the loss costs beside ``F.cross_entropy``, in one sentence."""
    said = []
    for name, shapes in ratios.items():
        if name.partition(" (")[0] == method:
            knob = name.partition(" (")[2].rstrip(")")
            values = " and ".join(f"{times['ratio']:.2f} ({shape})" for shape, times in shapes.items())
            said.append(f"{knob + ': ' if knob else ''}{values}")
    if not said:
        return []
    return [
        f"Time of the loss, forward and backward, relative to `F.cross_entropy`: {'; '.join(said)} "
        "([all](../../results/performance/variants.md)).",
        "",
    ]


def write_cards(compared: Sequence[CommittedComparison], experiments: Sequence[Experiment]) -> None:
    """Write the numbers between the two marks of each card.

    Raises:
        ValueError: if a card has no marks.
    """
    ratios: dict[str, Any] = json.loads(COST.read_text(encoding="utf-8"))["ratios"] if COST.exists() else {}
    for card in sorted(CARDS.glob("*.md")):
        if card.stem == "README":
            continue
        lines = [
            *fair_rows(card.stem, compared),
            *single_rate_rows(card.stem, experiments),
            *cost_line(card.stem, ratios),
        ] or ["In no tuned comparison.", ""]
        write_between_marks(card, ["", *lines[:-1]], START, END)
