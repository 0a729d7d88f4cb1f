"""One run of a comparison, made from a fresh copy of its candidate: nothing goes on from run to
run.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import cloudpickle
import lightning.pytorch as pl
from omegaconf import DictConfig, OmegaConf, open_dict

from as_lightning.bench.run.identity import RunIdentity, code_files
from as_lightning.bench.run.predictions import PredictionRecorder
from as_lightning.bench.run.processes import one_job
from as_lightning.bench.run.recorder import RunRecorder
from as_lightning.bench.run.result import Result
from as_lightning.bench.run.resume import BestWeights
from as_lightning.bench.run.runner import RunOutput, finished_or_made, trained
from as_lightning.bench.run.settings import checked_settings
from as_lightning.bench.run.train import comparable_config, run_inputs
from as_lightning.callbacks import TemperatureScaling
from as_lightning.comparison.candidates import Candidate
from as_lightning.comparison.next_runs import best_validation
from as_lightning.comparison.plan import Run
from as_lightning.comparison.same_run import ScoredTargets
from as_lightning.comparison.search import RATE

CANDIDATES_FILE = "candidates.pkl"  # for the jobs of a launcher
RATE_KEY = "optimizer.lr"
QUIET = {
    "logger": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "num_sanity_val_steps": 0,
}
files_of_this_process = functools.cache(code_files)  # as its first run has read them


class Recipe(NamedTuple):
    """What all runs of a comparison share; each process has a copy."""

    name: str
    candidates: Mapping[str, bytes]  # pickled
    epochs: Mapping[str, int]  # of the runs of each candidate
    monitor: str = ""
    mode: str = "max"
    trainer: bytes = b""  # its arguments, pickled
    logits: Callable[..., Any] | None = None  # of the batches of a module, as calibration takes it
    test_metric: str | None = None  # None where the validation split is scored
    inputs: Mapping[str, Mapping[str, str]] = {}  # digests, by candidate
    processes: int = 1  # of each run
    split_per_seed: bool = False
    process: int = 0  # that has looked at the candidates
    files: Mapping[str, str] = {}  # its digests of the user's code

    def candidate(self, run: Run) -> Candidate:
        """Return a fresh copy of a run's candidate."""
        candidate: Candidate = cloudpickle.loads(self.candidates[run.candidate])
        return candidate

    def settings(self, run: Run) -> dict[str, Any]:
        """Return what decides a run of one's own module beside the digests of its inputs."""
        trained_by = {"seed": run.seed, "monitor": self.monitor, "mode": self.mode}
        return {**run.about(self.epochs[run.candidate]), **trained_by, "metric": self.test_metric}

    def identity(self, run: Run) -> RunIdentity:
        """Return the identity of a run."""
        if self.inputs:
            return RunIdentity.of(self.settings(run), self.inputs[run.candidate])
        config = self.candidate(run).config
        assert config is not None
        config = checked_settings(run_config(config, run, self, Path()))[0]
        with open_dict(config):
            del config.comparison
        return RunIdentity.of(comparable_config(config), run_inputs(config))


def make(recipe: Recipe, directory: Path, run: Run) -> Result:
    """Make a run in its folder below a directory, or read the same run that is there.

    All executions call this: this process, other ones of this machine, and jobs of a launcher.
    """
    folder = directory / run.folder
    candidate = recipe.candidate(run)
    if os.getpid() != recipe.process:
        now = files_of_this_process()
        for path in recipe.files.keys() & now.keys():
            if recipe.files[path] != now[path]:
                raise ValueError(f"{path} has changed since the comparison has begun: start again")
    if candidate.config is not None:
        job = run_config(candidate.config, run, recipe, folder)
        result = one_job(job)
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        return result
    config, inputs = recipe.settings(run), dict(recipe.inputs[run.candidate])
    about = {"config": config, "inputs": inputs}
    return finished_or_made(
        folder, config, inputs, lambda: own_run(recipe, candidate, run, **about), recipe.processes
    )


