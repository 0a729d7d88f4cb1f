"""Whether a comparison is large enough to change one's training for what it shows, and how many seeds it would take.

A test with few seeds can rest on a spread that is small by luck. So advice to switch asks for more than a verdict: with
the spread that is typical for the comparison, differences of a stated size must be visible.
"""

from __future__ import annotations

import statistics
from bisect import bisect_left

from as_lightning.benchmark.report.findings import Arm, Findings
from as_lightning.benchmark.report.old_verdicts import ALPHA, MIN_PAIRS, Verdict, detectable_effect

SURE_MARGINS = 2.0  # advice to switch: differences of so many margins must be visible
MOST_SEEDS = 100


def detectable(findings: Findings, seeds: int | None = None) -> float | None:
    """The smallest true difference that a comparison with its typical spread shows with 80% power.

    The typical spread is the median, over all comparisons of the report, of the differences' standard deviation.

    Args:
        findings: of the comparison.
        seeds: how many seeds it would have; None for the seeds that it has.

    Returns:
        In the score's unit; None where no comparison has a verdict.
    """
    tested = _tested(findings)
    if not tested:
        return None
    pairs = seeds or int(statistics.median(verdict.pairs for verdict in tested))
    spread = statistics.median(verdict.spread or 0.0 for verdict in tested)
    return spread * detectable_effect(pairs, ALPHA / len(tested))


def is_sure(findings: Findings, arm: Arm) -> bool:
    """Whether a comparison is large enough to recommend an arm in the baseline's place.

    True where differences of two margins are visible with the typical spread, or of the size of the arm's own
    advantage, if that is larger.
    """
    visible = detectable(findings)
    if visible is None or arm.verdict is None:
        return False
    return visible <= max(SURE_MARGINS * findings.margin, arm.verdict.difference or 0.0)


def seeds_to_see(findings: Findings, difference: float) -> int | None:
    """The number of seeds with which a true difference of this size is visible; None above 100 or where unknown."""
    if not _tested(findings):
        return None
    counts = range(MIN_PAIRS, MOST_SEEDS + 1)
    enough = bisect_left(counts, -difference, key=lambda seeds: -(detectable(findings, seeds) or 0.0))
    return counts[enough] if enough < len(counts) else None


def _tested(findings: Findings) -> list[Verdict]:
    return [arm.verdict for arm in findings.arms if arm.verdict is not None and arm.verdict.spread is not None]
