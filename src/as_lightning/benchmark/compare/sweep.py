"""``as-lightning-compare`` inside Hydra: from overrides to a plan, runs by the launcher, the report."""

from __future__ import annotations

import functools
import inspect
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.utils import JobStatus
from hydra.errors import InstantiationException
from hydra.plugins.launcher import Launcher
from hydra.utils import get_object, instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console

from as_lightning.benchmark.compare.engine import Outcome, Subject, run_comparison
from as_lightning.benchmark.compare.own_loss import BASELINE, OwnLosses, knobs, plain
from as_lightning.benchmark.compare.own_module import OwnModule
from as_lightning.benchmark.compare.plan import METHODS, ComparisonPlan, Run, default_settings, epochs_of
from as_lightning.benchmark.compare.search import RATE, Choice, Space, learning_rates
from as_lightning.benchmark.data.base import BenchmarkDataModule, collected_messages
from as_lightning.benchmark.report.page import publish
from as_lightning.benchmark.report.record import ComparisonRecord
from as_lightning.benchmark.report.sweep_records import flat
from as_lightning.benchmark.run.fingerprint import digest
from as_lightning.benchmark.run.predictions import example_ids
from as_lightning.benchmark.run.result import RESULT_FILE, Result
from as_lightning.benchmark.run.runner import quiet_training
from as_lightning.benchmark.run.settings import SettingError, checked_settings, nearest
from as_lightning.benchmark.run.train import comparable_config, made_module, read_data

OWN_SETTINGS = ("_target_", "replaces", "monitor", "mode")
PER_SEED = "per_seed"


