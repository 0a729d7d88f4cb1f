"""What surrounds Hydra's jobs: errors in words, Ctrl-C, also where Python drops it, and jobs of several processes."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, read_write

from as_lightning.benchmark.commands.mistakes import in_words, is_mistake
from as_lightning.benchmark.packages import config_dir

_interrupted = False


def run_command(
    config_name: str,
    job: Callable[[DictConfig], Any],
    arguments: Callable[[list[str]], list[str]],
    failures: Callable[[], int] = lambda: 0,
) -> None:
    """Run `job` as Hydra's main. Where the user can mend the error, or has stopped it, the program ends in words.

    `arguments` gives Hydra's arguments for those of the command; `failures` reports a sweep that an error has ended,
    and counts its failed runs.
    """
    global _interrupted
    _interrupted = False
    command = "as-lightning" if config_name == "train" else f"as-lightning-{config_name}"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    stack_traces = os.environ.get("HYDRA_FULL_ERROR") == "1"
    os.environ["HYDRA_FULL_ERROR"] = "1"  # then Hydra hands its errors on
    try:
        sys.argv[1:] = arguments(sys.argv[1:])
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _remember)
        hydra.main(version_base="1.3", config_path=str(config_dir()), config_name=config_name)(job)()
    except (KeyboardInterrupt, SystemExit) as end:
        # Lightning leaves the program where it meets an interrupt
        if not isinstance(end, KeyboardInterrupt) and not isinstance(end.__context__, KeyboardInterrupt):
            raise
        sys.exit(f"{command}: stopped; the same command again goes on from here")
    except Exception as error:
        failed = failures()  # what has finished is reported, what has failed is listed there
        if stack_traces or not (failed or is_mistake(error)):
            raise
        if failed:
            from as_lightning.benchmark.run.summary import counted_runs

            sys.exit(f"{command}: {counted_runs(failed)} failed")
        sys.exit(f"{command}: {in_words(error)}")


def stop_if_interrupted() -> None:
    """Raise `KeyboardInterrupt` if Python has dropped one, as it does inside destructors."""
    if _interrupted:
        raise KeyboardInterrupt


def _remember(number: int, frame: FrameType | None) -> None:
    global _interrupted
    _interrupted = True
    signal.default_int_handler(number, frame)


# what Lightning sets for the processes that it starts, and what would make the next job wait for them
PROCESS_VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "LOCAL_RANK", "WORLD_SIZE")


@contextmanager
def command_of_one_job(config: DictConfig) -> Iterator[None]:
    """While a job of a sweep runs, this program's command is that of the job alone; what it leaves behind is undone.

    Lightning starts the other processes of a run by this program's command, which would be the whole sweep once more.
    """
    if not HydraConfig.initialized() or HydraConfig.get().mode != RunMode.MULTIRUN:
        yield
        return
    settings: Any = HydraConfig.get()  # a DictConfig, whatever it says
    with read_write(settings):
        settings.run.dir = settings.runtime.output_dir  # which Lightning hands on
    # Lightning reads the command from sys.argv and __main__ and has no argument for another one. The plain way, a child
    # process for each job, would cost each job the seconds that torch takes to load
    main = sys.modules["__main__"]
    argv, spec = sys.argv, main.__spec__
    variables = {name: os.environ[name] for name in PROCESS_VARIABLES if name in os.environ}
    with TemporaryDirectory(prefix="as_lightning_") as folder:
        OmegaConf.save(config, Path(folder, "job.yaml"))
        sys.argv = [argv[0], "--config-path", folder, "--config-name", "job"]
        main.__spec__ = importlib.util.find_spec("as_lightning.benchmark.commands.train")
        try:
            yield
        finally:
            sys.argv, main.__spec__ = argv, spec
            import torch.distributed  # here: a misspelt setting need not wait for torch

            if torch.distributed.is_available() and torch.distributed.is_initialized():
                torch.distributed.destroy_process_group()
            for name in PROCESS_VARIABLES:
                os.environ.pop(name, None)
            os.environ |= variables
