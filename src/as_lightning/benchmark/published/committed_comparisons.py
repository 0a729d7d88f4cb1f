"""The comparisons by ``as-lightning-compare`` that are committed below ``results/``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from as_lightning.benchmark.compare.api import comparison_findings
from as_lightning.benchmark.compare.comparison_page import write_comparison
from as_lightning.benchmark.compare.stored_comparison import COMPARISON_FILE, StoredComparison
from as_lightning.benchmark.report.findings import Findings

RESULTS = Path("results")
# The folders of a data set: the comparison that all tables show; the other losses, at all epochs alone; skipping of
# backward passes; a finding of the first that was tried again, with seeds that no run had seen.
MAIN, OTHER_LOSSES, SKIP_BACKWARD, FRESH_SEEDS = "comparison", "other_losses", "skip_backward", "fresh_seeds"


@dataclass(frozen=True)
class CommittedComparison:
    """One comparison, and what it has found.

    Attributes:
        folder: of its ``comparison.json``.
        stored: its runs.
        findings: what they say.
    """

    folder: Path
    stored: StoredComparison
    findings: Findings

    @property
    def report(self) -> str:
        """The address of its report, relative to ``results/``."""
        return f"{self.folder.parent.name}/{self.folder.name}/report/report.md"

    @property
    def title(self) -> str:
        """The name of the data set, with the number of seeds where they are fresh ones."""
        name = self.findings.name
        return f"{name}, {self.findings.reference.seeds} fresh seeds" if self.folder.name == FRESH_SEEDS else name

    def write_report(self) -> None:
        """Write its report anew."""
        write_comparison(self.findings, self.stored.comparison, self.folder / "report", commands=self.stored.commands)


def committed(kind: str) -> list[CommittedComparison]:
    """The comparisons in folders of that name, in the order of their data sets."""
    found = []
    for path in sorted(RESULTS.glob(f"*/{kind}/{COMPARISON_FILE}")):
        stored = StoredComparison.read(path.parent)
        findings = comparison_findings(stored.comparison, split=stored.split, mode=stored.mode)
        found.append(CommittedComparison(path.parent, stored, findings))
    return found


def findings_of(comparisons: Iterable[CommittedComparison]) -> list[Findings]:
    """What each has found."""
    return [comparison.findings for comparison in comparisons]
