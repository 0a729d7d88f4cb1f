"""The scripts in ``results/``: what they gather is what was there, and the committed pages are what they write."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from as_lightning.benchmark.run.result import find_results, read_runs

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, RESULTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_gathered_runs_are_read_as_they_were_and_a_run_made_anew_replaces_its_line(tmp_path: Path) -> None:
    first, second, *_ = find_results([RESULTS / "digits" / "comparison"])
    folder = tmp_path / "runs" / "softmax"
    for number, run in enumerate((first, second)):
        (folder / f"seed={number}").mkdir(parents=True)
        run.write(folder / f"seed={number}")
    (tmp_path / "report").mkdir()
    before = read_runs(tmp_path)
    script("gather").gather(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report", "runs.jsonl"]
    assert read_runs(tmp_path) == before
    (folder / "seed=1").mkdir(parents=True)
    first.write(folder / "seed=1")
    script("gather").gather(tmp_path)
    assert read_runs(tmp_path) == dict.fromkeys(before, first)


def test_the_summary_is_that_of_the_committed_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for pattern in ("report.md", "comparison.json", "runs.jsonl"):
        for file in RESULTS.rglob(pattern):
            copy = tmp_path / file.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, copy)
    shutil.copy(ROOT / "README.md", tmp_path)
    shutil.copy(RESULTS / "README.md", tmp_path / "results")
    summary = script("summary")
    monkeypatch.setattr(summary, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(summary, "README", tmp_path / "README.md")
    summary.main()
    for page in ("README.md", "results/README.md"):
        assert (tmp_path / page).read_text(encoding="utf-8") == (ROOT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("count", [4, 7])
def test_the_interval_over_data_sets_holds_the_mean_of_all_in_95_of_100_cases(count: int) -> None:
    generator, mean_of = np.random.default_rng(0), script("summary").mean_over_data_sets
    found = [mean_of(generator.normal(0.3, 0.5, count).tolist()) for _ in range(4000)]
    assert np.mean([low <= 0.3 <= high for _, low, high in found]) == pytest.approx(0.95, abs=0.015)


def test_the_table_of_wide_heads_is_that_of_its_runs() -> None:
    page = script("wide_heads").page(RESULTS / "python_code" / "heads")
    assert page == (RESULTS / "python_code" / "README.md").read_text(encoding="utf-8")


def test_the_map_of_losses_and_its_pages_are_those_of_its_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(RESULTS / "where_it_pays")
    written = importlib.import_module("map").pages() | importlib.import_module("margin").pages()
    for path, text in written.items():
        # another version of matplotlib places a figure's texts otherwise
        shown = [
            re.findall(r">([^<>]+)</text>", page) if path.suffix == ".svg" else page
            for page in (text, path.read_text(encoding="utf-8"))
        ]
        assert shown[0], path
        assert shown[0] == shown[1], path
