"""Results on disk."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from as_lightning.benchmark.run.result import Result


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": "one"}, "expected seed to be an integer, got 'one'"),
        ({"seed": 1.0}, "expected seed to be an integer, got 1.0"),
        ({"seed": None}, "expected seed to be an integer, got None"),
        ({"name": 3}, "expected name to be text, got 3"),
        ({"train_seconds": "long"}, "expected train_seconds to be 0 or more, got 'long'"),
        ({"score": "f1"}, "expected metrics with the score 'f1', got accuracy"),
    ],
)
def test_a_result_with_a_field_of_another_kind_is_refused_by_its_path_and_field(result, tmp_path, change, message):
    path = tmp_path / "result.json"
    path.write_text(json.dumps(asdict(result("softmax", 0, 0.8)) | change))
    with pytest.raises(ValueError, match=rf"result.json is not a result of as-lightning: {message}"):
        Result.read(path)


def test_a_result_is_read_as_it_was_written(result, tmp_path):
    written = result("softmax", 0, 0.8, score_name="span_f1")
    assert Result.read(written.write(tmp_path)) == written


def test_a_result_of_an_older_format_is_refused_by_its_path(result, tmp_path):
    path = tmp_path / "result.json"
    path.write_text(json.dumps(asdict(result("softmax", 0, 0.8)) | {"format": 1}))
    with pytest.raises(ValueError, match=r"result.json is not a result of as-lightning: expected format 2, got 1"):
        Result.read(path)
