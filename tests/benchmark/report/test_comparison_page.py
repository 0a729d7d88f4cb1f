"""The report of a comparison as it is written: names and commands that would break out of their place."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from as_lightning.benchmark.compare.api import comparison_findings
from as_lightning.benchmark.compare.comparison_page import write_comparison
from as_lightning.benchmark.compare.engine import Comparison, Failure
from as_lightning.benchmark.compare.plan import ComparisonPlan, Run
from as_lightning.benchmark.results import Result


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
