"""What surrounds Hydra's jobs: Ctrl-C, also where Python drops it, and jobs of several processes."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, read_write

_interrupted = False


@contextmanager
def interrupts_remembered() -> Iterator[None]:
    """Within, :func:`stop_if_interrupted` knows of each Ctrl-C.

    Another handler than Python's own stays: a command in the background ignores the signal.
    """
    global _interrupted
    _interrupted = False
    own = threading.current_thread() is threading.main_thread()
    if not own or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def stop_if_interrupted() -> None:
    """Raise ``KeyboardInterrupt`` if one has been dropped."""
    if _interrupted:
        raise KeyboardInterrupt


def is_interrupt(error: BaseException) -> bool:
    """Whether the user has stopped the command. Lightning leaves the program where it meets an interrupt."""
    return isinstance(error, KeyboardInterrupt) or isinstance(error.__context__, KeyboardInterrupt)


def _remember(number: int, frame: FrameType | None) -> None:
    global _interrupted
    _interrupted = True
    signal.default_int_handler(number, frame)


# what Lightning sets for the processes that it starts, and what would make the next job wait for them
PROCESS_VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "LOCAL_RANK", "WORLD_SIZE")


@contextmanager
def command_of_one_job(config: DictConfig) -> Iterator[None]:
    """While a job of a sweep runs, this program's command is that of the job alone; what it leaves behind is undone.

    Lightning starts the other processes of a run by this program's command. In a sweep that would be the whole sweep
    once more, in a launcher's worker the worker.

    Args:
        config: of the job. Outside a sweep nothing is changed.
    """
    if not HydraConfig.initialized() or HydraConfig.get().mode != RunMode.MULTIRUN:
        yield
        return
    hydra: Any = HydraConfig.get()  # a DictConfig, whatever it says
    with read_write(hydra):
        hydra.run.dir = hydra.runtime.output_dir  # which Lightning hands on
    # Lightning reads the command from sys.argv and __main__ and has no argument for another one. The plain way, a child
    # process for each job, would cost each job the seconds that torch takes to load
    main = sys.modules["__main__"]
    argv, spec = sys.argv, main.__spec__
    variables = {name: os.environ.get(name) for name in PROCESS_VARIABLES}
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
            for name, value in variables.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
