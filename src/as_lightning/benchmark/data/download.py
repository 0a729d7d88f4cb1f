"""Files from their public homes: fetched once, checked, and never left half-written under their final name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pooch


class RemoteFile(NamedTuple):
    """A public file: its name in the data directory, its address, and its SHA-256, or ``md5:`` and an MD5."""

    name: str
    url: str
    checksum: str


def fetch(remote: RemoteFile, data_dir: str | Path) -> Path:
    """The path of ``remote`` in ``data_dir``; downloads it if it is not there.

    Raises:
        ValueError: if the file has another checksum.
        RuntimeError: if it is not there and cannot be downloaded.
    """
    path = Path(data_dir).expanduser() / remote.name
    algorithm, expected = (
        "md5" if remote.checksum.startswith("md5:") else "sha256",
        remote.checksum.removeprefix("md5:"),
    )
    if not path.exists():
        # pooch downloads under a temporary name and moves the file into place once its checksum is right
        return _retrieve(remote.name, remote.url, f"{algorithm}:{expected}", path.parent, data_dir)
    found = pooch.file_hash(str(path), alg=algorithm)
    if found != expected:
        shown = {"sha256": "SHA-256", "md5": "MD5"}[algorithm]
        raise ValueError(
            f"{path} has the wrong checksum: expected {shown} {expected}, got {found}. The file is damaged or another "
            f"version: delete it to download it again from {remote.url}, or point data_dir elsewhere"
        )
    return path


def fetch_checked(name: str, url: str, check: Callable[[Path], None], data_dir: str | Path) -> Path:
    """The path of the file ``name`` in ``data_dir``; downloads it from ``url`` if it is not there.

    For an archive that is packed anew for each download: ``check`` looks at what came, under a temporary path that ends
    in ``name``, and raises a ValueError if that is not it. A file that is already there is not looked at. A
    RuntimeError says that it cannot be downloaded.
    """
    path = Path(data_dir).expanduser() / name
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=path.parent, prefix=f".{name}-") as folder:
        came = _retrieve(name, url, None, Path(folder), data_dir)
        check(came)
        came.rename(path)
    return path


def _retrieve(name: str, url: str, known_hash: str | None, folder: Path, data_dir: str | Path) -> Path:
    try:
        return Path(pooch.retrieve(url, known_hash, fname=name, path=str(folder)))
    except OSError as error:  # what requests raises is an OSError too
        raise RuntimeError(
            f"{name} is not in data_dir={str(data_dir)!r} and could not be downloaded from {url}: {error}. Put the "
            "file there by hand, or set data_dir (or the environment variable AS_LIGHTNING_DATA) to a directory that "
            "holds it"
        ) from error
