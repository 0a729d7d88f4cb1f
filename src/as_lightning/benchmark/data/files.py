"""The files of a data set: where they are or come from, their checksum, and how a folder or an archive is read."""

from __future__ import annotations

import functools
import hashlib
import lzma
import os
import posixpath
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from lightning.pytorch.utilities.rank_zero import rank_zero_warn

SURROGATES = re.compile("[\ud800-\udfff]")  # of a text that UTF-8 cannot hold, as of a file's name in other bytes
NAMED = 5  # of many, those that a message names; the others it counts
ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip")
DAMAGE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError)
HINT = (
    "Put it there by hand, or set data_dir (or the environment variable AS_LIGHTNING_DATA) to a directory that holds it"
)


def shortened(names: Sequence[str]) -> str:
    """The first five, and how many more there are."""
    more = f"; and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return "; ".join(names[:NAMED]) + more


class LabelledFile(NamedTuple):
    """A file or a synthetic sample: its class, its name wherever the data lie, what reads it, and where it lies."""

    label: str
    name: str
    read: Callable[[], Any]
    root: str = ""

    @property
    def place(self) -> str:
        """The file as an error message names it."""
        return f"{self.root}{self.name}"


class FileTree:
    """The files of a folder or an archive by their names relative to it, in alphabetical order.

    Linked folders are followed, unless they lead into the folder itself or to one that holds it: files would come
    twice. A warning names such links, and those that lead nowhere. An archive is held in memory and never unpacked; a
    link in it is refused by name.

    ``hidden`` are the folders that are left out: those whose name starts with a dot, and ``__MACOSX``.

    A ValueError refuses what is neither folder nor archive, and an archive that is damaged.
    """

    def __init__(self, path: str | Path) -> None:
        self.root = root = Path(path).expanduser()
        self.hidden: set[str] = set()
        self._archived: dict[str, bytes] = {}
        self._archived_folders: set[PurePosixPath] = set()
        if not root.exists():
            raise FileNotFoundError(f"{root} does not exist: expected a folder or an archive")
        if not root.is_dir():
            if not root.name.endswith(ARCHIVES):
                raise ValueError(f"{root}: expected a folder or a {', '.join(ARCHIVES)} archive")
            self._archived = self._unhidden_members()
            self.names = sorted(self._archived)
            return
        unfollowed: list[str] = []
        self.names = sorted(path.relative_to(root).as_posix() for path in files_below(root, unfollowed, self.hidden))
        if unfollowed:
            rank_zero_warn(f"{root}: {len(unfollowed)} links are not followed: {shortened(unfollowed)}")

    def read(self, name: str) -> bytes:
        return self._archived[name] if self._archived else (self.root / name).read_bytes()

    def labelled(self, name: str, label: str, decode: Callable[[bytes], Any]) -> LabelledFile:
        """A file with its class; what reads it gives what ``decode`` makes of its content."""
        return LabelledFile(label, name, functools.partial(self._decoded, name, decode), f"{self.root}/")

    def _decoded(self, name: str, decode: Callable[[bytes], Any]) -> Any:
        return decode(self.read(name))

    def where(self, name: str) -> str:
        """The file as an error message names it."""
        return f"{self.root}/{name}"

    def with_suffixes(self, suffixes: tuple[str, ...]) -> list[str]:
        """The names that end in one of the (lower-case) suffixes, whatever their case; a ValueError if none does."""
        names = [name for name in self.names if name.lower().endswith(suffixes)]
        if not names:
            raise ValueError(f"{self.root}: expected files that end in {', '.join(suffixes)}, found none")
        if unreadable := [repr(name) for name in names if SURROGATES.search(name)]:
            raise ValueError(f"{self.root}: names of files that are not UTF-8: {shortened(unreadable)}: rename them")
        return names

    def folders_in(self, *above: str) -> list[str]:
        """The names of the folders directly in the folder ``above``, empty ones too, hidden ones left out."""
        if self._archived:
            inside = (path.parts[len(above) :] for path in self._archived_folders if path.parts[: len(above)] == above)
            found = {parts[0] for parts in inside if parts}
        else:
            found = {path.name for path in self.root.joinpath(*above).iterdir() if path.is_dir()}
        return sorted(name for name in found if not is_hidden(name))

    def _unhidden_members(self) -> dict[str, bytes]:
        contents = {}
        try:
            for name, content in (_zip_members if self.root.suffix == ".zip" else _tar_members)(self.root):
                parts = name.split("/")
                self.hidden.update(filter(is_hidden, parts[:-1]))
                if any(map(is_hidden, parts)):
                    continue
                path = PurePosixPath(name)
                self._archived_folders.update(path.parents if parts[-1] else [path])
                if not parts[-1]:
                    continue
                if content is None:
                    raise ValueError(
                        f"{self.where(name)} is a link: pack the files themselves (tar --dereference "
                        "--hard-dereference), or give the unpacked folder"
                    )
                contents[name] = content
        except DAMAGE as error:
            raise ValueError(f"{self.root}: the archive is damaged ({error}): delete it and fetch it again") from error
        except RuntimeError as error:  # encrypted, or of a kind that Python does not read, such as Deflate64
            raise ValueError(f"{self.root}: {error}: unpack the archive, and give the folder") from error
        return contents


