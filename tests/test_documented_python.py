"""Every Python block of README and docs runs: it is fenced as Python, and nothing is left out.

The root conftest.py runs the blocks. Here stands that none escapes it.
"""

from __future__ import annotations

import ast
import re
import textwrap

import pytest
from harness.documented_commands import PAGES, ROOT

FENCE = re.compile(r"^( *)```(\w*).*?\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^    .*\n)+", re.MULTILINE)


def is_python(code: str) -> bool:
    try:
        tree = ast.parse(textwrap.dedent(code))
    except SyntaxError:
        return False
    return any(isinstance(node, (ast.Call, ast.Assign, ast.Import, ast.FunctionDef)) for node in ast.walk(tree))


def hidden_blocks(text: str) -> list[str]:
    """Python that is indented, or in a fence that names no language or stands inside a list."""
    fences = FENCE.findall(text)
    hidden = [code for indent, language, code in fences if not language or (indent and language == "python")]
    return [code for code in hidden + INDENTED.findall(FENCE.sub("", text)) if is_python(code)]


@pytest.mark.parametrize("page", [page.relative_to(ROOT).as_posix() for page in PAGES])
def test_python_on_a_page_is_fenced_as_python_and_runs(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert hidden_blocks(text) == []
    assert "<!-- skip" not in text
