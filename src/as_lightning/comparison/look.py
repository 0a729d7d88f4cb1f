"""The look at all candidates before the first run: it refuses what would fail every run."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import lightning.pytorch as pl
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities.model_helpers import is_overridden

from as_lightning.bench.data.base import BenchmarkDataModule, check_processes_of_test
from as_lightning.bench.run.identity import code_files, digest, value_digest
from as_lightning.bench.run.recorder import RunRecorder
from as_lightning.bench.run.runner import metrics_of_test, trained
from as_lightning.bench.run.settings import SettingError
from as_lightning.bench.run.train import run_inputs
from as_lightning.comparison import make, same_run
from as_lightning.comparison.candidates import Candidate
from as_lightning.comparison.methods import TrainingLoss
from as_lightning.comparison.plan import ComparisonPlan, Run, check_trainer, of_candidate
from as_lightning.comparison.search import RATE, Space

ONE_BATCH = ("limit_train_batches", "limit_val_batches", "limit_test_batches")
# where a launcher makes the runs, on other devices than this machine has
ELSEWHERE = {"accelerator": "cpu", "precision": "32-true"}


class Prepared(NamedTuple):
    """A comparison after the look; its folder is recognised by the ``subject``."""

    plan: ComparisonPlan
    recipe: make.Recipe
    subject: str


class Looked(NamedTuple):
    inputs: Mapping[str, str]  # digests of what its runs read
    targets: Sequence[str]  # digests of those of validation, and of the test if there is one
    tests: bool  # whether a test logs the metric
    processes: int  # of each run


def prepared(
    candidates: Mapping[str, Candidate],
    plan: ComparisonPlan,
    recipe: make.Recipe,
    *,
    version: str = "",
    n_jobs: int = 1,
    elsewhere: bool = False,
    **facts: Any,
) -> Prepared:
    """Return a comparison after a look at its candidates; ``facts`` are fields of its record, and
    ``elsewhere`` says that a launcher makes the runs.
    """
    pickled = {name: candidates[name].pickled(name) for name in plan.candidates}
    epochs = {name: plan.epochs(name) for name in plan.family}
    recipe = recipe._replace(candidates=pickled, epochs=epochs)
    found: dict[str, Looked] = {}
    for name in plan.candidates:
        with of_candidate(name, plan.baseline):
            found[name] = look(recipe, candidates[name].search, name, elsewhere)
            both = zip(found[name].targets, found[plan.baseline].targets, strict=False)
            if any(own != other for own, other in both):
                raise ValueError(
                    f"other validation or test examples than {plan.baseline} has, or in other "
                    "batches"
                )
    files = {} if version else code_files()  # after all candidates have imported theirs
    inputs = {name: looked.inputs for name, looked in found.items()}
    for name in inputs.keys() - recipe.configs:
        code = same_run.code_digest(pickled[name], files, version)
        inputs[name] = {"code": code, **inputs[name]}
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
    recipe = recipe._replace(
        half=plan.half,
        baseline=plan.baseline,
        test_metric=metric,
        inputs=inputs,
        several_processes=processes > 1,
        split_per_seed=per_seed,
        kept_seed=plan.seeds[0],
        process=os.getpid(),
        files=files,
    )
    shared = []
    if recipe.configs:  # what all runs share
        of_baseline = recipe.identity(Run("tuning", plan.baseline, {}, 0))
        for key, value in sorted(of_baseline.config.items()):
            if not key.startswith("method."):
                shared.append(f"{key}={value}")
    subject = digest(*found[plan.baseline].targets, *shared)
    facts |= {"name": recipe.name, "mode": recipe.mode, "notes": notes}
    return Prepared(plan.with_spaces(spaces, **facts), recipe, subject)


def look(recipe: make.Recipe, space: Space, name: str, elsewhere: bool) -> Looked:
    """Fit and test one batch of a candidate at its default settings."""
    defaults = {setting: dimension.default for setting, dimension in space.items()}
    candidate = recipe.candidate(name)
    module, data = make.made(candidate, Run("tuning", name, defaults, 0))
    structure = same_run.module_digest(candidate, module)
    with TemporaryDirectory() as folder:
        arguments = candidate.trainer(folder)
        check_trainer(arguments)
        # before callbacks have seen a training
        read = {key: arguments[key] for key in arguments if key not in same_run.WITHOUT_EFFECT}
        trained_by = value_digest(read)
        try:
            limited = one_batch(arguments, elsewhere)
            trainer = make.run_trainer(recipe, limited, Path(folder), RunRecorder(recipe.monitor))
        except (TypeError, ValueError, MisconfigurationException) as error:
            raise SettingError(f"the arguments of trainer are refused: {error}") from error
        about: dict[str, Any] = {"name": name, "candidate": name, "seed": 0}
        result, _ = trained(trainer, module, data, score=recipe.monitor, test_metric=None, **about)
        make.require_monitor(result, trainer, recipe.monitor)
        require_loss(module)
        tests = is_overridden("test_step", module) and is_overridden("test_dataloader", data)
        metrics = metrics_of_test(trainer, module, data) if tests else {}
    # without a test no setup has made its data
    batches = [same_run.first_batches(data, hook) for hook in same_run.HOOKS[: 2 + tests]]
    if name in recipe.configs:
        config = recipe.configs[name].copy()
        make.of_this_run(config, 0, {})
        inputs = run_inputs(config)
    else:
        inputs = {"module": structure, "data": value_digest(batches), "trainer": trained_by}
    targets = list(map(same_run.scored_targets, batches[1:]))
    logs_test = name_in_test(recipe.monitor) in metrics
    return Looked(inputs, targets, logs_test, processes_of(arguments, data, elsewhere))


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
    trainer = pl.Trainer(**{**arguments, **make.QUIET, "callbacks": None})
    if isinstance(data, BenchmarkDataModule):
        check_processes_of_test(trainer, len(data.splits["test"]))
    return int(trainer.world_size)


def require_loss(module: pl.LightningModule) -> None:
    loss: TrainingLoss | None = vars(module).get("loss_of_comparison")
    if loss is not None and not loss.called:
        raise ValueError(
            f"training_step of {type(module).__name__} never called the loss that was put in: "
            "name as replaces the attribute that it calls as loss(logits, target), and set it to "
            "no other loss"
        )


def name_in_test(metric: str) -> str:
    """Return the test metric's name: ``test`` in the place of the word ``val``, or alike."""
    return re.sub(r"(?<![A-Za-z0-9])(validation|valid|val)(?![a-z])", "test", metric, count=1)
