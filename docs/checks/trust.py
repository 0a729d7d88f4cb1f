"""The pages name tests that exist, and the trust page takes its figures from a run in which all of
them passed.
"""

import ast
import re
import runpy
from pathlib import Path

import pytest
from compatibility.features import FEATURES

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "docs" / "trust_page.py"))
TEXT = SCRIPT["PAGE"].read_text(encoding="utf-8")
TESTS = SCRIPT["ROW"].findall(TEXT)


COMPATIBILITY = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")


def test_every_test_that_a_page_names_exists():
    assert len(TESTS) == len(set(TESTS)) == TEXT.count("`tests/")
    for test in {*TESTS, *re.findall(r"`(tests/.*?::.*?)`", COMPATIBILITY)}:
        file, name = test.split("::")
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, test


def test_the_page_on_compatibility_has_a_row_for_each_feature_that_is_tested_and_each_row_names_what_shows_it():
    rows = re.findall(
        r"^\| .* \| (?:supported|refused) \| .*\| (.*) \|$", COMPATIBILITY, re.MULTILINE
    )
    shown = [name for row in rows for name in re.findall(r"`(.*?)`", row)]
    assert len(rows) == COMPATIBILITY.count("| supported |") + COMPATIBILITY.count("| refused |")
    assert {name for name in shown if "::" not in name} == FEATURES.keys()
    assert all("`" in row for row in rows)


def run_of(folder: Path, tests: list[str], content: str = "") -> Path:
    """The JUnit file of two cases of each test."""
    cases = [
        f'<testcase classname="{test.split(".py::")[0].replace("/", ".")}" '
        f'name="{test.split("::")[1]}[{case}]">'
        f"{content}</testcase>"
        for test in tests
        for case in (0, 1)
    ]
    (folder / "run.xml").write_text(f"<testsuite>{''.join(cases)}</testsuite>")
    return folder / "run.xml"


def test_the_page_shows_the_cases_of_a_run_and_what_they_counted(tmp_path):
    counter = '<properties><property name="calls" value="600"/></properties>'
    page = SCRIPT["page"](TEXT, run_of(tmp_path, TESTS, counter))
    assert page.count("` | 2 |") == len(TESTS)
    assert f"* **{1200 * len(TESTS):,}** calls." in page
    assert (
        f"**{2 * len(TESTS)}** cases of the {len(TESTS)} tests below passed, none failed (python "
        in page
    )
    assert SCRIPT["page"](page, tmp_path / "run.xml") == page


@pytest.mark.parametrize(
    ("content", "left_out", "message"),
    [
        ("<failure/>", 0, "has failed"),
        ("<skipped/>", 0, "no passed case"),
        ("", 1, "no passed case"),
    ],
)
def test_a_run_that_failed_or_left_tests_out_gives_no_figures(content, left_out, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        SCRIPT["page"](TEXT, run_of(tmp_path, TESTS[left_out:], content))
