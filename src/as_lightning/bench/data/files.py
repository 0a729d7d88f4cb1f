"""The files of a data set: where they are or come from, checksums, and how text is decoded."""

from __future__ import annotations

import codecs
import glob
import hashlib
import os
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import Path

from as_lightning.bench.data.reading import note, shortened


def visible_files(root: Path) -> list[str]:
    """Return the files below a folder by their relative names, in order, without hidden ones."""
    found = glob.glob("**", root_dir=root, recursive=True)
    names = [Path(name).as_posix() for name in found if (root / name).is_file()]
    return sorted(names, key=lambda name: (normal_form(name), name))


def files_below(root: Path, suffixes: tuple[str, ...]) -> list[str]:
    """Return the visible files that end in one of the suffixes, by their relative names, in order.

    A ValueError refuses what is no folder of such files, and a name that is not UTF-8.
    """
    everything = visible_files(root)
    names = [name for name in everything if name.lower().endswith(suffixes)]
    if not names:
        endings = ", ".join(suffixes)
        raise ValueError(
            f"{root}: expected a folder of files that end in {endings}, found none: unpack the "
            "archive first, if it is one"
        )
    others = sorted(set(everything) - set(names))
    note("files of other kinds are left out", others, len(everything))
    unprintable = [ascii(name) for name in names if not name.isprintable()]
    if unprintable:
        raise ValueError(f"{root}: rename what cannot be printed: {shortened(unprintable)}")
    return names


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
    except LookupError as error:
        raise ValueError(f"data.encoding={encoding} is no encoding of Python's") from error
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


# A mapping has a public file's name, url and checksum, a SHA-256 or None.
Place = str | Path | Mapping[str, str | None] | None


def find_file(place: Place, data_dir: str | Path) -> Path:
    """Return a public file, or one's own relative to the working directory or to ``data_dir``.

    pooch downloads a public file that is missing or has another checksum. A ValueError refuses
    another checksum of the download; a RuntimeError says that there is none.
    """
    folder = Path(data_dir).expanduser()
    if isinstance(place, Mapping):
        import pooch  # imported here, as data without files do not need it

        name, url, known = place["name"], place["url"], place["checksum"]
        try:
            return Path(pooch.retrieve(url, known, fname=name, path=folder))
        except OSError as error:  # what requests raises is an OSError too
            raise RuntimeError(
                f"{folder}/{name} is missing or has another SHA-256 than {known}, and could not "
                f"be downloaded from {url}: {error}. Put it there by hand, or set data_dir (or the "
                "environment variable AS_LIGHTNING_DATA) to a directory that holds it"
            ) from error
    path = Path(str(place)).expanduser()  # YAML reads a folder 2024 as a number
    candidates = dict.fromkeys((Path.cwd() / path, folder / path))  # one, if it is absolute
    for candidate in candidates:
        if candidate.exists():
            return candidate
    places = " and no ".join(map(str, candidates))
    raise FileNotFoundError(f"there is no {places}: give its full path, or set data_dir")


def checksum(paths: Iterable[Path]) -> str:
    """Return a checksum of files, and of the names and contents of folders' visible files."""
    digest = hashlib.sha256()
    for path in paths:
        files = {b"": path}
        if path.is_dir():
            files = {os.fsencode(name) + b"\0": path / name for name in visible_files(path)}
        for name, file in files.items():
            digest.update(name + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]
