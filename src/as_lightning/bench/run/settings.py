"""Checks of settings: one that nothing reads is an error with the nearest name; changed ones name
the run's folder.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import inspect
import json
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.utils import get_object
from omegaconf import DictConfig, ListConfig, OmegaConf, open_dict

from as_lightning.bench.packages import config_dir

# what the app itself reads of a group, beside the arguments of the group's class
APP_SETTINGS = {
    "method": {"name", "callbacks", "search", "baseline", "own_module"},
    "data": {"name", "score"},
}
# the arguments that the app gives the class of a group, and the setting that decides each
GIVEN_BY_APP = {
    "method": {"encoder": "model", "class_names": "data", "task": "data", "class_counts": "data"}
    | {"class_groups": "data.imbalance"}
    | {"optimizer": "optimizer", "lr_scheduler": "lr_scheduler"},
    "lr_scheduler": {"total_steps": "trainer.max_epochs"},
    "trainer": {
        "logger": "logger",
        "callbacks": "+callbacks.NAME._target_",
        "default_root_dir": "output_dir",
    },
}
LONGEST = 200  # bytes of a folder's name; file systems end at 255
GROUPS = ("data", "model", "method", "optimizer", "lr_scheduler", "trainer", "callbacks", "logger")


class SettingError(ValueError):
    """A setting that the user can mend: shown without a stack trace."""


def nearest(name: str, known: Collection[str], elsewhere: Collection[str] = ()) -> str:
    """`did you mean ...?` with the nearest names that are `known`, or else of `elsewhere`; if none
    is near, all.
    """
    close = difflib.get_close_matches(name, sorted(known)) or difflib.get_close_matches(
        name, sorted(elsewhere)
    )
    return (
        f"did you mean {' or '.join(close)}?" if close else f"there are: {', '.join(sorted(known))}"
    )


def located(target: str) -> Callable[..., Any]:
    """The class or function that a `_target_` names; a `SettingError` if there is none."""
    try:
        return get_object(target)
    except (ImportError, ValueError, AttributeError) as error:
        reason = " ".join(str(error).split())
        raise SettingError(f"_target_={target} cannot be loaded: {reason}") from error


def accepted_arguments(target: Callable[..., Any]) -> set[str] | None:
    """The arguments that `target` takes, with `**kwargs` in a class also those of its bases; None
    if it takes any.
    """
    functions: list[Any] = [target]
    if inspect.isclass(target):
        functions = [
            vars(base)["__init__"] for base in target.__mro__[:-1] if "__init__" in vars(base)
        ]
    accepted: set[str] = set()
    for function in functions:
        try:
            parameters = list(inspect.signature(function).parameters.values())[
                function is not target :
            ]  # without self
        except ValueError:  # a built-in function without a signature
            return None
        accepted |= {p.name for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
        if all(parameter.kind is not parameter.VAR_KEYWORD for parameter in parameters):
            return accepted
    return None


def class_arguments(group: DictConfig, name: str) -> DictConfig:
    """The settings of the group `data` or `method` that are arguments of its class."""
    accepted = accepted_arguments(located(group._target_))
    arguments = group.copy()  # the copy keeps its parent, and so resolves its references
    with open_dict(arguments):
        for key in _settings(group):
            if key in APP_SETTINGS[name] or (accepted is not None and key not in accepted):
                del arguments[key]
    return arguments


def checked_settings(config: DictConfig) -> tuple[DictConfig, list[str]]:
    """The configuration without settings that belong to another method, and their names.

    A `SettingError` names a setting that no method has and nothing reads: neither its group's
    class, nor another setting (`${method.tau}`), nor the app.
    """
    config = config.copy()
    foreign = foreign_settings(config.method)
    if "delta" in config.method and "delta" not in foreign:  # before the data are read
        delta = config.method.delta
        if isinstance(delta, bool) or not isinstance(delta, (int, float)) or not 0 <= delta <= 1:
            got = f"got {override_value(delta)}: leave it out for the default, or try 0.4"
            raise SettingError(f"method.delta must be a number in [0, 1], {got}")
    with open_dict(config.method):
        for key in foreign:
            del config.method[key]
    for path, part in parts_with_target(config):
        for key, instead in GIVEN_BY_APP.get(path, {}).items():
            if key in part:
                raise SettingError(
                    f"{path}.{key} is given by the app and would be ignored: set {instead}=... "
                    "instead"
                )
        for key in _without_reader(part, path):
            reader = part._target_.rpartition(".")[2]
            suggestion = nearest(
                key, known_settings(part, path), method_settings() if path == "method" else ()
            )
            raise SettingError(
                f"{path}.{key} is read by nothing: {reader} has no such setting; {suggestion}"
            )
    return config, foreign


def foreign_settings(method: DictConfig) -> list[str]:
    """The settings in the configuration of a method that belong to another method."""
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
    """The names that can be set in a group: those in its file, and the arguments of its class."""
    accepted = accepted_arguments(located(group._target_)) or set()
    return accepted.union(_settings(group)) - {
        *_without_reader(group, name),
        *GIVEN_BY_APP.get(name, {}),
    }


def _settings(node: DictConfig) -> list[str]:
    return [str(key) for key in node if not str(key).startswith("_")]


def _without_reader(node: DictConfig, path: str) -> list[str]:
    accepted = accepted_arguments(located(node._target_))
    if accepted is None:
        return []
    read = (
        accepted
        | APP_SETTINGS.get(path, set())
        | set(re.findall(rf"\$\{{{path}\.(\w+)", OmegaConf.to_yaml(node)))
    )
    return [key for key in _settings(node) if key not in read]


def parts_with_target(config: DictConfig) -> list[tuple[str, DictConfig]]:
    """The parts of a configuration's groups that have a `_target_`, with their paths."""
    return [part for group in GROUPS for part in _parts_with_target(config.get(group), group)]


