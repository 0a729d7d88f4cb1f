"""One run of a comparison, made from a fresh copy of its candidate: nothing else goes on to it."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle
import lightning.pytorch as pl
from omegaconf import DictConfig, OmegaConf, open_dict

from as_lightning.bench.run import resume
from as_lightning.bench.run.identity import RunIdentity, code_files
from as_lightning.bench.run.predictions import TOKEN, PredictionRecorder
from as_lightning.bench.run.recorder import RunRecorder
from as_lightning.bench.run.result import RESULT_FILE, Result
from as_lightning.bench.run.runner import RunOutput, finished_or_made, trained
from as_lightning.bench.run.settings import SettingError
from as_lightning.bench.run.train import comparable_config
from as_lightning.callbacks import TemperatureScaling
from as_lightning.comparison.candidates import Candidate
from as_lightning.comparison.next_runs import best_validation
from as_lightning.comparison.plan import Run
from as_lightning.comparison.same_run import VALIDATION, first_batches, scored_targets
from as_lightning.comparison.search import RATE

CANDIDATES_FILE = "candidates.pkl"  # for jobs of a launcher, and runs of several processes
ONE_RUN = (sys.executable, "-m", "as_lightning.comparison.one_run")
RATE_KEY = "optimizer.lr"
QUIET = {
    "logger": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "num_sanity_val_steps": 0,
}
files_of_this_process = functools.cache(code_files)  # as its first run has read them


class CodeChanged(SettingError):
    """A file of the user's has changed since a comparison has begun: it ends at once."""


class Recipe(NamedTuple):
    """What all runs of a comparison share; each process has a copy."""

    name: str
    candidates: Mapping[str, bytes]  # pickled
    epochs: Mapping[str, int]  # of the runs of each candidate
    monitor: str = ""
    mode: str = "max"
    logits: Callable[..., Any] | None = None  # of the batches of a module, as calibration takes it
    test_metric: str | None = None  # None where the validation split is scored
    configs: Mapping[str, DictConfig] = {}  # of the candidates that the app configures
    inputs: Mapping[str, Mapping[str, str]] = {}  # digests, by candidate
    baseline: str = ""
    half: str | None = None  # the candidate that is the baseline trained for half the epochs
    several_processes: bool = False  # whether each run has more than one
    split_per_seed: bool = False
    kept_seed: int = -1  # whose final runs keep their best weights
    process: int = 0  # that has looked at the candidates
    files: Mapping[str, str] = {}  # its digests of the user's code

    def candidate(self, name: str) -> Candidate:
        candidate: Candidate = cloudpickle.loads(self.candidates[self.source(name)])
        return candidate

    def source(self, name: str) -> str:
        """Return the candidate whose module and data one has."""
        return self.baseline if name == self.half else name

    def settings(self, run: Run) -> dict[str, Any]:
        """Return what decides a run beside the digests of its inputs."""
        epochs = self.epochs[run.candidate]
        if self.configs:
            config = self.configs[self.source(run.candidate)].copy()
            config.trainer.max_epochs = epochs
            of_this_run(config, run.seed, run.settings)
            return comparable_config(config)
        trained_by = {"seed": run.seed, "monitor": self.monitor, "mode": self.mode}
        return {**run.about(epochs), **trained_by, "metric": self.test_metric}

    def identity(self, run: Run) -> RunIdentity:
        return RunIdentity.of(self.settings(run), self.inputs[self.source(run.candidate)])


def make(recipe: Recipe, directory: Path, run: Run) -> Result:
    """Make a run in its folder below a directory, or read the same run that is there."""
    folder = directory / run.folder
    if recipe.several_processes:  # Lightning starts the others by a command
        (directory / CANDIDATES_FILE).write_bytes(cloudpickle.dumps(recipe))
        words = [*ONE_RUN, str(directory), json.dumps(vars(run))]
        paths = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        if status := subprocess.run(words, env=paths, check=False).returncode:
            raise RuntimeError(f"the processes of the run ended with status {status}")
        result = Result.read(folder / RESULT_FILE)
    else:
        result = make_here(recipe, directory, run)
    if run.phase == "final" and run.seed == recipe.kept_seed:
        (folder / "checkpoints" / resume.LAST_FILE).unlink(missing_ok=True)
    else:
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    return result


