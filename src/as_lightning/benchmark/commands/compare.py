"""The command `as-lightning-compare`: Hydra's main with the comparison's sweeper."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from omegaconf import DictConfig, open_dict

from as_lightning.benchmark.commands.jobs import one_job, run_command


def run_job(config: DictConfig) -> None:
    """One run of a comparison."""
    # here, so that a misspelt setting and the shell's completion need not wait for torch
    from as_lightning.benchmark.compare.plan import default_settings
    from as_lightning.benchmark.run.runner import quiet_training
    from as_lightning.benchmark.run.train import train

    config = config.copy()
    with open_dict(config):
        for name in default_settings():  # before `one_job`, which hands the run's settings to its other processes
            config.pop(name)
    with one_job(config), quiet_training():
        train(config)
    shutil.rmtree(Path(config.output_dir) / "checkpoints", ignore_errors=True)


def main() -> None:
    """The console script `as-lightning-compare`."""
    # a module of one's own lies where the command is given; other processes of a launcher find it there too
    sys.path.insert(0, os.getcwd())
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")]))
    # a knob may be one of the compared methods alone: each method takes what it has
    sys.argv[1:] = [f"++{word}" if word.startswith("method.") else word for word in sys.argv[1:]]
    if not any(word.startswith("-") for word in sys.argv[1:]):
        sys.argv.append("--multirun")  # else Hydra says of a misspelt setting that methods=a,b is ambiguous
    run_command("compare", run_job)
