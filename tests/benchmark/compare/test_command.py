"""``as-lightning-compare`` as its users call it."""

from __future__ import annotations

import gc
import json
import logging
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hydra.core.global_hydra import GlobalHydra

from as_lightning.benchmark.commands.compare import main
from as_lightning.benchmark.compare.api import comparison_findings
from as_lightning.benchmark.compare.comparison_page import write_comparison
from as_lightning.benchmark.compare.stored_comparison import StoredComparison
from as_lightning.benchmark.run.recorder import RunRecorder

SHORT = ["trials=1", "trainer.limit_train_batches=3", "trainer.max_epochs=1", "budgets=1", "seeds=3"]


class Finished(NamedTuple):
    """What a command has left: its exit status (or its last words) and what it has printed."""

    error: str | int | None
    printed: str


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    """Undo what Hydra does to the logging of this process: it disables loggers and takes the root's handlers."""
    loggers = [logging.root, *(logging.getLogger(name) for name in list(logging.root.manager.loggerDict))]
    before = [(logger, logger.disabled, logger.level, list(logger.handlers), logger.propagate) for logger in loggers]
    yield
    for logger, disabled, level, handlers, propagate in before:
        logger.disabled, logger.propagate, logger.handlers = disabled, propagate, handlers
        logger.setLevel(level)


@pytest.fixture
def as_lightning_compare(tmp_path, monkeypatch, capfd, logging_as_before) -> Callable[..., Finished]:
    """Run the command in ``tmp_path``, in this process: Hydra starts in a second, an interpreter in several."""

    def run(*arguments: str) -> Finished:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("COLUMNS", "200")
        monkeypatch.setenv("HYDRA_FULL_ERROR", "0")  # the command sets it; a second one would take it for the user's
        monkeypatch.setattr(sys, "argv", ["as-lightning-compare", *arguments])
        error: str | int | None = 0
        try:
            main()
        except SystemExit as end:
            error = end.code
        finally:
            GlobalHydra.instance().clear()
        return Finished(error, capfd.readouterr().out)

    return run


def advice_in(folder: Path) -> list[str]:
    return json.loads((folder / "report" / "advice.json").read_text(encoding="utf-8"))


def test_what_is_left_out_of_the_data_is_said_before_the_first_run(as_lightning_compare, tmp_path: Path) -> None:
    rows = ["some words,a", "other words,b"] * 15 + ["odd words,c", "odder words,d", "no label,", ",a"]
    (tmp_path / "reviews.csv").write_text("\n".join(["text,label", *rows]))
    asked = ["data=text_file", "data.path=reviews.csv", "data.drop_blank=true", "data.min_per_class=10"]
    finished = as_lightning_compare(*asked, "methods=as_softmax", *SHORT, "seeds=1")
    assert finished.error == 0
    before = finished.printed.partition("Equal means within")[0]
    assert "2 rows without text or label are left out, the first in line 34" in before
    assert "2 classes with fewer than 10 rows are left out: 'c' (1); 'd' (1)" in before
    assert "TextFile: 2 classes (a, b); train / validation / test 24 / 3 / 3" in before
    assert "1 seed: at least 3 are needed for verdicts and advice" in " ".join(before.split())


def test_a_comparison_ends_with_the_verdicts_the_advice_and_the_report(as_lightning_compare, tmp_path: Path) -> None:
    command = ["experiment=digits", "methods=as_softmax", "method.delta=0.2", *SHORT]
    done = as_lightning_compare(*command)
    assert done.error == 0, done
    folder = tmp_path / "comparisons" / "digits"
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in folder.rglob("result.json")]
    assert len(runs) == 2 * 3
    # the margin reaches the method that has one, and the baseline was added
    assert {run["method"]: run["config"]["method"].get("delta") for run in runs} == {"softmax": None, "as_softmax": 0.2}
    assert "6 runs" in done.printed
    assert all(sentence.split()[0] in done.printed for sentence in advice_in(folder))
    assert (folder / "report" / "report.html").exists()
    assert "as-lightning-compare experiment=digits" in (folder / "report" / "report.md").read_text(encoding="utf-8")
    # what is stored gives the same report
    stored = StoredComparison.read(folder)
    found = comparison_findings(stored.comparison, split=stored.split, mode=stored.mode)
    again_written = write_comparison(found, stored.comparison, tmp_path / "again", commands=stored.commands)
    for path in (again_written.markdown, again_written.csv):
        assert path.read_text(encoding="utf-8") == (folder / "report" / path.name).read_text(encoding="utf-8")
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("result.json")}
    again = as_lightning_compare(*command)
    assert again.error == 0, again
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("result.json")} == before


def test_data_alone_bring_a_model_that_fits_them(as_lightning_compare, tmp_path: Path) -> None:
    lines = [f"{word} {index},{word}" for index in range(40) for word in ("good", "bad")]
    (tmp_path / "reviews.csv").write_text("\n".join(["text,label", *lines]) + "\n", encoding="utf-8")
    done = as_lightning_compare("data=text_file", "data.path=reviews.csv", "methods=as_softmax", *SHORT)
    assert done.error == 0, done
    (folder,) = (tmp_path / "comparisons").iterdir()
    assert advice_in(folder)


OWN = [
    "module._target_=harness.own_modules.WithCriterion",
    "module.replaces=criterion",
    "data._target_=harness.own_modules.Points",
    "+data.rows=150",
    "methods=as_softmax",
    "trials=2",
    "tuning_seeds=1",
    "seeds=3",
    "budgets=1",
    "trainer.max_epochs=1",
    "name=own",
]


