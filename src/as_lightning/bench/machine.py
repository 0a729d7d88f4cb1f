"""The machine: versions, processor, accelerator. Needs none of the app's packages."""

from __future__ import annotations

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
    for package in (
        "as-lightning",
        "torch",
        "lightning",
        "torchmetrics",
        "torchvision",
        "torchaudio",
        "numpy",
    ):
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions


def machine_description() -> dict[str, Any]:
    """Processor, cores and accelerator; no host names, no paths."""
    import torch  # here: as_lightning.bench.run.result is imported without it

    cpuinfo = Path("/proc/cpuinfo")
    match = re.search(
        r"^model name\s*: (.*)$",
        cpuinfo.read_text("utf-8") if cpuinfo.exists() else "",
        re.MULTILINE,
    )
    return {
        "system": platform.system(),
        "processor": match[1] if match else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }
