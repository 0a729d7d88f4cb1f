"""docs/trust.md names tests that exist and shows the committed figures of a run of all of them."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

SCRIPT = runpy.run_path(str(Path(__file__).parents[1] / "docs" / "trust_page.py"))
FIGURES = json.loads(SCRIPT["FIGURES"].read_text(encoding="utf-8"))


def test_the_page_is_that_of_the_promises_and_the_committed_figures():
    assert SCRIPT["PAGE"].read_text(encoding="utf-8") == SCRIPT["page"](FIGURES), "run `python docs/trust_page.py`"


def test_the_figures_are_of_a_run_of_all_named_tests():
    assert list(FIGURES["passed"]) == SCRIPT["named_tests"](), "run `make trust`"
    assert all(FIGURES["passed"].values())


def test_the_promised_numbers_of_random_cases_were_run():
    assert FIGURES["counted"]["random calls agree with the float64 oracle"] >= 20_000
    assert FIGURES["counted"]["runs killed at a random moment end as the undisturbed one"] == 20


RUN = '<testsuite><testcase classname="tests.test_mixin" name="test_x[1]">{}</testcase></testsuite>'


@pytest.mark.parametrize(
    ("content", "message"),
    [("<failure/>", "has failed"), ("<skipped/>", "no passed case"), ("", "no passed case")],
)
def test_a_run_that_failed_or_left_tests_out_gives_no_figures(content, message, tmp_path):
    (tmp_path / "run.xml").write_text(RUN.format(content))
    with pytest.raises(ValueError, match=message):
        SCRIPT["figures_of"](tmp_path / "run.xml")
