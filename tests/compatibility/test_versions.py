"""The oldest versions that the package claims are those that ``make test-oldest`` runs with."""

from __future__ import annotations

import re

from compatibility.matrix import PACKAGES, ROOT, pinned


def test_the_lower_bounds_of_the_package_are_the_versions_of_the_oldest_environment() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for package, version in pinned("test-oldest").items():
        (bound,) = re.findall(rf'^  "{package}>=([\d.]+)"', project, re.MULTILINE)
        assert version == f"{bound}.0"


def test_the_readme_names_the_lower_bounds() -> None:
    oldest = pinned("test-oldest")
    torch, lightning = (oldest[package].removesuffix(".0") for package in PACKAGES[:2])
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"torch {torch} and lightning {lightning} are the oldest supported ones" in readme
