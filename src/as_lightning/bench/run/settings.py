"""The settings of a run: a method's own, the names of folders, and what the help prints."""

from __future__ import annotations

import difflib
import functools
import hashlib
import inspect
import json
import os
import re
import shlex
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf, open_dict

from as_lightning.bench.packages import config_dir
from as_lightning.bench.run.result import COMMAND

# what the app itself reads of a group, beside the arguments of the group's class
APP_SETTINGS = {
    "method": {"name", "callbacks", "search", "baseline", "knobs", "arguments"},
    "data": {"name", "score"},
}
# What reads a file of these data without torch, to refuse it early.
READERS = {
    "as_lightning.bench.data.text.text_file.TextFile": "as_lightning.bench.data.tables.read_table",
    "as_lightning.bench.data.text.tagging.Conll": "as_lightning.bench.data.text.conll.read_conll",
}
SMALL = 50 * 2**20  # bytes of a file that is read twice for this
KEPT = ("method=", "seed=")  # which the folder of each run of a sweep names
GROUPS = ("data", "model", "method", "optimizer", "lr_scheduler", "trainer", "callbacks", "logger")


class SettingError(ValueError):
    """A setting that the user can mend: shown without a stack trace."""


def nearest(name: str, known: Collection[str]) -> str:
    """Return `did you mean ...?` with the nearest names that are known; if none is near, all."""
    close = difflib.get_close_matches(name, sorted(known))
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"there are: {', '.join(sorted(known))}"


def located(target: str) -> Callable[..., Any]:
    """Return the class or function that a `_target_` names; a `SettingError` if there is none."""
    try:
        return get_object(target)
    except (ImportError, ValueError, AttributeError) as error:
        raise SettingError(f"_target_={target} cannot be loaded: {error}") from error


def accepted_arguments(target: Callable[..., Any]) -> set[str] | None:
    """Return the arguments that `target` takes; None if it takes any, or does not say which."""
    try:
        arguments = inspect.getfullargspec(target)
    except TypeError:  # a built-in function without a signature
        return None
    if arguments.varkw is not None:
        return None
    return {*arguments.args, *arguments.kwonlyargs} - {"self"}


def class_arguments(group: DictConfig, name: str) -> DictConfig:
    """Return the settings of the group `data` or `method` that its class is called with.

    Of a method's knobs these are its ``arguments``; others reach the loss by interpolation, as
    ``${method.tau}``.
    """
    left_out = set(APP_SETTINGS[name])
    if name == "method":
        left_out |= all_knobs() - set(group.get("arguments") or ())
    arguments = group.copy()  # the copy keeps its parent, and so resolves its references
    with open_dict(arguments):
        for key in left_out:
            arguments.pop(key, None)
    return arguments


@functools.cache
def all_knobs() -> frozenset[str]:
    """Return the knobs of all methods."""
    return frozenset(yaml.safe_load((config_dir() / "method" / "base.yaml").read_text("utf-8")))


def checked_settings(config: DictConfig) -> tuple[DictConfig, list[str]]:
    """Return the configuration without other methods' knobs, and those that were set."""
    config = config.copy()
    given = []
    with open_dict(config.method):
        for knob in sorted(all_knobs() - set(config.method.knobs)):
            if config.method.pop(knob, None) is not None:
                given.append(knob)
    return config, given


def check_run(config: DictConfig) -> None:
    """Refuse what neither Hydra nor a class of the run would refuse."""
    if type(config.seed) is not int or not 0 <= config.seed < 2**32:
        raise SettingError(
            f"seed must be an integer from 0 to {2**32 - 1}, got {config.seed}; several are "
            "-m seed=0,1"
        )
    epochs = config.trainer.max_epochs
    if epochs is not None and (type(epochs) is not int or epochs == 0):
        raise SettingError(
            f"trainer.max_epochs must be an integer of at least 1, or -1 for no limit, got {epochs}"
        )
    for key in ("logger", "callbacks", "default_root_dir"):
        if key in config.trainer:
            raise SettingError(
                f"trainer.{key} is given by the app: set logger=..., "
                "+callbacks.NAME._target_=... or output_dir=... instead"
            )


def check_files(config: DictConfig) -> None:
    """Refuse a user's file that is missing, or a small one that is malformed, without torch."""
    places = (Path.cwd(), Path(config.data_dir).expanduser())
    for key in config.data:
        if not key.endswith("path") or config.data[key] is None:
            continue
        if isinstance(config.data[key], DictConfig):  # a published file, which is downloaded
            continue
        path = Path(str(config.data[key])).expanduser()
        if not any((place / path).exists() for place in places):
            raise SettingError(
                f"data.{key}={path}: there is no such file or folder in {places[0]}, nor in "
                f"data_dir={config.data_dir}"
            )
        if key != "classes_path":
            _check_content(
                next(place / path for place in places if (place / path).exists()), config
            )


