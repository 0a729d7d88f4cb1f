"""What tells two runs and two objects apart: a finished run is taken for what it read, other data
make it anew.
"""

import os
import platform
import random
import re
from collections import defaultdict, deque
from collections.abc import Callable
from functools import partial, singledispatch, wraps
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from harness.made_files import write_table
from harness.own_modules import Points
from joblib import Parallel, delayed
from lightning.pytorch.callbacks import EMAWeightAveraging
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from as_lightning.bench.data.text import standard_library
from as_lightning.bench.run.fingerprint import Fingerprint, code_of
from as_lightning.bench.run.identity import RunIdentity
from as_lightning.bench.run.recorder import RunRecorder
from as_lightning.bench.run.result import Result
from as_lightning.bench.run.train import run_inputs, train

FACTOR, OTHER_FILE = 1.0, ModuleType("other_file")
OTHER_FILE.FACTOR = 1.0


def scaled(value: float) -> float:
    from harness import own_modules

    return FACTOR * OTHER_FILE.FACTOR * value * own_modules.Points().rows


class Holds:
    def __init__(self, held: Any) -> None:
        self.held = held

    def loss(self, value: float) -> float:
        return scaled(value) * self.held


def layer(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 3), nn.ReLU())


def hooked(seed: int) -> nn.Module:
    made = layer(seed)
    made.handle = made.register_forward_hook(print)
    return nn.utils.parametrizations.weight_norm(made[0]) and made


def with_keywords(*of_hooks: bool) -> nn.Module:
    made = layer(0)
    for hook, with_kwargs in zip((print, sorted), of_hooks, strict=True):
        made.register_forward_hook(hook, with_kwargs=with_kwargs)
    return made


def held_back(factor: float, register: str) -> nn.Module:
    return (
        getattr((made := layer(0))[0].weight, register)(
            lambda gradient: gradient if factor else None
        )
        and made
    )


def tied(whether: bool) -> nn.Module:
    made = nn.Sequential(layer(0), layer(0))
    if whether:
        made[1][0].weight = made[0][0].weight
    return made


TIMES = [wraps(scaled)(lambda x: 2 * scaled(x)), wraps(scaled)(lambda x: 3 * scaled(x))]


def late(value: float) -> torch.Tensor:
    return torch.zeros(5000).index_fill(0, torch.tensor(2500), value)


def variable(name: str) -> str:
    """Where it is read."""
    return os.environ[name]


PAIRS: dict[str, tuple[Callable[[Any], Any], Any, Any]] = {
    "a tuple": (Holds, (0.9, 0.99), (0.9, 0.9)),
    "a dict": (Holds, {"decay": 0.0}, {"decay": 1.0}),
    "a set": (Holds, {"a", "b"}, {"a", "c"}),
    "a number of a long tensor": (lambda value: Holds(late(value)), 0.0, 1.0),
    "an array": (lambda value: np.full(3, value), 0.0, 1.0),
    "weights": (layer, 0, 1),
    "weights of a module with hooks, whose numbers are the process's": (hooked, 0, 1),
    "which hook takes keywords": (lambda first: with_keywords(first, not first), True, False),
    "a hook of a weight's gradient": (partial(held_back, register="register_hook"), 0.0, 1.0),
    "a late one": (partial(held_back, register="register_post_accumulate_grad_hook"), 0.0, 1.0),
    "a conjugate": (lambda value: torch.tensor([value]).conj(), 1 + 2j, 1 + 3j),
    "whether weights are frozen": (lambda trained: layer(0).requires_grad_(trained), True, False),
    "whether weights are tied": (tied, True, False),
    "a list of one's own": (lambda factor: type("Rows", (list,), {"factor": factor})(), 1, 2),
    "a class of its base's name": (
        lambda factor: type("Holds", (Holds,), {"loss": factor})(1),
        1,
        2,
    ),
    "a table": (lambda value: pd.DataFrame({"label": [0, value]}), 1, 2),
    "a queue of one's own": (lambda value: type("Queue", (deque,), {})([value]), 1, 2),
    "a mask": (lambda hidden: np.ma.array([1, 2], mask=[False, hidden]), False, True),
    "a time": (np.datetime64, "2000-01-01", "2000-01-02"),
    "a pattern": (re.compile, "a", "b"),
    "a key that is a number": (lambda key: {key: 0}, 1, "1"),
    "keys that are alike": (lambda order: dict(zip((1, "1"), order, strict=True)), "ab", "cb"),
    "two functions of a line, which wrap another": (lambda factor: TIMES[factor - 2], 2, 3),
    "a function": (Holds, torch.relu, torch.sin),
    "an attribute of a function": (
        lambda value: vars(held := lambda: 0).update(mark=value) or held,
        1,
        2,
    ),
    "an attribute of a weight": (
        lambda value: vars(held := layer(0)[0].weight).update(mark=value) or held,
        1,
        2,
    ),
    "a factory of a dict": (defaultdict, int, list),
    "a base of a library's": (lambda base: type("Own", (base,), {})(), nn.ReLU, nn.SiLU),
    "a variable that is read": (
        lambda x: os.environ.update(AS_RANK=x) or partial(variable, "AS_RANK"),
        "1",
        "2",
    ),
    "a class of classes": (
        lambda value: type("Meta", (type,), {"scale": value})("C", (), {}),
        1,
        2,
    ),
    "a bound method": (lambda value: Holds(value).loss, 1.0, 2.0),
    "what a function encloses": (lambda held: lambda: held, 1, 2),
    "an argument of a partial": (lambda value: partial(scaled, value), 1.0, 2.0),
    "a generator": (lambda seed: torch.Generator().manual_seed(seed), 0, 1),
    "what vars takes": (
        lambda f: vars(OTHER_FILE).update(f=f) or (lambda: vars(OTHER_FILE)["f"]),
        layer,
        tied,
    ),
    "a random state": (random.Random, 0, 1),
    "a data set": (lambda value: DataLoader(TensorDataset(late(value))), 0.0, 1.0),
    "what a library encloses": (lambda decay: [EMAWeightAveraging(decay=decay)], 0.9, 0.99),
}