def is_hidden(name: str) -> bool:
    """Whether a file or folder is none of the user's: macOS packs ``__MACOSX`` into its archives."""
    return (name.startswith(".") and name != ".") or name == "__MACOSX"


def files_below(folder: Path, unfollowed: list[str], hidden: set[str], real: tuple[Path, ...] = ()) -> Iterator[Path]:
    """The files below a folder, hidden ones left out; ``real`` are the root and the targets of the links above."""
    real = real or (folder.resolve(),)
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        if is_hidden(path.name):
            hidden.update([path.name] if path.is_dir() else [])
        elif not path.is_dir():
            if not path.exists():
                unfollowed.append(f"{path} (a link to {os.readlink(path)}, which does not exist)")
            yield path
        elif not path.is_symlink():
            yield from files_below(path, unfollowed, hidden, real)
        else:
            target = path.resolve()
            if any(target.is_relative_to(above) or above.is_relative_to(target) for above in real):
                unfollowed.append(f"{path} (a link to {target}, which is part of the folder, or holds it)")
            else:
                yield from files_below(path, unfollowed, hidden, (*real, target))


def _tar_members(path: Path) -> Iterator[tuple[str, bytes | None]]:
    """The files by name and content, None for that of a link; the name of a folder ends in a slash."""
    with tarfile.open(path) as archive:
        for member in archive:
            if member.issym() or member.islnk():
                yield posixpath.normpath(member.name), None
            elif member.isdir():
                yield f"{posixpath.normpath(member.name)}/", b""
            elif file := archive.extractfile(member):
                yield posixpath.normpath(member.name), file.read()
        # the loop ends without an error at a damaged header too, and where an archive is cut off between two files; and
        # only who reads a .gz to its end has compared its checksum
        assert archive.fileobj is not None
        archive.fileobj.seek(archive.offset)
        rest = archive.fileobj.read(-1)
        if not rest or rest.strip(b"\0"):
            raise tarfile.ReadError("files are missing at its end" if not rest else "a file's header is damaged")


def _zip_members(path: Path) -> Iterator[tuple[str, bytes | None]]:
    """As `_tar_members`."""
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if member.is_dir():
                yield f"{posixpath.normpath(member.filename)}/", b""
            else:
                is_link = stat.S_ISLNK(member.external_attr >> 16)
                yield posixpath.normpath(member.filename), None if is_link else archive.read(member.filename)


def find_path(path: str | Path | None, data_dir: str | Path) -> Path:
    """An absolute ``path`` itself; a relative one in the working directory, or else in ``data_dir``."""
    if path is None:
        raise ValueError("a file or folder of the data is null: set data.path, of tagged sentences all three paths")
    path = Path(str(path)).expanduser()  # a folder 2024 is a number to YAML
    places = dict.fromkeys((Path.cwd() / path, Path(data_dir).expanduser() / path))  # one of an absolute path
    for place in places:
        if place.exists():
            return place
    raise FileNotFoundError(f"there is no {' and no '.join(map(str, places))}: give its full path, or set data_dir")


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
    import pooch  # not for data that have no files

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


def checksum(paths: Iterable[Path]) -> str:
    """A checksum of files, by their contents, and of folders, by the names and contents of the files below them.

    A file that has kept its size and its time is not read again in the same process. Hidden files and links that lead
    nowhere are left out, as the data modules leave them out.
    """
    digest = hashlib.sha256()
    for path in paths:
        if path.is_dir():
            of_folder = hashlib.sha256()
            for file in files_below(path, [], set()):
                if file.exists():
                    of_folder.update(os.fsencode(file.relative_to(path).as_posix()) + b"\0" + _of_file(file))
            digest.update(of_folder.digest())
        else:
            digest.update(_of_file(path))
    return digest.hexdigest()[:16]


def _of_file(path: Path) -> bytes:
    about = path.stat()
    return _of_content(path, about.st_size, about.st_mtime_ns)


@functools.lru_cache(maxsize=2**18)
def _of_content(path: Path, size: int, changed: int) -> bytes:
    import pooch

    return bytes.fromhex(pooch.file_hash(str(path)))
