"""``as-lightning-compare`` inside Hydra: from overrides to candidates and a plan."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle
import lightning.pytorch as pl
from hydra.core.config_loader import ConfigLoader
from hydra.core.utils import JobStatus
from hydra.plugins.launcher import Launcher
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf, open_dict
from rich.console import Console

from as_lightning.bench.data.base import BenchmarkDataModule
from as_lightning.bench.data.reading import collected_messages
from as_lightning.bench.run.feature_cache import cache_features
from as_lightning.bench.run.identity import flat
from as_lightning.bench.run.result import RESULT_FILE, Result, own_file
from as_lightning.bench.run.runner import quiet_training
from as_lightning.bench.run.settings import (
    GROUPS,
    SettingError,
    checked_settings,
    class_arguments,
    located,
    names,
    override_value,
)
from as_lightning.bench.run.train import configured, made_module, read_data, run_callbacks
from as_lightning.comparison.api import own_comparison
from as_lightning.comparison.candidates import Candidate, baseline_first
from as_lightning.comparison.engine import Execute, end_processes, execution, run_comparison
from as_lightning.comparison.look import Prepared, prepared
from as_lightning.comparison.make import (
    CANDIDATES_FILE,
    RATE_KEY,
    CodeChanged,
    Recipe,
    make,
    of_this_run,
)
from as_lightning.comparison.methods import knobs, plain
from as_lightning.comparison.next_runs import Outcome
from as_lightning.comparison.plan import DESIGN, ComparisonPlan, Run, default_settings, of_candidate
from as_lightning.comparison.search import RATE, Space, learning_rates, setting_range
from as_lightning.functional.argument_checks import check_count
from as_lightning.report.page import publish

OF_COMPARISON = {*default_settings(), "hydra"}  # settings that no run has
# settings that the comparison gives each run
GIVEN = {"seed", "test", "output_dir", "hydra.run.dir", "hydra.sweep.subdir"}
PER_SEED = "per_seed"
# the configuration as it is, where candidates are given and no baseline among them
UNCHANGED = "baseline"
Described = tuple[list[str], Mapping[str, Any]]  # a candidate's overrides, and its search


class Command:
    """One call of ``as-lightning-compare``: its words, and the configuration that they give."""

    def __init__(
        self, config: DictConfig, launcher: Launcher, loader: ConfigLoader, arguments: Sequence[str]
    ) -> None:
        self.words, self.launcher, self.loader = list(arguments), launcher, loader
        self._master = config
        self.directory = Path(config.hydra.sweep.dir)
        self.local = type(launcher).__name__ == "BasicLauncher"  # no jobs are sent elsewhere
        self.given = {*keys_of([*arguments, *config.hydra.overrides.hydra])}
        self.config = self.compose()
        refused = self.given & GIVEN
        if not self.config.candidates:
            refused |= self.given & {"method"}
        if refused:
            raise SettingError(
                f"{min(refused)} is the comparison's own: give seeds=, methods=, candidates= or "
                "hydra.sweep.dir="
            )
        self.n_jobs = check_count("n_jobs", self.config.n_jobs, least=1)
        if self.n_jobs > 1 and not self.local:
            raise SettingError("n_jobs: a launcher has its own, as hydra.launcher.n_jobs=2")

    def compose(self, *more: str) -> DictConfig:
        return self.loader.load_sweep_config(self._master, [*self.words, *more])

    def set_value(self, name: str) -> Any:
        return plain(self.config[name])


class Configured:
    """Data, module and trainer of a configuration, made in this order for one run."""

    def __init__(self, config: DictConfig) -> None:
        self.config = config

    def data(self, seed: int) -> BenchmarkDataModule:
        of_this_run(self.config, seed, {})
        self._data = read_data(self.config)
        return self._data

    def module(self, **settings: Any) -> pl.LightningModule:
        of_this_run(self.config, self.config.seed, settings)
        module = made_module(self.config, self._data)
        encoder: Any = module.encoder
        cache_features(self._data, encoder, Path(self.config.data_dir).expanduser())
        return module

    def trainer(self, folder: str) -> dict[str, Any]:
        self.config.output_dir = folder
        loggers = configured(self.config.logger)
        arguments = self.config.trainer.copy()
        del arguments["_target_"]
        callbacks = run_callbacks(self.config, self._data)
        arguments = instantiate(arguments, _convert_="all")
        return {**arguments, "logger": loggers, "callbacks": callbacks}


def app_comparison(command: Command, console: Console) -> Prepared:
    """Return a comparison of the app's modules; prints what reading the data has changed."""
    described, baseline = described_candidates(command)
    design = {name: command.set_value(name) for name in DESIGN}
    epochs = command.config.trainer.max_epochs
    plan = ComparisonPlan(list(described), baseline, epochs, **design)
    configs, candidates, changed, unread = {}, {}, {}, []
    base = command.compose(*described[baseline][0])
    for name in plan.candidates:
        with of_candidate(name, baseline):
            overrides, _ = described[name]
            composed = command.compose(*overrides)
            changed[name] = changes(composed, base, [*overrides, *described[baseline][0]])
            config, foreign = checked_settings(composed)
            unread.append({*foreign})
            epochs = config.trainer.max_epochs
            plan.own_epochs[name] = check_count("trainer.max_epochs", epochs, least=1)
            space = app_space(command, described[name], config)
            kept = [str(key) for key in config if key not in OF_COMPARISON]
            configs[name] = OmegaConf.masked_copy(config, kept)
            per_seed = splits_by_seed(configs[name])
            run = Configured(configs[name])
            candidates[name] = Candidate(run.data, run.module, run.trainer, space, per_seed)
    for setting in set.intersection(*unread):
        raise SettingError(f"no method of the comparison has method.{setting}")
    splits = "official"
    if command.config.data.split_seed is not None:
        splits = "fixed"
    recipe = Recipe(
        str(command.config.name), {}, {}, f"val/{command.config.data.score}", configs=configs
    )
    with collected_messages() as messages:
        ready = prepared(
            candidates,
            plan,
            recipe,
            n_jobs=command.n_jobs,
            elsewhere=not command.local,
            splits=splits,
            changes=changed,
        )
    console.print("\n".join(dict.fromkeys(messages)), markup=False, highlight=False)
    return ready


