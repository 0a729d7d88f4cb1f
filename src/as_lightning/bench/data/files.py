"""The files of a data set: where they are or come from, their checksums, and how text is decoded."""

from __future__ import annotations

import codecs
import functools
import hashlib
import os
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from as_lightning.bench.data.reading import note, shortened

HINT = "Put it there by hand, or set data_dir (or the environment variable AS_LIGHTNING_DATA) to a directory that holds it"


class LabelledFile(NamedTuple):
    """A file or a synthetic sample: its class or classes, its name below the root, and its reader."""

    label: Any
    name: str
    read: Callable[[], Any]
    root: str = ""

    @property
    def place(self) -> str:
        """The file as an error message names it."""
        return f"{self.root}{self.name}"


def labelled_file(root: Path, name: str, label: Any) -> LabelledFile:
    """A file below ``root`` with its class or classes."""
    return LabelledFile(label, normal_form(name), (root / name).read_bytes, f"{root}/")


def is_hidden(name: str) -> bool:
    """Whether a name is of a hidden file or folder; macOS makes ``__MACOSX``."""
    return name.startswith(".") or name == "__MACOSX"


def folders_below(root: Path) -> dict[str, list[str]]:
    """The visible files of each visible folder by its path relative to ``root`` (``""`` for that).

    A link to a folder is followed once: one that leads back adds nothing.
    """
    found: dict[str, list[str]] = {}
    seen: set[str] = set()
    for folder, folders, files in os.walk(root, followlinks=True):
        folders[:] = sorted(name for name in folders if not is_hidden(name))
        real = os.path.realpath(folder)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        relative = Path(folder).relative_to(root).as_posix()
        found["" if relative == "." else relative] = sorted(
            name for name in files if not is_hidden(name)
        )
    return found


def files_below(root: Path, suffixes: tuple[str, ...]) -> list[str]:
    """The files that end in one of the suffixes, by their names relative to ``root``, in order.

    A ValueError refuses an archive, a folder without such files, and a name that is not UTF-8.
    """
    if not root.is_dir():
        raise ValueError(
            f"{root}: expected a folder: unpack the archive first, and give its folder"
        )
    everything = [
        f"{folder}/{name}".lstrip("/")
        for folder, names in folders_below(root).items()
        for name in names
    ]
    names = [name for name in everything if has_suffix(name, suffixes)]
    if not names:
        raise ValueError(f"{root}: expected files that end in {', '.join(suffixes)}, found none")
    others = sorted(set(everything) - set(names))
    note("files of other kinds are left out", len(others), len(everything), shortened(others[:1]))
    unreadable = [ascii(name) for name in names if not name.isprintable()]
    if unreadable:
        raise ValueError(
            f"{root}: names that cannot be printed: {shortened(unreadable)}: rename them"
        )
    return sorted(names, key=lambda name: (normal_form(name), name))


def has_suffix(name: str | Path, suffixes: tuple[str, ...]) -> bool:
    """Whether a file's name ends in one of the (lower-case) suffixes, in whatever case."""
    return str(name).lower().endswith(suffixes)


def normal_form(name: str) -> str:
    """The name in one of the two forms that Unicode has of ``é``, which look the same."""
    return unicodedata.normalize("NFC", name)


def read_text(path: Path, encoding: str | None = None) -> str:
    r"""The text of a file without its byte-order mark, every line end as ``\n``; without
    ``encoding`` UTF-8.

    A ValueError names the line whose bytes are of another encoding, and what to set.
    """
    content = path.read_bytes()
    try:
        text = content.decode(encoding or "utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{path}:{line}: byte 0x{content[error.start]:02x} is not {encoding or 'UTF-8'}: set "
            f"data.encoding (perhaps {likely_encoding(content)}), or save the file as UTF-8"
        ) from error
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def likely_encoding(content: bytes) -> str:
    """The encoding of text that is not UTF-8; latin-1 has no characters at 0x80 to 0x9F."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    return "cp1252" if any(0x80 <= byte <= 0x9F for byte in content) else "latin-1"


class RemoteFile(NamedTuple):
    """A public file: its name in the data directory, its address, and its SHA-256.

    The ``checksum`` is None for an archive that is packed anew for each download: its contents are
    checked instead.
    """

    name: str
    url: str
    checksum: str | None


Place = str | Path | Mapping[str, str] | None  # a mapping has the fields of a `RemoteFile`


def find_file(place: Place, data_dir: str | Path) -> Path:
    """A public file, downloaded if it is missing; or an absolute ``place``; or a relative one in
    the working directory, or else in ``data_dir``.
    """
    if isinstance(place, Mapping):
        return fetch(RemoteFile(**place), data_dir)
    path = Path(str(place)).expanduser()  # YAML reads a folder 2024 as a number
    # Of an absolute path both are the same.
    candidates = dict.fromkeys((Path.cwd() / path, Path(data_dir).expanduser() / path))
    for candidate in candidates:
        if candidate.exists():
            return candidate
    places = " and no ".join(map(str, candidates))
    raise FileNotFoundError(f"there is no {places}: give its full path, or set data_dir")


def fetch(remote: RemoteFile, data_dir: str | Path, processor: Any = None) -> Path:
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
                f"Delete it to download it again from {remote.url}, or point data_dir elsewhere"
            )
        if processor is None:
            return path
    place = {"fname": remote.name, "path": str(path.parent)}
    try:
        # pooch moves a download into place once its checksum is right
        pooch.retrieve(remote.url, remote.checksum, processor=processor, **place)
    except OSError as error:  # what requests raises is an OSError too
        raise RuntimeError(
            f"{remote.name} is not in data_dir={str(data_dir)!r} and could not be downloaded from "
            f"{remote.url}: {error}. {HINT}"
        ) from error
    return path


def checksum(paths: Iterable[Path]) -> str:
    """A checksum of files, by their contents, and of folders, by the names and contents of their
    visible files.

    A file whose size and time have not changed is not read again in the same process.
    """
    digest = hashlib.sha256()
    for path in paths:
        if not path.is_dir():
            digest.update(_file_hash(path))
            continue
        inner = hashlib.sha256()
        for folder, names in folders_below(path).items():
            for name in names:
                inner.update(
                    os.fsencode(f"{folder}/{name}") + b"\0" + _file_hash(path / folder / name)
                )
        digest.update(inner.digest())
    return digest.hexdigest()[:16]


def _file_hash(path: Path) -> bytes:
    status = path.stat()
    return _cached_hash(path, status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=2**18)
def _cached_hash(path: Path, size: int, modified: int) -> bytes:
    import pooch

    return bytes.fromhex(pooch.file_hash(str(path)))
