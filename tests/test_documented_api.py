"""The API reference has every public name, and no page of the site shows its source."""

from __future__ import annotations

import re
import runpy
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


@pytest.mark.parametrize(
    ("page", "what"),
    [
        ("<p>see :class:`Trainer`</p>", "a role or directive"),
        ("<blockquote><blockquote> <blockquote><p>f(1)</p></blockquote></blockquote></blockquote>", "a doctest"),
        ("<p>the loss $o_t - \\log p$ of a row</p>", "a formula"),
        ("<p>costs $5</p><pre>:class:`x` $a$</pre><blockquote><p>a quote</p></blockquote>", None),
    ],
)
def test_the_site_is_not_built_with_markup_that_a_reader_would_see(page: str, what: str | None) -> None:
    pytest.importorskip("mkdocs", reason="needs the packages of the documentation site")
    pytest.importorskip("latex2mathml", reason="needs the packages of the documentation site")
    leaks = runpy.run_path(str(Path(__file__).parents[1] / "docs" / "site_hooks.py"))["leaks"]
    assert [found.startswith(what) for found in leaks(page)] == ([True] if what else [])
