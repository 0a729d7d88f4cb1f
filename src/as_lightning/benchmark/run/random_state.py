"""A resumed run draws the random numbers that it would have drawn without the interruption."""

from __future__ import annotations

import random
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch


class RandomState(pl.Callback):
    """Save the states of the random generators in checkpoints, and put them back when a resumed training starts.

    The generators are Python's, NumPy's and PyTorch's (on the CPU and on the GPUs of this process): of dropout, and of
    augmentation in the main process. Of several processes it is the first one's states that a checkpoint holds.
    """

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
