"""What the READMEs say of the committed comparisons: a section for each kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from as_lightning.benchmark.published.committed_comparisons import CommittedComparison, findings_of
from as_lightning.benchmark.published.compared_data_sets import (
    CONTROL,
    WHERE_SKIPPED,
    against_control,
    arm_rows,
    control_sentence,
    over_all,
    over_all_in_short,
    reference,
    scores,
    times_to_score,
    training_times,
)
from as_lightning.benchmark.published.equal_time import (
    EqualTime,
    equal_time_lines,
    equal_time_rows,
    equal_time_sentence,
)
from as_lightning.benchmark.published.saved_time import saved_time_lines
from as_lightning.benchmark.report.advice import advice, recommended
from as_lightning.benchmark.report.findings import Findings

TUNED_ALIKE = "Tuned with as many trials as softmax beside them, over the same seeds."
ARM_HEADING = (
    "",
    "| data set | epochs | method | difference to {} | verdict | time ratio |",
    "| --- | --- | --- | --- | --- | --- |",
)


def advised(comparison: CommittedComparison, root: str = "") -> str:
    """What to do on a data set, in one sentence, with a link to the report."""
    return f"* **{comparison.title}**: {advice(comparison.findings)[0]} ([report]({root}{comparison.report}))"


def advised_in_short(comparisons: Sequence[CommittedComparison], root: str) -> list[str]:
    """The same, the data sets where nothing is won in one line."""
    lines: list[str] = []
    nothing: dict[str, list[str]] = {}
    for comparison in comparisons:
        findings = comparison.findings
        if recommended(findings) is findings.reference:
            nothing.setdefault(findings.baseline, []).append(f"[{comparison.title}]({root}{comparison.report})")
        else:
            lines.append(advised(comparison, root))
    return [
        *lines,
        *(
            f"* Stay with {baseline} at all epochs on {', '.join(titles)}: nothing is shown to be better, or as good "
            "and cheaper."
            for baseline, titles in nothing.items()
        ),
    ]


class SkippingCompared(NamedTuple):
    """What skipping is compared with: softmax at all epochs, its control, and softmax trained for the same time."""

    all_epochs: Sequence[Findings]
    control: Sequence[Findings]
    equal_time: Sequence[EqualTime]

    @property
    def sentences(self) -> list[str]:
        """A sentence for each of the last two that there is."""
        control = [control_sentence(self.control)] if self.control else []
        return [*control, *([equal_time_sentence(self.equal_time)] if self.equal_time else [])]


def skipping_compared(comparisons: Sequence[CommittedComparison]) -> SkippingCompared:
    """Skipping in all of these comparisons."""
    control = [
        found
        for comparison in comparisons
        for found in against_control(comparison.stored.comparison.results, comparison.findings.margin)
    ]
    return SkippingCompared(findings_of(comparisons), control, equal_time_rows(comparisons))


def comparison_lines(
    comparisons: Sequence[CommittedComparison], skipping: SkippingCompared
) -> tuple[list[str], list[str]]:
    """The lines on the main comparisons for the results' README, and those for the project's."""
    if not comparisons:
        return [], []
    found = findings_of(comparisons)
    together = [f"* {line}" for line in over_all(found)]
    lines = [
        "## Compared fairly",
        "",
        "By [`as-lightning-compare`](../docs/compare.md): every method tuned with the same number of trials, at",
        "several shares of the epochs, over seeds that tuning did not see. The reference is softmax at all epochs,",
        "with several labels (goemotions) multilabel_softmax. Verdicts are corrected for the number of comparisons",
        "(Holm), intervals are not: one without 0 can be inconclusive.",
        "",
        *map(advised, comparisons),
        "",
        "Scores at all epochs, in points:",
        "",
        *scores(found),
        "",
        "Training time at all epochs, relative to the reference:",
        "",
        *training_times(found),
        "",
        "Time to the score of the reference: the cheapest share of the epochs that is shown to be not worse:",
        "",
        *times_to_score(found),
        "",
    ]
    lines += skipping_lines(skipping)
    if together:
        lines += [
            f"Against {reference(found)}, at all epochs (of methods that skip, on the data sets{WHERE_SKIPPED}):",
            "",
            *together,
            "",
        ]
    short = advised_in_short(comparisons, "results/")
    short += [f"* {sentence}" for sentence in skipping.sentences]
    short += [f"* {line}" for line in over_all_in_short(found)]
    return lines, short


def skipping_lines(skipping: SkippingCompared) -> list[str]:
    """The lines on the time that skipping saves, and on skipping beside what saves as many passes."""
    lines = saved_time_lines(skipping.all_epochs)
    if skipping.control or skipping.equal_time:
        lines += ["Verdicts below are corrected (Holm) for the comparisons of one table on one data set.", ""]
    if skipping.control:
        heading = (line.format(CONTROL) for line in ARM_HEADING)
        lines += [control_sentence(skipping.control), *heading, *arm_rows(skipping.control), ""]
    return [*lines, *equal_time_lines(skipping.equal_time)]


def arm_lines(comparisons: Sequence[CommittedComparison], title: str, sentence: str, reference: str) -> list[str]:
    """The lines on comparisons whose arms all stand in one table: the advice of each, then the table.

    Args:
        comparisons: none give no section.
        title: of the section.
        sentence: what the comparisons are.
        reference: what the differences are to.
    """
    if not comparisons:
        return []
    return [
        f"## {title}",
        "",
        sentence,
        "",
        *map(advised, comparisons),
        *(line.format(reference) for line in ARM_HEADING),
        *arm_rows(findings_of(comparisons)),
        "",
    ]


def other_loss_lines(comparisons: Sequence[CommittedComparison]) -> list[str]:
    """The lines on the other losses."""
    if not comparisons:
        return []
    found = findings_of(comparisons)
    return [
        "## Other losses, at all epochs",
        "",
        TUNED_ALIKE,
        "",
        *scores(found),
        "",
        "Training time, relative to softmax:",
        "",
        *training_times(found),
        "",
    ]
