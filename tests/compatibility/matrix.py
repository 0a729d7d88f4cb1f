"""The table of features: what Lightning offers, whether it goes with this package, and the function that shows it.

``docs/compatibility.md`` is written from this table, and every function in it runs as a test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Check = Callable[..., None]


@dataclass(frozen=True)
class Feature:
    """A row of the table.

    Attributes:
        group: the section of the page.
        name: what Lightning calls it.
        support: whether it works, or is refused with a message that names the way out.
        note: what to know, in a sentence.
        check: the test: called with a folder to write in, or with what two processes have seen.
        where: the machine it needs: one process, two processes of one machine, or a CUDA device.
    """

    group: str
    name: str
    support: Literal["supported", "refused"]
    note: str
    check: Check
    where: Literal["one process", "two processes", "CUDA"] = "one process"


FEATURES: dict[tuple[str, str], Feature] = {}  # by group and name: pytest may import the rows twice


def supported(group: str, name: str, note: str = "", **where: Any) -> Callable[[Check], Check]:
    """Enter a feature that works."""
    return _entered(group, name, "supported", note, **where)


def refused(group: str, name: str, note: str = "", **where: Any) -> Callable[[Check], Check]:
    """Enter a feature that is refused."""
    return _entered(group, name, "refused", note, **where)


def _entered(group: str, name: str, support: Any, note: str, **where: Any) -> Callable[[Check], Check]:
    def enter(check: Check) -> Check:
        FEATURES[group, name] = Feature(group, name, support, note, check, **where)
        return check

    return enter


def page() -> str:
    """The text of ``docs/compatibility.md``."""
    lines = [
        "# Compatibility",
        "",
        "These tables say which features of PyTorch Lightning work with `ASSoftmaxMixin`, `MaskingMonitor` and",
        "`AdaptiveGradientAccumulation`. The three train together unless a row says otherwise. Each row is a test in",
        "`tests/compatibility/`. *Refused* means an error whose message says what to do instead.",
        "`python docs/compatibility_table.py` writes this page.",
    ]
    for group in dict.fromkeys(group for group, _ in FEATURES):
        lines += ["", f"## {group}", "", "| feature | support | tested on | note |", "| --- | --- | --- | --- |"]
        lines += [
            f"| {feature.name} | {feature.support} | {feature.where} | {feature.note} |"
            for feature in FEATURES.values()
            if feature.group == group
        ]
    return "\n".join([*lines, ""])


PAGE = Path(__file__).resolve().parents[2] / "docs" / "compatibility.md"
