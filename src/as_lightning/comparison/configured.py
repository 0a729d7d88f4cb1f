"""``as-lightning-compare`` inside Hydra: from overrides to candidates and a plan."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import lightning.pytorch as pl
from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.utils import JobStatus
from hydra.errors import InstantiationException
from hydra.plugins.launcher import Launcher
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console

from as_lightning.bench.data.base import BenchmarkDataModule
from as_lightning.bench.data.reading import collected_messages
from as_lightning.bench.run.identity import RunIdentity, digest
from as_lightning.bench.run.owner import own_file
from as_lightning.bench.run.predictions import example_ids
from as_lightning.bench.run.result import RESULT_FILE, Result
from as_lightning.bench.run.runner import quiet_training
from as_lightning.bench.run.settings import (
    GROUPS,
    SettingError,
    checked_settings,
    located,
    names,
    nearest,
    override_value,
)
from as_lightning.bench.run.train import comparable_config, made_module, read_data
from as_lightning.comparison.candidates import (
    Candidate,
    baseline_first,
    check_arguments,
    own_candidate,
)
from as_lightning.comparison.engine import Execute, end_processes, execute_here, run_comparison
from as_lightning.comparison.look import Prepared, prepared
from as_lightning.comparison.make import CANDIDATES_FILE, RATE_KEY, Recipe, make, setting_path
from as_lightning.comparison.methods import BASELINE, knobs, plain, with_losses
from as_lightning.comparison.next_runs import Outcome
from as_lightning.comparison.plan import (
    ComparisonPlan,
    Run,
    check_processes,
    check_trainer,
    default_settings,
    of_candidate,
)
from as_lightning.comparison.search import RATE, Choice, Space, learning_rates, setting_range
from as_lightning.functional.argument_checks import check_count
from as_lightning.report.page import publish

NOT_OF_RUNS = {*default_settings(), "hydra"}  # settings of the comparison
NOT_OF_PLAN = {"search", "module", "losses", "candidates", "default_methods"}
# settings that the comparison gives each run
RUN_KEYS = {
    "data.split_seed",
    "seed",
    "test",
    "module.replaces",
    "module.monitor",
    "module.mode",
}
FIXED = {
    "test": "tuning reads no test data, the final runs do",
    **dict.fromkeys(
        ("output_dir", "hydra.run.dir", "hydra.sweep.subdir"), "set hydra.sweep.dir=... instead"
    ),
}
# settings that all candidates share: where they start, and how they are judged
SHARED_KEYS = (
    "data.score",
    "trainer.limit_val_batches",
    "trainer.limit_test_batches",
    "trainer.overfit_batches",
)
# of the app; one's own modules do not read them
MODEL_GROUPS = {"model", "optimizer", "lr_scheduler", "callbacks"}
OWN_SETTINGS = ("_target_", "replaces", "monitor", "mode")
PER_SEED = "per_seed"
# the configuration as it is, where candidates are given and no baseline among them
UNCHANGED = "baseline"
Described = tuple[list[str], Mapping[str, Any]]  # a candidate's overrides, and its search


class Command:
    """One call of ``as-lightning-compare``: its overrides as settings of the comparison, of all
    runs, and of candidates.
    """

    def __init__(
        self, config: DictConfig, launcher: Launcher, loader: ConfigLoader, arguments: Sequence[str]
    ) -> None:
        self.config, self.launcher, self.loader = config, launcher, loader
        self.directory = Path(config.hydra.sweep.dir)
        plan_settings = default_settings().keys() - NOT_OF_PLAN
        self.settings: dict[str, Any] = {name: plain(config.get(name)) for name in plan_settings}
        self.split_seed: Any = None
        self.swept: dict[str, list[Any]] = {}  # knobs of methods, given as a sweep
        self.overrides: dict[str, str] = {}  # of every run, by their keys
        given = {*keys_of([*arguments, *config.hydra.overrides.hydra])}
        for key in given & FIXED.keys():
            raise SettingError(f"{key} is the comparison's own, and would be ignored: {FIXED[key]}")
        if {"seed", "seeds"} <= given:
            raise SettingError("seed and seeds are both given: write seeds=[0, 1, 2], or how many")
        for override in OverridesParser.create().parse_overrides(list(arguments)):
            self.classify(override)
        self.sample = self.compose()
        if not re.fullmatch(r"[^/\\\0.][^/\\\0]*", str(self.sample.name)):
            raise SettingError(f"name={self.sample.name} cannot name a folder below comparisons")
        self.n_jobs = check_count("n_jobs", self.settings.pop("n_jobs"), least=1)
        if self.n_jobs > 1 and not self.in_this_process:
            raise SettingError("n_jobs: a launcher has its own, as hydra.launcher.n_jobs=2")
        methods, self.baseline = self.settings.pop("methods"), self.settings.pop("baseline")
        if self.baseline is not None and not isinstance(self.baseline, str):
            raise SettingError(f"baseline must be the name of one candidate, got {self.baseline!r}")
        self.methods = [methods] if isinstance(methods, str) and methods else methods
        self.given: Mapping[str, Any] = plain(self.sample.candidates)
        self.own = bool(self.sample.module._target_)
        if "method" in self.overrides and (self.own or not self.given):
            raise SettingError(
                f"a comparison takes methods: write methods={self.sample.method.name}"
            )
        for key in self.overrides:
            if key.partition(".")[0] in ("module", "losses") and not self.own:
                raise SettingError(f"{key} is of a module of your own: give module._target_ too")

    def classify(self, override: Override) -> None:
        """Store an override as a setting of the comparison, a knob to search, or a setting of every
        run.
        """
        key = override.get_key_element().lstrip("+~")
        values = None
        if override.is_sweep_override():
            texts = override.sweep_string_iterator()
            values = [OmegaConf.create(f"value: {text}").value for text in texts]
        if key in self.settings:
            self.settings[key] = plain(override.value()) if values is None else values
        elif key == "seed" or (key == "method" and values is not None):
            self.settings[f"{key}s"] = [plain(override.value())] if values is None else values
        elif key == "data.split_seed" and values is None:
            self.split_seed = plain(override.value())
            if self.split_seed not in (None, PER_SEED):
                self.overrides[key] = f"++{key}={self.split_seed}"
        elif values is None:
            self.overrides[key] = str(override.input_line)
        elif (key.startswith("method.") and key.count(".") == 1) or key == RATE_KEY:
            self.swept[key.rpartition(".")[2]] = values
        else:
            raise SettingError(
                f"{key} cannot be swept in a comparison: make one comparison for each value (a "
                "value that holds a comma needs quotes inside the shell's)"
            )

    def compose(self, *more: str) -> DictConfig:
        """Return the configuration of a run with these overrides too."""
        return self.loader.load_sweep_config(self.config, [*self.overrides.values(), *more])

    @property
    def in_this_process(self) -> bool:
        """Whether no launcher makes the runs elsewhere."""
        return type(self.launcher).__name__ == "BasicLauncher"

    def described(self) -> dict[str, Described]:
        """Return the overrides and search ranges of each of ``candidates``; those of one's own
        modules may set two groups alone.
        """
        described = {}
        for name, description in self.given.items():
            fields = description
            if not isinstance(description, Mapping):
                fields = {"overrides": description}
            for key in fields.keys() - {"overrides", "search"}:
                hint = nearest(key, ["overrides", "search"])
                raise SettingError(f"candidates.{name} has {key}: {hint}")
            overrides = fields.get("overrides", [])
            if isinstance(overrides, str) or not isinstance(overrides, Sequence):
                raise SettingError(
                    f"candidates.{name} must be a list of overrides, as [model.width=256], got "
                    f"{description}"
                )
            words, search = [*map(str, overrides)], fields.get("search") or {}
            for key in [*keys_of(words), *search]:
                group = key.partition(".")[0]
                strange = group not in ("module", "data") if self.own else group in NOT_OF_RUNS
                tuned_data = key in search and group == "data"
                if key in RUN_KEYS or strange or tuned_data:
                    raise SettingError(
                        f"candidates.{name} cannot set {key}, which is the same for all candidates "
                        "(one of your own module sets module.* and data.*)"
                    )
            described[str(name)] = words, search
        return described

    def plan(self, candidates: Iterable[str], baseline: str) -> ComparisonPlan:
        """Return the plan of these candidates."""
        epochs = self.sample.trainer.max_epochs
        return ComparisonPlan(list(candidates), baseline, epochs, **self.settings)


# --- modules of the app


def app_comparison(command: Command, console: Console) -> Prepared:
    """Return a comparison of the app's modules, and refuse what would end every run; prints the
    messages of the data.
    """
    described, baseline = app_candidates(command)
    plan = command.plan(described, baseline)
    configs = app_configs(command, plan, described)
    data, messages = app_data(command)
    spaces: dict[str, Space] = {}
    candidates = {}
    for name, config in configs.items():
        spaces[name] = app_space(command, plan, described, name, config)
        kept = [str(key) for key in config if key not in NOT_OF_RUNS]
        run_config = OmegaConf.masked_copy(config, kept)
        build = functools.partial(build_module, run_config)
        build_data = functools.partial(read_once, run_config)
        candidates[name] = Candidate(build, build_data, spaces[name], config=run_config)
        with of_candidate(name, plan.baseline):
            look_at_app(command, config, data)
    console.print("\n".join(messages), markup=False, highlight=False)
    splits = {None: "official", PER_SEED: PER_SEED}.get(command.split_seed, "fixed")
    facts: dict[str, Any] = {
        "name": str(command.sample.name),
        "score": command.sample.data.score,
        "splits": splits,
        "changes": {name: changes(configs, plan.baseline, name) for name in configs},
    }
    if not any(RATE in space for space in spaces.values()):
        rates = dict.fromkeys(f"{config.optimizer.lr:g}" for config in configs.values())
        shown = " or ".join(rates)
        facts["notes"] = [f"The learning rate was not tuned: all candidates ran at {shown}."]
    pickled = {name: candidate.pickled(name) for name, candidate in candidates.items()}
    recipe = Recipe(
        str(command.sample.name),
        {name: pickled[plan.tuned_as(name)] for name in plan.family},
        {name: plan.epochs(name) for name in plan.family},
        split_per_seed=command.split_seed == PER_SEED,
    )
    whole_data = data
    if data.splits_by_seed and (data.shots or data.imbalance):  # other seeds test what is left out
        with collected_messages():
            whole_data = read_data(command.compose("data.shots=null", "data.imbalance=null"))
    plan = plan.with_spaces(spaces, named_examples(whole_data), **facts)
    return Prepared(
        plan, recipe, RunIdentity.of(shared(command, described), {"data": data_digest(data)})
    )


def app_candidates(command: Command) -> tuple[dict[str, Described], str]:
    """Return the overrides and search ranges of each name, and the baseline."""
    first = command.sample
    if command.methods and "method" not in command.overrides:
        first = command.compose(f"method={command.methods[0]}")
    method_baseline = str(first.method.baseline)
    methods = command.methods
    if methods is None and not command.given:
        methods = [method_baseline, *plain(command.config.default_methods)[method_baseline]]
    candidates: dict[str, Described] = {}
    default_method = [] if "method" in command.overrides else [f"method={method_baseline}"]
    pairs: list[tuple[str, Described]] = [(n, ([f"method={n}"], {})) for n in methods or []]
    for name, (overrides, search) in command.described().items():
        if not any(word.startswith("method=") for word in overrides):
            overrides = [*default_method, *overrides]
        pairs.append((name, (overrides, search)))
    for name, description in pairs:
        if name in candidates:
            raise SettingError(f"the candidate {name} is given twice: each needs a name of its own")
        candidates[name] = description
    baseline = command.baseline or method_baseline
    unnamed = command.baseline in (None, UNCHANGED)
    if unnamed and command.given and method_baseline not in candidates:
        candidates = {UNCHANGED: (default_method, {}), **candidates}
        baseline = UNCHANGED
    if baseline in names("method"):
        candidates.setdefault(baseline, ([f"method={baseline}"], {}))
    if baseline not in candidates:
        raise SettingError(f"no candidate is called {baseline}: {nearest(baseline, candidates)}")
    return candidates, baseline


def app_configs(
    command: Command, plan: ComparisonPlan, described: Mapping[str, Described]
) -> dict[str, DictConfig]:
    """Return each candidate's configuration, as a run of it would be; refuse two that are the
    same.
    """
    swept = [f"{setting_path(name)}={override_value(v[0])}" for name, v in command.swept.items()]
    configs, all_unread = {}, []
    for name in plan.candidates:
        overrides, search = described[name]
        with of_candidate(name, plan.baseline):
            for group in (key.partition(".")[0] for key in search if "." in key):
                if group not in command.sample:  # it would be added, and nothing would read it
                    raise SettingError(f"there is no {group}: {nearest(group, GROUPS)}")
            configs[name], unread = checked_settings(command.compose(*swept, *overrides))
            all_unread.append(set(unread))
            epochs = configs[name].trainer.max_epochs
            plan.own_epochs[name] = check_count("trainer.max_epochs", epochs, least=1)
            check_trainer(plain(configs[name].trainer))
            for key in SHARED_KEYS:
                own = OmegaConf.select(configs[name], key)
                common = OmegaConf.select(command.sample, key)
                if own != common:
                    raise SettingError(f"{key} is {own}, not {common}: set one for all")
    for setting in set.intersection(*all_unread):
        raise SettingError(f"no method of the comparison has method.{setting}")
    name_of: dict[str, str] = {}
    for name, config in configs.items():
        text = str(sorted(identity_of(config).config.items()))
        if not described[name][1] and name_of.setdefault(text, name) != name:
            raise SettingError(f"{name_of[text]} and {name} are the same run: leave one out")
    return configs


def app_data(command: Command) -> tuple[BenchmarkDataModule, list[str]]:
    """Return the data and their messages; sets a split seed that is left to the data."""
    READ.clear()  # Files may have changed since an earlier comparison of this process.
    try:
        with collected_messages() as messages:
            data = read_once(command.sample, command.sample.seed)
    except (SettingError, OmegaConfBaseException):
        raise
    except Exception as error:  # any error here would end every run
        cause = error.__cause__ if isinstance(error, InstantiationException) else None
        message = f"the data cannot be read, so no run has started: {cause or error}"
        raise SettingError(message) from error
    if command.split_seed is not None and not data.splits_by_seed:
        raise SettingError(
            f"data={command.sample.data.name} comes with its test split, which a comparison "
            "keeps: leave data.split_seed out"
        )
    if command.split_seed is None and data.splits_by_seed:
        command.split_seed = PER_SEED
    return data, messages


READ: dict[str, BenchmarkDataModule] = {}  # the data that were read last, for the look alone


def read_once(config: DictConfig, seed: int) -> BenchmarkDataModule:
    """Return the data of a configuration, read for the first of several candidates."""
    config = OmegaConf.merge(config, {"seed": seed})  # type: ignore[assignment]
    key = f"{seed} {config.data_dir} {plain(config.data)}"
    if key not in READ:
        READ.clear()
        READ[key] = read_data(config)
    return READ[key]


def build_module(config: DictConfig, **settings: Any) -> pl.LightningModule:
    """Return the module of a configuration with tuned settings."""
    config = config.copy()
    for name, value in settings.items():
        OmegaConf.update(config, setting_path(name), value, force_add=True)
    return made_module(config, read_once(config, config.seed))


def look_at_app(command: Command, config: DictConfig, data: BenchmarkDataModule) -> None:
    """Refuse a candidate whose runs would fail, or be scored on other examples."""
    own_data = data
    if config.data != command.sample.data:
        own_data = read_data(config)
        if scored_examples(own_data) != scored_examples(data):
            raise SettingError("other validation or test examples than the others have")
    made_module(config, own_data)
    if command.in_this_process:  # other machines may have other devices
        try:
            trainer = instantiate(config.trainer, logger=False)
        except InstantiationException as error:
            message = f"the settings of trainer are refused: {error.__cause__ or error}"
            raise SettingError(message) from error
        check_processes(command.n_jobs, trainer.world_size)


def app_space(
    command: Command,
    plan: ComparisonPlan,
    described: Mapping[str, Described],
    name: str,
    config: DictConfig,
) -> Space:
    """Return what is tuned of a candidate: the learning rate, the ``search`` of its method, and its
    own.
    """
    overrides, search = described[name]
    space: dict[str, Any] = {}
    factor = command.sample.search.lr_factor
    if factor is not None:
        space[RATE] = learning_rates(float(config.optimizer.lr), factor)
    fixed = [key.removeprefix("method.") for key in [*command.overrides, *keys_of(overrides)]]
    space |= knobs(config.method, fixed)
    requested = []
    for key, description in search.items():  # takes the place of the method's own range
        knob = RATE if key == RATE_KEY else key.removeprefix("method.")
        space[knob] = setting_range(description, plain(OmegaConf.select(config, key)))
        if plan.trials > 1:  # a single trial takes the default
            requested.append(knob)
    # a neutral value makes a method its baseline only if nothing else differs
    baseline = described[plan.baseline]
    contains = plan.baseline == config.method.baseline and baseline[1] == {}
    contains = contains and baseline[0] == [f"method={plan.baseline}"]
    if not contains or overrides != [f"method={config.method.name}"]:
        space = {knob: replace(dimension, neutral=None) for knob, dimension in space.items()}
    own = {key.rpartition(".")[2] for key in [*keys_of(overrides), *search]}
    for knob, listed in command.swept.items():
        if knob not in {RATE, *map(str, config.method)} - own:
            continue
        neutral = space[knob].neutral if knob in space else None
        values = [value for value in listed if value != neutral] or [neutral]
        space[knob] = Choice(values, values[0], neutral)
        requested.append(knob)
    plan.check_values(name, {knob: space[knob] for knob in requested})
    return space


def changes(configs: Mapping[str, DictConfig], baseline: str, name: str) -> dict[str, list[str]]:
    """Return the settings unlike the baseline's, with both values.

    The name of another method stands for its settings, and a setting for those that are
    interpolated from it.
    """
    own = identity_of(configs[name]).config
    base = identity_of(configs[baseline]).config
    changed = {}
    other_method = own["method.name"] != base["method.name"]
    for key in sorted(own.keys() | base.keys()):
        group, _, setting = key.rpartition(".")
        node = OmegaConf.select(configs[name], group)
        follows = isinstance(node, DictConfig) and setting in node
        follows = follows and OmegaConf.is_interpolation(node, setting)
        implied = other_method and key.startswith("method.") and key != "method.name"
        if own.get(key) != base.get(key) and not follows and not implied:
            changed[key] = [base.get(key, "null"), own.get(key, "null")]
    if other_method:
        changed = {"method.name": changed.pop("method.name"), **changed}
    return changed


def shared(command: Command, described: Mapping[str, Described]) -> dict[str, Any]:
    """Return the settings that all runs share, by which a folder's comparison is recognised."""
    settings: dict[str, Any] = {}
    for key, value in identity_of(command.sample).config.items():
        if not key.startswith("method."):
            settings[key] = value
    settings |= {key: str(values) for key, values in command.swept.items()}
    for key, value in command.overrides.items():
        if key.startswith(("method.", "search.")):
            settings[key] = value
    return settings


