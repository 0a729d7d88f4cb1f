"""The files of a data set: where they are, their checksum, and how a folder or an archive is read."""

from __future__ import annotations

import functools
import hashlib
import lzma
import os
import posixpath
import stat
import tarfile
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from pathlib import Path

from lightning.pytorch.utilities.rank_zero import rank_zero_warn

NAMED = 5  # of many, those that a message names; the others it counts
ENCRYPTED = 0x1  # of a zip member's flags
ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip")


def shortened(names: Sequence[str]) -> str:
    """The first five, and how many more there are."""
    more = f"; and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return "; ".join(names[:NAMED]) + more


class FileTree(ABC):
    """Files by their names relative to the root, in alphabetical order; hidden ones are left out.

    ``hidden`` are the folders that are left out: those whose name starts with a dot, and ``__MACOSX``.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.hidden: set[str] = set()
        self.names: list[str] = sorted(self._names())

    @abstractmethod
    def _names(self) -> Iterable[str]: ...

    @abstractmethod
    def read(self, name: str) -> bytes:
        """The content of a file."""

    def where(self, name: str) -> str:
        """The file as an error message names it."""
        return f"{self.root}/{name}"

    def with_suffixes(self, suffixes: tuple[str, ...]) -> list[str]:
        """The names that end in one of the (lower-case) suffixes, whatever their case; a ValueError if none does."""
        names = [name for name in self.names if name.lower().endswith(suffixes)]
        if not names:
            raise ValueError(f"{self.root}: expected files that end in {', '.join(suffixes)}, found none")
        return names


class FolderTree(FileTree):
    """The files below a folder.

    Linked folders are followed, unless they lead into the folder itself or to one that holds it: files would come
    twice. A warning names such links, and those that lead nowhere.
    """

    def _names(self) -> Iterable[str]:
        unfollowed: list[str] = []
        names = [path.relative_to(self.root).as_posix() for path in files_below(self.root, unfollowed, self.hidden)]
        if unfollowed:
            rank_zero_warn(f"{self.root}: {len(unfollowed)} links are not followed: {shortened(unfollowed)}")
        return names

    def read(self, name: str) -> bytes:
        path = self.root / name
        if path.is_symlink() and not path.exists():
            raise FileNotFoundError(_dangling(path))
        return path.read_bytes()


def is_hidden(name: str) -> bool:
    """Whether a file or folder is none of the user's: macOS packs ``__MACOSX`` into its archives."""
    return name.startswith(".") or name == "__MACOSX"


def files_below(folder: Path, unfollowed: list[str], hidden: set[str], real: tuple[Path, ...] = ()) -> Iterator[Path]:
    """The files below a folder, hidden ones left out; ``real`` are the root and the targets of the links above."""
    real = real or (folder.resolve(),)
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            path = Path(entry.path)
            if is_hidden(entry.name):
                if entry.is_dir():
                    hidden.add(entry.name)
                continue
            if not entry.is_dir():
                if entry.is_symlink() and not path.exists():
                    unfollowed.append(f"{path} ({_dangling(path)})")
                yield path
            elif not entry.is_symlink():
                yield from files_below(path, unfollowed, hidden, real)
            else:
                target = path.resolve()
                if any(target.is_relative_to(above) or above.is_relative_to(target) for above in real):
                    unfollowed.append(f"{path} (a link to {target}, which is part of the folder, or holds it)")
                else:
                    yield from files_below(path, unfollowed, hidden, (*real, target))


def _dangling(path: Path) -> str:
    return f"a link to {os.readlink(path)}, which does not exist"


class ArchiveTree(FileTree):
    """The files of a tar or zip archive, held in memory: nothing is unpacked, so nothing is left half-unpacked.

    A link to another file of the archive is that file; any other link is refused by name.
    """

    def _names(self) -> Iterable[str]:
        try:
            members = dict(_zip_members(self.root) if self.root.suffix == ".zip" else _tar_members(self.root))
        except (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError) as error:
            raise ValueError(f"{self.root}: the archive is damaged ({error}): delete it and fetch it again") from error
        self._contents: dict[str, bytes] = {}
        for name, content in members.items():
            hidden = [*map(is_hidden, name.split("/"))]
            if any(hidden):
                self.hidden.update(compress(name.split("/")[:-1], hidden))
                continue
            found: bytes | str | None = content
            followed = 0  # a link that leads to itself ends too
            while isinstance(found, str) and followed < len(members):
                found, followed = members.get(found), followed + 1
            if not isinstance(found, bytes):
                raise ValueError(
                    f"{self.where(name)} is a link to {content!s}, which is no file of the archive: pack the files "
                    "themselves (tar --dereference), or give the unpacked folder"
                )
            self._contents[name] = found
        return self._contents

    def read(self, name: str) -> bytes:
        return self._contents[name]


