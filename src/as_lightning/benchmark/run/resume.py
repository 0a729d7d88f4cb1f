"""What an interrupted run goes on from: whole checkpoints, the loader's state and the random generators' states."""

from __future__ import annotations

import logging
import os
import random
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO

from as_lightning.benchmark.data.loaders import ResumableLoader
from as_lightning.benchmark.run.result import RESULT_FILE, Result, whole_file

log = logging.getLogger(__name__)


class WholeFileCheckpointIO(TorchCheckpointIO):
    """Write a checkpoint beside its place and move it there: Lightning's copy leaves half a file on a full disk."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None) -> None:
        place = Path(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(place) as partial:
            torch.save(checkpoint, partial)


def _set_aside(path: Path, reason: object) -> None:
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
        _set_aside(path, error)
        return None


def checkpoint_to_resume(folder: Path, settings: str) -> Path | None:
    """The latest readable checkpoint of a run with these settings; None if there is none.

    Unreadable ones are set aside, those of other `settings` (as the recorder has put them into them) are removed.
    """
    steps: dict[Path, int] = {}
    for path in sorted(folder.glob("*.ckpt")):
        try:
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
            written, step = content["callbacks"]["RunRecorder"]["settings"], int(content["global_step"])
        except Exception as error:  # whatever a damaged file makes the reader say
            _set_aside(path, f"{type(error).__name__}: {str(error).splitlines()[0]}")
            continue
        if written == settings:
            steps[path] = step
        else:
            log.warning("%s is of another configuration: removed, the run starts anew", path)
            path.unlink()
    latest = max(steps, key=lambda path: (steps[path], path.name == "last.ckpt"), default=None)
    if latest is not None:
        log.info("%s: goes on from step %d", latest, steps[latest])
    return latest


class DataLoaderState(pl.Callback):
    """Load the training loader's state from a checkpoint, also where Lightning does not.

    For a schedule that asks for `trainer.estimated_stepping_batches` Lightning makes the loader before it has read the
    state, and the rest of the epoch would begin with its first batches again.
    """

    def __init__(self) -> None:
        self._saved: list[dict[str, int]] = []

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        self._saved = checkpoint["loops"]["fit_loop"]["state_dict"].get("combined_loader", [])

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        saved, self._saved = self._saved, []
        loader = trainer.train_dataloader
        if saved and isinstance(loader, ResumableLoader):
            loader.load_state_dict(saved[0])


class RandomState(pl.Callback):
    """Save the random generators' states (Python's, NumPy's, PyTorch's; the first process's) and resume with them."""

    def __init__(self) -> None:
        self._saved: dict[str, Any] | None = None

    def state_dict(self) -> dict[str, Any]:
        version, words, gauss = random.getstate()
        name, keys, *rest = np.random.get_state()
        return {  # of types that a checkpoint is read with as plain data
            "python": [version, list(words), gauss],
            "numpy": [str(name), [int(key) for key in keys], *(float(number) for number in rest)],
            "torch": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._saved = state_dict

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._saved is None:
            return
        version, words, gauss = self._saved["python"]
        random.setstate((version, tuple(words), gauss))
        name, keys, position, has_gauss, cached = self._saved["numpy"]
        np.random.set_state((name, np.array(keys, dtype=np.uint32), int(position), int(has_gauss), cached))
        torch.set_rng_state(self._saved["torch"].cpu())
        if self._saved["cuda"] and torch.cuda.device_count() == len(self._saved["cuda"]):
            torch.cuda.set_rng_state_all([state.cpu() for state in self._saved["cuda"]])
        self._saved = None
