"""``as-lightning-compare`` as its users call it."""

import gc
import logging
import re
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from harness.run_findings import failed_runs, written
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode

from as_lightning.bench.commands.compare import main
from as_lightning.bench.packages import config_dir
from as_lightning.bench.run.recorder import RunRecorder
from as_lightning.bench.run.result import Result, find_results
from as_lightning.bench.run.settings import checked_settings
from as_lightning.comparison.configured import Command, app_space, described_candidates
from as_lightning.report.page import write_report
from as_lightning.report.record import ComparisonRecord

SHORT = [
    "trials=1",
    "trainer.limit_train_batches=3",
    "trainer.max_epochs=1",
    "half_epochs=false",
    "seeds=2",
]
STOPPED = "stopped; the same command again goes on from here"
REPORT = ("report.md", "report.html")


class Finished(NamedTuple):
    error: str | int | None  # the exit status, or the last words
    printed: str
    complained: str


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    """Undo what Hydra does to the logging of this process: it disables loggers and takes the root's
    handlers.
    """
    loggers = [logging.root, *map(logging.getLogger, list(logging.root.manager.loggerDict))]
    before = [(logger, vars(logger) | {"handlers": [*logger.handlers]}) for logger in loggers]
    yield
    for logger, state in before:
        vars(logger).update(state)
        logger.setLevel(logger.level)  # it forgets what it has cached


@pytest.fixture
def compare(tmp_path, monkeypatch, capfd, logging_as_before) -> Callable[..., Finished]:
    """Run the command in ``tmp_path``, in this process: Hydra starts in a second, an interpreter in
    several.
    """

    def run(*arguments: str) -> Finished:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("COLUMNS", "200")
        monkeypatch.setenv("PYTHONPATH", "")
        monkeypatch.setattr(sys, "path", list(sys.path))
        # what the command leaves to the end of its process, a second one would take for the user's
        monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
        monkeypatch.setattr(sys, "argv", ["as-lightning-compare", *arguments])
        error: str | int | None = 0
        try:
            main()
        except SystemExit as end:
            error = end.code
        finally:
            GlobalHydra.instance().clear()
        return Finished(error, *capfd.readouterr())

    return run


def configured(*arguments: str) -> Command:
    with initialize_config_dir(str(config_dir()), version_base="1.3"):
        composer = GlobalHydra.instance().config_loader()
        config = composer.load_configuration("compare", [*arguments], run_mode=RunMode.MULTIRUN)
        return Command(config, launcher=None, loader=composer, arguments=arguments)  # type: ignore[arg-type]


def final_runs(folder: Path) -> list[Result]:
    return [run for run in find_results(folder) if run.phase == "final"]


def reviews(folder: Path, labels: str = "ab") -> list[str]:
    rows = [f"{label} {number},{label}" for number in range(40) for label in labels]
    (folder / "reviews.csv").write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    return ["data=text_file", "data.path=reviews.csv", "name=reviews", "methods=as_softmax", *SHORT]


def test_a_comparison_ends_with_the_report_and_the_same_command_writes_it_again_bit_for_bit(
    compare, tmp_path
):
    command = ["experiment=digits", "methods=as_softmax", *SHORT, "method.delta=0.01"]
    done = compare(*command)
    assert done.error == 0, done
    folder = tmp_path / "comparisons" / "digits"
    record, before = ComparisonRecord.read(folder), written(folder)
    # the margin reaches the method that has one, and the baseline was added
    margins = {run.candidate: run.config["method"].get("delta") for run in final_runs(folder)}
    assert margins == {"softmax": None, "as_softmax": 0.01}
    assert all(run.config["data"]["split_seed"] == run.seed for run in final_runs(folder))
    assert "softmax, as_softmax: at most 4 runs" in done.printed
    assert (record.splits, len(before)) == ("per_seed", 4)
    assert len(list(folder.rglob("predictions.csv"))) == 4
    assert 1 <= len(record.examples) <= 20
    assert record.examples[0]["example"].startswith("image ")
    first = {name: (folder / "report" / name).read_bytes() for name in REPORT}
    assert b"as-lightning-compare experiment=digits" in first["report.md"]
    write_report(record, tmp_path / "again")  # what is stored gives the same report
    again = compare(*command)
    assert again.error == 0, again
    assert written(folder) == before
    for name in REPORT:
        assert (folder / "report" / name).read_bytes() == first[name]
        assert (tmp_path / "again" / name).read_bytes() == first[name]


