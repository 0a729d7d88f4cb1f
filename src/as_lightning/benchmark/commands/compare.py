"""The command ``as-lightning-compare``: Hydra's main with the comparison's sweeper."""

from __future__ import annotations

import logging
import os
import sys
import warnings

import hydra
from hydra._internal.utils import get_args_parser
from omegaconf import DictConfig

from as_lightning.benchmark.commands.jobs import interrupts_remembered, is_interrupt, stop_if_interrupted
from as_lightning.benchmark.commands.mistakes import in_words, is_mistake
from as_lightning.benchmark.packages import config_dir


def run_job(config: DictConfig) -> None:
    """One run of a comparison."""
    stop_if_interrupted()
    # here, so that a misspelt setting and the shell's completion need not wait for torch
    from as_lightning.benchmark.commands.jobs import command_of_one_job
    from as_lightning.benchmark.compare.sweep import make_run

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    with command_of_one_job(config):
        make_run(config)


def main() -> None:
    """The console script ``as-lightning-compare``."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    stack_traces = os.environ.get("HYDRA_FULL_ERROR") == "1"
    os.environ["HYDRA_FULL_ERROR"] = "1"  # then Hydra hands its errors on
    # a module of one's own lies where the command is given; other processes of a launcher find it there too
    sys.path.insert(0, os.getcwd())
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")]))
    overrides: list[str] = []
    try:
        options = get_args_parser().parse_args()
        overrides = options.overrides
        # a knob may be one of the compared methods alone: each method takes what it has
        sys.argv[1:] = [f"++{word}" if word.startswith("method.") else word for word in sys.argv[1:]]
        asks = (options.cfg, options.help, options.info, options.hydra_help, options.shell_completion)
        if not (options.multirun or any(asks)):
            sys.argv.insert(1, "--multirun")
        with interrupts_remembered():
            hydra.main(version_base="1.3", config_path=str(config_dir()), config_name="compare")(run_job)()
    except (KeyboardInterrupt, SystemExit) as end:
        if not is_interrupt(end):
            raise
        sys.exit("as-lightning-compare: stopped; the same command again makes the missing runs")
    except Exception as error:
        if stack_traces or not is_mistake(error):
            raise
        sys.exit(f"as-lightning-compare: {in_words(error, overrides, 'compare')}")


if __name__ == "__main__":
    from as_lightning.benchmark.commands.console import compare

    compare()
