"""``as-lightning-compare`` inside Hydra: from overrides to a plan, runs by the launcher, the report."""

from __future__ import annotations

import functools
import hashlib
import json
import re
import shlex
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.utils import JobReturn, JobStatus
from hydra.errors import InstantiationException
from hydra.plugins.launcher import Launcher
from hydra.utils import get_object, instantiate
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console

from as_lightning.benchmark.compare.api import (
    METHODS,
    check_inputs,
    made_comparison,
    new_record,
    own_record,
    quiet_training,
)
from as_lightning.benchmark.compare.engine import Failure, Outcome
from as_lightning.benchmark.compare.own_inspection import inspect_module
from as_lightning.benchmark.compare.own_loss import BASELINE, OwnLosses
from as_lightning.benchmark.compare.own_module import OwnModule
from as_lightning.benchmark.compare.plan import SETTINGS, ComparisonPlan, Run, default_baseline
from as_lightning.benchmark.compare.search import RATE, Choice, Space, learning_rates, setting_range
from as_lightning.benchmark.data.base import BenchmarkDataModule, collected_messages
from as_lightning.benchmark.report.page import print_comparison, write_comparison
from as_lightning.benchmark.report.record import COMPARISON_FILE, ComparisonRecord
from as_lightning.benchmark.run.predictions import example_ids
from as_lightning.benchmark.run.result import RESULT_FILE, Result
from as_lightning.benchmark.run.settings import (
    APP_SETTINGS,
    SettingError,
    checked_settings,
    foreign_settings,
    known_settings,
    nearest,
)
from as_lightning.benchmark.run.summary import lines_of_report
from as_lightning.benchmark.run.train import made_module, read_data, train

