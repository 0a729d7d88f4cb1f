"""Results of one method that differ in a setting, and results on disk."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from as_lightning.benchmark.results import Result, distinguish_variants


def config(delta: float, seed: int, **more) -> dict:
    return {"seed": seed, "method": {"delta": delta, "module": {"delta": delta, "_target_": "x"}}, **more}


def test_runs_that_differ_in_the_margin_get_a_name_each(result):
    runs = [result("as_softmax", s, 0.8, config=config(delta, s)) for delta in (0.1, 0.2) for s in (0, 1)]
    named = distinguish_variants([*runs, result("softmax", 0, 0.8, config={"seed": 0})])
    assert [run.method for run in named] == ["as_softmax (delta=0.1)"] * 2 + ["as_softmax (delta=0.2)"] * 2 + [
        "softmax"
    ]


def test_runs_that_differ_in_two_settings_name_both(result):
    runs = [result("m", 0, 0.8, config=config(delta, 0, lr=lr)) for delta in (0.1, 0.2) for lr in (1, 2)]
    assert [run.method for run in distinguish_variants(runs)] == [
        f"m (lr={lr}, delta={delta})" for delta in (0.1, 0.2) for lr in (1, 2)
    ]


def test_seeds_of_one_setting_keep_their_name(result):
    runs = [result("as_softmax", seed, 0.8, config=config(0.1, seed)) for seed in (0, 1, 2)]
    assert distinguish_variants(runs) == runs


def test_the_same_run_of_two_sweeps_counts_once(result):
    runs = [result("softmax", seed, 0.8) for seed in (0, 1)]
    assert distinguish_variants([*runs, result("softmax", 0, 0.8, seconds=11.0)]) == runs


def test_two_runs_that_differ_in_what_they_found_alone_are_refused(result):
    with pytest.raises(ValueError, match="two results are of set, softmax, seed 0, with the same settings"):
        distinguish_variants([result("softmax", 0, 0.8), result("softmax", 0, 0.9)])


def test_a_result_is_read_as_it_was_written(result, tmp_path):
    written = result("softmax", 0, 0.8, score_name="span_f1")
    assert Result.read(written.write(tmp_path)) == written


def test_a_result_of_an_older_format_is_refused_by_its_path(result, tmp_path):
    path = tmp_path / "result.json"
    path.write_text(json.dumps(asdict(result("softmax", 0, 0.8)) | {"format": 1}))
    with pytest.raises(ValueError, match=r"result.json is not a result of as-lightning: expected format 2, got 1"):
        Result.read(path)