@pytest.mark.parametrize("kind", PAIRS)
def test_what_differs_has_another_fingerprint_and_what_is_the_same_has_the_same(kind):
    make, one, other = PAIRS[kind]
    first, again, second = (Fingerprint(make(value), "x") for value in (one, one, other))
    assert first.unread == []
    assert first.digest == again.digest != second.digest
    assert first.differing(second) or first.outside != second.outside


def test_a_constant_of_the_file_or_of_another_and_a_file_that_is_named_count(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    (path := tmp_path / "rows.csv").write_text("a")
    holds, named = (
        Fingerprint(Holds(1.0), "x"),
        [Fingerprint(text, "x").digest for text in (str(path), "~/rows.csv")],
    )
    monkeypatch.setitem(globals(), "FACTOR", 2.0)
    assert Fingerprint(Holds(1.0), "x").digest != holds.digest
    monkeypatch.setitem(globals(), "FACTOR", 1.0)
    monkeypatch.setattr(OTHER_FILE, "FACTOR", 2.0)
    assert Fingerprint(Holds(1.0), "x").digest != holds.digest
    path.write_text("ab")  # of another size
    assert {Fingerprint(text, "x").digest for text in (str(path), "~/rows.csv")}.isdisjoint(named)


def test_docstrings_and_variables_of_a_process_do_not_count(monkeypatch):
    held = [variable, "LOCAL_RANK", dispatched := singledispatch(variable)]
    before = Fingerprint(held, "x").digest
    monkeypatch.setenv("LOCAL_RANK", "7")
    monkeypatch.setattr(
        variable, "__code__", variable.__code__.replace(co_consts=("Where it is taken.",))
    )
    monkeypatch.setattr(variable, "__doc__", variable.__code__.co_consts[0])
    assert dispatched("LOCAL_RANK") == "7"  # which its cache holds now
    assert Fingerprint(held, "x").digest == before


def test_a_class_of_a_script_is_the_same_in_another_process():
    own = type(
        "Own",
        (nn.ReLU,),
        {"__module__": "__main__", "z": [1], "forward": lambda self, x: x, "a": "b"},
    )
    first, second = Parallel(2)(delayed(lambda: Fingerprint(own, "x").digest)() for _ in range(2))
    assert first == second == Fingerprint(own, "x").digest


def test_the_code_of_a_package_of_the_users_counts_where_it_is_installed(monkeypatch, tmp_path):
    package, found = tmp_path / "site-packages" / "users_package", []
    package.mkdir(parents=True)
    monkeypatch.syspath_prepend(package.parent)
    for factor in (1, 1, 2):
        (package / "__init__.py").write_text("from users_package.inner import scaled\n")
        (package / "inner.py").write_text(f"def scaled(value): return {factor} * value\n")
        code_of.cache_clear()
        found.append(Fingerprint(__import__("users_package").scaled, "x").digest)
    assert found[0] == found[1] != found[2]


def test_what_cannot_be_read_is_named_and_is_like_nothing():
    with open(__file__) as file:
        for held in (Holds(number for number in range(3)), Holds(file)):
            first, again = Fingerprint(held, "x"), Fingerprint(held, "x")
            assert first.unread == ["x.state.held"]
            assert first.digest != again.digest


BRIEF = (
    "trainer.max_epochs=1",
    "trainer.limit_train_batches=2",
    "method=softmax",
    "logger=none",
    "callbacks=plain",
)


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
        write_table(tmp_path / "reviews.csv", {good: 20, "bad": 20})
        return composed(
            "data=text_file", f"data.path={tmp_path / 'reviews.csv'}", *BRIEF, *settings
        )

    return written


def interrupt(config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop a run when it would write its result."""
    with monkeypatch.context() as patch:
        patch.setattr(
            Result, "write", lambda self, directory: pytest.fail("stopped before its end")
        )
        with pytest.raises(pytest.fail.Exception):
            train(config)


def test_a_run_whose_data_file_has_changed_is_made_anew(reviews, trained, caplog):
    for good, runs in (
        ("good", 1),
        ("good", 1),
        ("fine", 2),
        ("fine", 2),
    ):  # the same content, written later
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
    assert (
        RunIdentity.of({"widths": [(8, 16)]}).changed(RunIdentity.of({"widths": [[8, 16]]})) == []
    )  # as JSON has it


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


@pytest.mark.parametrize("made", [Points, partial(Points)])
@pytest.mark.parametrize(
    "named", ["_target_: harness.made", "_target_: hydra.utils.get_object, path: harness.made"]
)
def test_the_code_of_a_class_of_the_users_and_of_what_a_function_imports_counts(
    composed, monkeypatch, made, named
):
    monkeypatch.setattr("harness.made", made, raising=False)
    config = composed("experiment=digits", f"+trainer.x=[{{{named}}}]")
    before, holds = run_inputs(config), Fingerprint(Holds(1.0), "x")
    monkeypatch.setattr("harness.own_modules.Points.setup", print)
    assert [*before] == ["code"]
    changed = run_inputs(config)
    assert changed["code"] != before["code"]
    assert Fingerprint(Holds(1.0), "x").digest != holds.digest
    monkeypatch.setattr("harness.own_modules.Points.source", "AS_FILE", raising=False)
    named = run_inputs(config)
    monkeypatch.setenv("AS_FILE", "1")
    assert len({found["code"] for found in (changed, named, run_inputs(config))}) == 3


def test_an_attribute_of_the_name_of_an_environment_variable_is_no_text(monkeypatch):
    named = type("Named", (nn.Linear,), {"PATH": "data"})(2, 2)
    named.HOME, named.kept = 1, SimpleNamespace(LANG=1)
    found = []
    for value in ("a", "b"):
        for name in ("PATH", "HOME", "LANG"):
            monkeypatch.setenv(name, value)
        found.append(Fingerprint(named, "x").digest)
    assert found[0] == found[1]


def test_data_of_the_standard_library_alone_record_the_version_of_python_and_those_of_another_are_made_anew(
    composed, tmp_path, trained, caplog, monkeypatch
):
    python = {"python": f"CPython {platform.python_version()}"}
    assert run_inputs(composed("data=docstrings")) == python
    assert run_inputs(composed("experiment=digits")) == {}
    module = '"""' + "\n\n".join(f"Word {number} of five or more." for number in range(40)) + '"""'
    for name in ("ast", "csv"):  # what is tested is which Python it is said to be of
        (tmp_path / f"{name}.py").write_text(module.replace("Word", name))
    monkeypatch.setattr(standard_library, "library_folder", lambda: tmp_path)
    config = composed("data=docstrings", *BRIEF)
    train(config)
    monkeypatch.setattr(platform, "python_version", lambda: "3.99.0")
    train(config)
    assert len(trained) == 2
    assert "another inputs.python" in caplog.text
