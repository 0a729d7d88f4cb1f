"""How the bytes of a user's own text files are read as characters."""

from __future__ import annotations

import codecs
from pathlib import Path


def read_text(path: Path, encoding: str | None = None) -> str:
    """The characters of a file, its line ends as they are.

    Args:
        path: the file.
        encoding: as :func:`codecs.lookup` knows it; None is UTF-8, with or without a byte-order mark.

    Raises:
        ValueError: if the bytes are of another encoding; the message names the file, the line and what to set.
    """
    content = path.read_bytes()
    try:
        return content.decode(encoding or "utf-8-sig")
    except LookupError:
        raise ValueError(f"encoding={encoding!r} is not known: expected one like utf-8, latin-1 or utf-16") from None
    except UnicodeDecodeError as error:
        likely = "utf-16" if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "latin-1"
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{path}:{line}: byte 0x{content[error.start]:02x} is not {encoding or 'UTF-8'}: set "
            f"data.encoding (perhaps {likely}), or save the file as UTF-8"
        ) from error
