"""The app as its users call it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def as_lightning(folder: Path, *arguments: str) -> str:
    """Run ``as-lightning`` in ``folder``, without progress bars, and give what it has printed, errors too."""
    return _run("as_lightning.benchmark.commands.train", folder, arguments)


def as_lightning_compare(folder: Path, *arguments: str) -> str:
    """Run ``as-lightning-compare`` in ``folder``, and give what it has printed, errors too."""
    return _run("as_lightning.benchmark.commands.compare", folder, arguments)


def _run(module: str, folder: Path, arguments: tuple[str, ...]) -> str:
    command = [sys.executable, "-m", module, *arguments, "trainer.enable_progress_bar=false"]
    finished = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout
    return finished.stdout
