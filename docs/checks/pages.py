"""What README, docs and messages name exists, each Python block of a page runs, and no page shows
its source.
"""

import ast
import re
import runpy
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

import as_lightning
import as_lightning.callbacks
import as_lightning.functional

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
API = [
    path
    for page in sorted((ROOT / "docs/api").glob("*.md"))
    for path in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
]
FENCE = re.compile(r"^( *)```(\w*).*?\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^    .*\n)+", re.MULTILINE)
# from "pip install" to the end of the code span, of the bracket, or of the line
INSTALL = re.compile(r"pip install ([^`#)\n]+)")


@pytest.mark.parametrize("module", [as_lightning, as_lightning.functional, as_lightning.callbacks])
def test_every_public_name_of_a_module_is_on_an_api_page(module: ModuleType) -> None:
    assert set(module.__all__) - {path.rpartition(".")[2] for path in API} == set()


def test_no_path_on_an_api_page_is_a_module_which_would_hide_the_function_of_its_name() -> None:
    assert API
    assert not [
        path for path in API if (ROOT / "src" / path.replace(".", "/")).with_suffix(".py").exists()
    ]


@pytest.mark.parametrize(
    ("page", "what"),
    [
        ("<p>see :class:`Trainer`</p>", "a role or directive"),
        (
            "<blockquote><blockquote> "
            "<blockquote><p>f(1)</p></blockquote></blockquote></blockquote>",
            "a doctest",
        ),
        ("<p>the loss $o_t - \\log p$ of a row</p>", "a formula"),
        ("<p>costs $5</p><pre>:class:`x` $a$</pre><blockquote><p>a quote</p></blockquote>", None),
    ],
)
def test_the_site_is_not_built_with_markup_that_a_reader_would_see(
    page: str, what: str | None
) -> None:
    pytest.importorskip("mkdocs", reason="needs the packages of the documentation site")
    pytest.importorskip("latex2mathml", reason="needs the packages of the documentation site")
    leaks = runpy.run_path(str(ROOT / "docs" / "site_hooks.py"))["leaks"]
    assert [found.startswith(what) for found in leaks(page)] == ([True] if what else [])


def is_python(code: str) -> bool:
    try:
        tree = ast.parse(textwrap.dedent(code))
    except SyntaxError:
        return False
    return any(
        isinstance(node, (ast.Call, ast.Assign, ast.Import, ast.FunctionDef))
        for node in ast.walk(tree)
    )


@pytest.mark.parametrize("page", [page.relative_to(ROOT).as_posix() for page in PAGES])
def test_python_on_a_page_is_fenced_as_python_and_runs(page: str) -> None:
    """The root conftest.py runs what is fenced; what is indented, without a language or in a list
    would escape it.
    """
    text = (ROOT / page).read_text(encoding="utf-8")
    hidden = [
        code
        for indent, language, code in FENCE.findall(text)
        if not language or (indent and language == "python")
    ]
    assert [
        code for code in hidden + INDENTED.findall(FENCE.sub("", text)) if is_python(code)
    ] == []
    assert "<!-- skip" not in text


def test_every_extra_and_constraints_file_of_a_documented_install_exists() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    section = project.partition("[project.optional-dependencies]\n")[2].partition("\n[project.")[0]
    declared = set(re.findall(r"^([\w-]+) = \[", section, re.MULTILINE))
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    texts = [*pages, *(ROOT / "notebooks").glob("*.ipynb"), *(ROOT / "src").rglob("*.py")]
    named = [
        (path, install)
        for path in texts
        for install in INSTALL.findall(path.read_text(encoding="utf-8"))
    ]
    assert named
    for path, arguments in named:
        for extras in re.findall(r"(?:\.|as-lightning)\[([\w,-]+)\]", arguments):
            assert set(extras.split(",")) <= declared, path
        for name in re.findall(r"(?:-c|--constraint|-r|--requirement) (\S+)", arguments):
            assert (ROOT / name).is_file(), path