def test_a_given_learning_rate_is_where_the_search_begins_and_is_fixed_on_request_alone(
    compare, tmp_path
):
    asked = ["experiment=digits", "methods=label_smoothing", *SHORT, "seeds=1"]
    asked.append("optimizer.lr=0.008")
    assert compare(*asked, "trials=2", "tuning_seeds=1", "name=tuned").error == 0
    trials = ComparisonRecord.read(tmp_path / "comparisons" / "tuned").tuning["softmax"]
    assert trials[0].settings["lr"] == 0.008 != trials[1].settings["lr"]
    fast = "candidates={fast: [optimizer.lr=0.1], longer: [trainer.max_epochs=2]}"
    assert (
        compare(*asked, fast, "baseline=softmax", "search.lr_factor=null", "name=fixed").error == 0
    )
    fixed = ComparisonRecord.read(tmp_path / "comparisons" / "fixed")
    assert (
        "The learning rate was not tuned of softmax, label_smoothing, fast, longer"
        in fixed.notes[0]
    )
    runs = final_runs(tmp_path / "comparisons" / "fixed")
    found = {run.candidate: (run.config["optimizer"]["lr"], run.epochs) for run in runs}
    assert (found["softmax"], found["label_smoothing"]) == ((0.008, 1), (0.008, 1))
    assert (found["fast"], found["longer"]) == ((0.1, 1), (0.008, 2))
    steps = {run.candidate: run.optimizer_steps for run in runs}
    assert steps["longer"] == 2 * steps["fast"]


def spaces(*arguments: str) -> dict[str, Any]:
    command = configured(*arguments)
    described, _ = described_candidates(command)
    configs = {n: checked_settings(command.compose(*d[0]))[0] for n, d in described.items()}
    return {n: app_space(command, described[n], c) for n, c in configs.items()}


def test_what_a_method_and_a_candidate_search_is_tuned_beside_the_learning_rate():
    assert list(spaces("methods=as_speed")["as_speed"]) == ["lr", "delta"]
    assert list(spaces("methods=as_speed", "method.delta=0.1")["as_speed"]) == ["lr"]
    listed = "+candidates.a={overrides: ['method=as_softmax'], search: {method.delta: [0.1, 1.0]}}"
    assert spaces(listed)["a"]["delta"].values == [0.5, 0.1, 1.0]  # the default first
    assert list(spaces("+candidates.a=['method=focal','method.gamma=3']")["a"]) == ["lr"]
    # methods of several labels are compared with the baseline of theirs
    several, baseline = described_candidates(configured("methods=[bce,asymmetric]"))
    assert list(several) == ["multilabel_softmax", "bce", "asymmetric"]
    assert baseline == "multilabel_softmax"


def test_what_is_left_out_of_the_data_is_said_before_the_first_run_and_no_label_is_markup(
    compare, tmp_path
):
    rows = ["some words,[/b]", "other words,[red]"] * 15 + ["no label,", ",a"]
    (tmp_path / "reviews.csv").write_text("\n".join(["text,label", *rows]))
    asked = ["data=text_file", "data.path=reviews.csv", "data.drop_blank=true"]
    finished = compare(
        *asked, "methods=as_softmax", *SHORT, "seeds=1", "+trainer.detect_anomaly=true"
    )
    assert finished.error == 0
    before = finished.printed.partition("Equal means within")[0]
    assert "lack text or label and are left out (data.drop_blank): 2 of 32" in before
    assert "TextFile: 2 classes ([/b], [red]); train / validation / test 24 / 3 / 3" in before


@pytest.mark.slow
def test_a_folder_takes_any_settings_until_its_first_run_and_then_the_same_data_and_design_alone(
    compare, tmp_path, monkeypatch
):
    command = [*reviews(tmp_path), "data.shots=5"]
    with monkeypatch.context() as patch:
        patch.setattr(RunRecorder, "on_train_start", lambda *_: signal.raise_signal(signal.SIGTERM))
        stopped = compare(*command, "data.batch_size=3")
    assert stopped.error == 128 + signal.SIGTERM
    assert f"as-lightning-compare: {STOPPED}" in stopped.complained
    assert compare(*command).error == 0
    runs = written(tmp_path)
    for change, found in {
        "data.batch_size=3": "of other data or shared settings",
        "optimizer.lr=0.1": "of other data or shared settings",
        "equal_within=1": "was begun with equal_within 0.5 (now 1): a comparison keeps the design "
        "of its",
    }.items():
        refused = str(compare(*command, change).error)
        assert found in refused
        assert re.search(
            "comparisons/reviews (holds another|was begun).*choose another (folder|name)", refused
        )
    torch.manual_seed(1)  # of another process: the shots are drawn alike
    assert compare(*command, "trainer.log_every_n_steps=7").error == 0
    refused = compare(*reviews(tmp_path, labels="abc"), "data.shots=5")
    assert (
        "comparisons/reviews holds another comparison, of other data or shared settings: choose"
        in str(refused.error)
    )
    assert written(tmp_path) == runs