class ComparisonSweep:
    """One call of ``as-lightning-compare``; ``arguments`` are its overrides. A setting that cannot be is refused."""

    def __init__(self, config: DictConfig, launcher: Launcher, loader: ConfigLoader, arguments: Sequence[str]) -> None:
        self.config, self.launcher, self.loader = config, launcher, loader
        self.directory = Path(config.hydra.sweep.dir)
        of_plan = default_settings().keys() - {"search", "module", "losses"}
        self.settings: dict[str, Any] = {name: plain(config.get(name)) for name in of_plan}
        self.split_seed: Any = None
        self.swept: dict[str, list[Any]] = {}  # knobs of methods, given as a sweep
        self.overrides: dict[str, str] = {}  # of every run, by their keys
        for override in OverridesParser.create().parse_overrides(list(arguments)):
            self._sort(override)
        self.sample = self._compose()
        if not re.fullmatch(r"[^/\\\0.][^/\\\0]*", str(self.sample.name)):
            raise SettingError(f"name={self.sample.name} cannot name a folder below comparisons: leave out / and ..")
        if self.sample.get("ckpt_path") is not None:
            raise SettingError("a comparison tunes the optimizer, which ckpt_path would bring: leave ckpt_path out")
        methods = self.settings["methods"]
        if methods is None:
            form = "multilabel_" if str(self.sample.method.name).startswith("multilabel_") else ""
            methods = [f"{form}{name}" for name in METHODS]
        self.settings["methods"] = [methods] if isinstance(methods, str) and methods else methods
        self.own: OwnModule | None = None
        if self.sample.module._target_:
            if self.swept:
                raise SettingError(
                    f"{', '.join(self.swept)}: a list of values is for the app's methods; of a module of your own give "
                    "one value, or the range of a loss (losses.NAME.search)"
                )
            if self.settings["baseline"] not in (None, BASELINE):
                raise SettingError(f"the baseline of a module of your own is {BASELINE}: leave baseline out")
            if self.split_seed == PER_SEED:
                raise SettingError("data of your own get one data.split_seed, not per_seed: give a number or none")
            self.own = configured_module(self.sample, self.settings["methods"], self.overrides)
            self.settings |= {"methods": self.own.losses.names, "baseline": BASELINE}
        self.plan = ComparisonPlan(full_epochs=self.sample.trainer.max_epochs, **self.settings)
        self.configured: dict[str, DictConfig] = {}  # each method as a run of it would be
        if self.own is None:
            first = knob_overrides({name: values[0] for name, values in self.swept.items()})
            checked = {name: checked_settings(self._compose(f"method={name}", *first)) for name in self.plan.methods}
            for setting in set.intersection(*(set(foreign) for _, foreign in checked.values())):
                raise SettingError(f"no method of the comparison has method.{setting}")
            self.configured = {name: config for name, (config, _) in checked.items()}

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
            if self.split_seed not in (None, PER_SEED):
                self.overrides[key] = f"++{key}={self.split_seed}"
        elif values is None:
            line = str(override.input_line)
            self.overrides[key] = f"++{line.lstrip('+')}" if key.startswith("method.") else line
        elif (key.startswith("method.") and key.count(".") == 1) or key == "optimizer.lr":
            self.swept[key.rpartition(".")[2]] = values
        else:
            raise SettingError(
                f"{key} cannot be swept in a comparison: its runs differ in method, seed, tuned settings and budget. "
                "Make one comparison for each value (a value that holds a comma needs quotes inside the shell's)"
            )

    def _compose(self, *more: str) -> DictConfig:
        return self.loader.load_sweep_config(self.config, [*self.overrides.values(), *more])

    def look(self, console: Console) -> Subject:
        """Look at what is compared, and refuse what would end every run; says what the configured data are."""
        if self.own is not None:
            return self.own.look(self.sample.search.lr_factor, self.directory)
        try:
            with collected_messages() as messages:
                data = read_data(self.sample)
        except (SettingError, OmegaConfBaseException):
            raise
        except Exception as error:  # whatever it is, every run would end in it
            cause = error.__cause__ if isinstance(error, InstantiationException) and error.__cause__ else error
            raise SettingError(f"the data cannot be read, so no run has started: {cause}") from error
        if self.split_seed is not None and not data.splits_by_seed:
            raise SettingError(
                f"data={self.sample.data.name} has an official test split, which a comparison keeps: leave "
                "data.split_seed out"
            )
        if self.split_seed is None and data.splits_by_seed:
            self.split_seed = PER_SEED
        for config in self.configured.values():
            made_module(config, data)
        if self._in_this_process:  # other machines may have other devices
            try:
                instantiate(self.sample.trainer, logger=False)
            except InstantiationException as error:
                raise SettingError(f"the settings of trainer are refused: {error.__cause__ or error}") from error
        console.print("\n".join(messages), markup=False, highlight=False)
        splits = {None: "official", PER_SEED: PER_SEED}.get(self.split_seed, "fixed")
        facts = {"name": str(self.sample.name), "score": self.sample.data.score, "splits": splits}
        spaces = {name: self.space(method) for name, method in self.configured.items()}
        if not any(RATE in space for space in spaces.values()):
            facts["notes"] = [f"The learning rate was not tuned: all methods ran at {self.sample.optimizer.lr:g}."]
        of_others = {*default_settings(), "hydra", "seed"}
        of_runs = OmegaConf.masked_copy(self.sample, [str(key) for key in self.sample if key not in of_others])
        shared = flat(comparable_config(of_runs)) | {key: str(values) for key, values in self.swept.items()}
        shared.pop("trainer.enable_progress_bar", None)  # which tells no runs apart
        settings = {key: value for key, value in shared.items() if not key.startswith("method.")}
        settings |= {key: value for key, value in self.overrides.items() if key.startswith(("method.", "search."))}
        return Subject(spaces, self.execute, facts, data_digest(data), named_examples(data), settings)

    def space(self, config: DictConfig) -> Space:
        """What is tuned of a method: the learning rate, and the ``search`` node of its configuration."""
        method = config.method
        space: dict[str, Any] = {}
        if self.sample.search.lr_factor is not None:
            space[RATE] = learning_rates(float(config.optimizer.lr), self.sample.search.lr_factor)
        space |= knobs(method, {key.removeprefix("method.") for key in self.overrides})
        for name in filter({RATE, *map(str, method)}.__contains__, self.swept):  # the search follows the order
            neutral = space[name].neutral if name in space else None
            values = [value for value in self.swept[name] if value != neutral] or [neutral]
            space[name] = Choice(values, values[0], neutral)
            if len(values) > self.plan.trials:
                raise SettingError(
                    f"{method.name}: trials={self.plan.trials} cannot try all {len(values)} values of {name} "
                    f"({', '.join(map(str, values))}): ask for trials={len(values)} or more"
                )
        return space

    def overrides_of(self, run: Run) -> list[str]:
        """The overrides of the job that makes a run."""
        epochs = epochs_of(run.budget, self.plan.full_epochs)
        return [
            *self.overrides.values(),
            f"method={run.method}",
            *knob_overrides(run.settings),
            *([f"++data.split_seed={run.seed}"] if self.split_seed == PER_SEED else []),
            f"trainer.max_epochs={epochs}",
            f"test={str(run.phase == 'final').lower()}",
            f"seed={run.seed}",
            f"+comparison={override_value(run.about(epochs))}",
            f"hydra.sweep.subdir='{run.folder}'",
        ]

    @property
    def _in_this_process(self) -> bool:
        return type(self.launcher).__name__ == "BasicLauncher"

    def execute(self, runs: Sequence[Run]) -> Iterator[Outcome]:
        """Make runs by the launcher: the basic one gets them one by one, others all at once."""
        groups = [[run] for run in runs] if self._in_this_process else [runs]
        for launched in filter(None, groups):
            returned = self.launcher.launch([self.overrides_of(run) for run in launched], initial_job_idx=0)
            for run, job in zip(launched, returned, strict=True):
                if job.status == JobStatus.COMPLETED:
                    yield run, Result.read(self.directory / run.folder / RESULT_FILE)
                else:
                    yield run, f"{run}: {type(job._return_value).__name__}: {job._return_value}"


