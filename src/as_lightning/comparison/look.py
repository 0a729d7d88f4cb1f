"""The look at all candidates before the first run: it refuses what would fail every run."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Mapping
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import cloudpickle
import lightning.pytorch as pl
from lightning.pytorch.utilities.model_helpers import is_overridden
from lightning.pytorch.utilities.parsing import lightning_getattr

from as_lightning.bench.run.identity import RunIdentity, code_files
from as_lightning.bench.run.runner import metrics_of_test, trained
from as_lightning.bench.run.settings import nearest
from as_lightning.comparison.candidates import Candidate, rate_name
from as_lightning.comparison.make import QUIET, Recipe, made, own_trainer, require_monitor
from as_lightning.comparison.methods import TrainingLoss
from as_lightning.comparison.plan import (
    ComparisonPlan,
    Run,
    check_processes,
    check_trainer,
    of_candidate,
)
from as_lightning.comparison.same_run import digests, first_batches, module_digest, scored_targets
from as_lightning.comparison.search import RATE, Space, learning_rates
from as_lightning.statistics.score_names import checked_mode

ONE_BATCH = ("limit_train_batches", "limit_val_batches", "limit_test_batches")


class Prepared(NamedTuple):
    """A comparison after the look: what its runs share, and by which its folder is recognised."""

    plan: ComparisonPlan
    recipe: Recipe
    subject: RunIdentity


class Looked(NamedTuple):
    """What a look at a candidate has found."""

    inputs: Mapping[str, str]  # digests of code, module, data and trainer
    targets: str  # a digest of those of validation and test
    hyperparameters: Mapping[str, Any]
    rate: float | None  # the learning rate of the module; None where it has none
    tests: bool  # whether a test logs the metric


def prepared(
    candidates: Mapping[str, Candidate],
    plan: ComparisonPlan,
    trainer: Any,
    monitor: str,
    *,
    mode: Any = None,
    name: str = "comparison",
    lr_factor: float | None = None,
    logits: Callable[..., Any] | None = None,
    version: str = "",
    n_jobs: int = 1,
    same_module: bool = False,
) -> Prepared:
    """Return a comparison of one's own modules, after a look at them.

    With ``same_module`` the candidates differ in their loss alone.
    """
    mode = checked_mode(mode, monitor)
    arguments, notes = checked_trainer(trainer), []
    processes = pl.Trainer(**{**QUIET, **arguments}).world_size
    check_processes(n_jobs, processes)
    pickled = {label: candidates[label].pickled(label) for label in plan.candidates}
    try:
        pickled_trainer = bytes(cloudpickle.dumps(arguments))
    except Exception as error:  # whatever an object of the user's raises
        raise TypeError(f"trainer cannot be pickled, and each run gets a copy: {error}") from None
    epochs = {label: plan.epochs(label) for label in plan.family}
    recipe = Recipe(name, pickled, epochs, monitor, mode, pickled_trainer, logits)
    found = look(recipe, version)
    first, spaces = found[plan.baseline], {}
    metric = name_in_test(monitor)
    tests = all(looked.tests for looked in found.values())
    if not tests:
        notes.append(
            f"The scores are of the validation split: there is no {metric} of a test_step on the "
            "batches of a test_dataloader. They are too high: the same split chose settings and "
            "epoch."
        )
    untuned = []
    for label, looked in found.items():
        space: Space = dict(candidates[label].search)
        if plan.trials > 1:
            plan.check_values(label, {key: knob for key, knob in space.items() if key != RATE})
        if RATE not in space and lr_factor is not None and looked.rate is not None:
            space = {RATE: learning_rates(looked.rate, lr_factor), **space}
        if RATE not in space:
            untuned.append(label)
        spaces[label] = space
    if untuned:
        reason = "search.lr_factor is null" if lr_factor is None else "no argument or attribute lr"
        notes.append(f"The learning rate was not tuned of {', '.join(untuned)}: {reason}.")
    score = metric.removeprefix("test/") if tests else monitor
    facts: dict[str, Any] = {"name": name, "score": score, "mode": mode, "notes": notes}
    facts["split"] = "test" if tests else "validation"
    if not same_module:
        facts["changes"] = changes(first, found)
    per_seed = any(candidate.splits_by_seed for candidate in candidates.values())
    recipe = recipe._replace(
        candidates={label: pickled[plan.tuned_as(label)] for label in plan.family},
        test_metric=metric if tests else None,
        inputs={label: found[plan.tuned_as(label)].inputs for label in plan.family},
        processes=processes,
        split_per_seed=per_seed,
        process=os.getpid(),
        files=code_files(),
    )
    if per_seed:
        facts["splits"] = "per_seed"
    return Prepared(
        plan.with_spaces(spaces, **facts), recipe, RunIdentity.of({}, {"data": first.targets})
    )


def changes(first: Looked, found: Mapping[str, Looked]) -> dict[str, dict[str, list[str]]]:
    """Return the hyperparameters of each candidate's module that differ from the baseline's, with
    both values.
    """
    changed: dict[str, dict[str, list[str]]] = {}
    for name, looked in found.items():
        changed[name] = {}
        for key in dict.fromkeys([*first.hyperparameters, *looked.hyperparameters]):
            pair = [first.hyperparameters.get(key), looked.hyperparameters.get(key)]
            if pair[0] != pair[1]:
                changed[name][key] = [str(value) for value in pair]
    return changed


def checked_trainer(trainer: Any) -> dict[str, Any]:
    """Return the trainer's arguments, and refuse what a comparison cannot allow."""
    if not isinstance(trainer, Mapping):
        expected = 'the arguments of each run\'s Trainer, as {"max_epochs": 10}'
        raise TypeError(f"trainer must be {expected}, got {trainer!r}")
    known = inspect.signature(pl.Trainer).parameters
    for name in trainer.keys() - known.keys():
        hint = nearest(name, list(known))
        raise ValueError(f"trainer has {name!r}, which lightning.Trainer does not take: {hint}")
    check_trainer(trainer)
    strategy = str(trainer.get("strategy", "auto"))
    if re.search("spawn|fork|notebook", strategy):
        raise ValueError(
            f"trainer must not set strategy={strategy!r}: what its processes measure does not come "
            'back to this one; take strategy="ddp"'
        )
    callbacks = trainer.get("callbacks") or []
    if isinstance(callbacks, pl.Callback):
        callbacks = [callbacks]
    return {**trainer, "callbacks": list(callbacks)}


