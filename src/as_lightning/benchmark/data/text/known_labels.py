"""Labels of a later split that the training split lacks."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path


def check_known(path: Path, number: int, label: str, known: Collection[str] | None) -> None:
    """Raise a ValueError that names the line if ``label`` is not among those of the training split."""
    if known is not None and label not in known:
        raise ValueError(
            f"{path}:{number}: the training split has no {label!r}, it has {', '.join(sorted(known)[:20])}"
        )