def identity_of(config: DictConfig) -> RunIdentity:
    """Return the identity of the runs of a configuration, without their seeds."""
    run_keys = [str(key) for key in config if key not in NOT_OF_RUNS | {"seed"}]
    return RunIdentity.of(comparable_config(OmegaConf.masked_copy(config, run_keys)))


def data_digest(data: BenchmarkDataModule) -> str:
    """Return a digest of the examples at one seed, whatever their split; of those of the test alone
    if they have no names.
    """
    rows = []
    for split in data.splits:
        if data.texts or split == "test":
            rows += examples(data, split)
    return digest(*sorted(rows))


def scored_examples(data: BenchmarkDataModule) -> str:
    """Return a digest of the validation and test examples, by which settings are chosen and
    candidates judged.
    """
    return digest(*examples(data, "validation"), *examples(data, "test"))


def examples(data: BenchmarkDataModule, split: str) -> list[str]:
    """Return name and target of each example of a split."""
    pairs = zip(data.example_names(split), data.splits[split].targets, strict=True)
    return [f"{name} {target.tolist()}" for name, target in pairs]


def named_examples(data: BenchmarkDataModule) -> dict[int, str]:
    """Return all examples by their ids: the text or the file."""
    example_names = [name for split in data.splits for name in data.example_names(split)]
    return dict(zip(example_ids(example_names).tolist(), example_names, strict=True))