def look(recipe: Recipe, version: str) -> dict[str, Looked]:
    """Make the module and data of each candidate once, fit and test one batch, and compare the
    targets.
    """
    found: dict[str, Looked] = {}
    first = next(iter(recipe.candidates))
    for name in recipe.candidates:
        with of_candidate(name, first), TemporaryDirectory() as folder:
            run = Run("tuning", name, {}, 0)
            candidate = recipe.candidate(run)
            module, data = made(candidate, run)
            before = module_digest(module)
            arguments = one_batch(cloudpickle.loads(recipe.trainer))
            trainer = own_trainer(recipe, arguments, folder)
            about: dict[str, Any] = {
                "name": name,
                "candidate": name,
                "seed": 0,
                "test_metric": None,
            }
            result, _ = trained(trainer, module, data, score=recipe.monitor, **about)
            require_monitor(result, trainer, recipe.monitor)
            require_loss(module)
            tests = is_overridden("test_step", module) and is_overridden("test_dataloader", data)
            metrics = metrics_of_test(trainer, module, data) if tests else {}
            batches = first_batches(data)
            targets = scored_targets(batches)
            if found and targets != found[first].targets:
                raise ValueError(f"other validation or test examples than {first} has")
            fresh = recipe.candidate(run)
            again, _ = made(fresh, run)
            refuse_another_start(candidate, run, before, module_digest(again))
            inputs = digests(fresh, again, batches, cloudpickle.loads(recipe.trainer), version)
            facts = {"module": type(again).__name__, **dict(again.hparams)}
            logs_test = name_in_test(recipe.monitor) in metrics
            found[name] = Looked(inputs, targets, facts, rate_of(again), logs_test)
    return found


def one_batch(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the trainer's arguments for two validations of one batch: some metrics skip one."""
    limits: dict[str, Any] = {"val_check_interval": 1.0}
    for name in ONE_BATCH:
        limits[name] = 0 if arguments.get(name) == 0 else 1
    every = min(arguments.get("check_val_every_n_epoch", 1) or 1, arguments["max_epochs"])
    limits |= {"check_val_every_n_epoch": every, "max_epochs": 2 * every}
    return {**arguments, **limits}


def require_loss(module: pl.LightningModule) -> None:
    """Raise ``ValueError`` if a loss that was put in has not been called, or has been replaced."""
    if "loss_of_comparison" not in vars(module):
        return
    loss: TrainingLoss = vars(module)["loss_of_comparison"]
    if all(part is not loss for part in module.modules()):
        raise ValueError(
            f"the attribute of replaces has been set to another loss while {type(module).__name__} "
            f"trained, in the place of {loss.name}: change the loss that is there"
        )
    if not loss.called:
        raise ValueError(
            f"training_step of {type(module).__name__} never called the loss that was put in: "
            "name as replaces the attribute that it calls as loss(logits, target)"
        )


def refuse_another_start(candidate: Candidate, run: Run, before: str, after: str) -> None:
    """Raise ``ValueError`` if a training has changed the module that the next run starts with."""
    if before == after:
        return
    again, _ = made(candidate, run)
    if module_digest(again) == after:
        raise ValueError(
            "the module goes on from run to run: a training has changed what the next one starts "
            "with; let the function make all of it anew at each call"
        )


def rate_of(module: pl.LightningModule) -> float | None:
    """Return the learning rate that a module has as an attribute or hyperparameter, if any."""
    name = rate_name(module)
    rate = None if name is None else lightning_getattr(module, name)
    return float(rate) if isinstance(rate, (int, float)) else None


def name_in_test(metric: str) -> str:
    """Return the test metric's name: ``test`` for the first word ``val`` (or alike).

    >>> [name_in_test(name) for name in ("val/acc", "valid_acc", "acc/validation", "val/eval_f1", "interval")]
    ['test/acc', 'test_acc', 'acc/test', 'test/eval_f1', 'interval']
    """
    return re.sub(r"(?<![A-Za-z0-9])(validation|valid|val)(?![a-z])", "test", metric, count=1)
