"""The console scripts: they load the app only when called, and say what is missing when it cannot be loaded."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from as_lightning.benchmark.commands.help import answered
from as_lightning.benchmark.packages import how_to_install, missing_packages


@contextmanager
def _loading(command: str) -> Iterator[None]:
    """Import a command inside; leave with what is missing, or with the help where that is asked for."""
    if answered(command, sys.argv[1:]):
        sys.exit()
    if missing := missing_packages():  # before the imports, which take seconds
        sys.exit(f"{command} {how_to_install(missing)}")
    try:
        yield
    except ModuleNotFoundError:  # none that the package names: a fault, to be seen whole
        raise
    except ImportError as error:  # torchvision or torchaudio beside another torch
        sys.exit(f"{command}: {error}")


def train() -> None:
    """`as-lightning`."""
    with _loading("as-lightning"):
        from as_lightning.benchmark.commands.train import main
    main()


def compare() -> None:
    """`as-lightning-compare`."""
    with _loading("as-lightning-compare"):
        from as_lightning.benchmark.commands.compare import main
    main()


def report() -> None:
    """`as-lightning-report`."""
    with _loading("as-lightning-report"):
        from as_lightning.benchmark.commands.report import main
    main()
