"""What tells two runs and two objects apart: a finished run is taken for what it read, other data
make it anew.
"""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from harness.made_files import write_table
from lightning.pytorch.callbacks import EarlyStopping
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from as_lightning.bench.run.identity import RunIdentity, value_digest
from as_lightning.bench.run.recorder import RunRecorder
from as_lightning.bench.run.result import Result
from as_lightning.bench.run.train import run_inputs, train


class Holds:
    def __init__(self, held: Any) -> None:
        self.held = held


def layer(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 3), nn.ReLU())


def late(value: float) -> torch.Tensor:
    return torch.zeros(5000).index_fill(0, torch.tensor(2500), value)


PAIRS: dict[str, tuple[Callable[[Any], Any], Any, Any]] = {
    "a tuple": (Holds, (0.9, 0.99), (0.9, 0.9)),
    "a dict": (Holds, {"decay": 0.0}, {"decay": 1.0}),
    "a set": (Holds, {"a", "b"}, {"a", "c"}),
    "a number of a long tensor": (lambda value: Holds(late(value)), 0.0, 1.0),
    "a large whole number": (torch.tensor, 2**53, 2**53 + 1),
    "a half": (lambda value: torch.tensor(value, dtype=torch.bfloat16), 0.0, 1.0),
    "an array": (lambda value: np.full(3, value), 0.0, 1.0),
    "weights": (layer, 0, 1),
    "whether weights are frozen": (lambda trained: layer(0).requires_grad_(trained), True, False),
    "a function": (Holds, torch.relu, torch.sin),
    "what a function encloses": (lambda held: lambda: held, 1, 2),
    "an argument of a partial": (lambda value: partial(late, value), 1.0, 2.0),
    "a data set": (lambda value: DataLoader(TensorDataset(late(value))).dataset, 0.0, 1.0),
    "a callback": (lambda patience: [EarlyStopping("val/acc", patience=patience)], 1, 2),
}


@pytest.mark.parametrize("kind", PAIRS)
def test_what_differs_has_another_digest_and_what_is_the_same_has_the_same(kind):
    make, one, other = PAIRS[kind]
    first, again, second = (value_digest(make(value)) for value in (one, one, other))
    assert first == again != second


def test_what_cannot_be_read_is_like_nothing():
    with open(__file__) as file:
        for held in (Holds(number for number in range(3)), Holds(file)):
            assert value_digest(held) != value_digest(held)


BRIEF = ["trainer.max_epochs=1", "trainer.limit_train_batches=2", "method=softmax", "logger=none"]
BRIEF += ["callbacks=plain"]


@pytest.fixture
def trained(monkeypatch) -> list[int]:
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
        table = tmp_path / "reviews.csv"
        write_table(table, {good: 20, "bad": 20})
        return composed("data=text_file", f"data.path={table}", *BRIEF, *settings)

    return written


def interrupt(config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop a run when it would write its result."""
    with monkeypatch.context() as patch:
        patch.setattr(Result, "write", lambda *_: pytest.fail("stopped before its end"))
        with pytest.raises(pytest.fail.Exception):
            train(config)


def test_a_run_whose_data_file_has_changed_is_made_anew(reviews, trained, caplog):
    # the same content, written later
    for good, runs in (("good", 1), ("good", 1), ("fine", 2), ("fine", 2)):
        train(reviews(good))
        assert len(trained) == runs
    assert caplog.text.count("finished with another inputs.data") == 1


@pytest.mark.parametrize("changed", [("fine",), ("good", "seed=7")])
def test_an_interrupted_run_does_not_go_on_with_other_data_or_settings(
    reviews, monkeypatch, changed
):
    interrupt(reviews(), monkeypatch)
    assert not train(reviews(*changed)).resumed


def test_a_run_of_another_progress_bar_goes_on_and_is_finished(reviews, trained, monkeypatch):
    interrupt(reviews(), monkeypatch)
    config = reviews()
    config.trainer.enable_progress_bar = True
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
    tuples, lists = ({"widths": [widths]} for widths in ((8, 16), [8, 16]))  # one in JSON
    assert RunIdentity.of(tuples).changed(RunIdentity.of(lists)) == []


@pytest.mark.parametrize(
    ("settings", "file", "kind"),
    [
        (("experiment=digits", "model=auto_model", "model.name"), "model.safetensors", "model"),
        (("data=text_file", "data.path=none.csv", "data.tokenizer"), "tokenizer.json", "tokenizer"),
    ],
)
def test_a_folder_with_an_encoder_or_with_source_code_is_recorded_by_its_content(
    composed, tmp_path, settings, file, kind
):
    config = composed(*settings[:-1], f"{settings[-1]}={tmp_path}")
    found = []
    for content in ("x = 1", "x = 2", "x = 2"):
        (tmp_path / file).write_text(content)
        found.append(run_inputs(config))
    assert [*found[0]] == [kind]
    assert found[0] != found[1] == found[2]


NAMED = ["_target_: users_made.made", "_target_: hydra.utils.get_object, path: users_made.made"]


@pytest.mark.parametrize("named", NAMED)
def test_the_imported_files_of_the_users_count_where_a_setting_names_one(
    composed, monkeypatch, tmp_path, named
):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "users_other.py").write_text("x = 1")
    (tmp_path / "users_made.py").write_text("import users_other\ndef made(): ...\n")
    for name in ("users_made", "users_other"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    config = composed("experiment=digits", f"+trainer.x=[{{{named}}}]")
    before = run_inputs(config)
    assert [*before] == ["code"]
    assert run_inputs(config) == before
    (tmp_path / "users_other.py").write_text("x = 2")
    assert run_inputs(config) != before
    assert run_inputs(composed("experiment=digits")) == {}
