"""The tables that the project shows are those that its committed results give."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from as_lightning.benchmark.published import results_readme

ROOT = Path(__file__).parents[3]
CARDS = sorted(
    path.relative_to(ROOT).as_posix() for path in (ROOT / "docs/methods").glob("*.md") if path.stem != "README"
)
REPORTS = sorted(
    path.relative_to(ROOT).as_posix()
    for name in ("report.csv", "report.md")
    for path in (ROOT / "results").rglob(f"report/{name}")
)
PAGES = ["README.md", "results/README.md", "docs/wide_output_layers.md", "docs/skipping.md"]


# one process: the reports are rebuilt once
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the results, with every report written anew by the script."""
    folder = tmp_path_factory.mktemp("rebuilt")
    shutil.copytree(ROOT / "results", folder / "results", ignore=shutil.ignore_patterns("report", "README.md"))
    shutil.copytree(ROOT / "docs/methods", folder / "docs/methods")
    for page in ("docs/wide_output_layers.md", "docs/skipping.md"):
        shutil.copy(ROOT / page, folder / "docs")
    shutil.copy(ROOT / "README.md", folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        results_readme.main()
    return folder


@pytest.mark.parametrize("name", [*PAGES, *CARDS, *REPORTS])
def test_a_table_is_the_one_that_the_results_give(rebuilt: Path, name: str) -> None:
    assert (rebuilt / name).read_text(encoding="utf-8") == (ROOT / name).read_text(encoding="utf-8")


def test_no_result_names_a_path_of_the_machine_that_made_it() -> None:
    for path in (ROOT / "results").rglob("*.json"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r'["= ]/\w', text), path
