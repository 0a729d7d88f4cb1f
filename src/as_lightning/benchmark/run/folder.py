"""A run's folder: one run at a time, and the inputs that a finished run there was made from."""

from __future__ import annotations

import logging
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout
from hydra.utils import instantiate
from lightning.pytorch.utilities import rank_zero_only
from omegaconf import DictConfig

from as_lightning.benchmark.data.files import checksum
from as_lightning.benchmark.run.settings import class_arguments

log = logging.getLogger(__name__)
LOCK_FILE = "run.lock"


def run_inputs(config: DictConfig) -> dict[str, str]:
    """The checksum of the user's own data, as `data`; Python's version where its library is the data, as `python`."""
    inputs: dict[str, str] = {}
    data = instantiate(class_arguments(config.data, "data"))
    if data.from_standard_library:
        inputs["python"] = f"{platform.python_implementation()} {platform.python_version()}"
    try:
        if data.user_paths:
            inputs["data"] = checksum(data.user_paths)
    except OSError:
        pass  # the run itself says what is missing; a finished one needs it no more
    return inputs


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, which ends with the process; wait for it while another process has it.

    Of a run in several processes the first one holds it for all.
    """
    if getattr(rank_zero_only, "rank", 0) != 0:
        yield
        return
    lock = FileLock(folder / LOCK_FILE)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        log.info("%s: another process runs here, waiting for it to end", folder)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
