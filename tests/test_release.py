"""The version: one number in the package, the changelog, the citation and what is installed."""

from __future__ import annotations

import re
from datetime import date
from importlib.metadata import version
from pathlib import Path

import as_lightning

ROOT = Path(__file__).parents[1]
RELEASES = re.findall(r"^## \[(\d\S*)\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
CITATION = dict(
    re.findall(r"^(version|date-released): (\S+)$", (ROOT / "CITATION.cff").read_text("utf-8"), re.MULTILINE)
)


def test_package_installation_citation_and_changelog_have_one_version():
    assert as_lightning.__version__ == version("as-lightning") == CITATION["version"] == RELEASES[0][0]
    assert CITATION["date-released"] == RELEASES[0][1]


def test_the_changelog_has_a_place_for_what_comes_next_and_its_releases_are_in_order():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert 0 < text.index("## [Unreleased]") < text.index(f"## [{RELEASES[0][0]}]")
    days = [date.fromisoformat(day) for _, day in RELEASES]
    assert days == sorted(days, reverse=True)