# --- modules of one's own


def own_comparison(command: Command) -> Prepared:
    """Return a comparison of the user's own modules, or of losses for one."""
    config, module = command.sample, command.sample.module
    if command.swept:
        raise SettingError(
            f"{', '.join(command.swept)}: a list of values is for the app's methods; of a module of "
            "your own give one value, or the range of a loss (losses.NAME.search)"
        )
    if command.split_seed == PER_SEED:
        raise SettingError("data of your own get one data.split_seed, not per_seed")
    if command.given and (command.methods or config.losses):
        raise SettingError(
            "candidates of your own module are compared as they are: leave methods and losses out"
        )
    for key in command.overrides:
        if key.partition(".")[0] in MODEL_GROUPS:
            raise SettingError(
                f"{key} is read by the app's models alone; an argument of yours is +module.NAME=..."
            )
    keys = {".".join(key.split(".")[:2]) for key in command.overrides}
    name = str(config.name)
    if name == config.data.name:
        name = str(module._target_).rpartition(".")[2]
    if command.given:
        baseline = command.baseline or UNCHANGED
        described: dict[str, Described] = {UNCHANGED: ([], {})} if baseline == UNCHANGED else {}
        described |= command.described()
        candidates = {}
        for label, (overrides, search) in described.items():
            with of_candidate(label, baseline):
                candidates[label] = configured_candidate(command, keys, overrides, search)
    else:
        baseline = command.baseline or BASELINE
        own = configured_candidate(command, keys, [], {})
        fixed = {k: value for k, value in plain(config.method).items() if f"method.{k}" in keys}
        losses = {str(key): own_loss(node) for key, node in plain(config.losses).items()}
        methods = command.methods or None
        candidates = with_losses(own, module.replaces, methods, losses, baseline, fixed)
    candidates = baseline_first(candidates, baseline)
    trainer = plain(config.trainer)
    trainer.pop("_target_")
    return prepared(
        candidates,
        command.plan(candidates, baseline),
        trainer,
        module.monitor,
        mode=module.mode,
        name=name,
        lr_factor=config.search.lr_factor,
        n_jobs=command.n_jobs,
        same_module=not command.given,
    )


