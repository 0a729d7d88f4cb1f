"""What tells a user's own files from other files: a checksum of their contents, without times and places."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable
from pathlib import Path

import pooch

from as_lightning.benchmark.data.files import files_below

READ_WHOLE = 2**30  # bytes; of the files of a larger folder the two ends are read
BLOCK = 2**16  # bytes of such an end


def checksum(paths: Iterable[Path]) -> str:
    """A checksum of files, by their contents, and of folders, by the names and contents of the files below them.

    A file that has kept its size and its time is not read again in the same process.

    Args:
        paths: files or folders, in an order that matters.

    Raises:
        OSError: if one of them cannot be read.
    """
    digest = hashlib.sha256()
    for path in paths:
        digest.update(_of_folder(path) if path.is_dir() else _of_file(path, whole=True))
    return digest.hexdigest()[:16]


def _of_folder(folder: Path) -> bytes:
    """Hidden files and links that lead nowhere are left out, as the data modules leave them out."""
    files = [path for path in files_below(folder, (folder.resolve(),), []) if path.exists()]
    whole = sum(path.stat().st_size for path in files) <= READ_WHOLE
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
        digest.update(_of_file(path, whole))
    return digest.digest()


def _of_file(path: Path, whole: bool) -> bytes:
    about = path.stat()
    return _content(path, about.st_size, about.st_mtime_ns, whole)


@functools.lru_cache(maxsize=2**18)
def _content(path: Path, size: int, changed: int, whole: bool) -> bytes:
    if whole:
        return bytes.fromhex(pooch.file_hash(str(path)))
    with path.open("rb") as file:
        digest = hashlib.sha256(f"{size}:".encode() + file.read(BLOCK))
        file.seek(max(0, size - BLOCK))
        digest.update(file.read(BLOCK))
        return digest.digest()
