"""The command `as-lightning-compare`: Hydra's main with the comparison's sweeper."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from hydra._internal.utils import get_args_parser
from omegaconf import DictConfig

from as_lightning.benchmark.commands.jobs import run_command, stop_if_interrupted


def run_job(config: DictConfig) -> None:
    """One run of a comparison."""
    stop_if_interrupted()
    # here, so that a misspelt setting and the shell's completion need not wait for torch
    from as_lightning.benchmark.commands.jobs import command_of_one_job
    from as_lightning.benchmark.compare.sweep import make_run
    from as_lightning.benchmark.run.runner import quiet_training

    with command_of_one_job(config), quiet_training():
        make_run(config)


def as_multirun(arguments: Sequence[str]) -> list[str]:
    """The command's arguments for Hydra: a sweep, unless the configuration or help is asked for."""
    options = get_args_parser().parse_args(list(arguments))
    asks = (options.cfg, options.help, options.info, options.hydra_help, options.shell_completion)
    # a knob may be one of the compared methods alone: each method takes what it has
    opened = [f"++{word}" if word.startswith("method.") else word for word in arguments]
    return opened if options.multirun or any(asks) else ["--multirun", *opened]


def main() -> None:
    """The console script `as-lightning-compare`."""
    # a module of one's own lies where the command is given; other processes of a launcher find it there too
    sys.path.insert(0, os.getcwd())
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")]))
    run_command("compare", run_job, as_multirun)


if __name__ == "__main__":
    from as_lightning.benchmark.commands.console import compare

    compare()
