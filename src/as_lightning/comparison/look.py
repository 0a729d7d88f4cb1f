"""The look at all candidates before the first run: it refuses what would fail every run."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import lightning.pytorch as pl
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities.model_helpers import is_overridden

from as_lightning.bench.data.base import BenchmarkDataModule, check_processes_of_test
from as_lightning.bench.run.identity import RunIdentity, code_files
from as_lightning.bench.run.recorder import RunRecorder
from as_lightning.bench.run.runner import metrics_of_test, trained
from as_lightning.bench.run.settings import SettingError
from as_lightning.bench.run.train import run_inputs
from as_lightning.comparison.candidates import Candidate
from as_lightning.comparison.make import (
    QUIET,
    Recipe,
    made,
    of_this_run,
    require_monitor,
    run_trainer,
)
from as_lightning.comparison.methods import TrainingLoss
from as_lightning.comparison.plan import ComparisonPlan, Run, check_trainer, of_candidate
from as_lightning.comparison.same_run import (
    TEST,
    TRAIN,
    VALIDATION,
    digests,
    first_batches,
    module_digest,
    scored_targets,
)
from as_lightning.comparison.search import RATE

ONE_BATCH = ("limit_train_batches", "limit_val_batches", "limit_test_batches")
# where a launcher makes the runs, on other devices than this machine has
ELSEWHERE = {"accelerator": "cpu", "precision": "32-true"}


class Prepared(NamedTuple):
    """A comparison after the look: what its runs share, and by which its folder is recognised."""

    plan: ComparisonPlan
    recipe: Recipe
    subject: RunIdentity


class Looked(NamedTuple):
    """What a look at a candidate has found."""

    inputs: Mapping[str, str]  # digests of what its runs read
    targets: str  # a digest of those of validation and test
    tests: bool  # whether a test logs the metric
    processes: int  # of each run


def prepared(
    candidates: Mapping[str, Candidate],
    plan: ComparisonPlan,
    recipe: Recipe,
    *,
    version: str = "",
    n_jobs: int = 1,
    elsewhere: bool = False,
    **facts: Any,
) -> Prepared:
    """Return a comparison after a look at its candidates.

    ``recipe`` lacks what the look finds, ``facts`` are fields of the record, and ``elsewhere`` says
    that a launcher makes the runs.
    """
    pickled = {name: candidates[name].pickled(name) for name in plan.candidates}
    epochs = {name: plan.epochs(name) for name in plan.family}
    recipe = recipe._replace(candidates=pickled, epochs=epochs)
    found = look(recipe, version, elsewhere)
    processes = max(looked.processes for looked in found.values())
    if n_jobs > 1 and processes > 1:  # they would share one port
        raise ValueError(
            f"n_jobs={n_jobs} is for runs of one process, and these have {processes}: choose one"
        )
    notes = []
    metric: str | None = name_in_test(recipe.monitor)
    facts |= {"score": name_in_test(recipe.monitor).removeprefix("test/"), "split": "test"}
    if not all(looked.tests for looked in found.values()):
        notes.append(
            f"The scores are of the validation split: there is no {metric} of a test_step on the "
            "batches of a test_dataloader. They are too high: the same split chose settings and "
            "epoch."
        )
        metric = None
        facts |= {"score": recipe.monitor, "split": "validation"}
    spaces = {name: candidates[name].search for name in plan.candidates}
    if untuned := [name for name, space in spaces.items() if RATE not in space]:
        notes.append(
            f"The learning rate was not tuned of {', '.join(untuned)}: lr_factor is null, or its "
            "function has no argument lr with a default."
        )
    per_seed = any(candidate.splits_by_seed for candidate in candidates.values())
    if per_seed:
        facts["splits"] = "per_seed"
    inputs = {name: looked.inputs for name, looked in found.items()}
    configs = dict(recipe.configs)
    if plan.half is not None:  # it has the module and the data of the baseline
        of_candidates: tuple[dict[str, Any], ...] = (pickled, inputs, configs)
        for fields in of_candidates:
            if plan.baseline in fields:
                fields[plan.half] = fields[plan.baseline]
    recipe = recipe._replace(
        configs=configs,
        test_metric=metric,
        inputs=inputs,
        several_processes=processes > 1,
        split_per_seed=per_seed,
        kept_seed=plan.seeds[0],
        process=os.getpid(),
        files={} if version else code_files(),
    )
    settings = {}
    if configs:  # what all runs share
        of_baseline = recipe.settings(Run("tuning", plan.baseline, {}, 0))
        for key, value in RunIdentity.of(of_baseline).config.items():
            if not key.startswith("method."):
                settings[key] = value
    subject = RunIdentity(settings, {"data": found[plan.baseline].targets})
    facts |= {"name": recipe.name, "mode": recipe.mode, "notes": notes}
    return Prepared(plan.with_spaces(spaces, **facts), recipe, subject)


def look(recipe: Recipe, version: str, elsewhere: bool) -> dict[str, Looked]:
    """Fit and test one batch of each candidate, and compare the targets."""
    found: dict[str, Looked] = {}
    first = next(iter(recipe.candidates))
    for name in recipe.candidates:
        with of_candidate(name, first), TemporaryDirectory() as folder:
            run = Run("tuning", name, {}, 0)
            candidate = recipe.candidate(name)
            module, data = made(candidate, run)
            structure = module_digest(candidate, module)
            arguments = candidate.trainer(folder)
            check_trainer(arguments)
            try:
                limited = one_batch(arguments, elsewhere)
                trainer = run_trainer(recipe, limited, Path(folder), RunRecorder(recipe.monitor))
            except (TypeError, ValueError, MisconfigurationException) as error:
                message = f"the arguments of trainer are refused: {error}"
                raise SettingError(message) from error
            about: dict[str, Any] = {"name": name, "candidate": name, "seed": 0}
            result, _ = trained(
                trainer, module, data, score=recipe.monitor, test_metric=None, **about
            )
            require_monitor(result, trainer, recipe.monitor)
            require_loss(module)
            tests = is_overridden("test_step", module) and is_overridden("test_dataloader", data)
            metrics = metrics_of_test(trainer, module, data) if tests else {}
            batches = [first_batches(data, hook) for hook in (TRAIN, VALIDATION, TEST)]
            targets = scored_targets([*batches[1], *batches[2]])
            if found and targets != found[first].targets:
                raise ValueError(f"other validation or test examples than {first} has")
            if name in recipe.configs:
                config = recipe.configs[name].copy()
                of_this_run(config, run.seed, {})
                inputs = run_inputs(config)
            else:
                pickled = recipe.candidates[name]
                inputs = digests(pickled, structure, batches, arguments, version)
            logs_test = name_in_test(recipe.monitor) in metrics
            processes = processes_of(arguments, data, elsewhere)
            found[name] = Looked(inputs, targets, logs_test, processes)
    return found


def one_batch(arguments: Mapping[str, Any], elsewhere: bool) -> dict[str, Any]:
    """Return the arguments of two validations of one batch, since some metrics skip one."""
    limits: dict[str, Any] = {"val_check_interval": 1.0}
    for name in ONE_BATCH:
        limits[name] = 0 if arguments.get(name) == 0 else 1
    every = min(arguments.get("check_val_every_n_epoch", 1) or 1, arguments["max_epochs"])
    limits |= {"check_val_every_n_epoch": every, "max_epochs": 2 * every}
    limits |= {"devices": 1, "strategy": "auto", "num_nodes": 1, "logger": False}
    if elsewhere:
        limits |= ELSEWHERE
    return {**arguments, **limits}


def processes_of(
    arguments: Mapping[str, Any], data: pl.LightningDataModule, elsewhere: bool
) -> int:
    """Return how many processes a run has; a test split must be dealt out evenly to them."""
    if elsewhere:
        return 1 if arguments.get("devices", "auto") == 1 else 2
    trainer = pl.Trainer(**{**arguments, **QUIET, "callbacks": None})
    if isinstance(data, BenchmarkDataModule):
        check_processes_of_test(trainer, len(data.splits["test"]))
    return int(trainer.world_size)


def require_loss(module: pl.LightningModule) -> None:
    """Raise ``ValueError`` if a loss that was put in has not been called."""
    loss: TrainingLoss | None = vars(module).get("loss_of_comparison")
    if loss is not None and not loss.called:
        raise ValueError(
            f"training_step of {type(module).__name__} never called the loss that was put in: "
            "name as replaces the attribute that it calls as loss(logits, target), and set it to "
            "no other loss"
        )


def name_in_test(metric: str) -> str:
    """Return the test metric's name: ``test`` for the first word ``val`` (or alike).

    >>> names = "val/acc", "valid_acc", "acc/validation", "val/eval_f1", "interval"
    >>> [name_in_test(name) for name in names]
    ['test/acc', 'test_acc', 'acc/test', 'test/eval_f1', 'interval']
    """
    return re.sub(r"(?<![A-Za-z0-9])(validation|valid|val)(?![a-z])", "test", metric, count=1)