def _link(name: str, target: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), target))


def _tar_members(path: Path) -> Iterator[tuple[str, bytes | str]]:
    """The files' contents; of a link the name that it leads to."""
    with tarfile.open(path) as archive:
        for member in archive:
            name = posixpath.normpath(member.name)
            if member.islnk():
                yield name, posixpath.normpath(member.linkname)
            elif member.issym():
                yield name, _link(name, member.linkname)
            elif (file := archive.extractfile(member)) is not None:
                yield name, file.read()
        # the loop ends without an error at a damaged header too, and where an archive is cut off between two files; and
        # only who reads a .gz to its end has compared its checksum
        assert archive.fileobj is not None
        archive.fileobj.seek(archive.offset)
        rest = archive.fileobj.read(-1)
        if not rest or rest.strip(b"\0"):
            raise tarfile.ReadError("files are missing at its end" if not rest else "a file's header is damaged")


def _zip_members(path: Path) -> Iterator[tuple[str, bytes | str]]:
    """As `_tar_members`."""
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if member.is_dir():
                continue
            name = posixpath.normpath(member.filename)
            if member.flag_bits & ENCRYPTED:
                raise ValueError(f"{path}: the archive is encrypted ({name}): unpack it, and give the folder")
            try:
                content = archive.read(member)
            except NotImplementedError as error:  # e.g. Deflate64
                raise ValueError(f"{path}: {name}: {error}: unpack the archive, and give the folder") from error
            is_link = stat.S_ISLNK(member.external_attr >> 16)
            yield name, _link(name, content.decode(errors="replace")) if is_link else content


def open_tree(path: str | Path) -> FileTree:
    """The files of a folder, or of a ``.tar``, ``.tar.gz``, ``.tgz``, ``.tar.bz2``, ``.tar.xz`` or ``.zip`` archive.

    Raises:
        FileNotFoundError: if there is nothing at ``path``.
        ValueError: if it is neither a folder nor an archive, or an archive that is damaged.
    """
    path = Path(path).expanduser()
    if path.is_dir():
        return FolderTree(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: expected a folder or an archive")
    if not path.name.endswith(ARCHIVES):
        raise ValueError(f"{path}: expected a folder or a {', '.join(ARCHIVES[:-1])} or {ARCHIVES[-1]} archive")
    return ArchiveTree(path)


def find_path(path: str | Path, data_dir: str | Path) -> Path:
    """An absolute ``path`` itself; a relative one in the working directory, or else in ``data_dir``.

    A FileNotFoundError names the places that were searched.
    """
    path = Path(path).expanduser()
    places = [path] if path.is_absolute() else [Path.cwd() / path, Path(data_dir).expanduser() / path]
    for place in places:
        if place.exists():
            return place
    for place in places:
        if place.is_symlink():
            raise FileNotFoundError(f"{place} is {_dangling(place)}")
    if path.is_absolute():
        raise FileNotFoundError(f"{path} does not exist")
    raise FileNotFoundError(
        f"{path} exists neither in the working directory ({places[0].parent}) nor in data_dir ({places[1].parent}): "
        "give its full path, or set data_dir"
    )


READ_WHOLE = 2**30  # bytes; of the files of a larger folder the two ends are read
BLOCK = 2**16  # bytes of such an end


def checksum(paths: Iterable[Path]) -> str:
    """A checksum of files, by their contents, and of folders, by the names and contents of the files below them.

    A file that has kept its size and its time is not read again in the same process.
    """
    digest = hashlib.sha256()
    for path in paths:
        digest.update(_of_folder(path) if path.is_dir() else _of_file(path, whole=True))
    return digest.hexdigest()[:16]


def _of_folder(folder: Path) -> bytes:
    """Hidden files and links that lead nowhere are left out, as the data modules leave them out."""
    files = [path for path in files_below(folder, [], set()) if path.exists()]
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
        import pooch  # not for data that have no files

        return bytes.fromhex(pooch.file_hash(str(path)))
    with path.open("rb") as file:
        digest = hashlib.sha256(f"{size}:".encode() + file.read(BLOCK))
        file.seek(max(0, size - BLOCK))
        digest.update(file.read(BLOCK))
        return digest.digest()
