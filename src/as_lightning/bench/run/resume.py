"""What an interrupted run resumes from: whole checkpoints, the loader's state and the random
generators' states.
"""

from __future__ import annotations

import logging
import os
import random
from ast import literal_eval
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from as_lightning.bench.data.loaders import ResumableLoader
from as_lightning.bench.run.identity import RunIdentity
from as_lightning.bench.run.recorder import RunRecorder, over_ranks, written_config
from as_lightning.bench.run.result import RESULT_FILE, Result
from as_lightning.bench.run.settings import SettingError

log = logging.getLogger(__name__)


class BestWeights(ModelCheckpoint):
    """Keeps the weights of the best validation, by the score that `RunRecorder` records; skips
    validations without.

    With ``save_last`` each one with a score writes `last.ckpt`; Lightning 2.6 itself writes it only
    for a new best. It is a class of its own, so that it may stand beside a ``ModelCheckpoint`` of
    the user.
    """

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        callbacks: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]
        diverged = any(
            callback.diverged for callback in callbacks if isinstance(callback, RunRecorder)
        )
        if self.monitor in trainer.callback_metrics and not diverged:
            super().on_validation_end(trainer, pl_module)

    def _save_topk_checkpoint(
        self, trainer: pl.Trainer, monitor_candidates: dict[str, torch.Tensor]
    ) -> None:
        if (name := str(self.monitor)) in monitor_candidates:
            score = torch.tensor(over_ranks(trainer, monitor_candidates[name]))
            monitor_candidates = {**monitor_candidates, name: score}
        super()._save_topk_checkpoint(trainer, monitor_candidates)
        self._last_global_step_saved = trainer.global_step  # so that Lightning writes last.ckpt now


def _reason(error: Exception) -> str:
    return ": ".join([type(error).__name__, *str(error).splitlines()[:1]])


def _set_aside(path: Path, run: Path, reason: object) -> None:
    if Path.cwd().is_relative_to(run.resolve()):  # the file may belong to the project there
        raise SettingError(
            f"{path} cannot be read ({reason}), and is not renamed in the working directory: give "
            "the run a folder of "
            "its own, as in hydra.run.dir=runs/mine, or remove the file"
        )
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
        _set_aside(path, directory, error)
        return None


def checkpoint_to_resume(folder: Path, identity: RunIdentity) -> Path | None:
    """The latest readable checkpoint of the run of this identity; None if there is none.

    Unreadable ones are set aside. Half written ones, and those of other runs, are removed.
    """
    steps: dict[Path, int] = {}
    for path in folder.glob("*.partial"):  # of a process that was killed while it wrote
        path.unlink(missing_ok=True)
    for path in sorted(folder.glob("*.ckpt")):
        try:
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
            changed = RunIdentity.of(**written_config(content)).changed(identity)
            step = int(content["global_step"])
        except Exception as error:  # whatever the reader raises for a damaged file
            _set_aside(path, folder.parent, _reason(error))
            continue
        if changed:
            log.warning(
                "%s is of another configuration (%s): removed, the run starts anew",
                path,
                changed[0],
            )
            path.unlink(missing_ok=True)  # each rank comes here
        else:
            steps[path] = step
    latest = max(steps, key=lambda path: (steps[path], path.name == "last.ckpt"), default=None)
    if latest is not None:
        log.info("%s: goes on from step %d", latest, steps[latest])
    return latest


def _beside(settings: dict[str, Any], other: dict[str, Any]) -> str:
    """The settings of a group that the other group does not have, or has with another value."""
    changed = [
        f"{name}={value}" for name, value in settings.items() if (name, value) not in other.items()
    ]
    return ", ".join(changed) or "no such settings"