ARGUMENTS = """
from functools import partial
from harness.own_modules import Points, WithCriterion
from torch import nn

class Focal(nn.CrossEntropyLoss): ...

def arguments():
    trainer = {"max_epochs": 1, "accelerator": "cpu"}
    compared = {"factory": WithCriterion, "datamodule": Points(150), "replaces": "criterion"}
    compared |= {"losses": {"focal": Focal}, "methods": ["as_softmax"], "seeds": 2}
    return compared | {"monitor": "val/acc", "trainer": trainer, "half_epochs": False}
"""


def test_a_function_in_the_working_directory_gives_the_arguments_of_a_comparison(compare, tmp_path):
    (tmp_path / "my_file.py").write_text(ARGUMENTS)
    asked = ["call=my_file.arguments", "name=own", "trials=2", "tuning_seeds=1", "seeds=1"]
    assert compare(*asked).error == 0
    folder = tmp_path / "comparisons" / "own"
    assert len(written(folder / "tuning")) == 3 * 2
    scores = ComparisonRecord.read(folder).scores()
    assert {arm: len(seeds) for arm, seeds in scores.items()} == dict.fromkeys(
        ("softmax", "as_softmax", "focal"), 1
    )
    before = written(folder)
    assert compare(*asked).error == 0
    assert before == written(folder)
    refused = str(compare(*asked, "trainer.max_epochs=3").error)
    assert "trainer.max_epochs is given by the function of call=" in refused
    assert "my_file.nothing" in str(compare("call=my_file.nothing", "name=own").error)
    untuned = [word for word in asked if word != "name=own"]
    assert compare(*untuned, "name=untuned", "search.lr_factor=null").error == 0
    untuned_record = ComparisonRecord.read(tmp_path / "comparisons" / "untuned")
    assert "lr_factor is null" in " ".join(untuned_record.notes)
    assert ComparisonRecord.read(folder).commands[0].endswith("seeds=1")


def test_a_comparison_that_is_interrupted_says_so_and_goes_on(compare, tmp_path, monkeypatch):
    command = ["experiment=digits", "methods=as_softmax", *SHORT]
    begin, begun = RunRecorder.on_train_start, []

    def interrupt_one(self, *arguments):
        begun.append(1)
        if len(begun) == 2 + 3:  # after the look at two candidates
            gc.disable()  # so that it does not arrive in a finalizer
            signal.raise_signal(signal.SIGINT)
        begin(self, *arguments)

    monkeypatch.setattr(RunRecorder, "on_train_start", interrupt_one)
    # tests in the background ignore the signal
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        stopped = compare(*command)
    finally:
        gc.enable()
        signal.signal(signal.SIGINT, handler)
    assert f"as-lightning-compare: {STOPPED}" in stopped.complained
    assert len(written(tmp_path)) == 2
    done = compare(*command)
    assert done.error == 0, done
    assert len(begun) == 2 + 3 + 2 + 2


def test_failed_runs_are_named(compare, tmp_path, monkeypatch):
    begin = RunRecorder.on_train_start

    def fail_one(self, trainer, module):
        if hasattr(module, "as_softmax_delta") and torch.initial_seed() == 1:
            raise RuntimeError("no memory is left")
        begin(self, trainer, module)

    monkeypatch.setattr(RunRecorder, "on_train_start", fail_one)
    done = compare("experiment=digits", "methods=as_softmax", *SHORT)
    assert re.search(
        "1 runs have failed; the first: as_softmax.*no memory is left", str(done.error)
    )
    record = ComparisonRecord.read(tmp_path / "comparisons" / "digits")
    assert failed_runs(record) == [("as_softmax", 1)]


