"""The console scripts: they load the app only when called, and say what is missing when it cannot be loaded."""

from __future__ import annotations

import importlib
import sys

from as_lightning.benchmark.help import answered
from as_lightning.benchmark.packages.extra import how_to_install, missing_packages


def _call(command: str, module: str) -> None:
    if answered(command, sys.argv[1:]):
        return
    if missing := missing_packages():  # before the imports, which take seconds
        sys.exit(f"{command} {how_to_install(missing)}")
    try:
        main = importlib.import_module(module).main
    except ImportError as error:  # torchvision or torchaudio beside another torch
        if isinstance(error, ModuleNotFoundError):  # none that this package names: a fault, to be seen whole
            raise
        sys.exit(f"{command}: {error}")
    main()


def train() -> None:
    """``as-lightning``."""
    _call("as-lightning", "as_lightning.benchmark.command")


def compare() -> None:
    """``as-lightning-compare``."""
    _call("as-lightning-compare", "as_lightning.benchmark.compare.command")


def report() -> None:
    """``as-lightning-report``."""
    _call("as-lightning-report", "as_lightning.benchmark.report_command")