def sweep(config: DictConfig, launcher: Launcher, loader: ConfigLoader, arguments: Sequence[str]) -> ComparisonRecord:
    """Make the comparison that the command asks for, print and write its report, and raise if runs have failed."""
    job = ComparisonSweep(config, launcher, loader, arguments)
    directory, console = job.directory, Console()
    console.print(f"The runs are in {directory}.", markup=False, highlight=False)
    with quiet_training():
        subject = job.look(console)
        words = ["as-lightning-compare", *(word for word in arguments if not word.startswith("data_dir="))]
        subject.facts["commands"] = [shlex.join(words)]
        record = run_comparison(job.plan, subject, directory, console)
    publish([record], directory / "report")
    if failed := record.failures:
        raise SettingError(f"{len(failed)} runs have failed; the first: {failed[0]}. The report is of the others")
    return record


def configured_module(config: DictConfig, methods: Sequence[str], given: Mapping[str, str]) -> OwnModule:
    """The module and data that ``config.module`` and ``config.data`` name.

    Their arguments are what the command sets: ``+module.hidden=64``, ``+data.root=files``. What ``config.data`` holds
    of the project's own data is not passed on; ``given`` has the keys that the command sets.
    """
    for group in ("module", "data"):
        try:
            get_object(config[group]._target_)
        except Exception as error:  # Hydra raises what the import raises
            raise SettingError(f"{group}._target_={config[group]._target_}: {error}") from None
    target = get_object(config.module._target_)
    arguments = {name: value for name, value in plain(config.module).items() if name not in OWN_SETTINGS}
    accepted = inspect.signature(target).parameters
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in accepted.values()):
        for name in arguments.keys() - accepted.keys():
            near = nearest(name, accepted.keys())
            raise SettingError(f"module.{name}: {target.__name__} has no such argument; {near}")
    keys = {".".join(key.split(".")[:2]) for key in given}
    set_data, set_method = (
        {name: value for name, value in plain(config[group]).items() if f"{group}.{name}" in keys}
        for group in ("data", "method")
    )
    trainer = plain(config.trainer)
    trainer.pop("_target_")
    name = str(config.name) if config.name != config.data.name else target.__name__
    losses = {str(name): _own_loss(node) for name, node in plain(config.losses).items()}
    factory = functools.partial(target, **arguments)
    data = functools.partial(instantiate, {"_target_": config.data._target_, **set_data})
    scored, own_losses = config.module, OwnLosses(methods, losses, set_method)
    return OwnModule(factory, data, scored.replaces, scored.monitor, scored.mode, trainer, own_losses, name)


def _own_loss(node: Mapping[str, Any]) -> Any:
    """A loss that is configured, or a pair of what makes it and the ranges of its arguments, its ``search``."""
    arguments = dict(node)
    ranges = arguments.pop("search", None)
    return (functools.partial(instantiate, arguments), ranges) if ranges else instantiate(arguments)


def data_digest(data: BenchmarkDataModule) -> str:
    """A digest of the examples at one seed, whatever their split."""
    rows = [
        f"{name} {target.tolist()}"
        for split, dataset in data.splits.items()
        if data.texts or split == "test"
        for name, target in zip(data.example_names(split), dataset.targets, strict=True)
    ]
    return digest(*sorted(rows))


def named_examples(data: BenchmarkDataModule) -> dict[int, str]:
    """All examples by their ids: the text or the file."""
    names = [name for split in data.splits for name in data.example_names(split)]
    return dict(zip(example_ids(names).tolist(), names, strict=True))


def knob_overrides(settings: Mapping[str, Any]) -> list[str]:
    """The overrides that give a run its tuned settings."""
    keys = {name: "optimizer.lr" if name == RATE else f"++method.{name}" for name in settings}
    return [f"{keys[name]}={override_value(value)}" for name, value in settings.items()]


def override_value(value: Any) -> str:
    """A value as the value of an override, which Hydra reads as the same value.

    >>> override_value(None), override_value(0.1), override_value({"k": "all", "ranks": [1, True]})
    ('null', '0.1', '{k:"all",ranks:[1, true]}')
    """
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{name}:{override_value(item)}" for name, item in value.items()) + "}"
    return str(value) if isinstance(value, float) else json.dumps(value)
