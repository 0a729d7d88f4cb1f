"""``as_lightning.compare``: the fair comparison of LightningModules of one's own, or of losses for
one, from Python.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import lightning.pytorch as pl
from rich.console import Console

from as_lightning.bench.run.result import new_session
from as_lightning.bench.run.runner import quiet_training
from as_lightning.compare.engine import run_comparison
from as_lightning.compare.own_loss import BASELINE, OwnLosses
from as_lightning.compare.own_module import OwnCandidate, OwnModules, baseline_first
from as_lightning.compare.plan import ComparisonPlan, default_settings
from as_lightning.compare.search import Space, setting_range
from as_lightning.functional.argument_checks import check_count
from as_lightning.report.advice import advice
from as_lightning.report.findings import Findings, findings
from as_lightning.report.page import ReportPaths, print_comparison, write_report
from as_lightning.report.record import ComparisonRecord

Factory = Callable[..., pl.LightningModule]
Data = pl.LightningDataModule | Callable[[], pl.LightningDataModule]


@dataclass(frozen=True, repr=False)
class ComparisonReport:
    """The result of a comparison; ``record`` has the runs, the trials, the chosen settings, the
    notes.
    """

    record: ComparisonRecord

    def __repr__(self) -> str:
        return f"ComparisonReport({self.advice!r})"

    @property
    def findings(self) -> Findings:
        """The numbers, arm by arm."""
        return findings(self.record)

    @property
    def advice(self) -> str:
        """What to do, in words."""
        return " ".join(advice(self.findings))

    def show(self, console: Console | None = None) -> None:
        """Print the verdict table and the advice."""
        print_comparison(self.record, console)

    def save(self, directory: str | Path) -> ReportPaths:
        """Write the report: Markdown, CSV and one self-contained HTML page."""
        return write_report([self.record], directory)


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
    max_seeds: int | None = None,
    max_hours: float | None = None,
    tuning_seeds: int | Sequence[int] | None = None,
    equal_within: float | None = None,
    n_jobs: int | None = None,
    folder: str | Path | None = None,
    name: str = "comparison",
    progress: bool = True,
) -> ComparisonReport:
    """Which is better on these data: one of several modules, or one of several losses for a module?

    Every candidate gets ``trials`` settings, judged by the mean of the best validation scores over
    ``tuning_seeds``; the baseline's trials count for each candidate that contains it. Then the
    tuned candidates run with more and more seeds until each is decided.
    Where a default is None, it is that of ``conf/compare.yaml``.

    Args:
        factory: makes a fresh module at each call, e.g. ``lambda: LitModel(lr=1e-3)``; or several
            of them by name, to be compared as they are: ``{"small": make_small, "large":
            make_large}``. A candidate with data of its own, or with arguments that are tuned, is a
            tuple: ``(make_large, data)`` or ``(make_large, None, {"width": {"low": 64, "high":
            256}})``. The learning rate is tuned where the factory has an argument ``lr`` (or
            ``learning_rate``), or the module an attribute or hyperparameter of that name, and
            another value changes the training. Otherwise the report says that it was not tuned.
        datamodule: the data, of which each run gets a copy, or a function that makes them.
            Candidates may differ in their training data, not in their validation and test examples.
        monitor: the logged validation metric to compare, e.g. ``"val/acc"``. The score is the test
            metric of the same name with ``test`` for ``val`` (or ``valid``, ``validation``), at the
            weights of the best validation; without one, it is the best validation score, and the
            report says so.
        trainer: arguments of ``lightning.Trainer``; ``max_epochs`` is needed.
            Callbacks are copied for each run. A ``ModelCheckpoint`` among them does not change
            which weights are scored. With several devices a score is the mean over the processes,
            and all of them decide by the same results.
        replaces: the attribute that ``training_step`` calls as ``loss(logits, target)``, e.g.
            ``"criterion"``, or the attribute that holds a Hugging Face classifier; None for a
            module that calls ``self.as_softmax_loss``.
        mode: ``"max"`` if more of ``monitor`` is better, or ``"min"``; not needed for an accuracy
            and the like.
        methods: of one factory: names of the app's methods that are a loss; ``softmax`` is the
            module as it is. By default softmax, as_softmax and as_speed.
        losses: of your own, by name: a loss that is called as ``loss(logits, target)`` and returns
            a scalar, or a pair of what makes one and the ranges of its arguments: ``{"focal":
            (FocalLoss, {"gamma": {"low": 0.5, "high": 5, "default": 2}})}``. A range may name the
            ``neutral`` value at which the loss is the baseline's.
        baseline: what the others are compared with; by default softmax, or the first of several
            factories.
        half_epochs: whether the baseline trained for half the epochs is a candidate too.
        trials: settings tried for each candidate; a single one has its own learning rate, and of
            each range the ``default``, or else ``low``.
        seeds: ``"auto"``, how many, or which.
        max_seeds: the most seeds of ``"auto"``; a folder keeps the design of its first run.
        max_hours: the most hours of training, in all runs together.
        tuning_seeds: how many, or which, others than ``seeds``: the first for all trials, the rest
            for the two best.
        equal_within: what counts as equal, in points (hundredths of the score).
        n_jobs: how many runs are made at once, each in a process of this machine.
        folder: keeps the report and the results of all runs, so that the same call goes on where it
            was interrupted. Runs of another module, data, loss or trainer are made anew.
        name: of the comparison, in the report.
        progress: whether to show the progress bar.

    Returns:
        The report: ``report.advice``, ``report.show()``, ``report.save(folder)``,
            ``report.findings``.

    Raises:
        ValueError: before the first run, for what could only fail or mislead: an unknown method, a
            loss named twice or without a scalar, a factory that returns the same object twice, a
            part that goes on from run to run, a monitor that is never logged, no validation data,
            splits that change from set-up to set-up, candidates that are tested on other examples,
            a folder that holds runs of other data, ...
        TypeError: if ``factory`` makes no LightningModule, ``datamodule`` no LightningDataModule, a
            number is none, or ``n_jobs`` needs to pickle what cannot be pickled.
        AttributeError: if ``replaces`` names nothing.

    Source: Kaddour et al., "No Train No Gain", NeurIPS 2023, for fully decayed baselines of equal
        time.
    """
    new_session()
    jobs = check_count(
        "n_jobs", default_settings()["n_jobs"] if n_jobs is None else n_jobs, least=1
    )
    own_losses = None
    if isinstance(factory, Mapping):
        if methods is not None or losses is not None or replaces is not None:
            raise ValueError(
                "several factories are compared as they are: leave methods, losses and replaces out"
            )
        candidates = {
            label: _candidate(label, entry, datamodule) for label, entry in factory.items()
        }
        baseline_name = next(iter(candidates), "") if baseline is None else baseline
        candidates = baseline_first(candidates, baseline_name)
    else:
        own_losses = OwnLosses(methods, losses, baseline=baseline)
        candidates = {type(factory).__name__: OwnCandidate(factory, datamodule)}
        baseline_name = BASELINE if baseline is None else baseline
    modules = OwnModules(candidates, own_losses, replaces, monitor, mode, trainer, name)
    design: dict[str, Any] = {
        "half_epochs": half_epochs,
        "trials": trials,
        "seeds": seeds,
        "max_seeds": max_seeds,
    }
    design |= {"max_hours": max_hours, "tuning_seeds": tuning_seeds, "equal_within": equal_within}
    plan = ComparisonPlan(modules.names, baseline_name, modules.trainer.get("max_epochs"), **design)
    with TemporaryDirectory() as temporary, quiet_training():
        directory = Path(temporary if folder is None else folder)
        subject = modules.subject(plan, default_settings()["search"]["lr_factor"], directory, jobs)
        record = run_comparison(subject, directory, Console(quiet=not progress))
        if folder is not None:
            write_report([record], directory / "report")
    return ComparisonReport(record)


def _candidate(name: str, entry: Any, datamodule: Data | None) -> OwnCandidate:
    """The candidate of an entry of `compare`: a factory, or a tuple of it, its data and
    its ranges.
    """
    factory, *more = entry if isinstance(entry, tuple) else (entry,)
    if len(more) > 2:
        raise TypeError(
            f"{name} must be a factory, or (factory, data, ranges), got {len(entry)} parts"
        )
    data, ranges = (*more, None, None)[:2]
    data = datamodule if data is None else data
    if data is None:
        raise TypeError(
            f"{name} has no data: give compare(factories, data) or {name!r}: (factory, data)"
        )
    search: Space = {key: setting_range(value) for key, value in (ranges or {}).items()}
    return OwnCandidate(factory, data, search)
