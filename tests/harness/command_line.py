"""The app as its users call it, in a process that has loaded torch already."""

from __future__ import annotations

import runpy
import tempfile
from functools import partial
from pathlib import Path

from harness.prepared_processes import start


def as_lightning(folder: Path, *arguments: str) -> str:
    """Run `as-lightning` in `folder`, without progress bars, and give what it has printed, errors too."""
    return _run("as_lightning.benchmark.commands.train", folder, arguments)


def as_lightning_compare(folder: Path, *arguments: str) -> str:
    """Run `as-lightning-compare` in `folder`, and give what it has printed, errors too."""
    return _run("as_lightning.benchmark.commands.compare", folder, arguments)


def _run(module: str, folder: Path, arguments: tuple[str, ...]) -> str:
    # as `python -m module` does: workers of launchers and further ranks are started by this __main__
    main = partial(runpy.run_module, module, run_name="__main__", alter_sys=True)
    with tempfile.TemporaryDirectory() as files:
        printed = Path(files, "printed")
        argv = [module, *arguments, "trainer.enable_progress_bar=false"]
        process = start(main, argv, printed, printed, folder, OMP_NUM_THREADS="1")
        process.join()
        assert process.exitcode == 0, printed.read_text()
        return printed.read_text()