def _parts_with_target(node: Any, path: str) -> Iterator[tuple[str, DictConfig]]:
    if isinstance(node, DictConfig) and "_target_" in node:
        yield path, node
    keys: Iterable[Any] = range(len(node)) if isinstance(node, ListConfig) else ()
    for key in map(str, node) if isinstance(node, DictConfig) else keys:
        if not OmegaConf.is_missing(node, key) and not OmegaConf.is_interpolation(node, key):
            yield from _parts_with_target(node[key], f"{path}.{key}")


def override_value(value: Any) -> str:
    """A value as the value of an override, which Hydra reads as the same value.

    >>> override_value(None), override_value(0.1), override_value({"k": "all", "ranks": [1, True]})
    ('null', '0.1', '{k:"all",ranks:[1,true]}')
    """
    if isinstance(value, Mapping):
        return (
            "{" + ",".join(f"{name}:{override_value(item)}" for name, item in value.items()) + "}"
        )
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(override_value, value))}]"
    return str(value) if isinstance(value, float) else json.dumps(value)


def run_folder(
    overrides: Sequence[str], method: DictConfig, left_out: Sequence[str], data: str
) -> str:
    """The name of a run's folder: the changed settings that the method has, sorted, as
    `method=as_softmax,seed=1`.

    A path is replaced by its last part and four digits of its hash. An experiment is left out,
    since the folder above has its name, unless the user has set ``name`` or ``data``. A run with
    neither an experiment nor ``data`` names the data of its configuration.
    """
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    groups = {override.key_or_group for override in parsed}
    shown = {"experiment"} if groups & {"name", "data"} else set()
    ignored = {f"method.{name}" for name in foreign_settings(method)} | (set(left_out) - shown)
    settings = [
        f"{override.key_or_group}={_without_slashes(override.get_value_element_as_str())}"
        for override in parsed
        if override.key_or_group not in ignored
    ]
    if not groups & {"experiment", "data"}:
        settings.append(f"data={data}")
    name = ",".join(sorted(settings))
    encoded = name.encode()
    if len(encoded) <= LONGEST:
        return name
    return f"{encoded[: LONGEST - 9].decode(errors='ignore')}-{hashlib.sha256(encoded).hexdigest()[:8]}"


def _without_slashes(value: str) -> str:
    last_part = value.strip("'\"").rstrip("/").rpartition("/")[2]
    return (
        f"{last_part}-{hashlib.sha256(value.encode()).hexdigest()[:4]}" if "/" in value else value
    )


def names(group: str) -> list[str]:
    """The choices of a group: its files without the bases, from which others take their
    settings.
    """
    return sorted(
        path.stem
        for path in (config_dir() / group).glob("*.yaml")
        if not path.stem.endswith("base")
    )


def described(group: str) -> str:
    """The names of a group, a line each, with the first comment line of its file."""
    texts = {
        name: (config_dir() / group / f"{name}.yaml").read_text(encoding="utf-8")
        for name in names(group)
    }
    comments = {
        name: re.search("^# (?!@package)(.*)$", text, re.MULTILINE) for name, text in texts.items()
    }
    # 21: the longest name of a method
    return "\n".join(
        f"  {name:<21}  {comment[1] if comment else ''}" for name, comment in comments.items()
    )


def comparison_settings() -> str:
    """The settings of `compare.yaml` itself, as they stand there with their comments."""
    text = (config_dir() / "compare.yaml").read_text(encoding="utf-8")
    return textwrap.indent(text[text.index("methods:") : text.index("search:")].rstrip(), "  ")


def usual_score(imbalance: float | None) -> str:
    """The metric that runs on data of one class a sample are compared by."""
    return "accuracy" if imbalance is None else "balanced_accuracy"


# of conf/data/base.yaml, and of the texts and folders in conf/hydra
for resolver in (usual_score, run_folder, described, comparison_settings):
    OmegaConf.register_new_resolver(f"as_lightning.{resolver.__name__}", resolver, replace=True)
