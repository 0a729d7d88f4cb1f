"""What an interrupted run goes on from: its last epoch's checkpoint and random states."""

from __future__ import annotations

import logging
import os
import random
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from as_lightning.bench.run.identity import RunIdentity
from as_lightning.bench.run.recorder import RunRecorder, over_ranks
from as_lightning.bench.run.result import own_file

log = logging.getLogger(__name__)
LAST_FILE = "last.ckpt"


class BestWeights(ModelCheckpoint):
    """Keep the weights of the best validation, by the score that `RunRecorder` records.

    Validations that have diverged, or do not log the score, are skipped. The score is the mean over
    the processes. It keeps one file: ``save_top_k`` is no argument.
    """

    def __init__(self, dirpath: str | Path, **settings: Any) -> None:
        super().__init__(dirpath, "best", save_top_k=1, enable_version_counter=False, **settings)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        callbacks: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]
        recorders = [callback for callback in callbacks if isinstance(callback, RunRecorder)]
        diverged = any(recorder.diverged for recorder in recorders)
        if self.monitor in trainer.callback_metrics and not diverged:
            super().on_validation_end(trainer, pl_module)

    def _save_topk_checkpoint(
        self, trainer: pl.Trainer, monitor_candidates: dict[str, torch.Tensor]
    ) -> None:
        name = str(self.monitor)
        if name in monitor_candidates:
            score = torch.tensor(over_ranks(trainer, monitor_candidates[name]))
            monitor_candidates = {**monitor_candidates, name: score}
        super()._save_topk_checkpoint(trainer, monitor_candidates)


class LastEpoch(ModelCheckpoint):
    """Keep the last epoch's checkpoint, beside any of the user's; the ``final`` one may be left."""

    def __init__(self, dirpath: str | Path, final: bool = True) -> None:
        name = Path(LAST_FILE).stem
        super().__init__(dirpath, name, save_on_train_epoch_end=True, enable_version_counter=False)
        self.final = final

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.final or trainer.current_epoch + 1 != trainer.max_epochs:
            super().on_train_epoch_end(trainer, pl_module)


def checkpoint_to_resume(folder: Path, identity: RunIdentity) -> Path | None:
    """Return the last epoch's checkpoint of the run of this identity; None if there is none.

    One that cannot be read is set aside, and one of another run or folder will be replaced.
    """
    path = folder / LAST_FILE
    if not path.exists():
        return None
    try:
        content = torch.load(own_file(path), map_location="cpu", weights_only=True, mmap=True)
        saved = content["callbacks"]
        changed = RunIdentity(**saved[RunRecorder.__name__]["identity"]).changed(identity)
        if saved[ResumedState.__name__]["folder"] != os.path.realpath(folder):
            changed.append("folder")  # where its best weights are is not known
    except Exception as error:  # whatever the reader raises for a damaged file
        aside = path.with_name(f"{path.name}.unreadable")
        os.replace(path, aside)
        reason = str(error).partition("\n")[0]
        log.warning("%s cannot be read (%s): set aside as %s", path, reason, aside.name)
        return None
    if changed:
        log.warning("%s is of another %s: the run starts anew", path, changed[0])
        return None
    log.info("%s: goes on from step %d", path, content["global_step"])
    return path


class ResumedState(pl.Callback):
    """Save the states of Python's, NumPy's and PyTorch's random generators (the first process's),
    and resume with them. The ``folder`` of the checkpoints is saved too.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = os.path.realpath(folder)
        self._saved: dict[str, Any] | None = None

    def state_dict(self) -> dict[str, Any]:
        name, keys, *rest = np.random.get_state()
        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
        return {  # of types that `torch.load` reads with `weights_only`
            "folder": self.folder,
            "python": random.getstate(),
            "numpy": (name, np.asarray(keys).tolist(), *rest),
            "torch": torch.get_rng_state(),
            "cuda": cuda,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._saved = state_dict

    # not on_train_start: by then Lightning has made the iterator of the training data
    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        states, self._saved = self._saved, None
        if states is None:
            return
        random.setstate(states["python"])
        np.random.set_state(states["numpy"])
        torch.set_rng_state(states["torch"].cpu())
        if states["cuda"] and torch.cuda.device_count() == len(states["cuda"]):
            torch.cuda.set_rng_state_all([state.cpu() for state in states["cuda"]])
