"""The source files of this Python's standard library."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path, PurePath

TEST_FOLDERS = {"test", "tests", "idle_test"}


def library_folder() -> Path:
    """The folder of the standard library."""
    return Path(sysconfig.get_path("stdlib"))


def is_test(path: PurePath) -> bool:
    """Whether a file of the library, relative to its folder, is one of the library's own tests."""
    return not TEST_FOLDERS.isdisjoint(path.parts)


def source_files(root: Path) -> list[Path]:
    """The ``.py`` files below ``root`` in alphabetical order, without tests and installed packages."""
    found = []
    for folder, subfolders, files in os.walk(root):
        subfolders[:] = [name for name in subfolders if name != "site-packages" and name not in TEST_FOLDERS]
        found += [Path(folder, name) for name in files if name.endswith(".py")]
    return sorted(found)
