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

from as_lightning.benchmark.commands.jobs import run_command
from as_lightning.benchmark.commands.sweep_report import finish_sweep
from as_lightning.benchmark.run.settings import method_settings

log = logging.getLogger(__name__)


def run_job(config: DictConfig) -> float:
    """One job of Hydra's: what a sweeper optimises is the best validation score."""
    # here, so that a misspelt setting and the shell's completion need not wait for torch
    from as_lightning.benchmark.run.processes import one_job
    from as_lightning.benchmark.run.summary import print_summary
    from as_lightning.benchmark.run.train import train

    log.info("%s, method %s, seed %s", config.name, config.method.name, config.seed)
    # of a sweep's many runs the report is the news, not what Lightning says at each start and end
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", message=r".*isinstance\(treespec, LeafSpec\).*")
    warnings.filterwarnings("ignore", message=r".*does not have many workers.*")
    warnings.filterwarnings("ignore", message=r".*'masking/.*sync_dist=True.*")  # these are sums over the ranks already
    with one_job(config):
        result = train(config)
    if HydraConfig.get().mode == RunMode.RUN:  # a sweep ends with its report
        print_summary(result, Path(config.output_dir))
    return max((evaluation["score"] for evaluation in result.evaluations), default=math.nan)


def open_method_settings(arguments: Sequence[str]) -> list[str]:
    """The command's arguments, of which a setting of some methods does not stop the others in a sweep."""
    multirun = not {"-m", "--multirun"}.isdisjoint(arguments)
    of_methods = {f"method.{name}" for name in method_settings()}  # a misspelt one stays, for Hydra to refuse
    return [f"++{word}" if multirun and word.partition("=")[0] in of_methods else word for word in arguments]


def main() -> None:
    """The console script `as-lightning`."""
    sys.argv[1:] = open_method_settings(sys.argv[1:])
    run_command("train", run_job, finish_sweep)


if __name__ == "__main__":
    from as_lightning.benchmark.commands.console import train as command

    command()
