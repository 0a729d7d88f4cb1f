"""The command `as-lightning`: one run, or one job of a sweep."""

from __future__ import annotations

import logging
import math
import re
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from as_lightning.bench.commands.jobs import run_command
from as_lightning.bench.commands.sweep_report import finish_sweep
from as_lightning.bench.run.settings import method_settings

log = logging.getLogger(__name__)


def run_job(config: DictConfig) -> float:
    """Make the run of a Hydra job; returns its best validation score, for sweepers that
    optimise.
    """
    # here, so that a misspelt setting and the shell's completion need not wait for torch
    from as_lightning.bench.run.processes import one_job
    from as_lightning.bench.run.summary import print_summary
    from as_lightning.bench.run.train import train

    log.info("%s, method %s, seed %s", config.name, config.method.name, config.seed)
    # Lightning's messages at each start and end would bury the report of a sweep of many runs
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", message=r".*isinstance\(treespec, LeafSpec\).*")
    warnings.filterwarnings("ignore", message=r".*does not have many workers.*")
    warnings.filterwarnings(
        "ignore", message=r".*'masking/.*sync_dist=True.*"
    )  # these are sums over the ranks already
    with one_job(config):
        result = train(config)
    if HydraConfig.get().mode == RunMode.RUN:  # a sweep ends with its report
        print_summary(result, Path(config.output_dir))
    return max((evaluation["score"] for evaluation in result.evaluations), default=math.nan)


def seed_by_seed(arguments: Sequence[str]) -> list[str]:
    """The command's arguments. In a sweep settings of methods get ``++``, as some methods lack
    them. Seeds come first: all methods run with one seed before the next, so that a machine that
    slows down slows all of them.

    >>> seed_by_seed(["-m", "method=softmax,as_softmax", "method.delta=0.1", "seed=0,1"])
    ['-m', 'seed=0,1', 'method=softmax,as_softmax', '++method.delta=0.1']
    """
    if {"-m", "--multirun"}.isdisjoint(arguments):
        return [*arguments]
    method_keys = {
        f"method.{name}" for name in method_settings()
    }  # a misspelt one stays as it is, for Hydra to refuse
    words = [f"++{word}" if word.partition("=")[0] in method_keys else word for word in arguments]
    first = next(
        (place for place, word in enumerate(words) if re.match("[^-]+=", word)), len(words)
    )
    options, settings = words[:first], words[first:]
    return options + sorted(settings, key=lambda word: re.match(r"\+*seed=.*[,(]", word) is None)


def main() -> None:
    """The console script `as-lightning`."""
    sys.argv[1:] = seed_by_seed(sys.argv[1:])
    run_command("train", run_job, finish_sweep)


if __name__ == "__main__":
    from as_lightning.bench.commands.console import train as command

    command()
