"""The table of features: what Lightning offers, whether it goes with this package, and the function that shows it.

``docs/compatibility.md`` is written from this table, and every function in it runs as a test.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from harness.torch_limits import LIMITS, Limit

Check = Callable[..., None]


@dataclass(frozen=True)
class Feature:
    """A row of the table; ``check`` is its test, called with a folder to write in or with what two processes saw."""

    group: str  # the section of the page
    name: str  # what Lightning calls it
    support: Literal["supported", "refused"]
    note: str
    check: Check
    where: Literal["one process", "two processes", "one and two processes", "CUDA"] = "one and two processes"
    limit: Limit | None = None  # a version of PyTorch with which it cannot be shown

    @property
    def file_name(self) -> str:
        """The name as one of a file."""
        return re.sub(r"\W+", "-", self.name)

    @property
    def notes(self) -> str:
        """All that there is to know."""
        limit = "" if self.limit is None else f"not with torch {self.limit.version}: {self.limit.cause}"
        return "; ".join(filter(None, (self.note, limit)))


FEATURES: dict[tuple[str, str], Feature] = {}  # by group and name: pytest may import the rows twice


def section(group: str) -> tuple[Callable[..., Callable[[Check], Check]], ...]:
    """What enters a feature of the section that works, and one that is refused: by its name, a note and options."""

    def row(support: Any, name: str, note: str = "", **options: Any) -> Callable[[Check], Check]:
        def enter(check: Check) -> Check:
            FEATURES[group, name] = Feature(group, name, support, note, check, **options)
            return check

        return enter

    return partial(row, "supported"), partial(row, "refused")


def page() -> str:
    """The text of ``docs/compatibility.md``."""
    lines = [
        "# Compatibility",
        "",
        "These tables say which features of PyTorch Lightning work with `ASSoftmaxMixin`, `MaskingMonitor` and",
        "`AdaptiveGradientAccumulation`. The three train together unless a row says otherwise. Each row is a test in",
        "`tests/compatibility/`. *Refused* means an error whose message says what to do instead. Two processes",
        "train with DDP unless a row names another strategy.",
        "",
        "`python docs/compatibility_table.py` writes this page.",
    ]
    for group in dict.fromkeys(group for group, _ in FEATURES):
        lines += ["", f"## {group}", "", "| feature | support | tested on | note |", "| --- | --- | --- | --- |"]
        lines += [
            f"| {feature.name} | {feature.support} | {feature.where} | {feature.notes} |"
            for feature in FEATURES.values()
            if feature.group == group
        ]
    return "\n".join([*lines, *DERIVATIVES.splitlines(), *versions(), ""])


def pinned(target: str) -> dict[str, str]:
    """The versions that a target of the Makefile tests with."""
    lines = (ROOT / CONSTRAINTS[target]).read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line)
    return {package: pins[package] for package in PACKAGES}


def versions() -> list[str]:
    """The lines on the versions that the tests have passed with."""
    return [
        "",
        "## Versions",
        "",
        "The core tests pass with these versions; CI runs all three. The app's tests run with those of `make test`.",
        "",
        f"| | {' | '.join(PACKAGES)} |",
        "| --- |" + " --- |" * len(PACKAGES),
        *(f"| `make {target}` | {' | '.join(pinned(target).values())} |" for target in CONSTRAINTS),
        "",
        "What a version of PyTorch does not do by itself is skipped there, with the reason:",
        "",
        *(f"* {limit}." for limit in LIMITS),
    ]


DERIVATIVES = """
## Derivatives

`tests/functional/test_derivatives.py` shows what the losses and the head that never holds its logits do when they are
differentiated otherwise than by a training.

| feature | support | note |
| --- | --- | --- |
| create_graph=True with as_cross_entropy | supported | the right second derivative |
| create_graph=True with the head that never holds its logits | refused | use as_cross_entropy of the logits |
| is_grads_batched | supported | of a reduced loss |
| jacobian(vectorize=True) of the head with reduction="none" | refused | use vectorize=False, or the logits |
| forward-mode differentiation | supported | holds the logits |
| torch.func: grad, vmap, jacrev | supported | holds the logits |
"""
PACKAGES = ("torch", "lightning", "torchmetrics")
CONSTRAINTS = {
    "test-oldest": "constraints-oldest.txt",
    "test": "constraints.txt",
    "test-newest": "constraints-newest.txt",
}
ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "compatibility.md"
