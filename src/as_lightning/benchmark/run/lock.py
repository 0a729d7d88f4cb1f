"""One run at a time in a folder."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout
from lightning.pytorch.utilities import rank_zero_only

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
