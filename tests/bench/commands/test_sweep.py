"""A sweep from the command line and its report; and the same from an installed wheel."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import pandas as pd
import pytest
from harness.prepared_processes import Finished, run
from harness.run_findings import reported, stored, written
from hydra import compose, initialize_config_dir
from hydra.core.utils import JobReturn, JobStatus
from omegaconf import DictConfig

from as_lightning.bench.commands.console import train
from as_lightning.bench.commands.report import main
from as_lightning.bench.commands.sweep_report import ReportCallback, sweep_answers, sweep_table
from as_lightning.bench.packages import config_dir
from as_lightning.bench.run import settings  # the functions that configurations call
from as_lightning.statistics.judge import Question

ROOT = Path(__file__).parents[3]
SWEEP = (
    "-m",
    "experiment=digits",
    "seed=0",
    "trainer.max_epochs=1",
    "trainer.enable_progress_bar=false",
)
RUNS = "multirun/digits/seed=0,trainer.max_epochs=1"


def run_app(folder: Path, *arguments: str) -> Finished:
    """``as-lightning`` with these arguments, in ``folder``."""
    return run(train, "as-lightning", *arguments, folder=folder)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """Two methods, one seed, one epoch; with what the command printed."""
    folder = tmp_path_factory.mktemp("sweep")
    finished = run_app(folder, *SWEEP, "method=softmax,as_speed")
    assert finished.returncode == 0, finished.stderr
    return folder, finished.stdout


def test_a_sweep_leaves_a_result_a_run_and_ends_with_its_table_and_tensorboard_line(sweep):
    folder, printed = sweep
    results = sorted((folder / RUNS).glob("*/result.json"))
    assert [path.parent.name for path in results] == ["method=as_speed", "method=softmax"]
    assert "at least 3 runs of each are needed" in printed
    *_, table, tensorboard, address = printed.rstrip().splitlines()
    assert table == f"table: {RUNS}/runs.csv"
    assert tensorboard == f"tensorboard: tensorboard --logdir {RUNS}"
    assert address.split()[-1] == "http://localhost:6006"
    understood = "Digits: 10 classes (0, 1, 2, 3, 4, 5, 6, 7, 8, 9); train / validation / test 1,257 / 180 / 360"
    assert printed.count(understood) == 2
    assert reported(folder / RUNS) == {"softmax": 1, "as_speed": 1}
    assert not list((folder / RUNS).glob(".*"))


def test_a_second_call_skips_what_is_finished_runs_what_is_new_and_reports_its_own_runs(sweep):
    folder, _ = sweep
    before = written(folder)
    finished = run_app(folder, *SWEEP, "method=softmax,as_softmax")
    assert finished.stdout.count("already finished") == 1
    assert len(written(folder)) == 3
    assert before.items() <= written(folder).items()
    assert reported(folder / RUNS) == {"softmax": 1, "as_softmax": 1}


def test_an_unknown_method_ends_with_a_sentence_and_a_status(tmp_path):
    unknown = run_app(tmp_path, "method=nope")
    assert unknown.returncode == 1
    assert "as_softmax" in unknown.stderr
    assert "Traceback" not in unknown.stderr


def test_after_a_failed_run_the_folder_gives_the_table_and_a_setting_of_one_method_runs_no_other_twice(
    tmp_path, capsys
):
    few = ("trainer.limit_train_batches=3", "trainer.limit_val_batches=0")
    finished = run_app(
        tmp_path,
        *SWEEP,
        *few,
        "hydra.sweep.dir=a/b",
        "method=softmax,as_softmax",
        "method.delta=0.1,7",
    )
    assert finished.returncode == 1
    assert "delta must be" in finished.stderr
    assert finished.stdout.count("already finished") == 1
    assert finished.stdout.count("method.delta is no setting of softmax") == 2
    with pytest.raises(SystemExit) as end:
        main([str(tmp_path / "a/b")])
    assert end.value.code == 2
    assert "at least 3 runs of each are needed" in capsys.readouterr().out


@pytest.mark.slow
def test_the_wheel_carries_the_app_and_its_configs(tmp_path):
    build = f"-m build --wheel --no-isolation --outdir {tmp_path / 'dist'} {ROOT}"
    subprocess.run([sys.executable, *build.split()], check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    installed = tmp_path / "installed"
    install = f"-m pip install --quiet --no-deps --target {installed} {wheel}"
    subprocess.run([sys.executable, *install.split()], check=True, capture_output=True)

    def python(*arguments: str) -> subprocess.CompletedProcess[str]:
        variables = os.environ | {"PYTHONPATH": str(installed)}
        command = [sys.executable, *arguments]
        return subprocess.run(
            command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False
        )

    words = ("experiment=digits", "trainer.max_epochs=1", "hydra.run.dir=out")
    finished = python("-m", "as_lightning.bench.commands.train", *words)
    assert finished.returncode == 0, finished.stderr
    assert json.loads((tmp_path / "out" / "result.json").read_text())["candidate"] == "as_softmax"
    where = python("-c", "from as_lightning.bench.packages import config_dir; print(config_dir())")
    assert Path(where.stdout.strip()) == installed / "as_lightning" / "conf"


def hydras(folder: Path, *overrides: str) -> DictConfig:
    """The configuration of a job of a sweep, as Hydra gives it to its callbacks."""
    assert settings
    words = ["hydra.mode=MULTIRUN", f"hydra.runtime.cwd={folder}", *overrides]
    with initialize_config_dir(str(config_dir()), version_base="1.3"):
        return compose("train", words, return_hydra_config=True)


def test_the_table_of_a_sweep_over_data_sets_has_all_of_them(result, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    callback = ReportCallback()
    # the command's own configuration is of no job's experiment
    callback.on_multirun_start(hydras(tmp_path))
    for number, name in enumerate(["fsdd", "sst5"]):
        folder = tmp_path / "multirun" / name
        stored(replace(result("softmax", 0, 0.8), name=name), folder)
        config = hydras(tmp_path, f"experiment={name}", f"hydra.job.num={number}")
        callback.on_job_end(config, JobReturn(status=JobStatus.COMPLETED))
    callback.on_multirun_end(hydras(tmp_path))
    table = pd.read_csv(tmp_path / "multirun" / "fsdd" / "runs.csv")
    assert list(table["dataset"]) == ["fsdd", "sst5"]
    assert "multirun/fsdd/runs.csv" in capsys.readouterr().out


def config(seed: int = 0, *, epochs: int = 4, lr: float = 0.1, **method: object) -> dict:
    return {
        "seed": seed,
        "method": {"_target_": "x", **method},
        "optimizer": {"lr": lr},
        "lr_scheduler": {"max_lr": lr},
        "data": {"num_workers": seed},
        "trainer": {"max_epochs": epochs, "enable_progress_bar": bool(seed)},
        "output_dir": f"/somewhere/{seed}",
    }


@pytest.mark.parametrize(
    ("odd", "name"),
    [
        ({"config": config(1, epochs=1)}, "trainer.max_epochs=1"),
        ({"config": config(1, lr=0.3)}, "optimizer.lr=0.3"),
        ({"inputs": {"data": "ff00"}}, "inputs.data=ff00"),
    ],
)
def test_runs_that_differ_in_more_than_the_method_are_of_different_data_sets(result, odd, name):
    runs = [
        result(method, 0, 0.8, config=config(), inputs={"data": "12ab", "method.code": method})
        for method in ("softmax", "m")
    ]
    runs.append(result("softmax", 1, 0.8, **{"config": config(1), "inputs": runs[0].inputs, **odd}))
    table = sweep_table(runs)
    assert list(table["dataset"] == f"set, {name}") == [False, False, True]
    assert len(set(table["dataset"])) == 2


def test_each_setting_of_a_method_is_a_candidate_and_the_same_run_counts_once(result):
    runs = [
        result("m", seed, 0.8 + seed / 100, config=config(seed, k=k, tau=tau))
        for seed, k, tau in product((0, 1), (1, 2), (3, 4))
    ]
    # the second was made on another machine, with a slightly other score
    runs += [result("softmax", 0, score, config=config(unused=None)) for score in (0.7, 0.72)]
    table = sweep_table(runs)
    assert table.set_index("candidate").loc["softmax", runs[0].score] == pytest.approx(0.71)
    names = {"m, k=1, tau=3", "m, k=1, tau=4", "m, k=2, tau=3", "m, k=2, tau=4"}
    assert dict(table["candidate"].value_counts()) == dict.fromkeys(names, 2) | {"softmax": 1}


def test_a_sweep_is_judged_data_set_by_data_set_beside_its_softmax(result):
    lead = (0.02, 0.021, 0.019)
    runs = [
        result(method, seed, 0.8 + seed / 100 + gain, config=config(seed, lr=lr))
        for lr in (0.1, 0.3)
        for seed in range(3)
        for method, gain in (("m", lead[seed]), ("softmax", 0.0))
    ]
    alone = result("m", 0, 0.8, name="other")
    answers, refused = sweep_answers(sweep_table([*runs, alone]), Question())
    assert [sentence.partition(":")[0] for sentence in refused] == ["other"]
    lost = [result(method, 0, math.nan, name="lost") for method in ("m", "softmax")]
    answers, _ = sweep_answers(sweep_table([*runs, *lost]), Question())
    assert [row.judged for row in answers.pop().candidates] == [False]
    assert [answer.title for answer in answers] == [
        "set, optimizer.lr=0.1",
        "set, optimizer.lr=0.3",
    ]
    for answer in answers:
        assert answer.baseline.arm == "softmax"
        assert answer.candidates[0].word == "better"
    with pytest.raises(ValueError, match="sofmax"):
        sweep_answers(sweep_table(runs), Question(baseline="sofmax"))
    with pytest.raises(ValueError, match="test metrics"):
        sweep_table([result("softmax", 0, 0.8, metrics={})])