def test_a_module_of_ones_own_is_compared_by_its_dotted_path(as_lightning_compare, tmp_path: Path) -> None:
    done = as_lightning_compare(*OWN, "+module.hidden=8")
    assert done.error == 0, done
    folder = tmp_path / "comparisons" / "own"
    assert len(list((folder / "tuning").rglob("result.json"))) == 2 * 2
    assert len(list((folder / "runs").rglob("result.json"))) == 2 * 3
    assert advice_in(folder)


@pytest.mark.slow
def test_runs_of_other_arguments_of_ones_own_module_are_made_anew_and_every_command_is_kept(
    as_lightning_compare, tmp_path: Path
) -> None:
    def written() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in tmp_path.rglob("result.json")}

    small = [*OWN, "trials=1"]
    assert as_lightning_compare(*small, "+module.hidden=8").error == 0
    first = written()
    assert as_lightning_compare(*small, "+module.hidden=8").error == 0
    assert written() == first
    assert as_lightning_compare(*small, "+module.hidden=4").error == 0
    assert all(time != first[path] for path, time in written().items())
    commands = StoredComparison.read(tmp_path / "comparisons" / "own").commands
    assert [command.rpartition("=")[2] for command in commands] == ["8", "4"]


class _InterruptsWhereItIsDropped:
    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


def _interrupt() -> None:
    gc.disable()  # so that it does not arrive in a finalizer
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize(
    ("at_run", "interrupt"), [(3, _interrupt), (2, _InterruptsWhereItIsDropped)], ids=["in a run", "in a finalizer"]
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_comparison_that_is_interrupted_says_so_and_goes_on(
    at_run: int, interrupt: Callable[[], object], as_lightning_compare, tmp_path: Path, monkeypatch
) -> None:
    command = ["experiment=digits", "methods=as_softmax", *SHORT]
    begin, begun = RunRecorder.on_train_start, []

    def interrupt_one(self, *arguments) -> None:
        begun.append(1)
        if len(begun) == at_run:
            interrupt()
        begin(self, *arguments)

    monkeypatch.setattr(RunRecorder, "on_train_start", interrupt_one)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background ignore the signal
    try:
        stopped = as_lightning_compare(*command)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        gc.enable()
        signal.signal(signal.SIGINT, handler)
    assert stopped.error == "as-lightning-compare: stopped; the same command again makes the missing runs"
    assert len(list(tmp_path.rglob("result.json"))) == 2
    done = as_lightning_compare(*command)
    assert done.error == 0, done
    assert "2 runs taken from another call" in done.printed
    assert len(begun) == at_run + 4


def test_failed_runs_are_named_and_the_report_is_of_the_others(as_lightning_compare, tmp_path: Path) -> None:
    done = as_lightning_compare("experiment=digits", "methods=as_softmax", "method.delta=7", *SHORT)
    assert "3 of 6 runs have failed" in str(done.error)
    assert "delta" in str(done.error)
    assert "3 of 6 runs have failed" in " ".join(advice_in(tmp_path / "comparisons" / "digits"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["methods=as_softmx"], "unknown method 'as_softmx': did you mean as_softmax"),
        (["method.dleta=0.2"], "did you mean delta"),
        (["budgets=3"], "in (0, 2], got 3"),
        (["trainer.max_epochs=1,2"], "cannot be swept in a comparison"),
        (
            ["method.dleta=0.05,0.2"],
            "no method of the comparison has method.dleta: did you mean delta? There are: crit",
        ),
        (["method.delta_warmup.ratio=0.1,0.2"], "method.delta_warmup.ratio cannot be swept in a comparison"),
        (["method.delta=0.05,0.1,0.2,0.3", "trials=4"], "trials=4 cannot try all 5 values of delta (0.05, 0.1, 0.2, 0"),
        (["methods="], "methods is empty: give methods=NAME,NAME"),
        (["seeds=0"], "seeds must be at least 1, got 0"),
        (["budgets=0.5,l"], "a budget is a share of the training, in (0, 2], got 'l'"),
        (["data=text_file", "data.path=none.csv"], "so no run has started: none.csv exists neither in the working"),
        (["data=text_file"], "data.path is missing: give data.path=..."),
        (["data.path=x.csv"], "these data have no data.path: add data=audio_folder or data=conll or data=image_folder"),
        (["budgets=0.5.1"], "got '0.5.1'"),
        (["budgets=null"], "budgets must be a share of the training or a list of shares, got None"),
        (["margin=half"], "margin must be a positive number of points, got 'half'"),
        (["trainer.max_epochs=0"], "trainer.max_epochs must be a whole number of at least 1, got 0"),
        (["trainer.max_epochs=1.5"], "trainer.max_epochs must be a whole number of at least 1, got 1.5"),
        (["search.lr_factor=0.1"], "search.lr_factor must be a number above 1, got 0.1"),
        (["optimizer.lr=fast"], "optimizer.lr must be a number, got 'fast'"),
        (["data=text_file", "data.path=a, b.csv"], "a value that holds a comma needs quotes inside the shell's"),
        (["model=text_transformer"], "the model does not fit the data"),
        (["module._target_=harness.own_modules.Nothing"], "harness.own_modules.Nothing"),
    ],
    ids=[
        "method",
        "knob",
        "budget",
        "followed",
        "sweep",
        "swept knob",
        "swept node",
        "few trials",
        "no method",
        "no seed",
        "no number",
        "path",
        "no path",
        "path of other data",
        "no budget",
        "null budget",
        "margin",
        "no epoch",
        "part of an epoch",
        "search",
        "learning rate",
        "comma",
        "model",
        "module",
    ],
)
def test_bad_input_is_refused_before_the_first_run(as_lightning_compare, arguments, message, tmp_path: Path) -> None:
    done = as_lightning_compare("experiment=digits", *arguments)
    assert message in str(done.error)
    assert not list(tmp_path.rglob("result.json"))
