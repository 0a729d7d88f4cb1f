"""What a run reads beside its configuration: when that changes, a finished run is another than the one asked for."""

from __future__ import annotations

import platform

from hydra.utils import instantiate
from omegaconf import DictConfig

from as_lightning.benchmark.data.checksum import checksum
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
