"""What Hydra's callback notes of a sweep's jobs, where another sweep begins in the same folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
from hydra import compose, initialize_config_dir
from hydra.core.utils import JobReturn, JobStatus
from omegaconf import DictConfig

from as_lightning.benchmark.commands.sweep_report import ReportCallback, finish_sweep
from as_lightning.benchmark.packages import config_dir


def test_a_sweep_that_begins_in_the_folder_of_another_leaves_its_notes_alone(result, tmp_path, monkeypatch):
    settings = [f"hydra.sweep.dir={tmp_path}", "hydra.mode=MULTIRUN", "hydra.job.num=0"]
    settings += [f"hydra.runtime.cwd={tmp_path}"]
    with initialize_config_dir(str(config_dir()), version_base="1.3"):
        config = compose("train", ["experiment=digits", *settings], return_hydra_config=True)

    def job_ends(callback: ReportCallback, accuracy: float) -> None:
        config.hydra.sweep.subdir = f"of {accuracy}"
        (tmp_path / config.hydra.sweep.subdir).mkdir()
        result("softmax", 0, accuracy).write(tmp_path / config.hydra.sweep.subdir)
        ended = JobReturn(status=JobStatus.COMPLETED)
        ended.return_value = accuracy
        callback.on_job_end(config, ended)

    def reported(sweep: Path | None) -> list[float]:
        monkeypatch.setattr(ReportCallback, "open_sweep", sweep)  # each has a process of its own
        assert finish_sweep() == 0
        return pd.read_csv(tmp_path / "report" / "report.csv")["mean"].tolist()

    first, second = ReportCallback(), ReportCallback()
    first.on_multirun_start(config)
    sweep_of_first = ReportCallback.open_sweep
    job_ends(first, 0.9)
    second.on_multirun_start(config)
    sweep_of_second = ReportCallback.open_sweep
    assert reported(sweep_of_first) == [90]
    job_ends(second, 0.8)
    assert reported(sweep_of_second) == [80]


def test_the_report_of_a_sweep_over_data_sets_has_all_of_them(result, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def composed(*overrides: str) -> DictConfig:
        with initialize_config_dir(str(config_dir()), version_base="1.3"):
            settings = ["hydra.mode=MULTIRUN", f"hydra.runtime.cwd={tmp_path}", *overrides]
            return compose("train", settings, return_hydra_config=True)

    callback = ReportCallback()
    callback.on_multirun_start(composed())  # the command's own configuration is of no job's experiment
    for number, (name, accuracy) in enumerate({"chords": 0.8, "sst5": 0.4, "clinc150": None}.items()):
        folder = tmp_path / "multirun" / name
        folder.mkdir(parents=True)
        ended = JobReturn(status=JobStatus.COMPLETED if accuracy else JobStatus.FAILED)
        ended.return_value = accuracy or ValueError("no memory is left")
        if accuracy:
            replace(result("softmax", 0, accuracy), name=name).write(folder)
        callback.on_job_end(composed(f"experiment={name}", f"hydra.job.num={number}"), ended)
    assert finish_sweep() == 1
    report = tmp_path / "multirun" / "chords" / "report"
    table = pd.read_csv(report / "report.csv")
    assert dict(zip(table["name"], table["mean"], strict=True)) == {"chords": 80, "sst5": 40}
    assert "multirun/clinc150: ValueError: no memory is left" in (report / "report.md").read_text()
