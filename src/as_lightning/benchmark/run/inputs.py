"""What a run reads beside its configuration: when that changes, a finished run is another than the one asked for."""

from __future__ import annotations

from hydra.utils import instantiate
from omegaconf import DictConfig

from as_lightning.benchmark.data.checksum import checksum
from as_lightning.benchmark.run.settings import class_arguments


def run_inputs(config: DictConfig) -> dict[str, str]:
    """The checksum of the user's own data (``data``).

    A run that reads none, or whose data are not there, has no entry.
    """
    inputs: dict[str, str] = {}
    try:
        paths = instantiate(class_arguments(config.data, "data")).user_paths
        if paths:
            inputs["data"] = checksum(paths)
    except OSError:
        pass  # the run itself says what is missing; a finished one needs it no more
    return inputs


def changed_inputs(recorded: dict[str, str], current: dict[str, str]) -> list[str]:
    """What a finished run has read that is another now.

    >>> changed_inputs({"data": "12ab", "tokenizer": "cd34"}, {"data": "ffff"})
    ['data']
    """
    return [name for name in recorded if name in current and recorded[name] != current[name]]
