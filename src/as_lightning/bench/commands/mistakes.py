"""The commands' messages about a user's mistakes, in place of a stack trace."""

from __future__ import annotations

import errno
import os
import re
import traceback
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra._internal.utils import get_args_parser
from hydra.errors import (
    HydraException,
    InstantiationException,
    MissingConfigException,
    OverrideParseException,
)
from omegaconf import DictConfig
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from as_lightning.bench.packages import config_dir, how_to_install, package_of
from as_lightning.bench.run.settings import (
    GROUPS,
    SettingError,
    known_settings,
    method_settings,
    names,
    nearest,
)

NO_NAME = "Config group override must be a string"  # Hydra's message on logger=null
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # a disk, a quota, a limit on the size of files
AMBIGUOUS = re.compile(
    r"Ambiguous value for argument '(.*)'"
)  # Hydra's message on method=a,b without -m


def check_words(words: Sequence[str]) -> None:
    """Refuse words of a command that are neither settings nor options: Hydra would only print its
    usage.

    >>> check_words(["experiment", "digits"])
    Traceback (most recent call last):
    as_lightning.bench.run.settings.SettingError: ...settings as name=value...: did you mean experiment=digits?
    """
    for text in (os.getcwd(), *words):
        if not text.isascii() and text != text.encode(errors="replace").decode():
            raise SettingError(
                f"{text!a} is not written in UTF-8, and TensorBoard can write no such name"
            )
    options = [option for action in get_args_parser()._actions for option in action.option_strings]
    bare_word = re.compile(r"[^-~=][^=]*")
    for before, word, after in zip(["", *words], words, [*words[1:], ""], strict=False):
        name, _, value = word.lstrip("-").partition("=")
        if word.startswith("--") and not any(option.startswith(f"--{name}") for option in options):
            with initialize_config_dir(str(config_dir()), version_base="1.3"):
                suggested = _inside(compose("train"), setting := name.replace("-", "_")) or [
                    setting
                ]
            suggested_value = value or (after if bare_word.fullmatch(after) else "...")
            hint = f"did you mean {' or '.join(f'{setting}={suggested_value}' for setting in suggested)}?"
            raise SettingError(f"there is no option --{name}: settings have no dashes, {hint}")
        if bare_word.fullmatch(word) and bare_word.fullmatch(after) and not before.startswith("-"):
            raise SettingError(
                f"expected settings as name=value, got '{word} {after}': did you mean "
                f"{word}={after}?"
            )


def is_mistake(error: BaseException) -> bool:
    """Whether the user can mend an error: one of Hydra's, of a file, or one that a line of this
    package raises.
    """
    if (
        isinstance(error, (HydraException, OmegaConfBaseException, SettingError))
        or package_of(error) is not None
    ):
        return True
    if isinstance(error, OSError) and (error.filename is not None or error.errno in FULL):
        return True  # such as a folder in the place of a file
    if str(error).startswith(NO_NAME):
        return True
    frames = traceback.extract_tb(error.__traceback__)
    in_package = bool(frames) and Path(__file__).parents[2] in Path(frames[-1].filename).parents
    return in_package and (
        isinstance(error, OSError) or (frames[-1].line or "").startswith("raise ")
    )


def in_words(error: BaseException) -> str:
    """The message of `error`, after its notes; on a misspelt name it suggests the nearest one."""
    return ": ".join([*getattr(error, "__notes__", ()), _in_words(error)])


def _in_words(error: BaseException) -> str:
    package, message, cause = package_of(error), str(error), error.__cause__
    if package is not None:
        return f"this {how_to_install([package])}"
    if isinstance(error, SettingError):
        return message
    if message.startswith(NO_NAME):
        return "a group is chosen by the name of one of its files, as logger=none, and not by null"
    if ambiguous := AMBIGUOUS.match(message):
        quoting = "a value that holds a comma needs quotes of its own inside the shell's"
        return f"{ambiguous[1]} names several values: add -m to make a run with each ({quoting})"
    if isinstance(error, MissingMandatoryValue):
        return f"{error.full_key} has no value: add {error.full_key}=..."
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        group, _, name = str(error.missing_cfg_file).rpartition("/")
        return f"there is no {group}={name}: {nearest(name, [o for o in error.options if not o.endswith('base')])}"
    if isinstance(error, OverrideParseException):
        word = str(error.override)
        groups = [
            group for group in ("experiment", "method", "data", "model") if word in names(group)
        ]
        quotes = "a value with more than plain letters, as , = ( or é, needs quotes of its own inside the shell's"
        hint = f"did you mean {groups[0]}={word}?" if groups else quotes
        return f"expected settings as name=value, got {word!r}: {hint}"
    if (
        message.startswith("Could not override")
        and isinstance(cause, OmegaConfBaseException)
        and cause.parent_node
    ):
        return _misspelt(cause.parent_node, str(cause.key), str(cause.full_key))
    mendable_cause = cause is not None and (
        isinstance(cause, ModuleNotFoundError) or is_mistake(cause)
    )
    if isinstance(error, InstantiationException) and mendable_cause:
        return str(cause)  # the refusal, without Hydra's frame around it
    if isinstance(cause, OmegaConfBaseException):
        message = f"{message}\n{cause}"
    return f"{message} (HYDRA_FULL_ERROR=1 shows where)"


def _misspelt(group: DictConfig, key: str, setting: str) -> str:
    """The message on a setting that does not exist, with the nearest names."""
    path = setting.rpartition(".")[0]
    existing = (
        known_settings(group, path)
        if path in GROUPS and "_target_" in group
        else set(map(str, group))
    )
    if key in existing:
        return f"{setting} is not in the configuration: set it with +{setting}=..."
    if path == "method" and key in method_settings():
        return f"{setting} is no setting of this method, but of another one. There are: {', '.join(sorted(existing))}"
    if not path and (nested_settings := _inside(group, key)):
        return f"there is no {setting}: did you mean {' or '.join(nested_settings)}?"
    files = (
        {name: config_dir() / "data" / f"{name}.yaml" for name in names("data")}
        if path == "data"
        else {}
    )
    if data_with_key := [
        f"data={name}" for name, file in files.items() if f"\n{key}:" in file.read_text("utf-8")
    ]:
        return f"these data have no {setting}: add {' or '.join(data_with_key)}"
    existing = (
        existing
        if path
        else existing | {folder.name for folder in config_dir().iterdir() if folder.is_dir()}
    )
    return f"there is no {setting}: {nearest(key, existing, method_settings() if path == 'method' else ())}"


def _inside(config: DictConfig, key: str) -> list[str]:
    """The settings of groups that have this name, or else have it as a word: ``epochs`` finds
    ``max_epochs``.
    """
    if get_close_matches(key, map(str, config), cutoff=0.7):
        return []
    groups = [name for name in GROUPS if isinstance(config._get_node(name), DictConfig)]
    settings = {f"{group}.{name}": str(name) for group in groups for name in config[group]}
    exact = [setting for setting, name in settings.items() if name == key]
    return exact or [setting for setting, name in settings.items() if key in name.split("_")]
