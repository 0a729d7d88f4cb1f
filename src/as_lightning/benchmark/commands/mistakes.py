"""What the commands say of a user's mistake, in place of a stack trace."""

from __future__ import annotations

import traceback
from pathlib import Path

from hydra.errors import HydraException, InstantiationException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from as_lightning.benchmark.packages import config_dir, how_to_install, package_of
from as_lightning.benchmark.run.settings import GROUPS, SettingError, known_settings, method_settings, names, nearest

NO_NAME = "Config group override must be a string"  # as Hydra says of logger=null


def is_mistake(error: BaseException) -> bool:
    """Whether an error is the user's to mend: one of Hydra's, of a file, or one that a line of this package raises."""
    if isinstance(error, (HydraException, OmegaConfBaseException, SettingError)) or package_of(error) is not None:
        return True
    if isinstance(error, OSError) and error.filename is not None:  # as where a folder is given for a file
        return True
    if str(error).startswith(NO_NAME):
        return True
    frames = traceback.extract_tb(error.__traceback__)
    ours = bool(frames) and Path(__file__).parents[2] in Path(frames[-1].filename).parents
    return ours and (isinstance(error, OSError) or (frames[-1].line or "").startswith("raise "))


def in_words(error: BaseException) -> str:
    """What went wrong, by `error`'s own text, or with the nearest name where one was misspelt."""
    package, message, cause = package_of(error), str(error), error.__cause__
    if package is not None:
        return f"this {how_to_install([package])}"
    if isinstance(error, SettingError):
        return message
    if message.startswith(NO_NAME):
        return "a group is chosen by the name of one of its files, as logger=none, and not by null"
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        group, _, name = str(error.missing_cfg_file).rpartition("/")
        return f"there is no {group}={name}: {nearest(name, [o for o in error.options if not o.endswith('base')])}"
    if isinstance(error, OverrideParseException):
        word = str(error.override)
        groups = [group for group in ("experiment", "method", "data", "model") if word in names(group)]
        quotes = "a value with more than plain letters, as , = ( or é, needs quotes of its own inside the shell's"
        hint = f"did you mean {groups[0]}={word}?" if groups else quotes
        return f"expected settings as name=value, got {word!r}: {hint}"
    if message.startswith("Could not override") and isinstance(cause, OmegaConfBaseException) and cause.parent_node:
        return _misspelt(cause.parent_node, str(cause.key), str(cause.full_key))
    if isinstance(error, InstantiationException) and cause is not None and is_mistake(cause):
        message = str(cause)  # the refusal, without Hydra's frame around it
    elif isinstance(cause, OmegaConfBaseException):
        message = f"{message}\n{cause}"
    return f"{message} (HYDRA_FULL_ERROR=1 shows where)"


def _misspelt(group: DictConfig, key: str, setting: str) -> str:
    """What there is in place of a setting that there is not."""
    path = setting.rpartition(".")[0]
    known = known_settings(group, path) if path in GROUPS and "_target_" in group else set(map(str, group))
    if key in known:
        return f"{setting} is not in the configuration: set it with +{setting}=..."
    if path == "method" and key in method_settings():
        return f"{setting} is no setting of this method, but of another one. There are: {', '.join(sorted(known))}"
    groups = [name for name in map(str, group) if isinstance(group._get_node(name), DictConfig) and key in group[name]]
    if not path and groups:
        return f"there is no {setting}: did you mean {' or '.join(f'{name}.{key}' for name in groups)}?"
    files = {name: config_dir() / "data" / f"{name}.yaml" for name in names("data")} if path == "data" else {}
    if having := [f"data={name}" for name, file in files.items() if f"\n{key}:" in file.read_text("utf-8")]:
        return f"these data have no {setting}: add {' or '.join(having)}"
    return f"there is no {setting}: {nearest(key, known, method_settings() if path == 'method' else ())}"
