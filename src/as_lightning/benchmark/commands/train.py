"""The command ``as-lightning``: Hydra's main, and its errors in words."""

from __future__ import annotations

import logging
import math
import os
import re
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from as_lightning.benchmark.commands.jobs import interrupts_remembered, is_interrupt, stop_if_interrupted
from as_lightning.benchmark.commands.mistakes import in_words, is_mistake, parsed
from as_lightning.benchmark.packages import config_dir
from as_lightning.benchmark.run.settings import method_settings

log = logging.getLogger(__name__)


def run_job(config: DictConfig) -> float:
    """One job of Hydra's: what a sweeper optimises is the best validation score."""
    stop_if_interrupted()
    # here, so that a misspelt setting and the shell's completion need not wait for torch
    from as_lightning.benchmark.commands.jobs import command_of_one_job
    from as_lightning.benchmark.run.summary import print_summary
    from as_lightning.benchmark.run.train import train

    log.info("%s, method %s, seed %s", config.name, config.method.name, config.seed)
    # of a sweep's many runs the report is the news, not what Lightning says at each start and end
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", message=r".*isinstance\(treespec, LeafSpec\).*")
    warnings.filterwarnings("ignore", message=r".*does not have many workers.*")
    warnings.filterwarnings("ignore", message=r".*'masking/.*sync_dist=True.*")  # these are sums over the ranks already
    with command_of_one_job(config):
        result = train(config)
    if HydraConfig.get().mode == RunMode.RUN and not os.environ.get("LOCAL_RANK"):  # a sweep ends with its report
        print_summary(result, config.output_dir)
    return max((evaluation["score"] for evaluation in result.evaluations), default=math.nan)


def open_method_settings(arguments: Sequence[str]) -> list[str]:
    """The command's arguments, such that in a sweep over methods a setting of some of them does not stop the others.

    ``-m method=softmax,as_softmax method.delta=0.05`` gives the margin to ``as_softmax`` alone:
    :func:`~as_lightning.benchmark.run.settings.checked_settings` takes it away from ``softmax``.
    """
    options = get_args_parser().parse_args(list(arguments))
    if not options.multirun:
        return list(arguments)
    overrides = parsed(options.overrides)
    if not any(override.key_or_group == "method" and override.is_sweep_override() for override in overrides):
        return list(arguments)
    known = method_settings()
    opened = {
        override.input_line: f"++{override.input_line}"
        for override in overrides
        if re.fullmatch(r"method\.\w+", override.key_or_group)
        and override.key_or_group.removeprefix("method.") in known
        and not override.is_add()
        and not override.is_force_add()
    }
    return [opened.get(argument, argument) for argument in arguments]


def main() -> None:
    """The console script ``as-lightning``."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    stack_traces = os.environ.get("HYDRA_FULL_ERROR") == "1"
    os.environ["HYDRA_FULL_ERROR"] = "1"  # then Hydra hands its errors on
    overrides: list[str] = []
    try:
        sys.argv[1:] = open_method_settings(sys.argv[1:])
        overrides = get_args_parser().parse_args().overrides
        with interrupts_remembered():
            hydra.main(version_base="1.3", config_path=str(config_dir()), config_name="train")(run_job)()
    except (KeyboardInterrupt, SystemExit) as end:
        if not is_interrupt(end):
            raise
        sys.exit("as-lightning: stopped; the same command again goes on from the last checkpoint")
    except Exception as error:
        failed = _finish_sweep()  # what has finished is reported, what has failed is listed there
        if stack_traces or not (failed or is_mistake(error)):
            raise
        if failed:
            from as_lightning.benchmark.run.summary import counted_runs

            sys.exit(f"as-lightning: {counted_runs(len(failed))} failed")
        sys.exit(f"as-lightning: {in_words(error, overrides)}")


def _finish_sweep() -> list[Any]:
    """The failed runs of the sweep that was begun, reported; none where no sweep was begun."""
    from as_lightning.benchmark.report.report_callback import finish_sweep

    return finish_sweep()


if __name__ == "__main__":
    from as_lightning.benchmark.commands.console import train as command

    command()
