"""The place in a written page that a script fills: between two comments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def write_between_marks(page: Path, lines: Sequence[str], start: str, end: str) -> None:
    """Replace what stands between the two marks of a page.

    Raises:
        ValueError: if the page has no marks.
    """
    before, found, rest = page.read_text(encoding="utf-8").partition(start)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{page} has no place for what the script writes: put {start} and {end} there")
    page.write_text(before + "\n".join([start, *lines, end]) + after, encoding="utf-8")
