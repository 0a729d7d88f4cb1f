"""A finished run is taken for what it read: other data make it anew."""

from __future__ import annotations

import logging
import platform
from pathlib import Path

import pytest
import torch

from as_lightning.benchmark.data.text import standard_library as python_code
from as_lightning.benchmark.run.identity import RunIdentity
from as_lightning.benchmark.run.recorder import RunRecorder
from as_lightning.benchmark.run.result import Result
from as_lightning.benchmark.run.resume import written_identity
from as_lightning.benchmark.run.train import run_inputs, train

BRIEF = ("trainer.max_epochs=1", "trainer.limit_train_batches=2", "method=softmax", "logger=none")


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Gets an entry for each run that begins."""
    begun: list[int] = []
    start = RunRecorder.on_train_start

    def note(self: RunRecorder, *arguments: object) -> None:
        begun.append(1)
        start(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(RunRecorder, "on_train_start", note)
    return begun


@pytest.fixture
def reviews(composed, tmp_path):
    """Writes the data of a run, and gives its configuration."""

    def written(good: str = "good", *settings: str):
        rows = [f"{word} {index},{word}" for index in range(20) for word in (good, "bad")]
        (tmp_path / "reviews.csv").write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
        return composed("data=text_file", f"data.path={tmp_path / 'reviews.csv'}", *BRIEF, *settings)

    return written


def test_a_run_whose_data_file_has_changed_is_made_anew(reviews, trained, caplog):
    train(reviews())
    train(reviews())  # the same content, written later
    assert len(trained) == 1
    with caplog.at_level(logging.WARNING):
        train(reviews(good="fine"))
    assert len(trained) == 2
    assert "finished with another inputs.data" in caplog.text
    train(reviews(good="fine"))
    assert len(trained) == 2


@pytest.mark.parametrize("changed", [("fine",), ("good", "seed=7")])
def test_an_interrupted_run_does_not_go_on_with_other_data_or_settings(reviews, monkeypatch, changed):
    with monkeypatch.context() as patch:
        patch.setattr(Result, "write", lambda self, directory: pytest.fail("stopped before its end"))
        with pytest.raises(pytest.fail.Exception):
            train(reviews())
    assert not train(reviews(*changed)).resumed


def test_a_run_of_another_progress_bar_goes_on_and_is_finished(reviews, trained, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Result, "write", lambda self, directory: pytest.fail("stopped before its end"))
        with pytest.raises(pytest.fail.Exception):
            train(reviews())
    config = reviews()
    config.trainer.enable_progress_bar = True
    (last,) = Path(config.output_dir).rglob("last.ckpt")
    checkpoint = torch.load(last, weights_only=False)
    assert '"enable_progress_bar": false' in checkpoint["callbacks"]["RunRecorder"]["written"]
    result = train(config)
    assert result.resumed
    assert len(result.evaluations) == 1  # also the evaluations are this run's
    assert len(trained) == 1  # all of its training was in the checkpoint
    assert train(reviews()).resumed


def test_what_an_older_version_has_not_written_of_a_run_is_not_compared():
    config = {"seed": 1, "trainer": {"enable_progress_bar": False}}
    now = RunIdentity.of({"seed": 1, "trainer": {}}, {"model": "a"})
    assert RunIdentity.of(config).changed(now) == []
    assert RunIdentity.of(config, {"model": "b"}).changed(now) == ["inputs.model"]
    assert RunIdentity.of(config | {"seed": 2, "shots": None}).changed(now) == ["seed"]
    old = {"callbacks": {"RunRecorder": {"settings": '{"seed": 1, "inputs": {"model": "a"}}'}}}  # as 0.3 wrote them
    assert written_identity(old) == now


def test_a_folder_with_an_encoder_is_recorded_by_its_content(composed, tmp_path):
    config = composed("experiment=digits", "model=auto_model", f"model.name={tmp_path}")
    found = []
    for content in ("one", "other", "other"):
        (tmp_path / "model.safetensors").write_text(content)
        found.append(run_inputs(config)["model"])
    assert found[0] != found[1] == found[2]


def test_data_of_the_standard_library_alone_record_the_version_of_python(composed, tmp_path):
    for data in ("docstrings", "python_code"):
        assert run_inputs(composed(f"data={data}")) == {"python": f"CPython {platform.python_version()}"}
    assert run_inputs(composed("experiment=digits")) == {}


def test_source_code_of_ones_own_is_recorded_by_its_content(composed, tmp_path):
    config = composed("data=python_code", f"data.root={tmp_path}")
    found = []
    for content in ("x = 1", "x = 2", "x = 2"):
        (tmp_path / "module.py").write_text(content)
        (tmp_path / f"notes on {len(found)}.txt").touch()  # which is not read
        found.append(run_inputs(config))
    assert [*found[0]] == ["data"]
    assert found[0] != found[1] == found[2]


def test_a_run_of_another_python_is_made_anew(composed, tmp_path, trained, caplog, monkeypatch):
    for number in range(10):  # a library of ten files: what is tested is which Python it is said to be of
        (tmp_path / f"module_{number}.py").write_text("x = [1, 2, 3]\n" * 20)
    monkeypatch.setattr(python_code, "library_folder", lambda: tmp_path)
    config = composed("data=python_code", "data.block_length=8", "data.batch_tokens=32", "callbacks=plain", *BRIEF)
    train(config)
    monkeypatch.setattr(platform, "python_version", lambda: "3.99.0")
    with caplog.at_level(logging.WARNING):
        train(config)
    assert len(trained) == 2
    assert "another inputs.python" in caplog.text
