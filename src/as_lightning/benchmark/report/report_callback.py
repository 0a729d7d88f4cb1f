"""Writes the report when a Hydra sweep has ended, also where some of its runs have failed."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import tempfile
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from hydra.core.utils import JobReturn
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig

from as_lightning.benchmark.run.result import RESULT_FILE, Result, find_results

if TYPE_CHECKING:
    from as_lightning.benchmark.report.page import FailedRun

RUNS_FOLDER = ".runs"
COMMAND_FILE = "command.txt"


class OpenSweep(NamedTuple):
    """A sweep that has begun and whose report is not written yet."""

    directory: Path
    notes: Path


class ReportCallback(Callback):
    """At the end of a sweep: the comparison table on the terminal, the report beside the runs, and where they are.

    The report is of the runs of this sweep alone, also where another sweep runs in the same folder. Each job that has
    ended notes its folder and its error in a file of its own, since launchers run jobs side by side, in other processes
    and on other machines; launchers hand this callback, which knows the notes' folder, to their jobs.

    Attributes:
        open_sweep: the sweep that this process has started and whose report is not written yet. Where a run fails,
            Hydra raises its error in place of calling `on_multirun_end`: then `finish_sweep` is left to the command.
    """

    open_sweep: ClassVar[OpenSweep | None] = None

    def __init__(self) -> None:
        self.notes: Path | None = None

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        directory = Path(config.hydra.sweep.dir)
        (directory / RUNS_FOLDER).mkdir(parents=True, exist_ok=True)
        # with hydra.job.chdir a job stands in its own folder, and the sweep's may be a relative path
        self.notes = Path(tempfile.mkdtemp(dir=directory / RUNS_FOLDER)).absolute()
        (self.notes / COMMAND_FILE).write_text(_command(config), encoding="utf-8")
        ReportCallback.open_sweep = OpenSweep(directory, self.notes)

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        if config.hydra.mode != RunMode.MULTIRUN:
            return
        assert self.notes is not None
        directory = Path(config.hydra.runtime.cwd, config.hydra.sweep.dir)
        folder, failure = str(config.hydra.sweep.subdir), None
        of_another_call = _is_older(directory / folder / RESULT_FILE, self.notes / COMMAND_FILE)
        try:
            _ = job_return.return_value
        except Exception as error:
            failure = "".join(traceback.format_exception_only(error)).strip()
        else:
            _note_command(directory / folder, self.notes / COMMAND_FILE)
        note = json.dumps({"folder": folder, "error": failure, "of_another_call": of_another_call})
        (self.notes / f"{config.hydra.job.num}.json").write_text(note, encoding="utf-8")

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        finish_sweep()


def finish_sweep() -> list[FailedRun]:
    """Write the report of the open sweep, if there is one; the runs that failed."""
    if ReportCallback.open_sweep is None:
        return []
    # here, so that the command, which asks after each error, need not wait for torch and pandas
    from as_lightning.benchmark.report.like_with_like import comparable_results
    from as_lightning.benchmark.report.page import FailedRun, print_sweep, write_sweep
    from as_lightning.benchmark.run.folder import run_lock
    from as_lightning.benchmark.run.summary import counted_runs, has_events, lines_of_report, tensorboard_lines

    directory, folder = ReportCallback.open_sweep
    ReportCallback.open_sweep = None
    notes = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    shutil.rmtree(folder)
    failed = [FailedRun(note["folder"], note["error"]) for note in notes if note["error"] is not None]
    finished = sorted({directory / note["folder"] / RESULT_FILE for note in notes if note["error"] is None})
    results = find_results(finished) if finished else []
    with run_lock(directory / RUNS_FOLDER):
        report = write_sweep(results, directory / "report", failed=failed)
    print_sweep(results)
    for note in comparable_results(results)[1]:
        print(note)
    taken = sum(note["of_another_call"] and note["error"] is None for note in notes)
    if taken:
        print(f"{counted_runs(taken)} taken from another call")
    for run in failed:
        print(f"failed:      {run.folder}: {run.error}")
    print("\n".join(lines_of_report(report.html, report.markdown, report.csv)))
    if has_events(directory):
        command, address = tensorboard_lines(directory)
        print(f"tensorboard: {command}\n             {address}")
    return failed


def _command(config: DictConfig) -> str:
    """The sweep's command as others repeat it: without where the data lie and what launches the jobs."""
    overrides = config.hydra.overrides
    # settings that are open to the methods that have them were written without the pluses
    task = [override.removeprefix("++") for override in overrides.task if not override.startswith("data_dir=")]
    sweeper = [override for override in overrides.hydra if re.match("hydra[./]sweeper", override)]
    return shlex.join(["as-lightning", "-m", *task, *sweeper])


def _is_older(result: Path, command: Path) -> bool:
    """Whether a run has finished before the sweep has begun, which writes its command first."""
    return result.exists() and result.stat().st_mtime < command.stat().st_mtime


def _note_command(run: Path, command: Path) -> None:
    """Put the sweep's command into the result that it has made; one that was there before keeps its own."""
    from as_lightning.benchmark.run.folder import run_lock

    with run_lock(run):
        result = Result.read(run / RESULT_FILE)
        if not result.command:
            replace(result, command=command.read_text(encoding="utf-8")).write(run)
