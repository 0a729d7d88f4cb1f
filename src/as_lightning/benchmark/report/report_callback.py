"""Writes the report when a Hydra sweep has ended."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn, JobStatus
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig

from as_lightning.benchmark.report.report import SWEEP_FILE, print_comparison, sweep_commands, write_report
from as_lightning.benchmark.results import RESULT_FILE, find_results

RUNS_FOLDER = ".runs"


class ReportCallback(Callback):
    """At the end of a sweep: the comparison table on the terminal, the report beside the runs, and where they are.

    The report is of the runs of this sweep alone, also where the folder holds those of others. Each job that has
    finished notes its folder in a file of its own, since launchers run jobs side by side, in other processes and on
    other machines.
    """

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        directory = Path(config.hydra.sweep.dir)
        shutil.rmtree(directory / RUNS_FOLDER, ignore_errors=True)
        (directory / RUNS_FOLDER).mkdir(parents=True)
        # where the data lie and what launches the jobs is the machine's affair, and no part of the command that others
        # repeat
        overrides = config.hydra.overrides
        task = [override for override in overrides.task if not override.startswith("data_dir=")]
        sweeper = [override for override in overrides.hydra if re.match("hydra[./]sweeper", override)]
        command = shlex.join(["as-lightning", "-m", *task, *sweeper])
        (directory / SWEEP_FILE).write_text(json.dumps({"command": command}) + "\n", encoding="utf-8")

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        if config.hydra.mode != RunMode.MULTIRUN or job_return.status != JobStatus.COMPLETED:
            return
        # with hydra.job.chdir the job stands in its own folder, and the sweep's may be a relative path
        directory = Path(config.hydra.runtime.cwd, config.hydra.sweep.dir)
        note = directory / RUNS_FOLDER / str(config.hydra.job.num)
        note.write_text(config.hydra.sweep.subdir, encoding="utf-8")

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        directory = Path(config.hydra.sweep.dir)
        runs = {directory / note.read_text(encoding="utf-8") for note in (directory / RUNS_FOLDER).iterdir()}
        finished = sorted(run / RESULT_FILE for run in runs if (run / RESULT_FILE).exists())
        if not finished:
            return  # every run failed: Hydra says how
        results = find_results(finished)
        report = write_report(results, directory / "report", commands=sweep_commands([directory]))
        print_comparison(results)
        print(f"report:      {report.html}\n             {report.markdown}\n             {report.csv}")
        print(f"tensorboard: tensorboard --logdir {shlex.quote(str(directory))}")
