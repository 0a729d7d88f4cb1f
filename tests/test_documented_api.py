"""The API reference has every public name."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

import as_lightning
import as_lightning.callbacks
import as_lightning.functional

ROOT = Path(__file__).parents[1]
PATHS = [
    path
    for page in sorted((ROOT / "docs/api").glob("*.md"))
    for path in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
]


@pytest.mark.parametrize("module", [as_lightning, as_lightning.functional, as_lightning.callbacks])
def test_every_public_name_of_a_module_is_on_an_api_page(module: ModuleType) -> None:
    assert set(module.__all__) - {path.rpartition(".")[2] for path in PATHS} == set()


@pytest.mark.parametrize("path", PATHS)
def test_a_path_on_an_api_page_is_no_module_which_would_hide_the_function_of_its_name(path: str) -> None:
    assert not (ROOT / "src" / path.replace(".", "/")).with_suffix(".py").exists()
