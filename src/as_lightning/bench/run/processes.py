"""A run of several processes inside a sweep: Lightning starts them by this program's command."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch.distributed
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, read_write


@contextmanager
def one_job(config: DictConfig) -> Iterator[None]:
    """Run one job of this program, and end the process group that it leaves behind.

    A process group that is left open aborts its process at exit now and then. Lightning then kills
    the first process, which may be that of a sweep.
    """
    single_run = HydraConfig.initialized() and HydraConfig.get().mode != RunMode.MULTIRUN
    with nullcontext() if single_run else _job_command(config):
        try:
            yield
        finally:
            if torch.distributed.is_available() and torch.distributed.is_initialized():
                torch.distributed.destroy_process_group()


@contextmanager
def _job_command(config: DictConfig) -> Iterator[None]:
    """Make this program's command that of one job of a sweep; restore command and environment when
    the job ends.

    Lightning starts the other processes of a run by this program's command, which would be the
    whole sweep once more.
    """
    if HydraConfig.initialized():
        settings: Any = HydraConfig.get()  # a DictConfig, whatever its annotation
        with read_write(settings):
            settings.run.dir = str(
                config.output_dir
            )  # which Lightning gives to the processes that it starts
    # Lightning reads the command from sys.argv and __main__ and has no argument for another one.
    # The plain way, a child process for each job, would cost each job the seconds that torch takes
    # to load
    main = sys.modules["__main__"]
    argv, spec, environment = sys.argv, main.__spec__, dict(os.environ)
    with TemporaryDirectory(prefix="as_lightning_") as folder:
        OmegaConf.save(config, Path(folder, "job.yaml"))
        sys.argv = [argv[0], "--config-path", folder, "--config-name", "job"]
        main.__spec__ = importlib.util.find_spec("as_lightning.bench.commands.train")
        try:
            yield
        finally:
            sys.argv, main.__spec__ = argv, spec
            # the next job would wait for the processes that Lightning has named there
            os.environ.clear()
            os.environ.update(environment)
