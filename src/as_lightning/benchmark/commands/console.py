"""The console scripts: they load the app only when called, and say what is missing when it cannot be loaded."""

from __future__ import annotations

import sys

from as_lightning import __version__
from as_lightning.benchmark.packages import how_to_install, missing_packages


def _start(command: str) -> None:
    """Leave with the version where that is asked for, or with what is missing, before the imports, which take long."""
    if "--version" in sys.argv[1:]:
        print(f"as-lightning {__version__}")
        sys.exit()
    if missing := missing_packages():
        sys.exit(f"{command} {how_to_install(missing)}")


def train() -> None:
    """`as-lightning`."""
    _start("as-lightning")
    from as_lightning.benchmark.commands.train import main

    main()


def compare() -> None:
    """`as-lightning-compare`."""
    _start("as-lightning-compare")
    from as_lightning.benchmark.commands.compare import main

    main()


def report() -> None:
    """`as-lightning-report`."""
    _start("as-lightning-report")
    from as_lightning.benchmark.commands.report import main

    main()