COMPARISON_SETTINGS = (*SETTINGS, "search", "module", "losses")
OWN_SETTINGS = ("_target_", "replaces", "monitor", "mode")
INSPECTION_FILE = "inspection.json"
INSPECTED = ("test_metric", "learning_rate", "target", "inputs")
PER_SEED = "per_seed"
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
        self.settings: dict[str, Any] = {name: plain(config.get(name)) for name in SETTINGS}
        self.split_seed: Any = None
        self.overrides: list[str] = []  # of every run
        for override in OverridesParser.create().parse_overrides(list(arguments)):
            self._sort(override)
        self.jobs = 0
        self.directory = Path(config.hydra.sweep.dir)
        self.sample = self._compose(self.overrides)
        if not re.fullmatch(r"[^/\\\0]+", str(self.sample.name)) or str(self.sample.name).startswith("."):
            raise SettingError(f"name={self.sample.name} cannot name a folder below comparisons: leave out / and ..")
        self._complete()
        self.own: OwnModule | None = None
        try:
            epochs = self.sample.trainer.max_epochs
            if not isinstance(epochs, int) or isinstance(epochs, bool) or epochs < 1:
                raise ValueError(f"trainer.max_epochs must be a whole number of at least 1, got {epochs!r}")
            if self.sample.module._target_:
                self.own = configured_module(self.sample, self.settings["methods"])
                self.settings |= {"methods": self.own.losses.names, "baseline": BASELINE}
            self.plan = ComparisonPlan.of(full_epochs=epochs, **self.settings)
        except (ValueError, TypeError) as error:
            raise SettingError(str(error)) from None
        self.configured: dict[str, DictConfig] = {}  # each method as a run of it would be
        if self.own is None:
            for method in self.plan.methods:
                self.configured[method] = self._compose([*self.overrides, f"method={method}"])
                checked_settings(self.configured[method])
            self._check_taken()

    def _sort(self, override: Override) -> None:
        """An override is a setting of the comparison, a knob to search, or a setting of every run."""
        key = override.get_key_element().lstrip("+~")
        values = None
        if override.is_sweep_override():
            values = [OmegaConf.create(f"value: {text}").value for text in override.sweep_string_iterator()]
        if key in self.settings:
            self.settings[key] = values if values is not None else plain(override.value())
        elif key in ("method", "seed"):
            self.settings[f"{key}s"] = values if values is not None else [plain(override.value())]
        elif key == "data.split_seed" and values is None:
            self.split_seed = plain(override.value())
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

    def _complete(self) -> None:
        several = "multilabel_" if str(self.sample.method.name).startswith("multilabel_") else ""
        given = self.settings["methods"]
        given = (
            [f"{several}{name}" for name in METHODS] if given is None else [given] if isinstance(given, str) else given
        )
        if not given or given == [""]:
            raise SettingError("methods is empty: give methods=NAME,NAME, or leave it out for " + ",".join(METHODS))
        if repeated := [name for name in given if given.count(name) > 1]:
            raise SettingError(f"methods names {repeated[0]} twice: give each method once")
        self.settings["methods"] = given
        self.settings["baseline"] = self.settings["baseline"] or default_baseline(list(map(str, given)))
        known = self.loader.get_group_options("method")
        for name in [*given, self.settings["baseline"]]:
            if name not in known and name not in self.sample.losses:
                raise SettingError(f"unknown method {name!r}: {nearest(str(name), known)}")

    def _compose(self, overrides: Sequence[str]) -> DictConfig:
        return self.loader.load_sweep_config(self.config, list(overrides))

    def _check_taken(self) -> None:
        """Raise for a setting of methods that no method of the comparison has."""
        keys = [line.lstrip("+~").partition("=")[0] for line in self.overrides]
        given = {key.removeprefix("method.") for key in keys if key.startswith("method.") and key.count(".") == 1}
        methods = [config.method for config in self.configured.values()]
        takes = {str(name) for method in methods for name in set(method) - set(foreign_settings(method))}
        for setting in sorted((given | self.swept.keys()) - takes - {RATE}):
            known = {name for method in methods for name in known_settings(method, "method")} - APP_SETTINGS["method"]
            raise SettingError(f"no method of the comparison has method.{setting}: {nearest(setting, known)}")

    # --- before the first run

    def look_at_data(self) -> tuple[str, BenchmarkDataModule]:
        """The classes of the configured data, the samples of each split, and what is left out; and the data.

        Raises:
            SettingError: if the data cannot be read, do not fit the model, have an official test split although a split
                seed is given, or a setting of a method is refused.
        """
        try:
            with collected_messages() as messages:
                data = read_data(self.sample)
                if self.split_seed is not None and not data.splits_by_seed:
                    raise SettingError(
                        f"data={self.sample.data.name} has an official test split, which a comparison keeps: leave "
                        "data.split_seed out"
                    )
                if self.split_seed is None and data.splits_by_seed:
                    self.split_seed = PER_SEED
                for config in self.configured.values():
                    made_module(checked_settings(config)[0], data)
        except (SettingError, OmegaConfBaseException):
            raise
        except Exception as error:  # whatever it is, every run would end in it
            cause = error.__cause__ if isinstance(error, InstantiationException) and error.__cause__ else error
            raise SettingError(f"the data cannot be read, so no run has started: {cause}") from error
        return "\n".join(messages), data

    @property
    def splits(self) -> str:
        """Whether each seed has a split of its own."""
        return "official" if self.split_seed is None else PER_SEED if self.split_seed == PER_SEED else "fixed"

    def spaces(self) -> dict[str, Space]:
        """What is tuned of each method: the learning rate, and the ``search`` node of its configuration."""
        factor = self.sample.search.lr_factor
        if not isinstance(factor, (int, float)) or isinstance(factor, bool) or not factor > 1:
            raise SettingError(f"search.lr_factor must be a number above 1, got {factor!r}")
        if self.own is not None:
            return self.own.spaces(float(factor))
        fixed = {override.lstrip("+").partition("=")[0] for override in self.overrides}
        return {name: self._space(config, fixed, float(factor)) for name, config in self.configured.items()}

    def _space(self, config: DictConfig, fixed: set[str], factor: float) -> Space:
        space: dict[str, Any] = {}
        taken = set(map(str, config.method)) - set(foreign_settings(config.method))
        try:
            if RATE in self.swept:
                space[RATE] = Choice(tuple(self.swept[RATE]), self.swept[RATE][0])
            elif "optimizer.lr" not in fixed:
                space[RATE] = learning_rates(float(config.optimizer.lr), factor)
            for name, description in (plain(config.method.get("search")) or {}).items():
                if f"method.{name}" in fixed:
                    continue
                space[name] = setting_range(description, plain(config.method[name]))
            for name in self.swept.keys() & taken:
                neutral = space[name].neutral if name in space else None
                values = tuple(value for value in self.swept[name] if value != neutral) or (neutral,)
                space[name] = Choice(values, values[0], neutral)
            for name in self.swept.keys() & space.keys():
                if len(space[name].values) > self.plan.trials:
                    listed = ", ".join(map(str, space[name].values))
                    raise ValueError(
                        f"trials={self.plan.trials} cannot try all {len(space[name].values)} values of {name} "
                        f"({listed}): ask for trials={len(space[name].values)} or more"
                    )
        except ValueError as error:
            raise SettingError(f"{config.method.name}: {error}") from None
        return space

    # --- runs

    def overrides_of(self, run: Run) -> list[str]:
        """The overrides of the job that makes a run."""
        epochs = self.plan.epochs(run.budget)
        about = override_value(run.about(epochs))
        job = [f"seed={run.seed}", f"+comparison={about}", f"hydra.sweep.subdir='{run.folder}'"]
        if self.own is not None:
            return [*self.overrides, f"++method.name={run.method}", *job]
        knobs = [
            f"{'optimizer.lr' if name == RATE else f'++method.{name}'}={override_value(value)}"
            for name, value in run.settings.items()
        ]
        split = run.seed if self.split_seed == PER_SEED else self.split_seed
        return [
            *self.overrides,
            f"method={run.method}",
            *knobs,
            *([] if split is None else [f"++data.split_seed={split}"]),
            f"trainer.max_epochs={epochs}",
            f"test={str(run.phase == 'final').lower()}",
            *job,
        ]

    def execute(self, runs: Sequence[Run]) -> Iterator[Outcome]:
        """Make runs by the launcher: the basic one gets them one by one, others all at once."""
        if type(self.launcher).__name__ == "BasicLauncher":
            for run in runs:
                (returned,) = self._launch([run])
                yield run, self._outcome(run, returned)
            return
        if not runs:
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


