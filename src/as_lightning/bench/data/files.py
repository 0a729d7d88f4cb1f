"""The files of a data set: where they are or come from, checksums, and how text is decoded."""

from __future__ import annotations

import codecs
import functools
import glob
import hashlib
import os
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from as_lightning.bench.data.reading import note, shortened


def visible_files(root: Path) -> list[str]:
    """Return the files below a folder by their relative names, in order, without hidden ones."""
    found = glob.glob("**", root_dir=root, recursive=True)
    names = [Path(name).as_posix() for name in found if (root / name).is_file()]
    return sorted(names, key=lambda name: (normal_form(name), name))


def files_below(root: Path, suffixes: tuple[str, ...]) -> list[str]:
    """Return the visible files that end in one of the suffixes, by their relative names, in order.

    A ValueError refuses an archive, a folder without such files, and a name that is not UTF-8.
    """
    if not root.is_dir():
        raise ValueError(
            f"{root}: expected a folder: unpack the archive first, and give its folder"
        )
    everything = visible_files(root)
    names = [name for name in everything if has_suffix(name, suffixes)]
    if not names:
        raise ValueError(f"{root}: expected files that end in {', '.join(suffixes)}, found none")
    others = sorted(set(everything) - set(names))
    note("files of other kinds are left out", len(others), len(everything), shortened(others[:1]))
    unprintable = [ascii(name) for name in names if not name.isprintable()]
    if unprintable:
        raise ValueError(f"{root}: rename what cannot be printed: {shortened(unprintable)}")
    return names


def has_suffix(name: str | Path, suffixes: tuple[str, ...]) -> bool:
    """Return whether a file's name ends in one of the (lower-case) suffixes, in whatever case."""
    return str(name).lower().endswith(suffixes)


def normal_form(name: str) -> str:
    """Return the name in one of the two forms that Unicode has of ``é``, which look the same."""
    return unicodedata.normalize("NFC", name)


def read_text(path: Path, encoding: str | None = None) -> str:
    r"""Return the text of a file without its byte-order mark, every line end as ``\n``; without
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
    """Return the encoding of text that is not UTF-8; latin-1 has no characters at 0x80 to 0x9F."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    return "cp1252" if any(0x80 <= byte <= 0x9F for byte in content) else "latin-1"


class RemoteFile(NamedTuple):
    """A public file: its name in the data directory, its address, and its SHA-256.

    The ``checksum`` is None for an archive that is packed anew for each download.
    """

    name: str
    url: str
    checksum: str | None


Place = str | Path | Mapping[str, str] | None  # a mapping has the fields of a `RemoteFile`


def find_file(place: Place, data_dir: str | Path) -> Path:
    """Return a public file, downloaded if it is missing, or a ``place`` of one's own.

    A relative one is looked for in the working directory, and then in ``data_dir``.
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


def fetch(remote: RemoteFile, data_dir: str | Path) -> Path:
    """Return the path of ``remote`` in ``data_dir``; download it if it is not there.

    A ValueError refuses another checksum; a RuntimeError says that it cannot be downloaded.
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
        return path
    try:
        # pooch moves a download into place once its checksum is right
        pooch.retrieve(remote.url, remote.checksum, fname=remote.name, path=path.parent)
    except OSError as error:  # what requests raises is an OSError too
        raise RuntimeError(
            f"{remote.name} is not in data_dir={str(data_dir)!r} and could not be downloaded from "
            f"{remote.url}: {error}. Put it there by hand, or set data_dir (or the environment "
            "variable AS_LIGHTNING_DATA) to a directory that holds it"
        ) from error
    return path


def checksum(paths: Iterable[Path]) -> str:
    """Return a checksum of files, and of the names and contents of folders' visible files."""
    digest = hashlib.sha256()
    for path in paths:
        if not path.is_dir():
            digest.update(_file_hash(path))
            continue
        for name in visible_files(path):
            digest.update(os.fsencode(name) + b"\0" + _file_hash(path / name))
    return digest.hexdigest()[:16]


def _file_hash(path: Path) -> bytes:
    """Return a file's checksum; it is not read again while its size and time stay."""
    status = path.stat()
    return _cached_hash(path, status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=2**18)
def _cached_hash(path: Path, size: int, modified: int) -> bytes:
    import pooch

    return bytes.fromhex(pooch.file_hash(str(path)))
