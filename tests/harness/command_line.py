"""The app as its users call it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from harness.prepared_processes import run

from as_lightning.benchmark.commands import console

QUIET = "trainer.enable_progress_bar=false"


def as_lightning(folder: Path, *arguments: str) -> str:
    """Run ``as-lightning`` in ``folder``, without progress bars, and give what it has printed, errors too."""
    return _run(console.train, "as-lightning", folder, arguments)


def as_lightning_compare(folder: Path, *arguments: str) -> str:
    """Run ``as-lightning-compare`` in ``folder``, and give what it has printed, errors too."""
    return _run(console.compare, "as-lightning-compare", folder, arguments)


def _run(main: Callable[[], None], command: str, folder: Path, arguments: tuple[str, ...]) -> str:
    finished = run(main, command, *arguments, QUIET, folder=folder, OMP_NUM_THREADS="1")
    assert finished.returncode == 0, finished.stderr
    return finished.stdout + finished.stderr


def in_an_interpreter(command: str, folder: Path, *arguments: str) -> str:
    """The same in a process of its own: ``train`` by ``python -m``, and ``compare`` by its console script.

    Lightning repeats it for the other processes of a run, and joblib's processes end with an interpreter alone.
    """
    script = Path(sys.executable).with_name(f"as-lightning-{command}")
    module = [sys.executable, "-m", "as_lightning.benchmark.commands.train"]
    finished = subprocess.run(
        [*(module if command == "train" else [str(script)]), *arguments, QUIET],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout
    return finished.stdout
