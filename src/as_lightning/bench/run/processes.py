"""One job of a sweep or a comparison: a run of several processes gets a command of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import torch.distributed
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from as_lightning.bench.run.result import RESULT_FILE, Result
from as_lightning.bench.run.train import train

COMMAND = (sys.executable, "-m", "as_lightning.bench.commands.train")


def one_job(config: DictConfig) -> Result:
    """Make the run of a job, and end the process group that it leaves behind.

    Lightning starts the other processes of a run by the command of this one, which in a sweep would
    be the whole sweep once more. A process group that is left open may abort its process at exit.
    """
    single_run = HydraConfig.initialized() and HydraConfig.get().mode == RunMode.RUN
    if not single_run and config.trainer.devices != 1:
        return _in_a_process(config)
    try:
        return train(config)
    finally:
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def _in_a_process(config: DictConfig) -> Result:
    folder = Path(config.output_dir).absolute()
    with TemporaryDirectory(prefix="as_lightning_") as job:
        OmegaConf.save(config, Path(job, "job.yaml"), resolve=True)
        options = ["--config-path", job, "--config-name", "job", "hydra.output_subdir=null"]
        ended = subprocess.run([*COMMAND, *options, f"hydra.run.dir='{folder}'"], check=False)
    if ended.returncode != 0:
        raise RuntimeError(f"the processes of the run ended with status {ended.returncode}")
    return Result.read(folder / RESULT_FILE)
