"""A setting of a data set has one default: that of ``conf/data``."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from hydra.utils import get_class
from omegaconf import OmegaConf

from as_lightning.benchmark.packages import config_dir

DATA = sorted(path.stem for path in (config_dir() / "data").glob("*.yaml") if not path.stem.endswith("base"))


def python_defaults(module: type) -> dict[str, Any]:
    """The defaults of a class's arguments, those of its bases included."""
    defaults: dict[str, Any] = {}
    for base in module.__mro__:
        if "__init__" in vars(base) and base.__module__.startswith("as_lightning"):
            for name, parameter in inspect.signature(base.__init__).parameters.items():
                if parameter.default is not parameter.empty:
                    defaults.setdefault(name, parameter.default)
    return defaults


def module_settings(node: dict[str, Any]) -> dict[str, Any]:
    """The part of a data set's configuration that names a class."""
    if "_target_" in node:
        return node
    return next(value for value in node.values() if isinstance(value, dict) and "_target_" in value)


@pytest.mark.parametrize("name", DATA)
def test_a_default_in_python_is_that_of_the_configuration(composed, name):
    data = OmegaConf.to_container(composed(f"data={name}").data, resolve=False)
    settings = module_settings(data)
    defaults = python_defaults(get_class(settings["_target_"]))
    differing = {
        key: (default, settings[key])
        for key, default in defaults.items()
        if key in settings and not str(settings[key]).startswith("${") and _plain(settings[key]) != _plain(default)
    }
    assert differing == {}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, (list, tuple)) else value
