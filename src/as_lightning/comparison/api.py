"""``as_lightning.compare``: the fair comparison of your own modules, or of losses for one."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import lightning.pytorch as pl
from rich.console import Console

from as_lightning.bench.run.result import new_session
from as_lightning.bench.run.runner import quiet_training
from as_lightning.callbacks.evaluation_logits import LogitsAndTarget
from as_lightning.comparison.candidates import baseline_first, own_candidate
from as_lightning.comparison.engine import end_processes, execution, run_comparison
from as_lightning.comparison.look import Prepared, prepared
from as_lightning.comparison.make import Recipe, make
from as_lightning.comparison.methods import with_losses
from as_lightning.comparison.plan import DESIGN, ComparisonPlan, default_settings
from as_lightning.functional.argument_checks import check_count
from as_lightning.report.advice import advice
from as_lightning.report.findings import Findings, findings
from as_lightning.report.page import ReportPaths, print_comparison, write_report
from as_lightning.report.record import ComparisonRecord
from as_lightning.statistics.score_names import known_direction

Factory = Callable[..., pl.LightningModule]
Data = pl.LightningDataModule | Callable[..., pl.LightningDataModule]


@dataclass(frozen=True, repr=False)
class ComparisonReport:
    """The result of a comparison; ``record`` has its runs, trials, chosen settings and notes."""

    record: ComparisonRecord

    def __repr__(self) -> str:
        return f"ComparisonReport({self.advice!r})"

    @property
    def findings(self) -> Findings:
        """The numbers, candidate by candidate."""
        return findings(self.record)

    @property
    def advice(self) -> str:
        """What to do, in words."""
        return " ".join(advice(self.findings))

    def show(self, console: Console | None = None) -> None:
        """Print the verdict table and the advice."""
        print_comparison(self.record, console)

    def save(self, directory: str | Path) -> ReportPaths:
        """Write the report: Markdown and one self-contained HTML page."""
        return write_report(self.record, directory)


def compare(
    factory: Factory | Mapping[str, Any],
    datamodule: Data | None = None,
    *,
    monitor: str,
    trainer: Mapping[str, Any],
    replaces: str | None = None,
    mode: Literal["max", "min"] | None = None,
    methods: Sequence[str] | None = None,
    losses: Mapping[str, Any] | None = None,
    baseline: str | None = None,
    half_epochs: bool | None = None,
    trials: int | None = None,
    seeds: Literal["auto"] | int | Sequence[int] | None = None,
    race: bool | None = None,
    max_seeds: int | None = None,
    max_hours: float | None = None,
    tuning_seeds: int | Sequence[int] | None = None,
    equal_within: float | None = None,
    lr_factor: float | None = 4.0,
    logits: Callable[[pl.LightningModule, Any], LogitsAndTarget] | None = None,
    version: str = "",
    n_jobs: int | None = None,
    folder: str | Path | None = None,
    name: str = "comparison",
    progress: bool = True,
) -> ComparisonReport:
    """Compare several modules, or several losses for a module: which is better on these data?

    Every candidate is tuned by the same number of trials, then runs with more and more seeds until
    each is decided: docs/compare.md. Where a default is None, it is that of ``conf/compare.yaml``.

    Args:
        factory: makes a module, e.g. ``lambda lr=1e-3: LitModel(lr)``, whose ``lr`` is tuned if it
            has a default; or several by name, compared as they are: ``{"small": make_small,
            "large": (make_large, None, {"width": {"low": 64, "high": 256}})}``, where a tuple has
            data (None: ``datamodule``) and tuned ranges of its own.
        datamodule: the data, or a function that makes them. The function gets the run's seed if it
            has an argument ``seed``: its splits may then differ from seed to seed.
        monitor: the logged validation metric to compare, e.g. ``"val/acc"``. The score is the test
            metric of the same name at the weights of the best validation, or that validation.
        trainer: arguments of ``lightning.Trainer``; each run gets a copy.
        replaces: with losses, the attribute that ``training_step`` calls as ``loss(logits,
            target)``, e.g. ``"criterion"``; None for a module that calls ``self.as_softmax_loss``.
        mode: ``"max"`` if more of ``monitor`` is better, or ``"min"``; not needed for an accuracy.
        methods: of one factory: some of softmax (the module as it is), as_softmax and as_speed.
        losses: of your own, by name: a loss that is called as ``loss(logits, target)`` and returns
            a scalar, or a pair of what makes one and the ranges of its arguments: ``{"focal":
            (FocalLoss, {"gamma": {"low": 0.5, "high": 5, "default": 2}})}``.
        baseline: what the others are compared with; by default softmax, or the first factory.
        half_epochs: whether the baseline trained for half the epochs is a candidate too.
        trials: settings tried for each candidate; a single one has the defaults.
        seeds: ``"auto"``, how many, or which.
        race: whether ``"auto"`` leaves candidates that fall behind.
        max_seeds: the most seeds of ``"auto"``.
        max_hours: the most hours of training, in all runs together.
        tuning_seeds: how many, or which, others than ``seeds``.
        equal_within: the difference that counts as equal: by default 0.5 points (hundredths) of an
            accuracy; needed for other scores, in their own unit.
        lr_factor: the first learning rates lie between the module's divided by it and times it;
            None tunes none.
        logits: called as ``logits(module, batch)``, returns logits and target: with it calibration
            is measured and predictions are stored.
        version: of your code: finished runs are read again, whatever files have changed, until you
            give another one.
        n_jobs: how many runs are made at once, each in a process of this machine.
        folder: keeps the runs and the report, so that the same call goes on where it was stopped.
        name: of the comparison, in the report.
        progress: whether to show the progress bar.

    Returns:
        The report: ``report.advice``, ``report.show()``, ``report.save(folder)``,
            ``report.findings``.

    Raises:
        ValueError: before the first run, for what could only fail or mislead; after the first runs,
            where splits vary or another learning rate changes nothing.
        TypeError: if ``factory`` makes no LightningModule, ``datamodule`` no LightningDataModule,
            or a part cannot be pickled.
        AttributeError: if ``replaces`` names nothing.

    Source: Kaddour et al., "No Train No Gain", NeurIPS 2023, for fully decayed baselines of equal
        time.
    """
    arguments = dict(locals())
    new_session()
    if n_jobs is None:
        n_jobs = default_settings()["n_jobs"]
    jobs = check_count("n_jobs", n_jobs, least=1)
    with TemporaryDirectory() as temporary, quiet_training():
        directory = Path(temporary if folder is None else folder)
        try:
            ready = own_comparison(arguments, n_jobs=jobs)
            console = Console(quiet=not progress)
            execute = execution(partial(make, ready.recipe, directory), jobs)
            record = run_comparison(*ready, directory, console, execute)
            if folder is not None:
                write_report(record, directory / "report")
        except (KeyboardInterrupt, SystemExit) as end:
            # Lightning ends the program at an interrupt
            if isinstance(end, KeyboardInterrupt) or isinstance(end.__context__, KeyboardInterrupt):
                kept = "" if folder is None else "; the same call again goes on from here"
                raise SystemExit(f"as_lightning.compare: stopped{kept}") from None
            raise
        finally:
            if jobs > 1:
                end_processes()
    return ComparisonReport(record)


def own_comparison(given: Mapping[str, Any], n_jobs: int = 1, elsewhere: bool = False) -> Prepared:
    """Return the comparison that arguments of `compare` ask for, after the look."""
    try:
        bound = inspect.signature(compare).bind(**given)
    except TypeError as error:  # of the dict that a function of call= returns
        raise TypeError(f"arguments of compare: {error}") from error
    bound.apply_defaults()
    asked = bound.arguments
    trainer = checked_trainer(asked["trainer"])
    baseline, monitor = asked["baseline"], asked["monitor"]
    factories = asked["factory"]
    several = isinstance(factories, Mapping)
    if several and any(asked[name] is not None for name in ("methods", "losses", "replaces")):
        raise ValueError(
            "several factories are compared as they are: leave methods, losses and replaces out"
        )
    if not several:
        factories = {type(factories).__name__: factories}
    candidates = {}
    for name, entry in factories.items():
        fields = entry if isinstance(entry, tuple) else (entry,)
        candidates[name] = own_candidate(
            name, trainer, asked["datamodule"], asked["lr_factor"], *fields
        )
    if not several:
        (candidate,) = candidates.values()
        losses = asked["losses"] or {}
        candidates = with_losses(candidate, asked["replaces"], asked["methods"], losses)
    if baseline is None:
        baseline = next(iter(candidates), "")
    mode = asked["mode"] or known_direction(monitor)
    if mode not in ("max", "min"):
        raise ValueError(
            f"mode must be max or min, got {mode!r}: is more or less of {monitor} better?"
        )
    candidates = baseline_first(candidates, baseline)
    design = {name: asked[name] for name in DESIGN}
    plan = ComparisonPlan(list(candidates), baseline, trainer.get("max_epochs"), **design)
    recipe = Recipe(asked["name"], {}, {}, monitor, mode, asked["logits"])
    return prepared(
        candidates, plan, recipe, version=asked["version"], n_jobs=n_jobs, elsewhere=elsewhere
    )


def checked_trainer(trainer: Any) -> dict[str, Any]:
    if not isinstance(trainer, Mapping):
        raise TypeError(f'trainer must be arguments, as {{"max_epochs": 10}}, got {trainer!r}')
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