def checked_start(path: Path, settings: dict[str, Any], meaning: dict[str, str]) -> Path:
    """The checkpoint of another run; a `SettingError` if it cannot be read, or does not fit this
    run's `settings`.

    Its optimizer and schedule replace this run's, and its epochs count. Its weights must have the
    same `meaning`, which `ResumedState` saves.
    """
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        epochs = int(content["loops"]["fit_loop"]["epoch_progress"]["current"]["processed"])
        written = written_config(content)["config"]
        saved_meaning = content["callbacks"].get("ResumedState", {}).get("meaning", {})
    except Exception as error:  # whatever the reader raises for a damaged file
        expected = "a checkpoint of a run of this app, of version 0.4 or later"
        raise SettingError(f"ckpt_path={path} is not {expected} ({_reason(error)})") from error
    for group in ("optimizer", "lr_scheduler"):
        there, here = written.get(group) or {}, settings.get(group) or {}
        if there != here:
            raise SettingError(
                f"ckpt_path brings its own optimizer and schedule: {group} has "
                f"{_beside(there, here)} there and "
                f"{_beside(here, there)} here; give both runs the same"
            )
    for name in (
        name for name, digest in meaning.items() if saved_meaning.get(name, digest) != digest
    ):
        raise SettingError(
            f"the weights of ckpt_path={path} were trained with other {name} than these data give: "
            "take the data, or "
            "the pretrained data.tokenizer, that they were trained with"
        )
    if 0 < (limit := settings["trainer"]["max_epochs"] or -1) <= epochs:
        raise SettingError(
            f"ckpt_path={path} has {epochs} epochs behind it: trainer.max_epochs={limit} leaves "
            "none to train, set it "
            "to more"
        )
    return path


class ResumedState(pl.Callback):
    """Save the random generators' states (Python's, NumPy's, PyTorch's; the first process's) and
    resume with them.

    The training loader's state is loaded too: for a schedule that asks for
    `trainer.estimated_stepping_batches` Lightning makes the loader before it has read the state,
    and the epoch would begin with its first batches again. The absolute paths of checkpoint
    callbacks are replaced by those of the run's present folder. `meaning` has digests of what the
    weights stand for, for a run that starts from them.
    """

    def __init__(self, folder: str | Path, meaning: dict[str, str]) -> None:
        self.folder, self.meaning = os.path.realpath(folder), meaning
        self._generators: dict[str, Any] | None = None
        self._loaders: list[dict[str, int]] = []

    def state_dict(self) -> dict[str, Any]:
        name, keys, *rest = np.random.get_state()
        return {  # of types that `torch.load` reads with `weights_only`
            "folder": self.folder,
            "meaning": self.meaning,
            "python": repr(random.getstate()),
            "numpy": repr((name, np.asarray(keys).tolist(), *rest)),
            "torch": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._generators = state_dict

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        self._loaders = checkpoint["loops"]["fit_loop"]["state_dict"].get("combined_loader", [])
        states = checkpoint["callbacks"]
        old_folder = states.get(self.state_key, {}).get("folder", self.folder)
        if old_folder != self.folder:
            checkpoint_states = {
                key: state for key, state in states.items() if "best_model_path" in state
            }
            states |= _moved(checkpoint_states, old_folder, self.folder)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._loaders and isinstance(trainer.train_dataloader, ResumableLoader):
            trainer.train_dataloader.load_state_dict(self._loaders[0])
        if states := self._generators:
            random.setstate(literal_eval(states["python"]))
            np.random.set_state(literal_eval(states["numpy"]))
            torch.set_rng_state(states["torch"].cpu())
            if states["cuda"] and torch.cuda.device_count() == len(states["cuda"]):
                torch.cuda.set_rng_state_all([state.cpu() for state in states["cuda"]])
        self._generators, self._loaders = None, []


def _moved(state: Any, before: str, now: str) -> Any:
    """A callback's state, with its paths below the folder `before` moved below the folder `now`."""
    if isinstance(state, dict):
        return {
            _moved(key, before, now): _moved(value, before, now) for key, value in state.items()
        }
    inside = isinstance(state, str) and (state + os.sep).startswith(before + os.sep)
    return now + state[len(before) :] if inside else state
