"""The files of a data set: below a folder, or in an archive that is read where it lies."""

from __future__ import annotations

import lzma
import os
import tarfile
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path, PurePosixPath


class FileTree(ABC):
    """Files by their names relative to the root, with ``/`` between the parts, in alphabetical order.

    Args:
        root: the folder or archive.

    Attributes:
        root: the folder or archive, for messages.
        names: the names of the files; hidden ones (a part that starts with a dot) are left out.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.names: list[str] = sorted(self._names())

    @abstractmethod
    def _names(self) -> Iterator[str]: ...

    @abstractmethod
    def read(self, name: str) -> bytes:
        """The content of a file."""

    def where(self, name: str) -> str:
        """The file as an error message names it."""
        return f"{self.root}/{name}"

    def with_suffixes(self, suffixes: tuple[str, ...]) -> list[str]:
        """The names that end in one of the (lower-case) suffixes, whatever their case.

        Raises:
            ValueError: if there is none.
        """
        names = [name for name in self.names if name.lower().endswith(suffixes)]
        if not names:
            raise ValueError(f"{self.root}: expected files that end in {', '.join(suffixes)}, found none")
        return names


class FolderTree(FileTree):
    """The files below a folder."""

    def _names(self) -> Iterator[str]:
        for folder, subfolders, files in os.walk(self.root, followlinks=True):
            subfolders[:] = [name for name in subfolders if not name.startswith(".")]
            for name in files:
                if not name.startswith("."):
                    yield (Path(folder) / name).relative_to(self.root).as_posix()

    def read(self, name: str) -> bytes:
        return (self.root / name).read_bytes()


class ArchiveTree(FileTree):
    """The files of a tar or zip archive, held in memory: nothing is unpacked, so nothing is left half-unpacked."""

    def _names(self) -> Iterator[str]:
        self._contents: dict[str, bytes] = {}
        try:
            for name, content in _zip_members(self.root) if self.root.suffix == ".zip" else _tar_members(self.root):
                parts = PurePosixPath(name).parts
                if not any(part.startswith(".") for part in parts if part != "."):
                    self._contents[PurePosixPath(*parts).as_posix()] = content
        except (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError) as error:
            raise ValueError(f"{self.root}: the archive is damaged ({error}): delete it and fetch it again") from error
        yield from self._contents

    def read(self, name: str) -> bytes:
        return self._contents[name]


def _tar_members(path: Path) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(path) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() else None
            if content is not None:
                yield member.name, content.read()
        # the loop ends without an error at a damaged header too, and where an archive is cut off between two files; and
        # only who reads a .gz to its end has compared its checksum
        assert archive.fileobj is not None
        archive.fileobj.seek(archive.offset)
        rest = archive.fileobj.read(-1)
        if not rest or rest.strip(b"\0"):
            raise tarfile.ReadError("files are missing at its end" if not rest else "a file's header is damaged")


def _zip_members(path: Path) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if not member.is_dir():
                yield member.filename, archive.read(member)


def open_tree(path: str | Path) -> FileTree:
    """The files of a folder, or of a ``.tar``, ``.tar.gz``, ``.tgz``, ``.tar.bz2``, ``.tar.xz`` or ``.zip`` archive.

    An archive is read into memory whole: for data that do not fit, unpack it and give the folder.

    Raises:
        FileNotFoundError: if there is nothing at ``path``.
        ValueError: if it is neither a folder nor an archive, or an archive that is damaged.
    """
    path = Path(path).expanduser()
    if path.is_dir():
        return FolderTree(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: expected a folder or an archive")
    if not path.name.endswith((".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip")):
        raise ValueError(f"{path}: expected a folder or a .tar, .tar.gz, .tgz, .tar.bz2, .tar.xz or .zip archive")
    return ArchiveTree(path)
