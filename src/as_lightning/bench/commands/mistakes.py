"""The commands' messages about a user's mistakes, in place of a stack trace."""

from __future__ import annotations

import errno
import traceback
from pathlib import Path

import hydra
import omegaconf
from hydra.errors import HydraException, InstantiationException
from omegaconf import errors
from yaml import YAMLError

from as_lightning.bench.packages import with_way_out
from as_lightning.bench.run.settings import SettingError, nearest

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # a disk, a quota, a limit on the size of files
REFUSING = [Path(__file__).parents[2], Path(hydra.__file__).parent, Path(omegaconf.__file__).parent]
SENTENCES = (
    HydraException,
    errors.OmegaConfBaseException,
    SettingError,
    ModuleNotFoundError,
    YAMLError,
)


def is_mistake(error: BaseException) -> bool:
    """Return whether the user can mend an error, e.g. one that a line of this package raises."""
    if isinstance(error, SENTENCES):
        return True
    if isinstance(error, OSError) and (error.filename is not None or error.errno in FULL):
        return True  # such as a folder in the place of a file
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or not (frames[-1].line or "").startswith("raise "):
        return False
    return any(folder in Path(frames[-1].filename).parents for folder in REFUSING)


def in_words(error: BaseException) -> str:
    """Return an error's message after its notes, with the names that Hydra knows."""
    message, cause = str(error), error.__cause__
    if isinstance(error, InstantiationException) and cause is not None:
        error, message = cause, str(cause)  # the refusal, without Hydra's frame around it
    elif isinstance(cause, errors.ConfigAttributeError) and cause.parent_node is not None:
        known = [str(key) for key in cause.parent_node]
        message = f"there is no {cause.full_key}: {nearest(str(cause.key), known)}"
    elif isinstance(error, errors.MissingMandatoryValue):
        message = f"{error.full_key} has no value: add {error.full_key}=..."
    elif isinstance(cause, errors.OmegaConfBaseException):
        message = f"{message}\n{cause}"
    if isinstance(error, ModuleNotFoundError):
        message = with_way_out(error)
    return ": ".join([*getattr(error, "__notes__", ()), message])
