"""What surrounds Hydra's jobs: errors and Ctrl-C in words, and jobs of several processes."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, read_write

from as_lightning.benchmark.commands.mistakes import in_words, is_mistake
from as_lightning.benchmark.packages import config_dir
from as_lightning.benchmark.run.result import new_session


def run_command(config_name: str, job: Callable[[DictConfig], Any], failures: Callable[[], int] = lambda: 0) -> None:
    """Run `job` as Hydra's main, and end in words where the user can mend the error, or has stopped it.

    `failures` reports a sweep that has ended, perhaps by an error, and counts its failed runs.
    """
    new_session()
    command = "as-lightning" if config_name == "train" else f"as-lightning-{config_name}"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    stack_traces = os.environ.get("HYDRA_FULL_ERROR") == "1"
    os.environ["HYDRA_FULL_ERROR"] = "1"  # then Hydra hands its errors on
    try:
        hydra.main(version_base="1.3", config_path=str(config_dir()), config_name=config_name)(job)()
        failures()
    except (KeyboardInterrupt, SystemExit) as end:
        # Lightning leaves the program where it meets an interrupt, and by an exit without a status at a SIGTERM
        terminated = type(end).__name__ == "SIGTERMException"
        if not (terminated or isinstance(end, KeyboardInterrupt) or isinstance(end.__context__, KeyboardInterrupt)):
            raise
        stopped = f"{command}: stopped; the same command again goes on from here"
        if not terminated:
            sys.exit(stopped)
        print(stopped, file=sys.stderr)
        sys.exit(128 + signal.SIGTERM)
    except Exception as error:
        failed = failures()  # what has finished is reported, what has failed is listed there
        if stack_traces or not (failed or is_mistake(error)):
            raise
        sys.exit(f"{command}: {f'runs that have failed: {failed}' if failed else in_words(error)}")


@contextmanager
def one_job(config: DictConfig) -> Iterator[None]:
    """While a job of a sweep runs, this program's command is that of the job alone; what it leaves behind is undone.

    Lightning starts the other processes of a run by this program's command, which would be the whole sweep once more.
    """
    if not HydraConfig.initialized() or HydraConfig.get().mode != RunMode.MULTIRUN:
        yield
        return
    settings: Any = HydraConfig.get()  # a DictConfig, whatever it says
    with read_write(settings):
        settings.run.dir = settings.runtime.output_dir  # which Lightning hands on
    # Lightning reads the command from sys.argv and __main__ and has no argument for another one. The plain way, a child
    # process for each job, would cost each job the seconds that torch takes to load
    main = sys.modules["__main__"]
    argv, spec, environment = sys.argv, main.__spec__, dict(os.environ)
    with TemporaryDirectory(prefix="as_lightning_") as folder:
        OmegaConf.save(config, Path(folder, "job.yaml"))
        sys.argv = [argv[0], "--config-path", folder, "--config-name", "job"]
        main.__spec__ = importlib.util.find_spec("as_lightning.benchmark.commands.train")
        try:
            yield
        finally:
            sys.argv, main.__spec__ = argv, spec
            import torch.distributed  # here: a misspelt setting need not wait for torch

            if torch.distributed.is_available() and torch.distributed.is_initialized():
                torch.distributed.destroy_process_group()
            os.environ.clear()  # the next job would wait for the processes that Lightning has named there
            os.environ.update(environment)
