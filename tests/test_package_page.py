"""What a package index shows: built where the repository's address is known, every link of README leads there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("hatchling", reason="it builds the package: the extra dev has it")
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\(([^)\s]+)\)")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def built() -> ProjectMetadata:
    return ProjectMetadata(str(ROOT), PluginManager())


def test_where_the_address_is_known_each_link_is_absolute_and_leads_to_the_same_file(monkeypatch):
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://github.com")
    monkeypatch.setenv("GITHUB_REPOSITORY", "owner/name")
    core = built().core
    before, after = LINK.findall(README), LINK.findall(core.readme)
    assert len(before) == len(after) > 20
    for old, new in zip(before, after, strict=True):
        if old.startswith(("https://", "#")):
            assert new == old
        elif old.startswith("../../"):
            assert new == f"https://github.com/owner/name/{old[6:]}"
        else:
            assert (ROOT / old.partition("#")[0]).exists()
            kind = "raw" if old.endswith((".png", ".svg")) else "blob"
            assert new == f"https://github.com/owner/name/{kind}/main/{old}"
    assert {"Repository", "Documentation", "Changelog", "Issues", "Paper"} == set(core.urls)
    assert LINK.sub("", core.readme) == LINK.sub("", README)


def test_where_the_address_is_not_known_none_is_invented(monkeypatch):
    for name in ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY"):
        monkeypatch.delenv(name, raising=False)
    core = built().core
    assert core.readme == README
    assert list(core.urls) == ["Paper"]
    assert core.readme_content_type == "text/markdown"
