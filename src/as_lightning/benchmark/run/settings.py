"""Every setting has a reader: a misspelt one is an error that names the nearest; changed ones name the run's folder."""

from __future__ import annotations

import difflib
import functools
import hashlib
import inspect
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf, open_dict

from as_lightning.benchmark.packages import config_dir

# what the app itself reads of a group, beside the arguments of the group's class
APP_SETTINGS = {"method": {"name", "callbacks", "search"}, "data": {"name", "score"}}
GROUPS = ("data", "model", "method", "optimizer", "lr_scheduler", "trainer", "callbacks", "logger")


class SettingError(ValueError):
    """A setting that the user can mend: shown without a stack trace."""


MANY = 40  # names that are too many to list beside the one that was meant


def nearest(name: str, known: Collection[str], elsewhere: Collection[str] = ()) -> str:
    """`did you mean ...?`, else of `elsewhere`, and all that is `known`; many names only where none is near."""
    close = difflib.get_close_matches(name, sorted(known)) or difflib.get_close_matches(name, sorted(elsewhere))
    there = f"here are: {', '.join(sorted(known))}"
    if not close:
        return f"t{there}"
    return f"did you mean {' or '.join(close)}?" + (f" T{there}" if len(known) <= MANY else "")


def located(target: str) -> Callable[..., Any]:
    """The class or function that a `_target_` names; a `SettingError` if there is none."""
    try:
        return get_object(target)
    except (ImportError, ValueError, AttributeError) as error:
        reason = " ".join(str(error).split())
        raise SettingError(f"_target_={target} cannot be loaded: {reason}") from error


def accepted_arguments(target: Callable[..., Any]) -> set[str] | None:
    """The arguments that `target` takes, of a class that hands `**kwargs` on also its bases'; None if it takes any."""
    calls: list[Any] = [target]
    if inspect.isclass(target):
        calls = [vars(base)["__init__"] for base in target.__mro__[:-1] if "__init__" in vars(base)]
    accepted: set[str] = set()
    for call in calls:
        try:
            parameters = list(inspect.signature(call).parameters.values())[call is not target :]  # without self
        except ValueError:  # a built-in function without a signature
            return None
        accepted |= {p.name for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
        if all(parameter.kind is not parameter.VAR_KEYWORD for parameter in parameters):
            return accepted
    return None


def class_arguments(group: DictConfig, name: str) -> DictConfig:
    """The settings of the group `data` or `method` that are arguments of its class."""
    accepted = accepted_arguments(located(group._target_))
    unread = APP_SETTINGS[name] if accepted is None else {str(key) for key in group} - (accepted - APP_SETTINGS[name])
    arguments = group.copy()  # which keeps its place in the configuration, and so its references
    with open_dict(arguments):
        for key in unread & group.keys():
            if not key.startswith("_"):
                del arguments[key]
    return arguments


def checked_settings(config: DictConfig) -> tuple[DictConfig, list[str]]:
    """The configuration without settings that belong to another method, and their names.

    A setting has a reader if it is an argument of its group's class, if another setting refers to it
    (`${method.tau}`), or if the app reads it. A `SettingError` names one that has no reader and that no method has.
    """
    config = config.copy()
    rate = OmegaConf.select(config, "optimizer.lr")
    if type(rate) not in (int, float, type(None)):
        raise SettingError(f"optimizer.lr must be a number, got {rate!r}")
    foreign = foreign_settings(config.method)
    with open_dict(config.method):
        for key in foreign:
            del config.method[key]
    for path, part in (found for group in GROUPS for found in _parts_with_target(config.get(group), group)):
        for key in _without_reader(part, path):
            reader = part._target_.rpartition(".")[2]
            near = nearest(key, known_settings(part, path), method_settings() if path == "method" else ())
            raise SettingError(f"{path}.{key} is read by nothing: {reader} has no such setting; {near}")
    return config, foreign


def foreign_settings(method: DictConfig) -> list[str]:
    """The settings of a method that are another method's."""
    known = method_settings()
    return [key for key in _without_reader(method, "method") if key in known]


@functools.cache
def method_settings() -> frozenset[str]:
    """The names of the settings of all methods of the package."""
    settings: set[str] = set()
    for path in (config_dir() / "method").glob("*.yaml"):
        settings |= set(yaml.safe_load(path.read_text(encoding="utf-8"))) - {"defaults"}
    return frozenset(settings)


def known_settings(group: DictConfig, name: str) -> set[str]:
    """What can be set in a group: what its file sets, and the arguments of its class."""
    accepted = accepted_arguments(located(group._target_)) or set()
    declared = {str(key) for key in group if not str(key).startswith("_")}
    given_by_app = {"encoder", "class_names", "task", "optimizer", "lr_scheduler"}
    return (accepted | declared) - set(_without_reader(group, name)) - given_by_app


def _without_reader(node: DictConfig, path: str) -> list[str]:
    accepted = accepted_arguments(located(node._target_))
    if accepted is None:
        return []
    read = accepted | APP_SETTINGS.get(path, set()) | set(re.findall(rf"\$\{{{path}\.(\w+)", OmegaConf.to_yaml(node)))
    return [str(key) for key in node if not str(key).startswith("_") and str(key) not in read]


def _parts_with_target(node: Any, path: str) -> Iterator[tuple[str, DictConfig]]:
    if not isinstance(node, DictConfig):
        return
    if "_target_" in node:
        yield path, node
    for key in map(str, node):
        if not OmegaConf.is_missing(node, key) and not OmegaConf.is_interpolation(node, key):
            yield from _parts_with_target(node[key], f"{path}.{key}")


LONGEST = 200  # characters; file systems end at 255 bytes


def run_folder(overrides: Sequence[str], method: DictConfig, left_out: Sequence[str]) -> str:
    """The changed settings, sorted, as the name of a run's folder: `method=as_softmax,seed=1`.

    Settings that the method does not have are left out, so that a sweep over methods and margins runs softmax once.
    A path is replaced by its last part and four digits that tell it from others of the same name.
    """
    ignored = {f"method.{name}" for name in foreign_settings(method)} | set(left_out)
    settings = [
        f"{override.key_or_group}={_without_slashes(override.get_value_element_as_str())}"
        for override in OverridesParser.create().parse_overrides(list(overrides))
        if override.key_or_group not in ignored
    ]
    name = ",".join(sorted(settings))
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 9]}-{_digits(name, 8)}"


def _without_slashes(value: str) -> str:
    last = value.strip("'\"").rstrip("/").rpartition("/")[2]
    return f"{last}-{_digits(value, 4)}" if "/" in value else value


def _digits(text: str, count: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:count]


OmegaConf.register_new_resolver("as_lightning.run_folder", run_folder, replace=True)