def configured_candidate(
    command: Command, keys: set[str], overrides: Sequence[str], search: Mapping[str, Any]
) -> Candidate:
    """Return the candidate of a module and data of the user's own. Their arguments are what the
    command or the candidate sets: ``+module.hidden=64``, ``+data.root=files``; the settings of the
    app's data are not passed on.
    """
    config = command.compose(*overrides)
    target = located(config.module._target_)
    located(config.data._target_)  # a mistake in it is answered here, not at the first run
    arguments = {k: value for k, value in plain(config.module).items() if k not in OWN_SETTINGS}
    ranges = {key.removeprefix("module."): description for key, description in search.items()}
    check_arguments(target, {**arguments, **ranges}, "module.")
    for key, description in ranges.items():
        if key in arguments:  # where the search begins
            knob = setting_range(description, arguments[key])
            ranges[key] = {**vars(knob)}
    given = {*keys, *keys_of(overrides)}
    data_settings = plain(config.data)
    data_arguments = {k: value for k, value in data_settings.items() if f"data.{k}" in given}
    data = functools.partial(instantiate, {**data_arguments, "_target_": config.data._target_})
    factory = functools.partial(target, **arguments)
    return own_candidate(target.__name__, factory, data, ranges, command.sample.search.lr_factor)


def own_loss(node: Mapping[str, Any]) -> Any:
    """Return a configured loss, or if it has a ``search``, a pair of its factory and the ranges of
    its arguments.
    """
    arguments = {"_target_": None, **node}
    ranges = arguments.pop("search", None)
    located(str(arguments["_target_"]))
    if ranges:
        return functools.partial(instantiate, arguments), ranges
    return instantiate(arguments)