def splits_by_seed(config: DictConfig) -> bool:
    """Return whether each seed draws its own splits; set what the comparison gives its runs."""
    with open_dict(config):
        config.output_dir = "."
        config.callbacks.model_checkpoint = config.callbacks.last_checkpoint = None
    if config.data.split_seed not in (None, PER_SEED):
        return False
    config.data.split_seed = None
    drawn = bool(instantiate(class_arguments(config.data, "data")).splits_by_seed)
    if drawn:
        config.data.split_seed = PER_SEED
    return drawn


def described_candidates(command: Command) -> tuple[dict[str, Described], str]:
    config = command.config
    methods = command.set_value("methods") or []
    methods = [methods] if isinstance(methods, str) else methods
    first = command.compose(f"method={methods[0]}") if methods else config
    default = str(first.method.baseline)
    if not methods and not config.candidates:
        methods = [default, *config.default_methods[default]]
    described: dict[str, Described] = {name: ([f"method={name}"], {}) for name in methods}
    own_method = [] if "method" in command.given else [f"method={default}"]
    for name, (overrides, search) in own_candidates(command).items():
        if name in described:
            raise SettingError(f"the candidate {name} is given twice: each needs a name of its own")
        if not any(word.startswith("method=") for word in overrides):
            overrides = [*own_method, *overrides]
        described[name] = overrides, search
    baseline = config.baseline
    if baseline is None:
        baseline = default if default in described or not config.candidates else UNCHANGED
    if baseline == UNCHANGED:
        described.setdefault(UNCHANGED, (own_method, {}))
    elif baseline in names("method"):
        described.setdefault(baseline, ([f"method={baseline}"], {}))
    return baseline_first(described, baseline), baseline


def own_candidates(command: Command) -> dict[str, Described]:
    described = {}
    for name, fields in command.set_value("candidates").items():
        if not isinstance(fields, Mapping):
            fields = {"overrides": fields}
        overrides, search = fields.get("overrides", []), fields.get("search") or {}
        if not isinstance(overrides, list) or fields.keys() - {"overrides", "search"}:
            raise SettingError(
                f"candidates.{name} must be a list of overrides, as [model.width=256], or have "
                f"overrides and search, got {fields}"
            )
        words = [*map(str, overrides)]
        shared = OF_COMPARISON | GIVEN | {"data.split_seed"}
        for key in [*keys_of(words), *search]:
            group = key.partition(".")[0]
            if {key, group} & shared or (key in search and group == "data"):
                raise SettingError(
                    f"candidates.{name} cannot set {key}, which is the same for all candidates"
                )
        command.compose(*words, *(f"{key}=null" for key in search))  # Hydra refuses strangers
        described[str(name)] = words, search
    return described


