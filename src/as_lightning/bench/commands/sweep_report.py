"""Writes the report when a Hydra sweep has ended, also where some of its runs have failed."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import tempfile
import traceback
from pathlib import Path
from typing import Any, ClassVar

from hydra.core.utils import JobReturn
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig

from as_lightning.bench.run.result import COMMAND, RESULT_FILE, Result

RUNS_FOLDER = ".runs"


class ReportCallback(Callback):
    """Notes what `finish_sweep` reports: the folder and the error of each job of a sweep.

    Each job writes its note into a file of its own, since launchers run jobs in other processes and
    on other machines. Launchers pass this callback, which holds the folder of the notes, to their
    jobs.
    """

    # the notes' folder of the sweep that is not reported yet. The command calls `finish_sweep`,
    # since Hydra calls no `on_multirun_end` if a run has failed, and only logs an error in it
    open_sweep: ClassVar[Path | None] = None
    notes = Path()

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        # the command for others to repeat: without the data's place and the launcher
        words = [*config.hydra.overrides.task]
        words += [w for w in config.hydra.overrides.hydra if w.startswith("hydra.sweeper")]
        words = [word for word in words if not word.startswith("data_dir=")]
        os.environ[COMMAND] = shlex.join(["as-lightning", "-m", *words])
        folder = Path(config.hydra.sweep.dir) / RUNS_FOLDER  # which the command names
        folder.mkdir(parents=True, exist_ok=True)
        self.notes = Path(tempfile.mkdtemp(dir=folder)).absolute()
        ReportCallback.open_sweep = self.notes

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        if config.hydra.mode != RunMode.MULTIRUN:
            return
        # the job's own sweep folder: a sweep over data sets has several
        note = {"sweep": str(config.hydra.sweep.dir), "folder": str(config.hydra.sweep.subdir)}
        try:
            _ = job_return.return_value
        except Exception as error:
            note["error"] = "".join(traceback.format_exception_only(error)).strip()
        (self.notes / f"{config.hydra.job.num}.json").write_text(json.dumps(note), encoding="utf-8")


def finish_sweep() -> int:
    """Write the report of the open sweep, if there is one; return how many of its runs have failed.

    The runs of a sweep over data sets lie in several folders, as do those of several sweeps: the
    first gets the report.
    """
    if ReportCallback.open_sweep is None:
        return 0
    folder, ReportCallback.open_sweep = ReportCallback.open_sweep, None
    del os.environ[COMMAND]
    note_files = sorted(folder.glob("*.json"), key=lambda path: int(path.stem))
    notes = [json.loads(path.read_text(encoding="utf-8")) for path in note_files]
    shutil.rmtree(folder)
    if not notes:  # Hydra has refused the settings
        return 0
    # here: the command, which calls this after each error, need not wait for torch and pandas
    from as_lightning.bench.run.runner import run_lock
    from as_lightning.bench.run.summary import tensorboard_lines
    from as_lightning.report.page import publish
    from as_lightning.report.sweep_records import sweep_records

    failed, files = [], set()
    for note in notes:
        run = Path(note["sweep"], note["folder"])
        if "error" in note:
            failed.append(f"{run}: {note['error']}")
        else:
            files.add(run / RESULT_FILE)
    records, sentences = sweep_records([Result.read(file) for file in sorted(files)])
    sweeps = list(dict.fromkeys(Path(note["sweep"]) for note in notes))
    (sweeps[0] / RUNS_FOLDER).mkdir(parents=True, exist_ok=True)
    with run_lock(sweeps[0] / RUNS_FOLDER):
        publish(records, sweeps[0] / "report", failed=failed, notes=sentences)
    for sweep in sweeps:
        for line in tensorboard_lines(sweep):
            print(f"tensorboard: {line}")
    return len(failed)