def run_config(config: DictConfig, run: Run, recipe: Recipe, folder: Path) -> DictConfig:
    """Return a run's configuration: that of its candidate with the settings of the run."""
    config = config.copy()
    fields = run.about(recipe.epochs[run.candidate])
    with open_dict(config):
        for name, value in run.settings.items():
            OmegaConf.update(config, setting_path(name), value, force_add=True)
        config.trainer.max_epochs = fields["epochs"]
        config.test = run.phase == "final"
        config.seed = run.seed
        config.output_dir = str(folder)
        config.comparison = fields
        if recipe.split_per_seed:
            config.data.split_seed = run.seed
    return config


def setting_path(name: str) -> str:
    """Return the path of a tuned setting in a configuration.

    >>> setting_path("lr"), setting_path("delta"), setting_path("model.width")
    ('optimizer.lr', 'method.delta', 'model.width')
    """
    if name == RATE:
        return RATE_KEY
    return name if "." in name else f"method.{name}"


def own_run(recipe: Recipe, candidate: Candidate, run: Run, **about: Any) -> RunOutput:
    """Train and test one's own module; the score is the test metric, or the best validation
    where there is none.
    """
    epochs = recipe.epochs[run.candidate]
    arguments = cloudpickle.loads(recipe.trainer)
    every = arguments.get("check_val_every_n_epoch", 1)
    limits = {"max_epochs": epochs, "check_val_every_n_epoch": every and min(every, epochs)}
    metric = recipe.test_metric if run.phase == "final" else None
    targets = ScoredTargets()
    with TemporaryDirectory() as folder:
        module, data = made(candidate, run)
        arguments |= limits
        trainer = own_trainer(recipe, arguments, folder, targets)
        about |= {"name": recipe.name, "seed": run.seed, **run.about(epochs)}
        output = trained(trainer, module, data, score=recipe.monitor, test_metric=metric, **about)
    result = output[0]
    require_monitor(result, trainer, recipe.monitor)
    result.inputs = {**result.inputs, "validation": targets.seen}
    if run.phase == "final" and metric is None:
        sign = 1.0 if recipe.mode == "max" else -1.0
        result.metrics = {recipe.monitor: best_validation(result, sign)}
    if result.evaluations:
        weights = [float(weight.detach().double().sum()) for weight in module.parameters()]
        result.evaluations[-1]["weights"] = sum(weights)
    if "calibration_error_unscaled" in result.metrics:
        unscaled = result.metrics["calibration_error_unscaled"]
        result.metrics.setdefault("calibration_error", unscaled)
    return output


def made(candidate: Candidate, run: Run) -> tuple[pl.LightningModule, pl.LightningDataModule]:
    """Return a run's module and data: those of a seed, and their order, are the same however many
    random numbers a module has drawn.
    """
    pl.seed_everything(run.seed, workers=True, verbose=False)
    module = candidate.module(**run.settings)
    pl.seed_everything(run.seed, workers=True, verbose=False)
    return module, candidate.data(run.seed)


def own_trainer(
    recipe: Recipe, arguments: Mapping[str, Any], folder: str, *more: pl.Callback
) -> pl.Trainer:
    """Return the trainer of a run; arguments that the user sets replace the defaults here."""
    callbacks: Sequence[pl.Callback] = arguments["callbacks"]
    callbacks = [*callbacks, RunRecorder(recipe.monitor), *more]
    if recipe.logits is not None:
        predictions = PredictionRecorder()
        predictions.source.logits = recipe.logits
        callbacks += [TemperatureScaling(recipe.logits), predictions]
    best = BestWeights(
        folder,
        filename="best",
        monitor=recipe.monitor,
        mode=recipe.mode,
        save_on_train_epoch_end=False,
    )
    # a logger's files stay
    root = None if arguments.get("logger") else folder
    settings = {**QUIET, "default_root_dir": root, **arguments, "callbacks": [*callbacks, best]}
    return pl.Trainer(**settings)


def require_monitor(result: Result, trainer: pl.Trainer, monitor: str) -> None:
    """Raise ``ValueError`` if no validation has logged the metric that is compared."""
    if result.evaluations:
        return
    if not trainer.callback_metrics:
        raise ValueError(
            "no batch was trained and validated: the data need training data and, to choose "
            "settings by, a val_dataloader, and the module a validation_step"
        )
    logged = ", ".join(name for name in trainer.callback_metrics if name != monitor)
    raise ValueError(
        f"monitor {monitor!r} is never logged in a validation: there is {logged}; name one of "
        "these as monitor=... (in the command module.monitor=...)"
    )
