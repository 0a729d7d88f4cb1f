"""Files from their public homes: fetched once, checked, and never left half-written under their final name."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pooch

HINT = (
    "Put it there by hand, or set data_dir (or the environment variable AS_LIGHTNING_DATA) to a directory that holds it"
)


class RemoteFile(NamedTuple):
    """A public file: its name in the data directory, its address, and its SHA-256; None where its content is checked.

    An archive that is packed anew for each download has no checksum of its own.
    """

    name: str
    url: str
    checksum: str | None


def fetch(remote: RemoteFile, data_dir: str | Path) -> Path:
    """The path of ``remote`` in ``data_dir``; downloads it if it is not there.

    Raises:
        ValueError: if the file has another checksum.
        RuntimeError: if it is not there and cannot be downloaded.
    """
    path = Path(data_dir).expanduser() / remote.name
    if path.exists():
        found = None if remote.checksum is None else pooch.file_hash(str(path))
        if found != remote.checksum:
            raise ValueError(
                f"{path} has the wrong checksum: expected SHA-256 {remote.checksum}, got {found}. The file is damaged "
                f"or another version: delete it to download it again from {remote.url}, or point data_dir elsewhere"
            )
        return path
    try:
        # pooch downloads under a temporary name and moves the file into place once its checksum is right
        return Path(pooch.retrieve(remote.url, remote.checksum, fname=remote.name, path=str(path.parent)))
    except OSError as error:  # what requests raises is an OSError too
        raise RuntimeError(
            f"{remote.name} is not in data_dir={str(data_dir)!r} and could not be downloaded from {remote.url}: "
            f"{error}. {HINT}"
        ) from error
