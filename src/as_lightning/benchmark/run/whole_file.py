"""A file on disk is whole, or not there: what is written stands beside its place until it is complete."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(place: Path) -> Iterator[Path]:
    """A path to write to, beside ``place``; when the block ends, the file moves to ``place`` in one step.

    If the block raises (a full disk), the partial file is removed, and a file at ``place`` stays as it was.
    """
    partial = place.with_name(f"{place.name}.partial")
    try:
        yield partial
        os.replace(partial, place)
    finally:
        partial.unlink(missing_ok=True)