def make_here(recipe: Recipe, directory: Path, run: Run) -> Result:
    """Make a run in this process, or read the same run that is there."""
    folder = directory / run.folder
    candidate = recipe.candidate(run.candidate)
    if os.getpid() != recipe.process:
        now = files_of_this_process()
        for path in recipe.files.keys() & now.keys():
            if recipe.files[path] != now[path]:
                raise CodeChanged(f"{path} has changed since the comparison has begun: start again")
    return finished_or_made(
        folder, recipe.identity(run), lambda: made_run(recipe, candidate, run, folder)
    )


def made_run(recipe: Recipe, candidate: Candidate, run: Run, folder: Path) -> RunOutput:
    """Train from the last epoch of this run, if it was interrupted, and test or validate."""
    epochs, checkpoints = recipe.epochs[run.candidate], folder / "checkpoints"
    metric = recipe.test_metric if run.phase == "final" else None
    module, data = made(candidate, run)
    arguments = dict(candidate.trainer(str(folder)))
    every = arguments.get("check_val_every_n_epoch", 1)
    arguments |= {"max_epochs": epochs, "check_val_every_n_epoch": every and min(every, epochs)}
    identity = recipe.identity(run)
    own = [RunRecorder(recipe.monitor, identity), resume.ResumedState(checkpoints)]
    trainer = run_trainer(recipe, arguments, checkpoints, *own)
    checkpoint = resume.checkpoint_to_resume(checkpoints, identity)
    output = trained(
        trainer,
        module,
        data,
        checkpoint,
        score=recipe.monitor,
        test_metric=metric,
        name=recipe.name,
        seed=run.seed,
        config=recipe.settings(run),
        resumed=checkpoint is not None,
        reading=[dict(vars(reading)) for reading in getattr(data, "readings", ())],
        **run.about(epochs),
    )
    result, predictions = output
    # the app's examples have names; numbers are none where each seed has its own split
    if predictions is not None and recipe.split_per_seed and not recipe.configs:
        name = "example" if TOKEN not in predictions.table else TOKEN
        predictions.table[name] += f" of seed {run.seed}"
    require_monitor(result, trainer, recipe.monitor)
    validation = scored_targets(first_batches(data, VALIDATION))
    result.inputs = {**identity.inputs, "validation": validation}
    if run.phase == "final" and metric is None:
        sign = 1.0 if recipe.mode == "max" else -1.0
        result.metrics = {recipe.monitor: best_validation(result, sign)}
    if result.evaluations:
        weights = [float(weight.detach().double().sum()) for weight in module.parameters()]
        result.evaluations[-1]["weights"] = sum(weights)
    return output


def made(candidate: Candidate, run: Run) -> tuple[pl.LightningModule, pl.LightningDataModule]:
    pl.seed_everything(run.seed, workers=True, verbose=False)
    data = candidate.data(run.seed)
    pl.seed_everything(run.seed, workers=True, verbose=False)
    module = candidate.module(**run.settings)
    pl.seed_everything(run.seed, workers=True, verbose=False)
    return module, data


def run_trainer(
    recipe: Recipe, arguments: Mapping[str, Any], checkpoints: Path, *more: pl.Callback
) -> pl.Trainer:
    """Return the trainer of a run; arguments that the user sets replace the defaults here."""
    callbacks = [*arguments["callbacks"], *more]
    if recipe.logits is not None:
        predictions = PredictionRecorder()
        predictions.source.logits = recipe.logits
        callbacks += [TemperatureScaling(recipe.logits), predictions]
    by_score: dict[str, Any] = {"monitor": recipe.monitor, "mode": recipe.mode}
    best = resume.BestWeights(checkpoints, save_on_train_epoch_end=False, **by_score)
    callbacks += [best, resume.LastEpoch(checkpoints, final=False)]
    root = None if arguments.get("logger") else checkpoints  # a logger's files stay
    settings = {**QUIET, "default_root_dir": root, **arguments, "callbacks": callbacks}
    return pl.Trainer(**settings)


def of_this_run(config: DictConfig, seed: int, settings: Mapping[str, Any]) -> None:
    config.seed = seed
    with open_dict(config):
        if config.data.split_seed == "per_seed":
            config.data.split_seed = seed
        for name, value in settings.items():
            path = name if "." in name else f"method.{name}"
            if name == RATE:
                path = RATE_KEY
            OmegaConf.update(config, path, value, force_add=True)


def require_monitor(result: Result, trainer: pl.Trainer, monitor: str) -> None:
    if not result.evaluations:
        logged = ", ".join(name for name in trainer.callback_metrics if name != monitor)
        raise ValueError(
            f"monitor {monitor!r} is never logged by a validation_step on the batches of a "
            f"val_dataloader, after training on others: there is {logged or 'nothing'}"
        )
