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

    @property
    def algorithm(self) -> str:
        """``"sha256"`` or ``"md5"``, as :mod:`hashlib` calls it."""
        return "md5" if self.checksum.startswith("md5:") else "sha256"

    @property
    def digest(self) -> str:
        """The checksum without the name of its algorithm."""
        return self.checksum.removeprefix("md5:")


def fetch(remote: RemoteFile, data_dir: str | Path) -> Path:
    """The path of ``remote`` in ``data_dir``; downloads it if it is not there.

    Raises:
        ValueError: if the file has another checksum.
        RuntimeError: if it is not there and cannot be downloaded.
    """
    path = Path(data_dir).expanduser() / remote.name
    if path.exists():
        found = pooch.file_hash(str(path), alg=remote.algorithm)
        if found != remote.digest:
            algorithm = {"sha256": "SHA-256", "md5": "MD5"}[remote.algorithm]
            raise ValueError(
                f"{path} has the wrong checksum: expected {algorithm} {remote.digest}, got {found}. The file is "
                f"damaged or another version: delete it to download it again from {remote.url}, or point data_dir "
                "elsewhere"
            )
        return path
    try:
        # pooch downloads under a temporary name and moves the file into place once its checksum is right
        known_hash = f"{remote.algorithm}:{remote.digest}"
        return Path(pooch.retrieve(remote.url, known_hash, fname=remote.name, path=str(path.parent)))
    except OSError as error:  # what requests raises is an OSError too
        raise _not_downloaded(remote.name, remote.url, data_dir, error) from error


def fetch_checked(name: str, url: str, check: Callable[[Path], None], data_dir: str | Path) -> Path:
    """The path of the file ``name`` in ``data_dir``; downloads it from ``url`` if it is not there.

    For an archive that is packed anew for each download: ``check`` looks at what came, under a temporary path that ends
    in ``name``, and raises a ValueError if that is not it. A file that is already there is not looked at.

    Raises:
        RuntimeError: if it is not there and cannot be downloaded.
    """
    path = Path(data_dir).expanduser() / name
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=path.parent, prefix=f".{name}-") as folder:
        try:
            came = Path(pooch.retrieve(url, None, fname=name, path=folder))
        except OSError as error:
            raise _not_downloaded(name, url, data_dir, error) from error
        check(came)
        came.rename(path)
    return path


def _not_downloaded(name: str, url: str, data_dir: str | Path, error: OSError) -> RuntimeError:
    return RuntimeError(
        f"{name} is not in data_dir={str(data_dir)!r} and could not be downloaded from {url}: {error}. Put the file "
        "there by hand, or set data_dir (or the environment variable AS_LIGHTNING_DATA) to a directory that holds it"
    )
