"""A comparison that is read again from its folder."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from as_lightning.benchmark.compare.api import comparison_findings
from as_lightning.benchmark.compare.engine import Comparison, one_by_one, run_comparison
from as_lightning.benchmark.compare.plan import ComparisonPlan, Run
from as_lightning.benchmark.compare.stored_comparison import StoredComparison
from as_lightning.benchmark.run.result import Result


@pytest.fixture
def compared(result: Callable[..., Result], tmp_path: Path) -> Callable[..., Comparison]:
    """Make and store a comparison in ``tmp_path``, with scores that differ by seed; one run may have another score."""

    def make(methods: list[str], budgets: tuple[float, ...], other: dict[str, float] | None = None) -> Comparison:
        def run_one(run: Run) -> Result:
            about = {"budget": run.budget, "epochs": 8 * run.budget, "settings": {}}
            score = 0.5 + run.budget / 10 + run.seed**2 / 100 + len(run.method) / 100
            made = result(run.method, run.seed, (other or {}).get(run.folder, score), config={"comparison": about})
            (tmp_path / run.folder).mkdir(parents=True, exist_ok=True)
            made.write(tmp_path / run.folder)
            return made

        plan = ComparisonPlan(methods, budgets=budgets, trials=1, seeds=3)
        comparison = run_comparison(plan, {method: {} for method in plan.methods}, one_by_one(run_one))
        StoredComparison(comparison).write(tmp_path)
        return comparison

    return make


def test_runs_that_an_earlier_plan_has_left_in_the_folder_are_not_read(compared, tmp_path: Path) -> None:
    compared(["as_softmax", "as_speed"], (0.25, 0.5, 1))
    second = compared(["as_softmax"], (0.5, 1))
    again = StoredComparison.read(tmp_path).comparison
    assert again.results == second.results
    assert comparison_findings(again) == comparison_findings(second)


def test_a_run_without_a_finite_score_stays_a_failure_when_it_is_read_again(compared, tmp_path: Path) -> None:
    lost = compared(["as_softmax"], (1,), {"runs/as_softmax/budget=1,seed=2": math.nan})
    again = StoredComparison.read(tmp_path).comparison
    assert [str(failure) for failure in again.failures] == [str(failure) for failure in lost.failures]
    assert comparison_findings(again) == comparison_findings(lost)


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="expected the folder of a finished comparison"):
        StoredComparison.read(tmp_path)
    StoredComparison(Comparison(ComparisonPlan(["as_softmax"]), settings={"softmax": {}})).write(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"none of the 15 final runs of .* has its result\.json"):
        StoredComparison.read(tmp_path)
    content = json.loads((tmp_path / "comparison.json").read_text(encoding="utf-8"))
    (tmp_path / "comparison.json").write_text(json.dumps(content | {"format": 0}), encoding="utf-8")
    with pytest.raises(ValueError, match="expected format 1, got 0"):
        StoredComparison.read(tmp_path)
