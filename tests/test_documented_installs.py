"""The extras and files of every ``pip install`` that the documentation or a message names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "notebooks").glob("*.ipynb")),
    *sorted((ROOT / "src").rglob("*.py")),
]
# from "pip install" to the end of the code span, of the bracket, or of the line
INSTALL = re.compile(r"pip install ([^`#)\n]+)")


def declared_extras() -> set[str]:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    section = project.partition("[project.optional-dependencies]\n")[2].partition("\n[project.")[0]
    return set(re.findall(r"^([\w-]+) = \[", section, re.MULTILINE))


def installs() -> dict[str, list[str]]:
    """What follows ``pip install``, with the files that name it."""
    named: dict[str, list[str]] = {}
    for path in TEXTS:
        for arguments in INSTALL.findall(path.read_text(encoding="utf-8")):
            named.setdefault(arguments.strip(), []).append(path.relative_to(ROOT).as_posix())
    return named


@pytest.mark.parametrize("arguments", installs())
def test_every_extra_and_constraints_file_of_a_documented_install_exists(arguments: str) -> None:
    pages = installs()[arguments]
    for extras in re.findall(r"(?:\.|as-lightning)\[([\w,-]+)\]", arguments):
        assert set(extras.split(",")) <= declared_extras(), pages
    for name in re.findall(r"(?:-c|--constraint|-r|--requirement) (\S+)", arguments):
        assert (ROOT / name).is_file(), pages
