"""The machine and this process: versions, processor, memory. Needs none of the app's packages."""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import re
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any


def package_versions() -> dict[str, str]:
    """Versions of what the numbers depend on."""
    versions = {"python": platform.python_version()}
    for package in ("as-lightning", "torch", "lightning", "torchmetrics", "torchvision", "torchaudio", "numpy"):
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions


def machine_description() -> dict[str, Any]:
    """Processor, cores and accelerator; no host names, no paths."""
    import torch  # here: as_lightning.benchmark.run.result is read without it

    cpuinfo = Path("/proc/cpuinfo")
    name = re.search(r"^model name\s*: (.*)$", cpuinfo.read_text("utf-8") if cpuinfo.exists() else "", re.MULTILINE)
    return {
        "system": platform.system(),
        "processor": name[1] if name else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


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
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return False
    return True


def peak_resident_memory() -> int:
    """The most bytes that the process has held since `reset_peak`."""
    return _status("VmHWM")


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))
