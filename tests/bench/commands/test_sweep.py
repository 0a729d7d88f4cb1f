"""A sweep from the command line and its report; and the same from an installed wheel."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from harness.prepared_processes import Finished, run
from harness.run_findings import reported, stored, written
from hydra import compose, initialize_config_dir
from hydra.core.utils import JobReturn, JobStatus
from omegaconf import DictConfig

from as_lightning.bench.commands.console import train
from as_lightning.bench.commands.sweep_report import ReportCallback, finish_sweep
from as_lightning.bench.packages import config_dir

ROOT = Path(__file__).parents[3]
SWEEP = (
    "-m",
    "experiment=digits",
    "seed=0",
    "trainer.max_epochs=1",
    "trainer.enable_progress_bar=false",
)
RUNS = "multirun/digits/trainer.max_epochs=1"


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


def test_a_sweep_leaves_a_result_a_run_and_ends_with_table_report_and_tensorboard_line(sweep):
    folder, printed = sweep
    results = sorted((folder / RUNS).glob("*/result.json"))
    assert [path.parent.name for path in results] == [
        "method=as_speed,seed=0",
        "method=softmax,seed=0",
    ]
    assert "in common, at least 3 are needed" in printed
    *_, html, markdown, csv, opens, tensorboard, address = printed.rstrip().splitlines()
    assert all((folder / line.split()[-1]).is_file() for line in (html, markdown, csv))
    assert opens.endswith((folder / RUNS / "report/report.html").as_uri())
    assert tensorboard == f"tensorboard: tensorboard --logdir {RUNS}"
    assert address.split()[-1] == "http://localhost:6006/#custom_scalars"
    understood = "Digits: 10 classes (0, 1, 2, 3, 4, 5, 6, 7, 8, 9); train / validation / test 1,257 / 180 / 360"
    assert printed.count(understood) == 2
    report = (folder / RUNS / "report/report.md").read_text()
    assert "as-lightning -m experiment=digits seed=0 trainer.max_epochs=1" in report


def test_a_second_call_skips_what_is_finished_runs_what_is_new_and_reports_its_own_runs(sweep):
    folder, _ = sweep
    before = written(folder)
    finished = run_app(folder, *SWEEP, "method=softmax,as_softmax")
    assert finished.stdout.count("already finished") == 1
    assert len(written(folder)) == 3
    assert before.items() <= written(folder).items()
    assert reported(folder / RUNS / "report") == [("softmax", 1), ("as_softmax", 1)]


def test_a_sweep_whose_report_cannot_be_written_and_an_unknown_method_end_with_a_sentence_and_a_status(
    tmp_path,
):
    (tmp_path / RUNS).mkdir(parents=True)
    (tmp_path / RUNS / "report").write_text("a file in the place of the report's folder")
    finished = run_app(tmp_path, *SWEEP, "method=softmax,as_softmax")
    unknown = run_app(tmp_path, "method=nope")
    for ended, said in (
        (finished, "[Errno 20] Not a directory: 'multirun/digits/trainer.max_epochs=1/report"),
        (unknown, "as_softmax"),
    ):
        assert ended.returncode == 1
        assert said in ended.stderr
        assert "Traceback" not in ended.stderr
    assert len(written(tmp_path)) == 2


def test_a_sweep_with_a_failed_run_ends_with_its_report_and_its_status_and_a_setting_of_one_method_runs_no_other_twice(
    tmp_path,
):
    few = ("trainer.limit_train_batches=3", "trainer.limit_val_batches=0")
    finished = run_app(
        tmp_path, *SWEEP, *few, "name=a/b", "method=softmax,as_softmax", "method.delta=0.1,7"
    )
    assert finished.returncode == 1
    assert finished.stderr.rstrip().endswith("as-lightning: runs that have failed: 1")
    (report,) = (tmp_path / "multirun/a/b").rglob("report.md")
    assert "method.delta=7" in report.read_text()
    assert "must lie in" in report.read_text()
    assert sorted(reported(report.parent)) == [("as_softmax", 1), ("softmax", 1)]
    assert finished.stdout.count("already finished") == 1
    assert finished.stdout.count("method.delta is no setting of softmax") == 2


@pytest.mark.slow
def test_the_wheel_carries_the_app_and_its_configs(tmp_path):
    build = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(tmp_path / "dist"),
        str(ROOT),
    ]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    installed = tmp_path / "installed"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(installed),
        str(wheel),
    ]
    subprocess.run(pip, check=True, capture_output=True)

    def python(*arguments: str) -> subprocess.CompletedProcess[str]:
        variables = os.environ | {"PYTHONPATH": str(installed)}
        command = [sys.executable, *arguments]
        return subprocess.run(
            command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False
        )

    settings = ("experiment=digits", "trainer.max_epochs=1", "hydra.run.dir=out")
    finished = python("-m", "as_lightning.bench.commands.train", *settings)
    assert finished.returncode == 0, finished.stderr
    assert json.loads((tmp_path / "out" / "result.json").read_text())["candidate"] == "as_softmax"
    where = python("-c", "from as_lightning.bench.packages import config_dir; print(config_dir())")
    assert Path(where.stdout.strip()) == installed / "as_lightning" / "conf"


def hydras(folder: Path, *overrides: str) -> DictConfig:
    """The configuration of a job of a sweep, as Hydra gives it to its callbacks."""
    settings = ["hydra.mode=MULTIRUN", f"hydra.runtime.cwd={folder}", *overrides]
    with initialize_config_dir(str(config_dir()), version_base="1.3"):
        return compose("train", settings, return_hydra_config=True)


def test_the_report_of_a_sweep_over_data_sets_has_all_of_them(result, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    callback = ReportCallback()
    callback.on_multirun_start(
        hydras(tmp_path)
    )  # the command's own configuration is of no job's experiment
    for number, (name, accuracy) in enumerate(
        {"chords": 0.8, "sst5": 0.4, "clinc150": None}.items()
    ):
        ended = JobReturn(status=JobStatus.COMPLETED if accuracy else JobStatus.FAILED)
        ended.return_value = accuracy or ValueError("no memory is left")
        if accuracy:
            stored(replace(result("softmax", 0, accuracy), name=name), tmp_path / "multirun" / name)
        callback.on_job_end(
            hydras(tmp_path, f"experiment={name}", f"hydra.job.num={number}"), ended
        )
    assert finish_sweep() == 1
    report = tmp_path / "multirun" / "chords" / "report"
    table = pd.read_csv(report / "report.csv")
    assert dict(zip(table["name"], table["mean"], strict=True)) == {"chords": 80, "sst5": 40}
    assert "multirun/clinc150: ValueError: no memory is left" in (report / "report.md").read_text()
