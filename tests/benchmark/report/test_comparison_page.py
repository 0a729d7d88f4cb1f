"""The report of a comparison as it is written: names and commands that would break out of their place."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from as_lightning.benchmark.compare.api import comparison_findings
from as_lightning.benchmark.compare.comparison_page import print_findings, write_comparison
from as_lightning.benchmark.compare.engine import Comparison, Failure
from as_lightning.benchmark.compare.plan import ComparisonPlan, Run
from as_lightning.benchmark.run.result import Result


def test_a_hostile_name_writes_no_file_elsewhere_and_no_html(result: Callable[..., Result], tmp_path: Path) -> None:
    hostile, method = "../../escaped/<img src=x onerror=alert(1)>|x", "<b>|m`[a](b)"
    settings = {"lr|<b>": "<img src=x>|```"}
    results = [
        result(
            name_of_method,
            seed,
            0.8 + seed**2 / 100,
            name=hostile,
            config={"comparison": {"budget": 1.0, "epochs": 4.0, "settings": settings}},
            machine={"processor": "<b>`|"},
        )
        for name_of_method in ("softmax", method)
        for seed in range(3)
    ]
    comparison = Comparison(
        ComparisonPlan([method], budgets=[1.0], trials=1, seeds=3),
        results,
        failures=[Failure(Run("final", method, {}, 1.0, 3), "<img src=x> ```|")],
        tuning={method: [(settings, 0.8)]},
    )
    page = write_comparison(
        comparison_findings(comparison),
        comparison,
        tmp_path / "deep" / "report",
        commands=["as-lightning-compare ```\n<script>", "as-lightning-compare x"],
    )
    assert {path.relative_to(tmp_path).parts[:2] for path in tmp_path.rglob("*") if path.is_file()} == {
        ("deep", "report")
    }
    markdown = page.markdown.read_text(encoding="utf-8")
    for text in (markdown, page.html.read_text(encoding="utf-8")):
        assert "<img src=x" not in text
        assert "<b>" not in text
    assert "<script>" not in page.html.read_text(encoding="utf-8")
    tables = re.findall(r"(?:^\|.*\|\n)+", markdown, flags=re.MULTILINE)
    assert len(tables) == 5
    for table in tables:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1, table
    assert markdown.count("```") == 2
    assert markdown.endswith("```\nas-lightning-compare \n<script>\nas-lightning-compare x\n```\n")


@pytest.fixture
def runs(result: Callable[..., Result]) -> Callable[..., list[Result]]:
    """Three runs of a method at a budget of 4 epochs, or a share of them."""

    def make(method: str, budget: float = 1.0) -> list[Result]:
        about = {"comparison": {"budget": budget, "epochs": 4 * budget, "settings": {}}}
        return [result(method, seed, 0.8 + seed**2 / 100, config=about) for seed in range(3)]

    return make


def test_a_report_without_a_run_of_the_reference_says_that_it_is_missing(
    runs: Callable[..., list[Result]], tmp_path: Path
) -> None:
    plan = ComparisonPlan(["as_softmax"], budgets=[0.5, 1.0], trials=1, seeds=3)
    comparison = Comparison(plan, [*runs("softmax", 0.5), *runs("as_softmax"), *runs("as_softmax", 0.5)])
    found = comparison_findings(comparison)
    page = write_comparison(found, comparison, tmp_path)
    markdown = page.markdown.read_text(encoding="utf-8")
    assert "| softmax | 4 | – | – | reference: no run has finished | – |" in markdown
    assert "softmax, 4 epochs, which all are compared with, has no finished run" in markdown
    for text in (markdown, page.html.read_text(encoding="utf-8")):
        assert "nan" not in re.sub(r"data:image[^\"]*", "", text)
        assert "(advised)" not in text
    print_findings(found)


@pytest.mark.parametrize("trials", [1, 2])
def test_a_report_names_the_tuning_seeds_only_where_settings_were_tuned(
    runs: Callable[..., list[Result]], tmp_path: Path, trials: int
) -> None:
    tuning = {"softmax": [({"lr": 0.1}, 0.8), ({"lr": 0.2}, 0.7)]} if trials > 1 else {}
    plan = ComparisonPlan(["as_softmax"], budgets=[1.0], trials=trials, seeds=3)
    comparison = Comparison(plan, [*runs("softmax"), *runs("as_softmax")], tuning=tuning)
    page = write_comparison(comparison_findings(comparison), comparison, tmp_path)
    for text in (page.markdown.read_text(encoding="utf-8"), page.html.read_text(encoding="utf-8")):
        assert ("tuned with seeds 1000, 1001, at most 2 trials" in text) == (trials > 1)
        assert ("nothing was tuned (1 trial for each method)" in text) == (trials == 1)
