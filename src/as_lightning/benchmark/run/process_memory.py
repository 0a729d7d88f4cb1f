"""The memory of this process as the system sees it: what it holds now, and the most it has held (Linux)."""

from __future__ import annotations

import ctypes
import gc
import sys
from pathlib import Path


def resident_memory() -> int:
    """Bytes that the process holds now, after what it has freed has gone back to the system."""
    gc.collect()
    return_free_memory()
    return _status("VmRSS")


def return_free_memory() -> None:
    """Give back to the system what the process has freed and the C library still holds."""
    ctypes.CDLL(None).malloc_trim(0)


def reset_peak() -> bool:
    """Start anew to look for the most that the process holds; False where the system cannot."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return False
    return True


def peak_resident_memory() -> int:
    """The most bytes that the process has held since :func:`reset_peak`."""
    return _status("VmHWM")


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}")