def _check_content(path: Path, config: DictConfig) -> None:
    """Refuse a malformed file, unless it takes long to read."""
    if config.data.get("_target_") not in READERS or path.stat().st_size > SMALL:
        return
    read = located(READERS[config.data._target_])
    names = inspect.signature(read).parameters.keys() & config.data.keys() - {"path"}
    read(path, **{name: config.data[name] for name in names})


def override_value(value: Any) -> str:
    """Return a value as the value of an override, which Hydra reads as the same value.

    >>> override_value(None), override_value(0.1), override_value({"k": "all", "ranks": [1, True]})
    ('null', '0.1', '{k:"all",ranks:[1,true]}')
    """
    if isinstance(value, Mapping):
        items = [f"{name}:{override_value(item)}" for name, item in value.items()]
        return f"{{{','.join(items)}}}"
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(override_value, value))}]"
    if isinstance(value, float):
        return str(value)
    return json.dumps(value)


def run_folder(overrides: Sequence[str], method: DictConfig, left_out: Sequence[str]) -> str:
    """Return the name of a run's folder: its changed settings, sorted, as `method=softmax,seed=1`.

    In a sweep these are method, seed, and the settings that differ between its runs. An experiment
    is left out, since the folder above has its name, unless the user has set ``name`` or ``data``.
    """
    foreign = [f"method.{knob}" for knob in all_knobs() - set(method.knobs)]
    shared = _shared_settings()
    return _named([word for word in overrides if word not in shared], [*left_out, *foreign])


def sweep_folder(left_out: Sequence[str]) -> str:
    """Return the name of a sweep's folder: the changed settings that are the same in all runs."""
    return _named(_shared_settings(), [*left_out, "data"])


def _shared_settings() -> list[str]:
    """The settings of a sweep's command that all its runs share; none outside a sweep."""
    words = shlex.split(os.environ.get(COMMAND, ""))
    left_out = (*KEPT, "hydra.", "hydra/")
    words = [word for word in words if "=" in word and not word.startswith(left_out)]
    shared = []
    for override in OverridesParser.create().parse_overrides(words):
        if not override.is_sweep_override():
            shared.append(str(override.input_line))
    return shared


def _named(words: Sequence[str], left_out: Sequence[str]) -> str:
    """Settings as folders show them: a path by its last part and four digits of its hash."""
    settings = {}
    for word in words:
        key, _, value = word.lstrip("+~").partition("=")
        settings[key] = value
    if {"name", "data"}.isdisjoint(settings):
        settings.pop("experiment", None)
    for key, value in settings.items():
        if "/" in value:
            digest = hashlib.sha256(value.encode()).hexdigest()
            settings[key] = f"{Path(value).name}-{digest[:4]}"
    shown = [f"{key}={value}" for key, value in settings.items() if key not in left_out]
    return ",".join(sorted(shown))


def names(group: str) -> list[str]:
    """Return the choices of a group: its files, without the bases of others."""
    files = sorted((config_dir() / group).glob("*.yaml"))
    return [file.stem for file in files if not file.stem.endswith("base")]


def described(group: str) -> str:
    """Return the names of a group, a line each, with the first comment line of its file."""
    lines = []
    for name in names(group):
        text = (config_dir() / group / f"{name}.yaml").read_text(encoding="utf-8")
        comment = re.search("^# (?!@package)(.*)$", text, re.MULTILINE)
        assert comment is not None, f"{group}/{name}.yaml has no comment"
        lines.append(f"  {name:<21}  {comment[1]}")  # 21: the longest name of a method
    return "\n".join(lines)


def comparison_settings() -> str:
    """Return the settings of `compare.yaml` itself, as they stand there with their comments."""
    text = (config_dir() / "compare.yaml").read_text(encoding="utf-8")
    return textwrap.indent(text[text.index("methods:") : text.index("search:")].rstrip(), "  ")


def usual_score(imbalance: float | None) -> str:
    """Return the metric that runs on data of one class a sample are compared by."""
    return "accuracy" if imbalance is None else "balanced_accuracy"


# of conf/data/base.yaml, and of the texts and folders in conf/hydra
for resolver in (usual_score, run_folder, sweep_folder, described, comparison_settings):
    OmegaConf.register_new_resolver(f"as_lightning.{resolver.__name__}", resolver, replace=True)
