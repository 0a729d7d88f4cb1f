"""What surrounds Hydra's jobs: errors and Ctrl-C in words."""

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

from as_lightning.benchmark.commands.mistakes import check_words, in_words, is_mistake
from as_lightning.benchmark.packages import config_dir
from as_lightning.benchmark.run.result import new_session


def run_command(config_name: str, job: Callable[[DictConfig], Any], failures: Callable[[], int] = lambda: 0) -> None:
    """Run `job` as Hydra's main, and end in words where the user can mend the error, or has stopped it.

    `failures` reports a sweep that has ended, perhaps by an error, and counts its failed runs.
    """
    new_session()
    command = "as-lightning" if config_name == "train" else f"as-lightning-{config_name}"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    stack_traces = os.environ.get("HYDRA_FULL_ERROR") == "1"
    os.environ["HYDRA_FULL_ERROR"] = "1"  # then Hydra hands its errors on

    @functools.wraps(job)
    def one_sentence(config: DictConfig) -> Any:
        try:
            return job(config)
        except Exception as error:
            if stack_traces or HydraConfig.get().mode != RunMode.RUN or not is_mistake(error):
                raise
            sys.exit(f"{command}: {in_words(error)}")  # Hydra would print the overrides of an error first

    try:
        check_words(sys.argv[1:])
        hydra.main(version_base="1.3", config_path=str(config_dir()), config_name=config_name)(one_sentence)()
        failures()
    except (KeyboardInterrupt, SystemExit) as end:
        # Lightning leaves the program where it meets an interrupt, and by an exit without a status at a SIGTERM
        terminated = type(end).__name__ == "SIGTERMException"
        if not (terminated or isinstance(end, KeyboardInterrupt) or isinstance(end.__context__, KeyboardInterrupt)):
            raise
        stopped = f"{command}: stopped; the same command again goes on from here"
        if not terminated:
            sys.exit(stopped)
        print(stopped, file=sys.stderr)
        sys.exit(128 + signal.SIGTERM)
    except Exception as error:
        failed = failures()  # what has finished is reported, what has failed is listed there
        if stack_traces or not (failed or is_mistake(error)):
            raise
        sys.exit(f"{command}: {f'runs that have failed: {failed}' if failed else in_words(error)}")
