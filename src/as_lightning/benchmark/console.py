"""The console scripts: they load the app only when called, and say what is missing when it cannot be loaded."""

from __future__ import annotations

import importlib
import sys


def _call(command: str, module: str) -> None:
    try:
        main = importlib.import_module(module).main
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "as_lightning":
            raise
        sys.exit(f'{command} needs the package {error.name}: pip install "as-lightning[benchmark]"')
    main()


def train() -> None:
    """``as-lightning``."""
    _call("as-lightning", "as_lightning.benchmark.command")


def compare() -> None:
    """``as-lightning-compare``."""
    _call("as-lightning-compare", "as_lightning.benchmark.compare.command")


def report() -> None:
    """``as-lightning-report``."""
    _call("as-lightning-report", "as_lightning.benchmark.report.report")
