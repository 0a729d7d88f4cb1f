"""The command ``as-lightning-compare``: Hydra's main with the comparison's sweeper."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import warnings
from pathlib import Path

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, open_dict

from as_lightning.benchmark.commands.jobs import interrupts_remembered, is_interrupt, stop_if_interrupted
from as_lightning.benchmark.commands.mistakes import in_words, is_mistake
from as_lightning.benchmark.packages import config_dir


def run_job(config: DictConfig) -> None:
    """One run of a comparison; its checkpoints are removed when it has finished."""
    stop_if_interrupted()
    # here, so that a misspelt setting and the shell's completion need not wait for torch
    from as_lightning.benchmark.commands.jobs import command_of_one_job
    from as_lightning.benchmark.compare.sweep import COMPARISON_SETTINGS
    from as_lightning.benchmark.run.train import train

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    directory = Path(config.output_dir)
    if config.module._target_:
        own_run(config, directory)
    else:
        config = config.copy()
        with open_dict(config):
            for name in COMPARISON_SETTINGS:
                config.pop(name)
        with command_of_one_job(config):
            train(config)
    shutil.rmtree(directory / "checkpoints", ignore_errors=True)


def own_run(config: DictConfig, directory: Path) -> None:
    """One run of a module of one's own."""
    from as_lightning.benchmark.compare.configured_module import FOUND, configured_module
    from as_lightning.benchmark.compare.plan import Run

    with open_dict(config):
        config.given = list(HydraConfig.get().overrides.task)
    own = configured_module(config)
    for name in FOUND:
        setattr(own, name, config.found[name])
    about = config.comparison
    # a budget is a share of the full training: own.train counts its epochs
    own.trainer["max_epochs"] = max(1, round(about.epochs / about.budget))
    run = Run(about.phase, config.method.name, dict(about.settings), float(about.budget), config.seed)
    own.train(run, directory)


def main() -> None:
    """The console script ``as-lightning-compare``."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    stack_traces = os.environ.get("HYDRA_FULL_ERROR") == "1"
    os.environ["HYDRA_FULL_ERROR"] = "1"  # then Hydra hands its errors on
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
