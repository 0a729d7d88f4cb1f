"""A module of one's own that is named in the configuration: ``module._target_=my_package.LitModel``."""

from __future__ import annotations

import functools
import json
from typing import Any

from hydra.utils import get_object, instantiate
from omegaconf import DictConfig, OmegaConf

from as_lightning.benchmark.compare.own_module import OwnModule
from as_lightning.benchmark.run.settings import SettingError

OWN_SETTINGS = ("_target_", "replaces", "monitor", "mode")
FOUND = ("test_metric", "learning_rate", "calibrated")


def configured_module(config: DictConfig) -> OwnModule:
    """The module and data that ``config.module`` and ``config.data`` name.

    Their arguments are what the command sets: ``+module.hidden=64``, ``+data.root=files``. What ``config.data`` holds
    of the project's own data is not passed on.

    Raises:
        SettingError: if a name cannot be imported, or the data are the project's own.
    """
    arguments = {name: value for name, value in _container(config.module).items() if name not in OWN_SETTINGS}
    if "lr" in arguments:
        arguments["lr"] = float(arguments["lr"])
    try:
        target = get_object(config.module._target_)
        get_object(config.data._target_)
    except Exception as error:  # Hydra raises what the import raises
        raise SettingError(f"module._target_={config.module._target_}: {error}") from None
    factory = functools.partial(target, **arguments)
    given = given_arguments(config, "data")
    data = OmegaConf.create({"_target_": config.data._target_, **given})
    trainer = _container(config.trainer)
    trainer.pop("_target_")
    callbacks = [instantiate(callback) for callback in _container(config.get("own_callbacks", {})).values()]
    name = str(config.name) if config.name != config.data.name else target.__name__
    try:
        return OwnModule(
            factory,
            functools.partial(instantiate, data),
            config.module.replaces,
            config.module.monitor,
            config.module.mode,
            trainer | ({"callbacks": callbacks} if callbacks else {}),
            name,
            arguments={
                "module": {"_target_": config.module._target_, **arguments},
                "data": {"_target_": config.data._target_, **given},
            },
        )
    except (TypeError, ValueError) as error:
        raise SettingError(str(error)) from None


def given_arguments(config: DictConfig, group: str) -> dict[str, Any]:
    """The settings of a group that the command line sets."""
    names = []
    for override in config.hydra.overrides.task if "hydra" in config else config.get("given", []):
        key = str(override).lstrip("+~").partition("=")[0]
        if key.startswith(f"{group}.") and key != f"{group}._target_":
            names.append(key.split(".")[1])
    return {name: value for name, value in _container(config[group]).items() if name in names}


def found_by_inspection(own: OwnModule) -> str:
    """What a look at the module has shown, as the value of an override: jobs need not look again."""
    values = ",".join(f"{name}:{json.dumps(getattr(own, name))}" for name in FOUND)  # keys of overrides stand bare
    return f"{{{values}}}"


def _container(config: Any) -> dict[str, Any]:
    content = OmegaConf.to_container(config, resolve=True) if OmegaConf.is_config(config) else config
    assert isinstance(content, dict)
    return {str(name): value for name, value in content.items()}
