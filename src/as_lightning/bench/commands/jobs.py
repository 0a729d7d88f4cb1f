"""Runs Hydra's jobs, and reports errors and Ctrl-C in one sentence."""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from as_lightning.bench.commands.mistakes import in_words, is_mistake
from as_lightning.bench.packages import config_dir
from as_lightning.bench.run.result import SESSION, new_session
from as_lightning.bench.run.settings import help_text


def run_command(config_name: str, job: Callable[[DictConfig], Any]) -> None:
    """Run `job` as Hydra's main; exit with one sentence at a mistake or an interrupt."""
    if SESSION not in os.environ:  # which the processes of a job have from its command
        new_session()
    command = "as-lightning" if config_name == "train" else f"as-lightning-{config_name}"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    stack_traces = os.environ.get("HYDRA_FULL_ERROR") == "1"
    os.environ["HYDRA_FULL_ERROR"] = "1"  # with it Hydra raises its errors instead of printing them

    @functools.wraps(job)
    def one_sentence(config: DictConfig) -> Any:
        try:
            return job(config)
        except Exception as error:
            if stack_traces or HydraConfig.get().mode != RunMode.RUN or not is_mistake(error):
                raise
            sys.exit(f"{command}: {in_words(error)}")  # Hydra would print the job's overrides first

    if {"--help", "-h"}.intersection(sys.argv[1:]):
        print(help_text("default" if config_name == "train" else config_name))
        return
    main = hydra.main(version_base="1.3", config_path=str(config_dir()), config_name=config_name)
    try:
        main(one_sentence)()
    except (KeyboardInterrupt, SystemExit) as end:
        # Lightning exits the program at an interrupt, and at a SIGTERM without a status
        interrupted = KeyboardInterrupt in (type(end), type(end.__context__))
        terminated = type(end).__name__ == "SIGTERMException"
        if not interrupted and not terminated:
            raise
        print(f"{command}: stopped; the same command again goes on from here", file=sys.stderr)
        sys.exit(128 + signal.SIGTERM if terminated else 1)
    except Exception as error:
        if stack_traces or not is_mistake(error):
            raise
        sys.exit(f"{command}: {in_words(error)}")
