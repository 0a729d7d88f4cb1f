"""One version everywhere; and the page of a package index, whose links lead to the repository where
it is known.
"""

import re
from datetime import date
from importlib.metadata import PackageNotFoundError, metadata, version
from pathlib import Path

import pytest
from harness.torch_limits import LIMITS
from packaging.specifiers import SpecifierSet

import as_lightning

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\(([^)\s]+)\)")
README = (ROOT / "README.md").read_text(encoding="utf-8")
PACKAGES = ("torch", "lightning", "torchmetrics")
RELEASES = re.findall(
    r"^## \[(\d\S*)\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE
)
CITATION = dict(
    re.findall(
        r"^(version|date-released): (\S+)$",
        (ROOT / "CITATION.cff").read_text("utf-8"),
        re.MULTILINE,
    )
)


def test_package_installation_citation_and_changelog_have_one_version():
    assert (
        as_lightning.__version__ == version("as-lightning") == CITATION["version"] == RELEASES[0][0]
    )
    assert CITATION["date-released"] == RELEASES[0][1]


def test_what_make_setup_installs_is_for_the_oldest_python_that_the_readme_names():
    (oldest,) = re.findall(r"of this repository .*: Python (\d+\.\d+) or newer", README)
    pins = re.findall(
        r"^([\w.-]+)==", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE
    )
    needed = {}
    for name in pins:
        try:
            needed[name] = metadata(name)["Requires-Python"] or ""
        except PackageNotFoundError:
            continue  # of an extra that this environment has not
    assert len(needed) > 50
    assert not [
        f"{name} {of}" for name, of in needed.items() if f"{oldest}.0" not in SpecifierSet(of)
    ]


def test_the_changelog_has_a_place_for_what_comes_next_and_its_releases_are_in_order():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert 0 < text.index("## [Unreleased]") < text.index(f"## [{RELEASES[0][0]}]")
    days = [date.fromisoformat(day) for _, day in RELEASES]
    assert days == sorted(days, reverse=True)


def test_the_versions_of_package_readme_and_page_are_those_that_the_tests_run_with():
    page = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for target in ("test-oldest", "test", "test-newest"):
        file = ROOT / target.replace("test", "constraints", 1)
        text = file.with_suffix(".txt").read_text(encoding="utf-8")
        pins = {name: re.search(rf"^{name}==(.*)$", text, re.MULTILINE)[1] for name in PACKAGES}
        assert f"| `make {target}` | {' | '.join(pins.values())} |" in page
        if target == "test-oldest":
            assert all(
                f'"{name}>={version.removesuffix(".0")}' in project
                for name, version in pins.items()
            )
            torch, lightning = (pins[name].removesuffix(".0") for name in PACKAGES[:2])
            assert (
                f"torch {torch} and lightning {lightning} are the oldest supported ones" in README
            )
    assert re.findall(r"^\* (torch .*)\.$", page, re.MULTILINE) == [str(limit) for limit in LIMITS]


def test_the_build_for_cpus_that_the_page_of_questions_names_is_of_the_pinned_versions():
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    named = re.findall(
        r"torch\w*==[\d.]+\d", (ROOT / "docs" / "faq.md").read_text(encoding="utf-8")
    )
    assert {name.partition("==")[0] for name in named} == {"torch", "torchvision", "torchaudio"}
    assert set(named) <= set(pins)


def built():
    """What a package index is told."""
    pytest.importorskip("hatchling", reason="it builds the package: the extra dev has it")
    from hatchling.metadata.core import ProjectMetadata
    from hatchling.plugin.manager import PluginManager

    return ProjectMetadata(str(ROOT), PluginManager()).core


def test_where_the_address_is_known_each_link_is_absolute_and_leads_to_the_same_file(monkeypatch):
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://github.com")
    monkeypatch.setenv("GITHUB_REPOSITORY", "owner/name")
    core = built()
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
    core = built()
    assert core.readme == README
    assert list(core.urls) == ["Paper"]
    assert core.readme_content_type == "text/markdown"
