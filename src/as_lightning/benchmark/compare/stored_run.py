"""A run of a comparison of one's own module, kept in a folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from as_lightning.benchmark.run.folder import run_lock
from as_lightning.benchmark.run.result import Result
from as_lightning.benchmark.run.resume import readable_result


def stored_run(directory: Path | None, config: Mapping[str, Any], make: Callable[[], Result]) -> Result:
    """The run that has finished in a folder with this configuration, or the one that ``make`` makes, written there.

    While another process runs in that folder, this one waits for it. A result that cannot be read is set aside.

    Args:
        directory: of the run; None keeps nothing.
        config: as the result of the run has it.
        make: makes the run.
    """
    if directory is None:
        return make()
    directory.mkdir(parents=True, exist_ok=True)
    with run_lock(directory):
        finished = readable_result(directory)
        if finished is not None and finished.config == config:
            return finished
        result = make()
        result.write(directory)
    return result
