"""The commands' messages about a user's mistakes, in place of a stack trace."""

from __future__ import annotations

import errno
import traceback
from pathlib import Path
from typing import Any

import hydra
import omegaconf
from hydra.errors import (
    HydraException,
    InstantiationException,
    MissingConfigException,
    OverrideParseException,
)
from omegaconf import DictConfig
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException
from yaml import YAMLError

from as_lightning.bench.packages import config_dir, how_to_install, package_of
from as_lightning.bench.run.settings import GROUPS, SettingError, names, nearest

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # a disk, a quota, a limit on the size of files
REFUSING = [Path(__file__).parents[2], Path(hydra.__file__).parent, Path(omegaconf.__file__).parent]
AMBIGUOUS = "Ambiguous value for argument "  # Hydra's message on method=a,b without -m


def is_mistake(error: BaseException) -> bool:
    """Return whether the user can mend an error: one of a file or a missing package, or one that a
    line of this package or of Hydra raises.
    """
    if isinstance(error, (HydraException, OmegaConfBaseException, YAMLError, SettingError)):
        return True
    if package_of(error) is not None:
        return True
    if isinstance(error, OSError) and (error.filename is not None or error.errno in FULL):
        return True  # such as a folder in the place of a file
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or not (frames[-1].line or "").startswith("raise "):
        return False
    return any(folder in Path(frames[-1].filename).parents for folder in REFUSING)


def in_words(error: BaseException) -> str:
    """Return the message of `error`, after its notes; on a misspelt name it suggests the nearest
    one.
    """
    return ": ".join([*getattr(error, "__notes__", ()), _in_words(error)])


def _in_words(error: BaseException) -> str:
    message, cause = str(error), error.__cause__
    package = package_of(error)
    if package is not None:
        return f"this {how_to_install([package])}"
    if message.startswith(AMBIGUOUS):
        setting = message.removeprefix(AMBIGUOUS).splitlines()[0]
        return f"{setting} names several values: add -m to make a run with each, or quotes"
    if isinstance(error, MissingMandatoryValue):
        return f"{error.full_key} has no value: add {error.full_key}=..."
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        group, _, name = str(error.missing_cfg_file).rpartition("/")
        return f"there is no {group}={name}: {nearest(name, error.options)}"
    if isinstance(error, OverrideParseException):
        return _no_setting(str(error.override))
    if isinstance(cause, OmegaConfBaseException) and message.startswith("Could not override"):
        return _misspelt(cause.parent_node, str(cause.key), str(cause.full_key))
    if isinstance(error, InstantiationException) and cause is not None:
        return str(cause)  # the refusal, without Hydra's frame around it
    if isinstance(cause, OmegaConfBaseException):
        return f"{message}\n{cause}"
    return message


def _no_setting(word: str) -> str:
    """The message on a word of the command that is no ``name=value``."""
    for group in ("experiment", "method", "data", "model"):
        if word in names(group):
            return f"expected settings as name=value, got {word!r}: did you mean {group}={word}?"
    return f"expected settings as name=value, got {word!r}: a value with signs needs quotes inside the shell's"


def _misspelt(group: Any, key: str, setting: str) -> str:
    """The message on a setting that does not exist, with the nearest names."""
    if not isinstance(group, DictConfig):  # e.g. of trainer.max_epochs.x
        return f"there is no {setting}"
    path = setting.rpartition(".")[0]
    known = {str(name) for name in group}
    if not path:
        for name in GROUPS:
            node = group._get_node(name)
            if isinstance(node, DictConfig):
                known |= {f"{name}.{inner}" for inner in map(str, node)}
        for end in (f".{key}", f"_{key}"):
            inside = [name for name in sorted(known) if name.endswith(end)]
            if inside:
                return f"there is no {setting}: did you mean {' or '.join(inside)}?"
        known |= {folder.name for folder in config_dir().iterdir() if folder.is_dir()}
        known = {name for name in known if "." not in name}
    return f"there is no {setting}: {nearest(key, known)}"
