"""A run's result on disk: read as it was written, whole or not there."""

import json
import math
from dataclasses import asdict

import pytest

from as_lightning.bench.run.identity import RunIdentity
from as_lightning.bench.run.predictions import PREDICTIONS_FILE
from as_lightning.bench.run.result import RESULT_FILE, Result, find_results, whole_file
from as_lightning.bench.run.runner import RunOutput, correlation, finished_or_made


@pytest.mark.parametrize(
    "content", ["\x89PNG\r\n", "{", "[1]", '{"name": "x"}', '{"seed": 1, "metrics": {"f1": 1}}']
)
def test_a_file_that_is_no_json_of_a_result_is_named(tmp_path, content):
    path = tmp_path / "result.json"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(ValueError, match=r"result.json is not a result of as-lightning"):
        Result.read(path)


def test_a_result_whose_metrics_lack_its_score_is_refused(result, tmp_path):
    result("softmax", 0, 0.8, metrics={"f1": 0.5}).write(tmp_path)
    with pytest.raises(ValueError, match="lack the score 'accuracy'"):
        Result.read(tmp_path / "result.json")


def test_the_results_below_folders_are_found_in_the_order_of_their_names(result, tmp_path):
    runs = {name: result(name, 0, 0.8, session="") for name in ("b", "a")}
    for name, run in runs.items():
        (tmp_path / "runs" / name).mkdir(parents=True)
        run.write(tmp_path / "runs" / name)
    assert find_results(tmp_path / "runs") == [runs["a"], runs["b"]]


def test_a_result_of_another_version_has_the_fields_of_this_one_and_no_session(
    result, tmp_path, monkeypatch
):
    monkeypatch.setenv("AS_LIGHTNING_SESSION", "of the reader")
    content = asdict(result("softmax", 0, 0.8, session="")) | {"a field that is gone": []}
    del content["session"]
    (tmp_path / "result.json").write_text(json.dumps(content))
    assert Result.read(tmp_path / "result.json") == result("softmax", 0, 0.8, session="")


def test_two_writers_of_one_file_leave_one_whole_file(tmp_path):
    place = tmp_path / "file"
    with whole_file(place) as first:
        first.write_text("of the first")
        with whole_file(place) as second:
            second.write_text("of the second")
        assert place.read_text() == "of the second"
    assert place.read_text() == "of the first"
    assert list(tmp_path.iterdir()) == [place]


def test_a_run_that_is_made_anew_leaves_no_predictions_of_the_one_before(result, tmp_path):
    other, same = RunIdentity.of({"seed": 1}), RunIdentity.of({})  # as the result holds
    finished_or_made(tmp_path, same, lambda: (result("softmax", 0, 0.5), None))
    (tmp_path / PREDICTIONS_FILE).touch()
    finished_or_made(tmp_path, same, lambda: (result("softmax", 0, 0.5), None))
    assert (tmp_path / PREDICTIONS_FILE).exists()

    def fails() -> RunOutput:
        raise FileNotFoundError("reviews.csv")

    with pytest.raises(FileNotFoundError):
        finished_or_made(tmp_path, other, fails)
    assert (tmp_path / RESULT_FILE).exists()  # nothing is deleted before its successor is whole
    assert (tmp_path / PREDICTIONS_FILE).exists()
    finished_or_made(tmp_path, other, lambda: (result("softmax", 1, 0.5), None))
    assert not (tmp_path / PREDICTIONS_FILE).exists()


@pytest.mark.parametrize(
    "pairs",
    [
        [],
        [(1.0, 0.5)],
        [(1.0, 0.5), (1.0, 0.6)],
        [(1.0, 0.5), (0.8, 0.5)],
        [(math.nan, 0.5), (0.8, 0.6)],
    ],
)
def test_the_correlation_of_loss_and_score_is_none_where_it_is_not_defined(pairs):
    assert correlation([{"loss": loss, "score": score} for loss, score in pairs]) is None
    assert correlation([{"score": score} for _, score in pairs]) is None
    line = [{"loss": 1.0 - score, "score": score} for score in (0.1, 0.5, 0.6)]
    assert correlation(line) == pytest.approx(-1.0)
