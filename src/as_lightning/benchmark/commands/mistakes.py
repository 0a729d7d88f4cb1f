"""What the commands say of a user's mistake, in place of a stack trace."""

from __future__ import annotations

import re
import traceback
from collections.abc import Sequence
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, InstantiationException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from as_lightning.benchmark.packages import config_dir, how_to_install, package_of
from as_lightning.benchmark.run.settings import GROUPS, SettingError, known_settings, method_settings, nearest

PACKAGE = Path(__file__).parents[2]
STACK_TRACE = "(HYDRA_FULL_ERROR=1 shows where)"


def is_mistake(error: BaseException) -> bool:
    """Whether an error is the user's to mend: one of Hydra's, or one that this package has raised itself."""
    if isinstance(error, (HydraException, OmegaConfBaseException, SettingError)) or package_of(error) is not None:
        return True
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or PACKAGE not in Path(frames[-1].filename).parents:
        return False
    if isinstance(error, (TypeError, AttributeError)):  # Python raises them too: where no line says raise
        return (frames[-1].line or "").startswith("raise ")
    return isinstance(error, (ValueError, OSError, ImportError)) or type(error).__name__ == "MisconfigurationException"


def in_words(error: BaseException, overrides: Sequence[str], config_name: str = "train") -> str:
    """What went wrong, by `error`'s own text, or with the nearest name where one of the `overrides` was misspelt."""
    package, message = package_of(error), str(error)
    if package is not None:
        return f"this {how_to_install([package])}"
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        group, _, name = str(error.missing_cfg_file).rpartition("/")
        # a file that others take their settings from alone is no choice
        return f"there is no {group}={name}: {nearest(name, [o for o in error.options if not o.endswith('base')])}"
    if isinstance(error, OverrideParseException):
        return f"expected settings as name=value, got {error.override!r}{_meant(str(error.override))}"
    if isinstance(error, InstantiationException) and error.__cause__ is not None and is_mistake(error.__cause__):
        return f"{error.__cause__} {STACK_TRACE}"
    if misspelt := re.match(r"Could not override '([\w.]+)'", message):
        return _misspelt(misspelt.group(1), overrides, config_name) or message
    cause = f"\n{error.__cause__}" if isinstance(error.__cause__, OmegaConfBaseException) else ""
    return message if isinstance(error, SettingError) else f"{message}{cause} {STACK_TRACE}"


def _misspelt(setting: str, overrides: Sequence[str], config_name: str) -> str:
    """What there is in place of a setting that there is not; empty where the command has another mistake beside it."""
    path, _, key = setting.rpartition(".")
    known = _settings_of(path, [o for o in overrides if not o.startswith(f"{setting}=")], config_name)
    if not known:
        group = setting.split(".")[0]
        groups = _settings_of("", [o for o in overrides if not o.startswith(setting)], config_name)
        return f"there is no {group}: {nearest(group, groups)}" if groups and group not in groups else ""
    if key in known:
        return f"{setting} is not in the configuration: set it with +{setting}=..."
    if path == "method" and key in method_settings():
        return f"{setting} is no setting of this method, but of another one. There are: {', '.join(sorted(known))}"
    files = sorted((config_dir() / "data").glob("*.yaml")) if path == "data" else []
    having = [file.stem for file in files if re.search(rf"^{re.escape(key)}:", file.read_text("utf-8"), re.M)]
    if choices := [f"data={name}" for name in having if not name.endswith("base")]:
        return f"these data have no {setting}: add {' or '.join(choices)}"
    return f"there is no {setting}: {nearest(key, known, method_settings() if path == 'method' else ())}"


def _meant(word: str) -> str:
    """`did you mean experiment=digits?` where a bare word is a name of a group."""
    for group in ("experiment", "method", "data", "model"):
        if (config_dir() / group / f"{word}.yaml").is_file():
            return f": did you mean {group}={word}?"
    return " (a value that holds , or = needs quotes inside the shell's)"


def _settings_of(path: str, overrides: Sequence[str], config_name: str) -> set[str]:
    """The settings of a group, with the first value of each override that sweeps; none where they do not compose."""
    first = []
    for override in parsed(overrides):
        if override.is_sweep_override():
            first.append(f"{override.get_key_element()}={next(override.sweep_string_iterator())}")
        elif not override.is_hydra_override():
            first.append(str(override.input_line))
    try:
        with initialize_config_dir(str(config_dir()), version_base="1.3"):
            config = compose(config_name, overrides=first)
    except HydraException:
        return set()
    group = OmegaConf.select(config, path) if path else config
    if not isinstance(group, DictConfig):
        return set()
    return known_settings(group, path) if path in GROUPS and "_target_" in group else {str(key) for key in group}


def parsed(overrides: Sequence[str]) -> list[Override]:
    """The overrides of a command line, taken apart."""
    return OverridesParser.create().parse_overrides(list(overrides))
