"""Checkpoints and results on disk: never half a file in place of a whole one, and what cannot be read is set aside."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO

from as_lightning.benchmark.run.result import RESULT_FILE, Result
from as_lightning.benchmark.run.whole_file import whole_file

log = logging.getLogger(__name__)


class WholeFileCheckpointIO(TorchCheckpointIO):
    """Write a checkpoint beside its place and move it there in one step.

    Lightning's own writes to the system's temporary folder and copies from there: on a full disk half a file takes the
    place of the checkpoint before.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None) -> None:
        place = Path(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(place) as partial:
            torch.save(checkpoint, partial)


def set_aside(path: Path, reason: object) -> None:
    """Rename a file that cannot be used, and say so."""
    aside = path.with_name(f"{path.name}.unreadable")
    os.replace(path, aside)
    log.warning("%s cannot be read (%s): set aside as %s", path, reason, aside.name)


def readable_result(directory: Path) -> Result | None:
    """The result in a run's folder; None if there is none. One that cannot be read is set aside."""
    path = directory / RESULT_FILE
    if not path.exists():
        return None
    try:
        return Result.read(path)
    except ValueError as error:
        set_aside(path, error)
        return None


def checkpoint_to_resume(folder: Path, settings: str) -> Path | None:
    """The latest readable checkpoint of a run with these settings; None if there is none.

    Unreadable ones are set aside, those of other settings are removed.

    Args:
        folder: of the checkpoints.
        settings: as :class:`~as_lightning.benchmark.run.recorder.RunRecorder` has put it into the checkpoint.
    """
    steps: dict[Path, int] = {}
    for path in sorted(folder.glob("*.ckpt")):
        try:
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
            written, step = content["callbacks"]["RunRecorder"]["settings"], int(content["global_step"])
        except Exception as error:  # whatever a damaged file makes the reader say
            set_aside(path, f"{type(error).__name__}: {str(error).splitlines()[0]}")
            continue
        if written == settings:
            steps[path] = step
        else:
            log.warning("%s is of another configuration: removed, the run starts anew", path)
            path.unlink()
    if not steps:
        return None
    latest = max(steps, key=lambda path: (steps[path], path.name == "last.ckpt"))
    log.info("%s: goes on from step %d", latest, steps[latest])
    return latest
