"""The name of a run's folder: the settings that the command has changed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from as_lightning.benchmark.run.settings import foreign_settings

LONGEST = 200  # characters; file systems end at 255 bytes


def run_folder(overrides: Sequence[str], method: DictConfig, left_out: Sequence[str]) -> str:
    """The changed settings, sorted: ``method=as_softmax,seed=1``.

    Settings that the method does not have are left out, so that a sweep over methods and margins runs softmax once.
    A path is replaced by its last part and four digits that tell it from others of the same name.

    Args:
        overrides: as on the command line.
        method: the method's settings.
        left_out: settings that do not name a folder.
    """
    ignored = {f"method.{name}" for name in foreign_settings(method)} | set(left_out)
    parts = []
    for override in OverridesParser.create().parse_overrides(list(overrides)):
        if override.key_or_group not in ignored:
            parts.append(f"{override.key_or_group}={_without_slashes(override.get_value_element_as_str())}")
    name = ",".join(sorted(parts))
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 9]}-{_digits(name, 8)}"


def _without_slashes(value: str) -> str:
    if "/" not in value:
        return value
    last = value.strip("'\"").rstrip("/").rpartition("/")[2]
    return f"{last}-{_digits(value, 4)}"


def _digits(text: str, count: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:count]


OmegaConf.register_new_resolver("as_lightning.run_folder", run_folder, replace=True)
