"""The settings of a run: a method's own, the names of folders, and what the help prints."""

from __future__ import annotations

import difflib
import functools
import inspect
import json
import re
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf, open_dict

from as_lightning.bench.packages import config_dir

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
    if epochs is not None and (type(epochs) is not int or epochs < 1):
        raise SettingError(
            "trainer.max_epochs must be an integer of at least 1, or null beside "
            f"trainer.max_steps, got {epochs}"
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
        paths = [place / Path(str(config.data[key])).expanduser() for place in places]
        there = [path for path in paths if path.exists()]
        if not there:
            raise SettingError(
                f"data.{key}={config.data[key]}: there is no such file or folder in {places[0]}, "
                f"nor in data_dir={config.data_dir}"
            )
        reader = READERS.get(str(config.data.get("_target_")))
        if reader is not None and there[0].stat().st_size <= SMALL:
            read = located(reader)
            taken = inspect.signature(read).parameters.keys() & config.data.keys() - {"path"}
            read(there[0], **{name: config.data[name] for name in taken})


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


def shared_settings(overrides: Sequence[str]) -> list[str]:
    """Return those overrides in a sweep's command that are the same in all of its runs."""
    words = OverridesParser.create().parse_overrides(list(overrides))
    return [str(word.input_line) for word in words if not word.is_sweep_override()]


def folder_name(
    overrides: Sequence[str],
    left_out: Sequence[str],
    name: str,
    method: DictConfig | None = None,
    shared: Sequence[str] = (),
) -> str:
    """Return overrides as the name of a folder: without those that are ``shared`` with folders
    beside it, knobs that the method lacks, and an experiment of the ``name`` of the folder above.
    """
    hidden = {*left_out, *(word.partition("=")[0] for word in shared)}
    if method is not None:
        hidden |= {f"method.{knob}" for knob in all_knobs() - set(method.knobs)}
    shown = []
    for word in overrides:
        if word.partition("=")[0] not in hidden and word != f"experiment={name}":
            shown.append(word.lstrip("+~").replace("/", "-"))
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


def all_choices() -> str:
    """Return a line for each group, with its names."""
    groups = {path.parent.name for path in config_dir().glob("*/*.yaml")} - {"hydra"}
    return "\n".join(f"{group}: {', '.join(names(group))}" for group in sorted(groups))


def comparison_settings() -> str:
    """Return the settings of `compare.yaml` itself, as they stand there with their comments."""
    text = (config_dir() / "compare.yaml").read_text(encoding="utf-8")
    return textwrap.indent(text[text.index("methods:") : text.index("search:")].rstrip(), "  ")


def help_text(settings: str) -> str:
    """Return the help in a file of `conf/hydra`: Hydra itself takes a second to list the groups."""
    template = OmegaConf.load(config_dir() / "hydra" / f"{settings}.yaml").help.template
    return str(template).replace("$$", "$")


def usual_score(imbalance: float | None) -> str:
    """Return the metric that runs on data of one class a sample are compared by."""
    return "accuracy" if imbalance is None else "balanced_accuracy"


# of conf/data/base.yaml, and of the texts and folders in conf/hydra
for resolver in (usual_score, folder_name, described, all_choices, comparison_settings):
    OmegaConf.register_new_resolver(f"as_lightning.{resolver.__name__}", resolver, replace=True)
# Hydra gives what is kept for the command's configuration to those of its jobs, as it does for now
OmegaConf.register_new_resolver(
    "as_lightning.shared_settings", shared_settings, replace=True, use_cache=True
)
