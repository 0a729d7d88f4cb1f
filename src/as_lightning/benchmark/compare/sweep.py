"""``as-lightning-compare`` inside Hydra: from overrides to a plan, runs by the launcher, the report."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from as_lightning.benchmark.compare.api import comparison_findings, quiet_training
from as_lightning.benchmark.compare.comparison_page import print_findings, write_comparison
from as_lightning.benchmark.compare.configured_module import configured_module, found_by_inspection
from as_lightning.benchmark.compare.configured_space import configured_space, plain
from as_lightning.benchmark.compare.data_check import summary_of_data
from as_lightning.benchmark.compare.engine import (
    Comparison,
    Failure,
    Outcome,
    cost,
    distinct_budgets,
    epochs_of,
    run_comparison,
)
from as_lightning.benchmark.compare.job_overrides import (
    check_taken,
    kept_settings,
    override_value,
    overrides_for,
    setting_of,
)
from as_lightning.benchmark.compare.own_inspection import inspect_module
from as_lightning.benchmark.compare.plan import ComparisonPlan, Run, default_baseline
from as_lightning.benchmark.compare.progress import ComparisonProgress
from as_lightning.benchmark.compare.search import Space
from as_lightning.benchmark.compare.stored_comparison import StoredComparison, earlier_commands
from as_lightning.benchmark.run.result import RESULT_FILE, Result
from as_lightning.benchmark.run.settings import SettingError, checked_settings, nearest
from as_lightning.benchmark.run.summary import lines_of_report

PLAN_SETTINGS = ("methods", "baseline", "budgets", "trials", "seeds", "tuning_seeds", "margin")
COMPARISON_SETTINGS = (*PLAN_SETTINGS, "search", "module")
AS_METHODS = ("softmax", "as_softmax", "as_speed")
POLL_SECONDS = 0.5


class ComparisonSweep:
    """One call of ``as-lightning-compare``.

    Args:
        config: Hydra's, of the whole call.
        launcher: makes jobs.
        loader: composes a job's configuration.
        arguments: the overrides of the command line.
    """

    def __init__(self, config: DictConfig, launcher: Launcher, loader: ConfigLoader, arguments: Sequence[str]) -> None:
        self.config, self.launcher, self.loader = config, launcher, loader
        self.swept: dict[str, list[Any]] = {}  # knobs of methods, given as a sweep
        self.settings: dict[str, Any] = {name: plain(config.get(name)) for name in PLAN_SETTINGS}
        self.overrides: list[str] = []  # of every run
        for override in OverridesParser.create().parse_overrides(list(arguments)):
            self._sort(override)
        self.jobs = 0
        self.directory = Path(config.hydra.sweep.dir)
        sample = self._compose(self.overrides)
        self.sample = sample
        self._complete(sample)
        try:
            self.full_epochs = _whole_epochs(sample.trainer.max_epochs)
            plan = ComparisonPlan(**self.settings)
            self.settings["budgets"] = distinct_budgets(list(plan.budgets), self.full_epochs)
            self.settings["methods"] = plan.methods
            self.plan = ComparisonPlan(**self.settings)
        except (ValueError, TypeError) as error:
            raise SettingError(str(error)) from None
        self.own = configured_module(sample) if sample.module._target_ else None
        self.configured: dict[str, DictConfig] = {}  # each method as a run of it would be
        self.kept: dict[str, set[str]] = {}  # of each method the settings that it keeps
        if self.own is None:
            for method in self.plan.methods:
                self.kept[method] = kept_settings(self._compose([f"method={method}"]).method)
                self.configured[method] = self._compose(self._overrides_of_method(method))
                checked_settings(self.configured[method])
            given = {*map(setting_of, self.overrides), *self.swept} - {"", "lr"}
            check_taken(given, {name: config.method for name, config in self.configured.items()}, self.kept)

    def _sort(self, override: Override) -> None:
        """An override is a setting of the comparison, a knob to search, or a setting of every run."""
        key = override.get_key_element().lstrip("+~")
        values = _swept_values(override) if override.is_sweep_override() else None
        if key in self.settings:
            self.settings[key] = values if values is not None else plain(override.value())
        elif key in ("method", "seed"):
            self.settings[f"{key}s"] = values if values is not None else [plain(override.value())]
        elif values is None:
            line = str(override.input_line)
            self.overrides.append(f"++{line.lstrip('+')}" if key.startswith("method.") else line)
        elif (key.startswith("method.") and key.count(".") == 1) or key == "optimizer.lr":
            self.swept[key.rpartition(".")[2]] = values
        else:
            raise SettingError(
                f"{key} cannot be swept in a comparison: runs that differ in anything but method, seed, tuned settings "
                "and budget are not compared. Make one comparison for each value (a value that holds a comma needs "
                "quotes inside the shell's)"
            )

    def _complete(self, sample: DictConfig) -> None:
        prefix = "multilabel_" if str(sample.method.name).startswith("multilabel_") else ""
        given = self.settings["methods"]
        if given is None:
            given = [f"{prefix}{name}" for name in AS_METHODS]
        elif isinstance(given, str):
            given = [given] if given else []
        if not given:
            raise SettingError("methods is empty: give methods=NAME,NAME, or leave it out for " + ",".join(AS_METHODS))
        self.settings["methods"] = given
        self.settings["baseline"] = self.settings["baseline"] or default_baseline(list(map(str, given)))
        known = self.loader.get_group_options("method")
        for name in [*given, self.settings["baseline"]]:
            if name not in known:
                raise SettingError(f"unknown method {name!r}: {nearest(str(name), known)}")
        budgets = self.settings["budgets"]
        if isinstance(budgets, (int, float, str)):
            self.settings["budgets"] = [] if budgets == "" else [budgets]

    def _compose(self, overrides: Sequence[str]) -> DictConfig:
        return self.loader.load_sweep_config(self.config, list(overrides))

    def _overrides_of_method(self, method: str) -> list[str]:
        return [*overrides_for(self.overrides, self.kept[method]), f"method={method}"]

    def spaces(self) -> dict[str, Space]:
        """What is tuned of each method: the learning rate, and the ``search`` node of its configuration."""
        if self.own is not None:
            return self.own.spaces(tuple(self.plan.methods))
        fixed = {override.lstrip("+").partition("=")[0] for override in self.overrides}
        return {
            method: configured_space(config, self.swept, fixed, self.plan.trials, self.kept[method])
            for method, config in self.configured.items()
        }

    def overrides_of(self, run: Run) -> list[str]:
        """The overrides of the job that makes a run."""
        epochs = epochs_of(run.budget, self.full_epochs)
        knobs = [
            f"{'optimizer.lr' if name == 'lr' else f'++method.{name}'}={override_value(value)}"
            for name, value in run.settings.items()
        ]
        settings = override_value(dict(run.settings))
        about = f"phase:{run.phase},budget:{run.budget},epochs:{epochs},settings:{settings}"
        fixed = [] if self.own is None else [f"+found={found_by_inspection(self.own)}"]
        return [
            *(self._overrides_of_method(run.method) if self.own is None else self.overrides),
            *([] if self.own is None else [f"++method.name={run.method}"]),
            *(knobs if self.own is None else []),
            *fixed,
            f"seed={run.seed}",
            f"trainer.max_epochs={epochs}",
            f"test={str(run.phase == 'final').lower()}",
            f"+comparison={{{about}}}",
            f"hydra.sweep.subdir='{run.folder}'",
        ]

    def execute(self, runs: Sequence[Run]) -> Iterator[Outcome]:
        """Make runs by the launcher: the basic one gets them one by one, others all at once."""
        if not runs:
            return
        if type(self.launcher).__name__ == "BasicLauncher":
            for run in runs:
                (returned,) = self._launch([run])
                yield run, self._outcome(run, returned)
            return
        started = time.time()
        seen: set[Run] = set()
        with ThreadPoolExecutor(max_workers=1) as pool:
            future = pool.submit(self._launch, list(runs))
            while not future.done():
                wait([future], timeout=POLL_SECONDS)
                for run in runs:
                    path = self.directory / run.folder / RESULT_FILE
                    if run not in seen and path.exists() and path.stat().st_mtime > started:
                        seen.add(run)
                        yield run, Result.read(path)
            for run, returned in zip(runs, future.result(), strict=True):
                if run not in seen:
                    yield run, self._outcome(run, returned)

    def _launch(self, runs: Sequence[Run]) -> Sequence[JobReturn]:
        first, self.jobs = self.jobs, self.jobs + len(runs)
        return self.launcher.launch([self.overrides_of(run) for run in runs], initial_job_idx=first)

    def _outcome(self, run: Run, returned: JobReturn) -> Result | Failure:
        if returned.status != JobStatus.COMPLETED:
            error = returned._return_value
            return Failure(run, f"{type(error).__name__}: {error}")
        return Result.read(self.directory / run.folder / RESULT_FILE)


def sweep(config: DictConfig, launcher: Launcher, loader: ConfigLoader, arguments: Sequence[str]) -> Comparison:
    """Make the comparison that the command asks for, print its verdicts and advice, and write its report.

    Raises:
        SettingError: before the first run for a setting that cannot be; at the end where runs have failed.
    """
    job = ComparisonSweep(config, launcher, loader, arguments)
    console = Console()
    if job.own is not None:
        try:
            with quiet_training():
                inspect_module(job.own, job.plan.methods)
        except (ValueError, TypeError, AttributeError) as error:
            raise SettingError(str(error)) from error
    else:
        console.print(summary_of_data(job.sample), highlight=False)
    spaces = job.spaces()
    runs, budget = cost(job.plan, spaces)
    console.print(
        f"{', '.join(job.plan.methods)}: {runs} runs, as long as {budget:.1f} full trainings.", highlight=False
    )
    if job.plan.too_few_seeds:
        console.print(job.plan.too_few_seeds, highlight=False)
    console.print(f"Equal means within {job.plan.margin:g} points. The runs are in {job.directory}.", highlight=False)
    with ComparisonProgress(runs, budget, console, job.directory) as bar:
        mode = "max" if job.own is None else job.own.mode
        comparison = run_comparison(job.plan, spaces, bar.watch(job.execute), higher_is_better=mode == "max")
    split = "test"
    if job.own is not None:
        comparison.notes[:0] = job.own.notes
        split = job.own.split
    try:
        found = comparison_findings(comparison, split=split, mode=mode)
    except ValueError as error:
        raise SettingError(str(error)) from None
    command = shlex.join(["as-lightning-compare", *(a for a in arguments if not a.startswith("data_dir="))])
    commands = list(dict.fromkeys([*earlier_commands(job.directory), command]))  # each once: they made runs together
    StoredComparison(comparison, split, mode, commands).write(job.directory)
    page = write_comparison(found, comparison, job.directory / "report", commands=commands)
    print_findings(found)
    print("\n".join(lines_of_report(page.html, page.markdown, page.csv)))
    if comparison.failures:
        raise SettingError(
            f"{len(comparison.failures)} of {runs} runs have failed; the first: {comparison.failures[0]}. The report "
            "is of the others"
        )
    return comparison


def _whole_epochs(epochs: Any) -> int:
    if not isinstance(epochs, int) or isinstance(epochs, bool) or epochs < 1:
        raise ValueError(f"trainer.max_epochs must be a whole number of at least 1, got {epochs!r}")
    return epochs


def _swept_values(override: Override) -> list[Any]:
    return [_number(text) for text in override.sweep_string_iterator()]


def _number(text: str) -> Any:
    return OmegaConf.create(f"value: {text}").value
