"""Write docs/bug_museum.md from the marks of the tests: python docs/bug_museum.py

A test that holds what a public report says goes wrong elsewhere is marked
``@pytest.mark.bug_report("owner/repo#123", "what goes wrong there")``; its name says what this
project does.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "bug_museum.md"
HEAD = """# Bug museum

Each row is a public bug report, and the test of this project that holds the right behaviour. `docs/bug_museum.py`
writes this page from the marks `bug_report` of the tests.

| what goes wrong elsewhere | report | what holds here | test |
| --- | --- | --- | --- |
"""


def reports() -> Iterator[tuple[str, str, str, str]]:
    """The fault, the number, the test's name and its file, for each mark."""
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            for mark in getattr(node, "decorator_list", ()):
                if (
                    isinstance(mark, ast.Call)
                    and ast.unparse(mark.func) == "pytest.mark.bug_report"
                ):
                    number, fault = (ast.literal_eval(argument) for argument in mark.args)
                    yield fault, number, node.name, file.relative_to(ROOT).as_posix()  # type: ignore[attr-defined]


def page() -> str:
    """The page as the marks of the tests say."""
    rows = ""
    for fault, number, name, file in reports():
        repository, issue = number.split("#")
        link = f"[{number}](https://github.com/{repository}/issues/{issue})"
        rows += f"| {fault} | {link} | {name.removeprefix('test_').replace('_', ' ')} | `{file}::{name}` |\n"
    return HEAD + rows


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
