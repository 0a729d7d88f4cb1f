"""Where a user's own file or folder is."""

from __future__ import annotations

import os
from pathlib import Path


def find_path(path: str | Path, data_dir: str | Path) -> Path:
    """An absolute ``path`` itself; a relative one in the working directory, or else in ``data_dir``.

    Args:
        path: the file or folder; ``~`` is the home directory.
        data_dir: where data sets are.

    Raises:
        FileNotFoundError: if it does not exist; the message names the places that were searched.
    """
    path = Path(path).expanduser()
    places = [path] if path.is_absolute() else [Path.cwd() / path, Path(data_dir).expanduser() / path]
    for place in places:
        if place.exists():
            return place
    for place in places:
        if place.is_symlink():
            raise FileNotFoundError(f"{place} is a link to {os.readlink(place)}, which does not exist")
    if path.is_absolute():
        raise FileNotFoundError(f"{path} does not exist")
    raise FileNotFoundError(
        f"{path} exists neither in the working directory ({places[0].parent}) nor in data_dir ({places[1].parent}): "
        "give its full path, or set data_dir"
    )