def sweep(config: DictConfig, launcher: Launcher, loader: ConfigLoader, arguments: Sequence[str]) -> ComparisonRecord:
    """Make the comparison that the command asks for, print its verdicts and advice, and write its report.

    Raises:
        SettingError: before the first run for a setting that cannot be; at the end where runs have failed.
    """
    job = ComparisonSweep(config, launcher, loader, arguments)
    console = Console()
    names: dict[int, str] = {}
    try:
        if job.own is not None:
            with quiet_training():
                inspect_module(job.own)
            check_inputs(job.directory, job.own.data_set)
            found = {name: getattr(job.own, name) for name in INSPECTED}
            (job.directory / INSPECTION_FILE).write_text(json.dumps(found), encoding="utf-8")
            record = own_record(job.own, job.plan)
        else:
            summary, data = job.look_at_data()
            names = {int(n): name for s in data.splits for n, name in _named(data.example_names(s))}
            check_inputs(job.directory, _data_set(data))
            console.print(summary, markup=False, highlight=False)
            record = new_record(job.plan, str(job.sample.name), job.sample.data.score, splits=job.splits)
        spaces = job.spaces()
        console.print(f"The runs are in {job.directory}.", markup=False, highlight=False)
        made_comparison(job.plan, spaces, job.execute, record, job.directory, console)
    except (ValueError, TypeError, AttributeError) as error:
        if isinstance(error, SettingError):
            raise
        raise SettingError(str(error)) from error
    command = shlex.join(["as-lightning-compare", *(a for a in arguments if not a.startswith("data_dir="))])
    record.commands = list(dict.fromkeys([*_earlier_commands(job.directory), command]))  # they made runs together
    record.summarise_predictions(names)
    record.write(job.directory)
    page = write_comparison(record, job.directory / "report")
    print_comparison(record)
    print("\n".join(lines_of_report(page.html, page.markdown, page.csv)))
    if record.failures:
        raise SettingError(
            f"{len(record.failures)} runs have failed; the first: {record.failures[0]}. The report is of the others"
        )
    return record


def make_run(config: DictConfig) -> None:
    """One job of a comparison: a run of a configured experiment, or of a module of one's own."""
    directory = Path(config.output_dir)
    if config.module._target_:
        with open_dict(config):
            config.given = list(HydraConfig.get().overrides.task)
        own = configured_module(config, [config.method.name])
        found = json.loads((Path(HydraConfig.get().sweep.dir) / INSPECTION_FILE).read_text(encoding="utf-8"))
        for name in INSPECTED:
            setattr(own, name, found[name])
        about = config.comparison
        own.train(
            Run(about.phase, config.method.name, plain(about.settings), float(about.budget), config.seed), directory
        )
    else:
        config = config.copy()
        with open_dict(config):
            for name in COMPARISON_SETTINGS:
                config.pop(name)
        train(config)
    shutil.rmtree(directory / "checkpoints", ignore_errors=True)


