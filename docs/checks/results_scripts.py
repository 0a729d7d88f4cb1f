"""The scripts in ``results/``: what they gather is what was there, and their intervals hold."""

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from harness.run_findings import stored

from as_lightning.bench.run.result import find_results, read_runs
from as_lightning.report.page import write_report
from as_lightning.report.record import ComparisonRecord

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"


@pytest.fixture(autouse=True)
def scripts_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(RESULTS / "where_it_pays")
    monkeypatch.syspath_prepend(RESULTS)


def test_gathered_runs_are_read_as_they_were_and_a_run_made_anew_replaces_its_line(
    tmp_path: Path,
) -> None:
    first, second, *_ = find_results([RESULTS / "digits" / "comparison"])
    folder = tmp_path / "runs" / "softmax"
    for number, run in enumerate((first, second)):
        stored(run, folder / f"seed={number}")
    (tmp_path / "report").mkdir()
    before = read_runs(tmp_path)
    import_module("gather").gather(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report", "runs.jsonl"]
    assert read_runs(tmp_path) == before
    stored(first, folder / "seed=1")
    import_module("gather").gather(tmp_path)
    assert read_runs(tmp_path) == dict.fromkeys(before, first)


@pytest.mark.parametrize("count", [4, 7])
def test_the_interval_over_data_sets_holds_the_mean_of_all_in_95_of_100_cases(count: int) -> None:
    generator, mean_of = np.random.default_rng(0), import_module("summary").mean_over_data_sets
    found = [mean_of(generator.normal(0.3, 0.5, count).tolist()) for _ in range(4000)]
    assert np.mean([low <= 0.3 <= high for _, low, high in found]) == pytest.approx(0.95, abs=0.015)


def test_a_page_with_other_places_than_a_script_writes_is_refused(tmp_path: Path) -> None:
    page, written = tmp_path / "page.md", import_module("written").written
    page.write_text("A\n<!-- written by one.py -->\nold\n<!-- end -->\nB\n", encoding="utf-8")
    assert written(page, "one.py", r"new \1").splitlines()[2] == r"new \1"
    with pytest.raises(ValueError, match=r"has 1 places that one\.py writes, and 2 are written"):
        written(page, "one.py", "new", "more")


def test_each_committed_report_is_that_of_its_record(tmp_path: Path) -> None:
    folders = [page.parents[1] for page in RESULTS.glob("*/*/report/report.md")]
    for folder in (folder for folder in folders if (folder / "comparison.json").exists()):
        page = write_report([ComparisonRecord.read(folder)], tmp_path).markdown
        assert page.read_text("utf-8") == (folder / "report" / "report.md").read_text("utf-8"), (
            folder
        )