@pytest.mark.slow
def test_any_settings_are_candidates_of_which_the_report_says_what_each_changes(compare, tmp_path):
    candidates = (
        "candidates={sgd: [optimizer=sgd, optimizer.lr=0.1], wide: ['model.channels=[48,96]']}"
    )
    command = ["experiment=digits", candidates, *SHORT, "seeds=1", "data.num_workers=1", "n_jobs=2"]
    done = compare(*command)
    assert done.error == 0, done
    record = ComparisonRecord.read(tmp_path / "comparisons" / "digits")
    assert record.candidates == ["baseline", "sgd", "wide"]
    runs = final_runs(tmp_path / "comparisons" / "digits")
    assert {run.config["method"]["name"] for run in runs} == {"softmax"}
    assert record.changes["wide"] == {"model.channels": ["[32, 64]", "[48, 96]"]}
    assert record.changes["baseline"] == {}
    assert record.changes["sgd"]["optimizer.lr"] == ["0.003", "0.1"]
    parameters = record.final.set_index("candidate")["parameters"]
    assert parameters["baseline"] == parameters["sgd"] < parameters["wide"]
    before = written(tmp_path)
    assert compare(*command[:-1]).error == 0  # in one process the same runs
    assert written(tmp_path) == before


# fmt: off
REFUSED = [
    ("methods=as_softmx", "Could not find 'method/as_softmx'"),
    ("methods=as_softmax optimizer.lrr=1", "there is no optimizer.lrr: did you mean lr?"),
    ("method.dleta=0.05", "did you mean delta"),
    ("method.tau=2", "no method of the comparison has method.tau"),
    ("method.delta=0.1,0.2", "Ambiguous value for argument 'method.delta=0.1,0.2'"),
    ("data=text_file data.path=a,b.csv", "quote the value"),
    ("trainer.max_epochs=0", "trainer.max_epochs must be an integer of at least 1, got 0"),
    ("search.lr_factor=0.1", "search.lr_factor must be a number above 1, got 0.1"),
    ("data=text_file data.path=none.csv", "none.csv"),
    ("data=text_file data.path=folder.csv", "[Errno 21] Is a"),
    ("data.path=x.csv", "there is no data.path"),
    ("data.split_seed=abc", "split_seed must be an integer of at least 0, got 'abc'"),
    ("call=harness.own_modules.nothing", "experiment is given by the function of call="),
    ("baseline=softmx", "no candidate is called softmx: did you mean softmax"),
    ("candidates={wide:[model.chanels=9]}", "there is no model.chanels: did you mean channels"),
    ("candidates='{wide: model.width=9}'", "candidates.wide must be a list of overrides, as ["),
    ("candidates={a:{overides:[optimizer=sgd]}}", "or have overrides and search, got"),
    ("candidates={less:[data=text_file,data.path=x.csv]}", "in the candidate less: other validation or test ex"),
    ("candidates={a:{search:{data.split_seed:[1,2]}}}", "a cannot set data.split_seed, which is"),
    ("candidates={a:{search:{data.imbalance:[null,20]}}}", "a cannot set data.imbalance, which"),
    ("candidates={a:{search:{optimiser.lr:[1,2]}}}", "Could not override 'optimiser.lr'"),
    ("candidates={a:[trainer.max_steps=5]}", "trainer must not set max_steps=5"),
    ("candidates={a:[trainer.accelerator=cuda]}", "in the candidate a: the arguments of trainer"),
    ("candidates={wide:[model.width=256", "in quotes, or a YAML file of these, got candidates={wide"),
    ("hydra.run.dir=x", "hydra.run.dir is the comparison's own"),
    ("seed=5", "seed is the comparison's own: give seeds="),
    ("method=focal", "method is the comparison's own"),
    ("n_jobs=0", "n_jobs must be an integer of at least 1, got 0"),
    ("n_jobs=2 hydra/launcher=joblib", "a launcher has its own, as hydra.launcher.n_jobs=2"),
    ("methods=softmax,as_softmax method.delta=null", "delta must be a number in [0, 1]"),
]
# fmt: on


@pytest.mark.parametrize(("words", "message"), REFUSED, ids=[words for words, _ in REFUSED])
def test_bad_input_is_refused_before_the_first_run(compare, words, message, tmp_path):
    (tmp_path / "folder.csv").mkdir()
    rows = [f"word {number},{number % 2}" for number in range(40)]
    (tmp_path / "x.csv").write_text("\n".join(["text,label", *rows]))
    assert message in str(compare("experiment=digits", *shlex.split(words)).error)
    assert not written(tmp_path)
