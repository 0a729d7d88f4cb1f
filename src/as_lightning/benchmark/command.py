"""The command ``as-lightning``: Hydra's main, and its errors in words."""

from __future__ import annotations

import logging
import math
import os
import re
import sys
import warnings
from collections.abc import Sequence

import hydra
from hydra import compose, initialize_config_dir
from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from as_lightning.benchmark import run_folder  # noqa: F401  (Hydra names the runs' folders by it)
from as_lightning.benchmark.config_dir import config_dir
from as_lightning.benchmark.job_processes import command_of_one_job
from as_lightning.benchmark.report.report_callback import finish_sweep
from as_lightning.benchmark.settings import GROUPS, SettingError, known_settings, method_settings, nearest
from as_lightning.benchmark.train import train

log = logging.getLogger(__name__)


def run_job(config: DictConfig) -> float:
    """One job of Hydra's: what a sweeper optimises is the best validation score."""
    log.info("%s, method %s, seed %s", config.name, config.method.name, config.seed)
    # of a sweep's many runs the report is the news, not what Lightning says at each start and end
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", message=r".*isinstance\(treespec, LeafSpec\).*")
    warnings.filterwarnings("ignore", message=r".*does not have many workers.*")
    warnings.filterwarnings("ignore", message=r".*'masking/.*sync_dist=True.*")  # these are sums over the ranks already
    with command_of_one_job(config):
        result = train(config)
    return max((evaluation["score"] for evaluation in result.evaluations), default=math.nan)


def open_method_settings(arguments: Sequence[str]) -> list[str]:
    """The command's arguments, such that in a sweep over methods a setting of some of them does not stop the others.

    ``-m method=softmax,as_softmax method.delta=0.05`` gives the margin to ``as_softmax`` alone:
    :func:`~as_lightning.benchmark.settings.checked_settings` takes it away from ``softmax``.
    """
    options = get_args_parser().parse_args(list(arguments))
    if not options.multirun:
        return list(arguments)
    overrides = _parsed(options.overrides)
    if not any(override.key_or_group == "method" and override.is_sweep_override() for override in overrides):
        return list(arguments)
    known = method_settings()
    opened = {
        override.input_line: f"++{override.input_line}"
        for override in overrides
        if re.fullmatch(r"method\.\w+", override.key_or_group)
        and override.key_or_group.removeprefix("method.") in known
        and not override.is_add()
        and not override.is_force_add()
    }
    return [opened.get(argument, argument) for argument in arguments]


def in_words(error: Exception, overrides: Sequence[str]) -> str:
    """What went wrong, with the nearest name where one was misspelt."""
    message = str(error)
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        group, _, name = str(error.missing_cfg_file).rpartition("/")
        return f"there is no {group}={name}: {nearest(name, error.options)}\n{message.splitlines()[0]}"
    missing = re.match(r"Could not override '([\w.]+)'", message)
    if not missing:
        return f"{message}\n{error.__cause__}" if isinstance(error.__cause__, OmegaConfBaseException) else message
    setting = missing.group(1)
    path, _, key = setting.rpartition(".")
    known = _settings_of(path, [override for override in overrides if not override.startswith(f"{setting}=")])
    if not known:
        return message
    if key in known:
        return f"{setting} is not in the configuration: set it with +{setting}=..."
    if path == "method" and key in method_settings():
        return f"{setting} is no setting of this method, but of another one. There are: {', '.join(sorted(known))}"
    return f"there is no {setting}: {nearest(key, known, method_settings() if path == 'method' else ())}"


def _settings_of(path: str, overrides: Sequence[str]) -> set[str]:
    """The settings of a group, with the first value of each override that sweeps."""
    first = []
    for override in _parsed(overrides):
        if override.is_sweep_override():
            first.append(f"{override.get_key_element()}={next(override.sweep_string_iterator())}")
        elif not override.is_hydra_override():
            first.append(str(override.input_line))
    try:
        with initialize_config_dir(str(config_dir()), version_base="1.3"):
            config = compose("train", overrides=first)
    except HydraException:  # the command has another mistake beside this one
        return set()
    group = config
    for part in path.split(".") if path else ():
        group = group.get(part)
        if not isinstance(group, DictConfig):
            return set()
    return known_settings(group, path) if path in GROUPS and "_target_" in group else {str(key) for key in group}


def _parsed(overrides: Sequence[str]) -> list[Override]:
    return OverridesParser.create().parse_overrides(list(overrides))


def main() -> None:
    """The console script ``as-lightning``."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    stack_traces = os.environ.get("HYDRA_FULL_ERROR") == "1"
    os.environ["HYDRA_FULL_ERROR"] = "1"  # then Hydra hands its errors on
    overrides: list[str] = []
    try:
        sys.argv[1:] = open_method_settings(sys.argv[1:])
        overrides = get_args_parser().parse_args().overrides
        hydra.main(version_base="1.3", config_path=str(config_dir()), config_name="train")(run_job)()
    except Exception as error:
        failed = finish_sweep()  # what has finished is reported, what has failed is listed there
        if stack_traces or not (failed or isinstance(error, (HydraException, OmegaConfBaseException, SettingError))):
            raise
        sys.exit(f"as-lightning: {f'{len(failed)} runs failed' if failed else in_words(error, overrides)}")


if __name__ == "__main__":
    main()
