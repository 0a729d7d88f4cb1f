"""``as_lightning.compare``: the fair comparison for a LightningModule of one's own, from Python."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from rich.console import Console

from as_lightning.benchmark.compare.comparison_page import ComparisonPage, print_findings, write_comparison
from as_lightning.benchmark.compare.engine import Comparison, cost, distinct_budgets, one_by_one, run_comparison
from as_lightning.benchmark.compare.own_inspection import inspect_module
from as_lightning.benchmark.compare.own_module import METHODS, OwnModule
from as_lightning.benchmark.compare.plan import ComparisonPlan
from as_lightning.benchmark.compare.progress import ComparisonProgress
from as_lightning.benchmark.compare.stored_comparison import StoredComparison
from as_lightning.benchmark.report.advice import advice
from as_lightning.benchmark.report.findings import Findings, findings
from as_lightning.benchmark.report.old_verdicts import MARGIN_POINTS, POINT


@dataclass(frozen=True)
class ComparisonReport:
    """What a comparison has found.

    Attributes:
        findings: the numbers, arm by arm.
        comparison: all runs: results, failures, trials.
    """

    findings: Findings
    comparison: Comparison

    @property
    def advice(self) -> str:
        """What to do, in words."""
        return " ".join(advice(self.findings))

    def show(self, console: Console | None = None) -> None:
        """Print the verdict table and the advice."""
        print_findings(self.findings, console)

    def save(self, directory: str | Path) -> ComparisonPage:
        """Write the report: Markdown, CSV and one self-contained HTML page."""
        return write_comparison(self.findings, self.comparison, directory)


def compare(
    factory: Callable[..., pl.LightningModule],
    datamodule: pl.LightningDataModule | Callable[[], pl.LightningDataModule],
    *,
    monitor: str,
    trainer: Mapping[str, Any],
    replaces: str | None = None,
    mode: str = "max",
    methods: Sequence[str] = METHODS,
    budgets: Sequence[float] = (0.25, 0.5, 1.0),
    trials: int = 6,
    seeds: int | Sequence[int] = 5,
    tuning_seeds: int | Sequence[int] = 2,
    margin: float = MARGIN_POINTS,
    folder: str | Path | None = None,
    name: str = "comparison",
    progress: bool = True,
) -> ComparisonReport:
    """Does AS-Softmax help this module on these data? Tune every method equally, and compare at equal time.

    Every method gets ``trials`` settings of the learning rate and its own margin, judged by the mean of the best
    validation scores over ``tuning_seeds``. Then each tuned method runs at each budget, with its own full schedule, for
    each of ``seeds``. All are compared with the baseline at its full budget, paired by seed.

    Args:
        factory: makes a fresh module at each call, e.g. ``lambda: LitModel(lr=1e-3)``. The learning rate is tuned where
            the factory has an argument ``lr`` (or ``learning_rate``), or the module an attribute or hyperparameter of
            that name, and another value changes the training. Otherwise the report says that it was not tuned.
        datamodule: the data, with training and validation data, and test data if the module has a ``test_step``; or a
            function that makes them.
        monitor: the logged validation metric to compare, e.g. ``"val/acc"``. The score is the test metric of the same
            name with ``test`` for ``val`` (or ``valid``, ``validation``), at the weights of the best validation;
            without one, it is the best validation score, and the report says so.
        trainer: arguments of ``lightning.Trainer``; ``max_epochs`` is the training of budget 1. Callbacks are copied
            for each run. A ``ModelCheckpoint`` among them does not change which weights are scored.
        replaces: the attribute that ``training_step`` calls as ``loss(logits, target)``, e.g. ``"criterion"``, or the
            attribute that holds a Hugging Face classifier; None for a module that calls ``self.as_softmax_loss``.
        mode: ``"max"`` if more of ``monitor`` is better, or ``"min"``.
        methods: of ``softmax`` (the module as it is), ``as_softmax`` and ``as_speed``; softmax is the baseline.
        budgets: shares of ``max_epochs``, in (0, 2].
        trials: settings tried for each method, at least 1; the first is the module's own.
        seeds: how many, or which.
        tuning_seeds: how many, or which; others than ``seeds``.
        margin: what counts as equal, in points (hundredths of the score).
        folder: keeps the results of all runs, so that the same call goes on where it was interrupted, and the report.
            Delete it after a change of the module's code. By default nothing is kept.
        name: of the comparison, in the report.
        progress: whether to show the progress bar.

    Returns:
        The report: ``report.advice``, ``report.show()``, ``report.save(folder)``, ``report.findings``.

    Raises:
        ValueError: before the first run, for an unknown method, a budget outside (0, 2], trials or seeds below 1, a
            factory that returns the same object twice, a monitor that is never logged, no validation data, arguments
            of the Trainer with which it trains by steps or keeps no weights, or a ``replaces`` that is no loss.
        TypeError: if ``factory`` does not make a LightningModule, or ``datamodule`` is no LightningDataModule.
        AttributeError: if ``replaces`` names nothing.

    Source: Kaddour et al., "No Train No Gain", NeurIPS 2023, for fully decayed baselines of equal time.
    """
    if not isinstance(trainer, Mapping):
        raise TypeError(
            'trainer must be the arguments of lightning.Trainer, as in trainer={"max_epochs": 10}, got '
            f"{type(trainer).__name__}: each run makes a Trainer of its own"
        )
    plan = ComparisonPlan(methods, "softmax", budgets, trials, seeds, tuning_seeds, margin)
    own = OwnModule(factory, datamodule, replaces, monitor, mode, dict(trainer), name)
    plan = ComparisonPlan(
        plan.methods,
        "softmax",
        distinct_budgets(list(plan.budgets), own.full_epochs),
        trials,
        plan.seeds,
        plan.tuning_seeds,
        margin,
    )
    console = Console() if progress else Console(quiet=True)
    store = None if folder is None else Path(folder)
    with quiet_training():
        inspect_module(own, plan.methods)
        spaces = own.spaces(tuple(plan.methods))
        runs, budget = cost(plan, spaces)
        console.print(f"{runs} runs, as long as {budget:.1f} full trainings; equal means within {margin:g} points.")
        if plan.too_few_seeds:
            console.print(plan.too_few_seeds, highlight=False)
        with ComparisonProgress(runs, budget, console, store) as bar:
            execute = bar.watch(one_by_one(lambda run: own.train(run, store / run.folder if store else None)))
            comparison = run_comparison(plan, spaces, execute, higher_is_better=mode == "max")
    comparison.notes[:0] = own.notes
    report = ComparisonReport(comparison_findings(comparison, split=own.split, mode=mode), comparison)
    if store is not None:
        StoredComparison(comparison, own.split, mode).write(store)
        report.save(store / "report")
    return report


def comparison_findings(comparison: Comparison, *, split: str = "test", mode: str = "max") -> Findings:
    """The findings of the final runs.

    Raises:
        ValueError: if no run of the baseline has finished; the message has the failures.
    """
    try:
        return findings(
            comparison.results,
            baseline=comparison.plan.baseline,
            margin=comparison.plan.margin * POINT,
            full_budget=comparison.plan.full_budget,
            higher_is_better=mode == "max",
            split=split,
            test_samples=next((result.test_samples for result in comparison.results if result.test_samples), None),
            notes=comparison.notes,
        )
    except ValueError as error:
        failures = "\n".join(f"  {failure}" for failure in comparison.failures[:10])
        raise ValueError(f"{error}\n{failures}" if failures else str(error)) from None


@contextmanager
def quiet_training() -> Iterator[None]:
    """Of many runs the report is the news, not what Lightning says at each start and end."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