# --- the runs


def launched(command: Command, recipe: Recipe) -> Execute:
    """Return what makes runs as jobs of Hydra's launcher, which gets them all at once."""
    command.directory.mkdir(parents=True, exist_ok=True)
    (command.directory / CANDIDATES_FILE).write_bytes(cloudpickle.dumps(recipe))

    def execute(runs: Sequence[Run]) -> Iterator[tuple[Run, Outcome]]:
        jobs = []
        for run in runs:
            words = [*command.overrides.values(), f"+comparison={override_value(vars(run))}"]
            jobs.append([*words, f"hydra.sweep.subdir='{run.folder}'"])
        for run, job in zip(runs, command.launcher.launch(jobs, initial_job_idx=0), strict=True):
            if job.status == JobStatus.COMPLETED:
                yield run, Result.read(command.directory / run.folder / RESULT_FILE)
            else:
                yield run, f"{run}: {type(job._return_value).__name__}: {job._return_value}"

    return execute


def launched_job(config: DictConfig) -> Result:
    """Make a run in a job of a launcher."""
    run = Run(**plain(config.comparison))
    directory = Path(config.output_dir).parents[run.folder.count("/")]
    recipe: Recipe = cloudpickle.loads(own_file(directory / CANDIDATES_FILE).read_bytes())
    with quiet_training():
        return make(recipe, directory, run)


