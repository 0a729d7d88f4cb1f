"""The machine: versions, processor, accelerator. Needs none of the app's packages."""

from __future__ import annotations

import functools
import os
import platform
import re
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = "as-lightning numpy torch torchvision torchaudio lightning torchmetrics"


@functools.cache  # of every run
def package_versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in PACKAGES.split():
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions


def machine_description() -> dict[str, Any]:
    """Return processor, cores and accelerator; no host names, no paths."""
    import torch  # here: as_lightning.bench.run.result is imported without it

    processor = platform.processor() or platform.machine()
    with suppress(OSError):
        for model in re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text("utf-8")):
            processor = model
    return {
        "system": platform.system(),
        "processor": processor,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }
