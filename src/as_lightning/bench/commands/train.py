"""The command `as-lightning`: one run, or one job of a sweep."""

from __future__ import annotations

import logging
import math
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from as_lightning.bench.commands.jobs import run_command
from as_lightning.bench.run.settings import check_files, check_run

log = logging.getLogger(__name__)


def run_job(config: DictConfig) -> float:
    """Make the run of a Hydra job; return its best validation score, for sweepers that optimise."""
    check_run(config)
    check_files(config)
    # here, so that refusals, the help and the shell's completion need not wait for torch
    from as_lightning.bench.run.processes import one_job
    from as_lightning.bench.run.summary import print_summary

    log.info("%s, method %s, seed %s", config.name, config.method.name, config.seed)
    # Lightning's messages at each start and end would bury the report of a sweep of many runs
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", message=r".*isinstance\(treespec, LeafSpec\).*")
    warnings.filterwarnings("ignore", message=r".*does not have many workers.*")
    warnings.filterwarnings("ignore", message=r".*smaller than the logging interval.*")
    # these are sums over the ranks already
    warnings.filterwarnings("ignore", message=r".*'masking/.*sync_dist=True.*")
    result = one_job(config)
    if HydraConfig.get().mode == RunMode.RUN:  # a sweep ends with its report
        print_summary(result, Path(config.output_dir))
    return max((evaluation["score"] for evaluation in result.evaluations), default=math.nan)


def seed_by_seed(arguments: Sequence[str]) -> list[str]:
    """Return a sweep's arguments with its seeds before other settings: all methods run with one
    seed before the next, so that a machine that slows down slows all of them.

    >>> seed_by_seed(["-m", "method=softmax,as_softmax", "seed=0,1"])
    ['-m', 'seed=0,1', 'method=softmax,as_softmax']
    """
    seeds = [word for word in arguments if word.startswith("seed=") and "," in word]
    others = [word for word in arguments if word not in seeds]
    is_setting = ["=" in word and not word.startswith("-") for word in others]
    place = [*is_setting, True].index(True)
    return others[:place] + seeds + others[place:]


def main() -> None:
    """The console script `as-lightning`."""
    if {"-m", "--multirun"} & set(sys.argv):
        sys.argv[1:] = seed_by_seed(sys.argv[1:])
    run_command("train", run_job)


if __name__ == "__main__":
    from as_lightning.bench.commands.console import train as command

    command()
