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


def run_inputs(config: DictConfig) -> dict[str, str]:
    """The checksum of the user's own data (``data``), and Python's version where its library is the data (``python``).

    A run that reads neither, or whose data are not there, has no entry.
    """
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


def changed_inputs(recorded: dict[str, str], current: dict[str, str]) -> list[str]:
    """What a finished run has read that is another now.

    >>> changed_inputs({"data": "12ab", "python": "CPython 3.11.7"}, {"data": "ffff"})
    ['data']
    """
    return [name for name in recorded if name in current and recorded[name] != current[name]]


log = logging.getLogger(__name__)
LOCK_FILE = "run.lock"


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; wait for it while another process has it.

    The operating system releases the lock of a process that ends, also of one that is killed. The further processes of
    a run in several processes go without: their first one has it.
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