def keys_of(overrides: Sequence[str]) -> list[str]:
    """Return the names of the settings that overrides set."""
    return [word.lstrip("+~").partition("=")[0] for word in overrides]


def sweep(
    config: DictConfig, launcher: Launcher, loader: ConfigLoader, arguments: Sequence[str]
) -> None:
    """Make the comparison that the command asks for, print and write its report, and raise if runs
    have failed.
    """
    command, console = Command(config, launcher, loader, arguments), Console()
    directory = command.directory
    console.print(f"The runs are in {directory}.", markup=False, highlight=False)
    with quiet_training():
        look = own_comparison(command) if command.own else app_comparison(command, console)
        plan, recipe, subject = look
        words = [word for word in arguments if not word.startswith("data_dir=")]
        plan.facts = {**plan.facts, "commands": [shlex.join(["as-lightning-compare", *words])]}
        execute = launched(command, recipe)
        if command.in_this_process:
            execute = execute_here(recipe, directory, command.n_jobs)
        try:
            record = run_comparison(plan, recipe, subject, directory, console, execute)
        finally:
            if command.n_jobs > 1:
                end_processes()
    publish(record, directory / "report")
    if failed := record.failures:
        raise SettingError(
            f"{len(failed)} runs have failed; the first: {failed[0]}. The report is of the others"
        )