def app_space(command: Command, described: Described, config: Any) -> Space:
    """Return what is tuned: the learning rate, the ``search`` of the method, and the own one."""
    overrides, search = described
    space: dict[str, Any] = {}
    factor = command.config.search.lr_factor
    if factor is not None:
        space[RATE] = learning_rates(float(config.optimizer.lr), factor)
    fixed = {key.removeprefix("method.") for key in [*command.given, *keys_of(overrides)]}
    space |= knobs(config.method, fixed)
    for key, description in search.items():  # takes the place of the method's own range
        knob = RATE if key == RATE_KEY else key.removeprefix("method.")
        space[knob] = setting_range(description, plain(OmegaConf.select(config, key)))
    return space


def changes(config: DictConfig, base: DictConfig, overrides: Sequence[str]) -> dict[str, list[str]]:
    """Return those of the overridden settings that differ from the baseline's, with both values."""
    keys = {*keys_of(overrides)} - {"method"}
    found = []
    for each in (base, config):
        found.append(flat({key: plain(OmegaConf.select(each, key)) for key in keys}))
    before, after = found
    changed = {}
    for key in sorted({*before, *after}):
        values = [before.get(key, "null"), after.get(key, "null")]
        if values[0] != values[1]:
            changed[key] = values
    return changed


def called_comparison(command: Command) -> Prepared:
    for key in sorted(command.given):
        if key.partition(".")[0] in (*GROUPS, "experiment", "candidates"):
            raise SettingError(f"{key} is given by the function of call=: change it there")
    arguments = located(command.config.call)()
    if "search.lr_factor" in command.given:
        arguments["lr_factor"] = command.config.search.lr_factor
    for name in command.given & {*DESIGN, "methods", "baseline", "name"}:
        arguments[name] = command.set_value(name)
    return own_comparison(arguments, command.n_jobs, elsewhere=not command.local)


def launched(command: Command, recipe: Recipe) -> Execute:
    """Return what makes runs as jobs of Hydra's launcher, which gets them all at once."""
    command.directory.mkdir(parents=True, exist_ok=True)
    (command.directory / CANDIDATES_FILE).write_bytes(cloudpickle.dumps(recipe))

    def execute(runs: Sequence[Run]) -> Iterator[tuple[Run, Outcome]]:
        jobs = []
        for run in runs:
            words = [*command.words, f"+comparison={override_value(vars(run))}"]
            jobs.append([*words, f"hydra.sweep.subdir='{run.folder}'"])
        for run, job in zip(runs, command.launcher.launch(jobs, initial_job_idx=0), strict=True):
            error = job._return_value
            if job.status == JobStatus.COMPLETED:
                yield run, Result.read(command.directory / run.folder / RESULT_FILE)
            elif isinstance(error, CodeChanged):
                raise error
            else:
                yield run, f"{run}: {type(error).__name__}: {error}"

    return execute


def launched_job(config: DictConfig) -> Result:
    run = Run(**plain(config.comparison))
    directory = Path(config.output_dir).parents[run.folder.count("/")]
    recipe: Recipe = cloudpickle.loads(own_file(directory / CANDIDATES_FILE).read_bytes())
    with quiet_training():
        return make(recipe, directory, run)


def keys_of(overrides: Sequence[str]) -> list[str]:
    return [word.lstrip("+~").partition("=")[0] for word in overrides]


def sweep(
    config: DictConfig, launcher: Launcher, loader: ConfigLoader, arguments: Sequence[str]
) -> None:
    """Make the comparison, write its report, and raise if runs have failed."""
    command, console = Command(config, launcher, loader, arguments), Console()
    directory = command.directory
    console.print(f"The runs are in {directory}.", markup=False, highlight=False)
    with quiet_training():
        ready = (
            called_comparison(command) if command.config.call else app_comparison(command, console)
        )
        plan, recipe, subject = ready
        words = [word for word in arguments if not word.startswith("data_dir=")]
        plan.facts = {**plan.facts, "commands": [shlex.join(["as-lightning-compare", *words])]}
        if command.local:
            execute = execution(partial(make, recipe, directory), command.n_jobs)
        else:
            execute = launched(command, recipe)
        try:
            record = run_comparison(plan, recipe, subject, directory, console, execute)
        finally:
            if command.n_jobs > 1:
                end_processes()
    publish(record, directory / "report")
    if recipe.configs and "path" in recipe.configs[plan.baseline].data:
        kept = directory / plan.baseline / f"seed={recipe.kept_seed}"
        print(f"new data:    as-lightning-predict {kept} data.path=... (or of another candidate)")
    if failed := record.failures:
        raise SettingError(
            f"{len(failed)} runs have failed; the first: {failed[0]}. The report is of the others"
        )
