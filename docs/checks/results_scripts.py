"""The scripts in ``results/``: the reports are those of the records, and the intervals hold."""

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from as_lightning.report.page import write_report
from as_lightning.report.record import ComparisonRecord

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"


@pytest.fixture(autouse=True)
def scripts_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(RESULTS / "where_it_pays")
    monkeypatch.syspath_prepend(RESULTS)


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
    for folder in import_module("reports").folders():
        page = write_report(ComparisonRecord.read(folder), tmp_path).markdown
        assert page.read_text("utf-8") == (folder / "report" / "report.md").read_text("utf-8"), (
            folder
        )
