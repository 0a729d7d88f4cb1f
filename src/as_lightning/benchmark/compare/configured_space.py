"""What a comparison tunes of a configured method: from its configuration, and from the values on the command line."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from as_lightning.benchmark.compare.job_overrides import taken
from as_lightning.benchmark.compare.search import Choice, Space, learning_rates, setting_range
from as_lightning.benchmark.run.settings import SettingError


def configured_space(
    config: DictConfig,
    swept: Mapping[str, Sequence[Any]],
    fixed: Collection[str],
    trials: int,
    kept: Collection[str] = (),
) -> Space:
    """The learning rate, the ``search`` node of the method, and what the command line gives as several values.

    Args:
        config: the method as a run of it would be.
        swept: settings of methods, and ``lr``, with the values to try; those that the method lacks are left out.
        fixed: settings that the command line sets to one value, by their full names: they are not tuned.
        trials: how many settings are tried.
        kept: settings that the method keeps, whatever the command line gives.

    Raises:
        SettingError: if a range is none, or ``trials`` cannot try all values.
    """
    space: dict[str, Any] = {}
    try:
        if "lr" in swept:
            space["lr"] = Choice(tuple(swept["lr"]), swept["lr"][0])
        elif "optimizer.lr" not in fixed:
            space["lr"] = learning_rates(float(config.optimizer.lr), _factor(config.search.lr_factor))
        for name, description in (plain(config.method.get("search")) or {}).items():
            if description is not None and f"method.{name}" not in fixed and name not in swept:
                space[name] = setting_range(description, plain(config.method[name]))
        for name, values in swept.items():
            if name != "lr" and name in taken(config.method, kept):
                whole = [*values, 1.0] if name == "delta" and 1.0 not in values else values
                space[name] = Choice(tuple(whole), whole[0])
        for name in swept:
            if name in space and len(space[name].values) > trials:
                listed = ", ".join(map(str, space[name].values))
                raise ValueError(
                    f"trials={trials} cannot try all {len(space[name].values)} values of {name} ({listed}): ask for "
                    f"trials={len(space[name].values)} or more"
                )
    except ValueError as error:
        raise SettingError(f"{config.method.name}: {error}") from None
    return space


def _factor(factor: Any) -> float:
    if not isinstance(factor, (int, float)) or isinstance(factor, bool) or not factor > 1:
        raise ValueError(f"search.lr_factor must be a number above 1, got {factor!r}")
    return float(factor)


def plain(value: Any) -> Any:
    """A node of a configuration as a dict or a list of Python's; anything else as it is."""
    if isinstance(value, (DictConfig, ListConfig)):
        return OmegaConf.to_container(value, resolve=True)
    return dict(value) if isinstance(value, Mapping) else value
