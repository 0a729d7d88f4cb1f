"""The files of a data set: where they lie or are downloaded from, their checksums, and how they are
read.
"""

from __future__ import annotations

import codecs
import functools
import hashlib
import lzma
import os
import posixpath
import re
import stat
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from lightning.pytorch.utilities.rank_zero import rank_zero_warn

SURROGATES = re.compile(
    "[\ud800-\udfff]"
)  # characters that UTF-8 cannot hold, as in a file's name of other bytes
NAMED = 5  # names that a message lists; it counts the others
ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip")
DAMAGE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError)
HINT = "Put it there by hand, or set data_dir (or the environment variable AS_LIGHTNING_DATA) to a directory that holds it"


def shortened(names: Sequence[str]) -> str:
    """The first five names, and how many more there are."""
    more = f"; and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return "; ".join(names[:NAMED]) + more


class LabelledFile(NamedTuple):
    """A file or a synthetic sample: its class, its name below the data's root, its reader, and that
    root.
    """

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

    Linked folders are followed, unless they lead into the folder itself or to one that holds it, as
    files would come twice. A warning names such links, and those that lead nowhere. An archive is
    held in memory and never unpacked; a link in it is refused by name.

    ``hidden`` names the folders that are left out. A ValueError refuses a ``root`` that is neither
    folder nor archive, and a damaged archive.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.hidden: set[str] = set()
        self._contents: dict[str, bytes | Path] = {}
        self.folders: set[str] = set()  # by their names, empty folders included
        if not root.is_dir() and not has_suffix(root, ARCHIVES):
            raise ValueError(f"{root}: expected a folder or a {', '.join(ARCHIVES)} archive")
        unfollowed: list[str] = []
        entries = _members(root)
        if root.is_dir():
            paths = walk(root, unfollowed)
            entries = (
                (path.relative_to(root).as_posix(), FOLDER if path.is_dir() else path)
                for path in paths
            )
        for name, content in entries:
            parts = PurePosixPath(name).parts  # empty for the root of some archives
            folders = parts if content is FOLDER else parts[:-1]
            self.hidden.update(filter(is_hidden, folders))
            if any(map(is_hidden, parts)):
                continue
            self.folders.update("/".join(folders[:depth]) for depth in range(1, len(folders) + 1))
            if content is LINK:
                raise ValueError(
                    f"{root}/{name} is a link: pack the files themselves (tar --dereference "
                    "--hard-dereference), or give the unpacked folder"
                )
            if content is not FOLDER:
                self._contents[name] = content
        self.names = sorted(self._contents, key=lambda name: (normal_form(name), name))
        if unfollowed:
            rank_zero_warn(
                f"{root}: {len(unfollowed)} links are not followed: {shortened(unfollowed)}"
            )

    def read(self, name: str) -> bytes:
        """A file's content."""
        content = self._contents[name]
        return content if isinstance(content, bytes) else content.read_bytes()

    def labelled(self, name: str, label: str) -> LabelledFile:
        """A file with its class."""
        return LabelledFile(
            label, normal_form(name), functools.partial(self.read, name), f"{self.root}/"
        )

    def with_suffixes(self, suffixes: tuple[str, ...]) -> list[str]:
        """The names that end in one of the suffixes; a ValueError if none does."""
        names = [name for name in self.names if has_suffix(name, suffixes)]
        if not names:
            raise ValueError(
                f"{self.root}: expected files that end in {', '.join(suffixes)}, found none"
            )
        if unreadable := [repr(name) for name in names if SURROGATES.search(name)]:
            raise ValueError(
                f"{self.root}: names of files that are not UTF-8: {shortened(unreadable)}: rename "
                "them"
            )
        return names


FOLDER, LINK = object(), object()  # in the place of an entry's content


def is_hidden(name: str) -> bool:
    """Whether a name is of a hidden file or folder: macOS packs ``__MACOSX`` into its archives."""
    return name.startswith(".") or name == "__MACOSX"


def walk(folder: Path, unfollowed: list[str], real: tuple[Path, ...] = ()) -> Iterator[Path]:
    """The paths below a folder, hidden folders not entered; ``real``: the root and the targets of
    the links above.
    """
    real = real or (folder.resolve(),)
    for path in sorted(folder.iterdir()):
        if not path.exists():
            unfollowed.append(f"{path} (a link to {os.readlink(path)}, which does not exist)")
            continue
        inner_real = real
        if path.is_symlink() and path.is_dir():
            target = path.resolve()
            if any(target.is_relative_to(other) or other.is_relative_to(target) for other in real):
                unfollowed.append(
                    f"{path} (a link to {target}, which is part of the folder, or holds it)"
                )
                continue
            inner_real = (*real, target)
        yield path
        if path.is_dir() and not is_hidden(path.name):
            yield from walk(path, unfollowed, inner_real)


def _members(root: Path) -> Iterator[tuple[str, Any]]:
    """The name and content of each member of an archive; a ValueError names a damaged or unreadable
    archive.
    """
    try:
        yield from (_zip_members if has_suffix(root, (".zip",)) else _tar_members)(root)
    except DAMAGE as error:
        raise ValueError(
            f"{root}: the archive is damaged ({error}): delete it and fetch it again"
        ) from error
    except (
        RuntimeError
    ) as error:  # encrypted, or of a kind that Python does not read, such as Deflate64
        raise ValueError(f"{root}: {error}: unpack the archive, and give the folder") from error