def configured_module(config: DictConfig, methods: Sequence[str]) -> OwnModule:
    """The module and data that ``config.module`` and ``config.data`` name.

    Their arguments are what the command sets: ``+module.hidden=64``, ``+data.root=files``. What ``config.data`` holds
    of the project's own data is not passed on.

    Raises:
        SettingError: if a name cannot be imported, or a setting cannot be.
    """
    arguments = {name: value for name, value in plain(config.module).items() if name not in OWN_SETTINGS}
    if RATE in arguments:
        arguments[RATE] = float(arguments[RATE])
    try:
        target = get_object(config.module._target_)
        get_object(config.data._target_)
    except Exception as error:  # Hydra raises what the import raises
        raise SettingError(f"module._target_={config.module._target_}: {error}") from None
    given = {"_target_": config.data._target_, **_given(config, "data")}
    trainer = plain(config.trainer)
    trainer.pop("_target_")
    callbacks = [instantiate(callback) for callback in plain(config.get("own_callbacks", {})).values()]
    name = str(config.name) if config.name != config.data.name else target.__name__
    losses = {str(name): _own_loss(node) for name, node in plain(config.losses).items()}
    chosen = [method for method in methods if method != BASELINE]
    try:
        return OwnModule(
            functools.partial(target, **arguments),
            functools.partial(instantiate, OmegaConf.create(given)),
            config.module.replaces,
            config.module.monitor,
            config.module.mode,
            trainer | ({"callbacks": callbacks} if callbacks else {}),
            OwnLosses([BASELINE, *chosen], losses, _given(config, "method")),
            name,
            {"module": {"_target_": config.module._target_, **arguments}, "data": given},
        )
    except (TypeError, ValueError) as error:
        raise SettingError(str(error)) from None


def _own_loss(node: Mapping[str, Any]) -> Any:
    arguments = dict(node)
    ranges = arguments.pop("search", None)
    if not ranges:
        return instantiate(arguments)
    return functools.partial(instantiate, arguments), ranges


def _given(config: DictConfig, group: str) -> dict[str, Any]:
    """The settings of a group that the command line sets."""
    names = []
    for override in config.hydra.overrides.task if "hydra" in config else config.get("given", []):
        key = str(override).lstrip("+~").partition("=")[0]
        if key.startswith(f"{group}.") and key not in (f"{group}._target_", f"{group}.name"):
            names.append(key.split(".")[1])
    return {name: value for name, value in plain(config[group]).items() if name in names}


def _named(names: Sequence[str]) -> Iterator[tuple[int, str]]:
    return zip(example_ids(names).tolist(), names, strict=True)


def _data_set(data: BenchmarkDataModule) -> str:
    """A digest of all examples, whatever their split."""
    rows = []
    for split, dataset in data.splits.items():
        if data.texts or split == "test":
            rows += [
                f"{name} {target.tolist()}"
                for name, target in zip(data.example_names(split), dataset.targets, strict=True)
            ]
    return hashlib.sha256("\n".join(sorted(rows)).encode()).hexdigest()[:16]


def _earlier_commands(directory: Path) -> list[str]:
    """The commands that a comparison in this folder has recorded."""
    try:
        return list(map(str, json.loads((directory / COMPARISON_FILE).read_text(encoding="utf-8"))["commands"]))
    except (OSError, ValueError, TypeError, KeyError):
        return []


def override_value(value: Any) -> str:
    """A value as the value of an override, which Hydra reads as the same value.

    >>> override_value(None), override_value(True), override_value(0.1), override_value([1, None])
    ('null', 'true', '0.1', '[1,null]')
    >>> print(override_value("don't, {ask}"))
    'don\\'t, {ask}'
    """
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{name}:{override_value(item)}" for name, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(override_value, value)) + "]"
    if isinstance(value, str):
        escaped = value.replace("\\'", "\\\\\\'").replace("'", "\\'")
        return f"'{escaped}'"
    return str(value) if isinstance(value, float) else json.dumps(value)


def plain(value: Any) -> Any:
    """A node of a configuration as a dict or a list of Python's; anything else as it is."""
    if OmegaConf.is_config(value):
        return OmegaConf.to_container(value, resolve=True)
    return dict(value) if isinstance(value, Mapping) else value
