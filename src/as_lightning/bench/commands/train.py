"""The command `as-lightning`: one run, or one job of a sweep."""

from __future__ import annotations

import logging
import math
import warnings
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from as_lightning.bench.commands.jobs import run_command
from as_lightning.bench.run.settings import check_files, check_run

log = logging.getLogger(__name__)
NOT_SHOWN = (
    r".*isinstance\(treespec, LeafSpec\).*",
    r".*does not have many workers.*",
    r".*smaller than the logging interval.*",
    r".*'masking/.*sync_dist=True.*",  # sums over the ranks already
)


def run_job(config: DictConfig) -> float:
    """Make the run of a Hydra job; return its best validation score, for sweepers that optimise."""
    check_run(config)
    check_files(config)
    # here, so that refusals, the help and the shell's completion need not wait for torch
    from as_lightning.bench.run.summary import print_summary
    from as_lightning.bench.run.train import one_job

    log.info("%s, method %s, seed %s", config.name, config.method.name, config.seed)
    # Lightning's messages at each start and end would bury the report of a sweep of many runs
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    for message in NOT_SHOWN:
        warnings.filterwarnings("ignore", message=message)
    result = one_job(config)
    if HydraConfig.get().mode == RunMode.RUN:  # a sweep ends with its report
        print_summary(result, Path(config.output_dir))
    return max((evaluation["score"] for evaluation in result.evaluations), default=math.nan)


def main() -> None:
    run_command("train", run_job)


if __name__ == "__main__":
    from as_lightning.bench.commands.console import train as command

    command()