def _tar_members(path: Path) -> Iterator[tuple[str, Any]]:
    with tarfile.open(path) as archive:
        for member in archive:
            name = posixpath.normpath(member.name)
            if member.issym() or member.islnk():
                yield name, LINK
            elif member.isdir():
                yield name, FOLDER
            elif file := archive.extractfile(member):
                yield name, file.read()
        # the loop also ends without an error at a damaged header, and where an archive is cut off
        # between two files; the checksum of a .gz is compared only at its end
        assert archive.fileobj is not None
        archive.fileobj.seek(archive.offset)
        trailer = archive.fileobj.read(-1)
        if not trailer or trailer.strip(b"\0"):
            raise tarfile.ReadError(
                "files are missing at its end" if not trailer else "a file's header is damaged"
            )


def _zip_members(path: Path) -> Iterator[tuple[str, Any]]:
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            is_link = stat.S_ISLNK(member.external_attr >> 16)
            content = (
                FOLDER if member.is_dir() else LINK if is_link else archive.read(member.filename)
            )
            yield posixpath.normpath(member.filename), content


def has_suffix(name: str | Path, suffixes: tuple[str, ...]) -> bool:
    """Whether a file's name ends in one of the (lower-case) suffixes, in whatever case."""
    return str(name).lower().endswith(suffixes)


def normal_form(name: str) -> str:
    """The name of a class, a column or a folder in one form: Unicode has two of ``é``, which look
    the same.
    """
    return unicodedata.normalize("NFC", name)


def read_text(path: Path, encoding: str | None = None) -> str:
    r"""The text of a file without its byte-order mark, every line end as ``\n``; without
    ``encoding`` UTF-8.

    A ValueError names the file and the line whose bytes are of another encoding, and what to set.
    """
    content = path.read_bytes()
    try:
        text = content.decode(encoding or "utf-8")
    except LookupError:
        raise ValueError(
            f"encoding={encoding!r} is not known: expected one like utf-8, latin-1 or utf-16"
        ) from None
    except UnicodeDecodeError as error:
        likely = (
            "utf-16"
            if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
            else "latin-1"
        )
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{path}:{line}: byte 0x{content[error.start]:02x} is not {encoding or 'UTF-8'}: set "
            f"data.encoding (perhaps {likely}), or save the file as UTF-8"
        ) from error
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def find_path(path: str | Path | None, data_dir: str | Path) -> Path:
    """An absolute ``path`` itself; a relative one in the working directory, or else in
    ``data_dir``.
    """
    if path is None:
        raise ValueError(
            "a file or folder of the data is null: set data.path, of tagged sentences all three "
            "paths"
        )
    path = Path(str(path)).expanduser()  # YAML reads a folder 2024 as a number
    places = dict.fromkeys(
        (Path.cwd() / path, Path(data_dir).expanduser() / path)
    )  # an absolute path gives one place
    for place in places:
        if place.exists():
            return place
    raise FileNotFoundError(
        f"there is no {' and no '.join(map(str, places))}: give its full path, or set data_dir"
    )


class RemoteFile(NamedTuple):
    """A public file: its name in the data directory, its address, and its SHA-256.

    The ``checksum`` is None for an archive that is packed anew for each download: its contents are
    checked instead.
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
    import pooch  # imported here, as data without files do not need it

    path = Path(data_dir).expanduser() / remote.name
    if path.exists():
        actual = None if remote.checksum is None else pooch.file_hash(str(path))
        if actual != remote.checksum:
            raise ValueError(
                f"{path} has the wrong checksum: expected SHA-256 {remote.checksum}, got {actual}. "
                "The file is damaged "
                f"or another version: delete it to download it again from {remote.url}, or point "
                "data_dir elsewhere"
            )
        return path
    try:
        # pooch downloads under a temporary name and moves the file into place once its checksum is
        # right
        return Path(
            pooch.retrieve(remote.url, remote.checksum, fname=remote.name, path=str(path.parent))
        )
    except OSError as error:  # what requests raises is an OSError too
        raise RuntimeError(
            f"{remote.name} is not in data_dir={str(data_dir)!r} and could not be downloaded from "
            f"{remote.url}: "
            f"{error}. {HINT}"
        ) from error


def checksum(paths: Iterable[Path]) -> str:
    """A checksum of files, by their contents, and of folders, by the names and contents of the
    files below them.

    A file whose size and time have not changed is not read again in the same process. Hidden files
    and links that lead nowhere are left out, as the data modules leave them out.
    """
    digest = hashlib.sha256()
    for path in paths:
        if path.is_dir():
            folder_digest = hashlib.sha256()
            for file in walk(path, []):
                if file.is_file() and not is_hidden(file.name):
                    folder_digest.update(
                        os.fsencode(file.relative_to(path).as_posix()) + b"\0" + _file_hash(file)
                    )
            digest.update(folder_digest.digest())
        else:
            digest.update(_file_hash(path))
    return digest.hexdigest()[:16]


def _file_hash(path: Path) -> bytes:
    status = path.stat()
    return _cached_hash(path, status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=2**18)
def _cached_hash(path: Path, size: int, modified: int) -> bytes:
    import pooch

    return bytes.fromhex(pooch.file_hash(str(path)))
