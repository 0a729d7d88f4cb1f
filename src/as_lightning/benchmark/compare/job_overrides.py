"""The overrides of a comparison's jobs: values as Hydra reads them back, and settings that a method keeps."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from omegaconf import DictConfig

from as_lightning.benchmark.run.settings import APP_SETTINGS, SettingError, foreign_settings, known_settings, nearest


def override_value(value: Any) -> str:
    """A value as the value of an override, which Hydra reads as the same value.

    >>> override_value(None), override_value(True), override_value(0.1), override_value([1, None])
    ('null', 'true', '0.1', '[1,null]')
    >>> print(override_value("don't, {ask}"))
    'don\\'t, {ask}'
    """
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{name}:{override_value(item)}" for name, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(override_value, value)) + "]"
    if isinstance(value, str):
        escaped = value.replace("\\'", "\\\\\\'").replace("'", "\\'")
        return f"'{escaped}'"
    return str(value) if isinstance(value, float) else json.dumps(value)


def kept_settings(config: DictConfig) -> set[str]:
    """The settings by which a method is what it is: its ``search`` node holds null for them.

    Args:
        config: the method as its file makes it.
    """
    return {str(name) for name, description in (config.get("search") or {}).items() if description is None}


def taken(config: DictConfig, kept: Collection[str]) -> set[str]:
    """The settings that a comparison may give to a method.

    Args:
        config: the method as a run of it would be.
        kept: its :func:`kept_settings`.
    """
    return {str(name) for name in config} - set(foreign_settings(config)) - set(kept)


def check_taken(
    names: Collection[str], configured: Mapping[str, DictConfig], kept: Mapping[str, Collection[str]]
) -> None:
    """Raise a SettingError for a setting that no method of a comparison takes.

    Args:
        names: of settings of methods.
        configured: each method as a run of it would be.
        kept: of each method its :func:`kept_settings`.
    """
    takes = {name: taken(config, kept[name]) for name, config in configured.items()}
    for setting in names:
        if any(setting in settings for settings in takes.values()):
            continue
        keeping = [method for method, settings in kept.items() if setting in settings]
        if keeping:
            raise SettingError(
                f"no method of the comparison takes method.{setting}: {', '.join(keeping)} without its own value would "
                "be another method"
            )
        known = {known for method in configured.values() for known in known_settings(method, "method")}
        raise SettingError(
            f"no method of the comparison has method.{setting}: {nearest(setting, known - APP_SETTINGS['method'])}"
        )


def overrides_for(overrides: Sequence[str], kept: Collection[str]) -> list[str]:
    """The overrides without those of settings that a method keeps."""
    return [override for override in overrides if setting_of(override) not in kept]


def setting_of(override: str) -> str:
    """The setting of a method that an override gives a value; empty if it is of something else.

    >>> setting_of("++method.delta=0.2"), setting_of("method.delta_warmup.ratio=0.1"), setting_of("seed=0")
    ('delta', '', '')
    """
    group, _, name = override.lstrip("+~").partition("=")[0].partition(".")
    return name if group == "method" and "." not in name else ""
