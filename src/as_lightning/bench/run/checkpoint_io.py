"""How runs write their checkpoints."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO

from as_lightning.bench.run.result import whole_file


class WholeFileCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint beside its place and moves it there: Lightning's copy leaves half a file
    on a full disk.

    ``seconds`` is the time spent on writing, which `RunRecorder` does not count as training.
    """

    seconds = 0.0

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None
    ) -> None:
        place, start = Path(path), time.perf_counter()
        place.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(place) as partial, partial.open("wb") as file:
            try:
                torch.save(checkpoint, file)
            except RuntimeError as error:  # PyTorch's writer hides an error of the disk
                if isinstance(error.__context__, OSError):
                    raise error.__context__ from None
                raise
        self.seconds += time.perf_counter() - start
