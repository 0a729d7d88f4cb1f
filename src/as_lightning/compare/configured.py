"""``as-lightning-compare`` inside Hydra: from overrides to candidates and a plan, and runs made by
their overrides.
"""

from __future__ import annotations

import functools
import re
import shlex
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import torch
from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.utils import JobStatus
from hydra.errors import InstantiationException
from hydra.plugins.launcher import Launcher
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console

from as_lightning.bench.data.base import BenchmarkDataModule, collected_messages
from as_lightning.bench.run.fingerprint import digest
from as_lightning.bench.run.identity import RunIdentity
from as_lightning.bench.run.predictions import example_ids
from as_lightning.bench.run.processes import one_job
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
from as_lightning.compare.engine import Execute, Subject, end_processes, execution, run_comparison
from as_lightning.compare.next_runs import Outcome
from as_lightning.compare.own_loss import BASELINE, OwnLosses, check_arguments, knobs, plain
from as_lightning.compare.own_module import OwnCandidate, OwnModules, baseline_first
from as_lightning.compare.plan import (
    ComparisonPlan,
    Run,
    check_processes,
    check_trainer,
    default_settings,
    of_candidate,
)
from as_lightning.compare.search import RATE, Choice, Space, learning_rates, setting_range
from as_lightning.functional.argument_checks import check_count
from as_lightning.report.page import publish

OF_COMPARISON = {*default_settings(), "hydra"}  # settings that its runs do not have
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
OF_SCORES = (
    "data.score",
    "ckpt_path",
    "trainer.limit_val_batches",
    "trainer.limit_test_batches",
    "trainer.overfit_batches",
)
OF_MODELS = {
    "model",
    "optimizer",
    "lr_scheduler",
    "callbacks",
}  # of the app; the user's own modules do not read them
OWN_SETTINGS = ("_target_", "replaces", "monitor", "mode")
PER_SEED = "per_seed"
RATE_KEY = "optimizer.lr"
MODULES_FILE = "modules.pkl"  # the user's own modules, for the jobs of a launcher
CANDIDATE_BASELINE = (
    "baseline"  # the configuration as it is, where candidates are given and no baseline among them
)


class ConfiguredComparison:
    """One call of ``as-lightning-compare``; ``arguments`` are its overrides. Impossible settings
    are refused.
    """

    def __init__(
        self, config: DictConfig, launcher: Launcher, loader: ConfigLoader, arguments: Sequence[str]
    ) -> None:
        self.config, self.launcher, self.loader = config, launcher, loader
        self.directory = Path(config.hydra.sweep.dir)
        plan_settings = default_settings().keys() - {
            "search",
            "module",
            "losses",
            "candidates",
            "default_methods",
        }
        self.settings: dict[str, Any] = {name: plain(config.get(name)) for name in plan_settings}
        self.split_seed: Any = None
        self.swept: dict[str, list[Any]] = {}  # knobs of methods, given as a sweep
        self.overrides: dict[str, str] = {}  # of every run, by their keys
        given_keys = {*_keys([*arguments, *config.hydra.overrides.hydra])}
        for key in given_keys & FIXED.keys():
            raise SettingError(f"{key} is the comparison's own, and would be ignored: {FIXED[key]}")
        if {"seed", "seeds"} <= given_keys:
            raise SettingError("seed and seeds are both given: write seeds=[0, 1, 2], or how many")
        for override in OverridesParser.create().parse_overrides(list(arguments)):
            self._classify(override)
        self.sample = self._compose()
        if not re.fullmatch(r"[^/\\\0.][^/\\\0]*", str(self.sample.name)):
            raise SettingError(
                f"name={self.sample.name} cannot name a folder below comparisons: leave out / and "
                ".."
            )
        if self.sample.get("ckpt_path") is not None:
            raise SettingError(
                "a comparison tunes the optimizer, which ckpt_path would bring: leave ckpt_path out"
            )
        self.n_jobs = check_count("n_jobs", self.settings.pop("n_jobs"), least=1)
        if self.n_jobs > 1 and not self._in_this_process:
            raise SettingError(
                "n_jobs is of runs on this machine: a launcher has its own, as "
                "hydra.launcher.n_jobs=2"
            )
        methods, baseline = self.settings.pop("methods"), self.settings.pop("baseline")
        if baseline is not None and not isinstance(baseline, str):
            raise SettingError(f"baseline must be the name of one candidate, got {baseline!r}")
        methods = [methods] if isinstance(methods, str) and methods else methods
        self.own: OwnModules | None = None
        given_candidates = plain(self.sample.candidates)
        if "method" in self.overrides and (self.sample.module._target_ or not given_candidates):
            raise SettingError(
                f"a comparison takes methods: write methods={self.sample.method.name}, or several"
            )
        if self.sample.module._target_:
            candidate_names, baseline = self._own_modules(methods, baseline, given_candidates)
        else:
            for key in (
                key for key in self.overrides if key.partition(".")[0] in ("module", "losses")
            ):
                raise SettingError(
                    f"{key} is of a module of your own, which module._target_ names: give both or "
                    "neither"
                )
            candidate_names, baseline = self._candidates(methods, baseline, given_candidates)
        self.plan = ComparisonPlan(
            candidate_names, baseline, self.sample.trainer.max_epochs, **self.settings
        )
        self.configured: dict[str, DictConfig] = {}  # each candidate as a run of it would be
        if self.own is None:
            self._configure()

    # --- candidates

    def _candidates(
        self,
        methods: Sequence[str] | None,
        baseline: str | None,
        given_candidates: Mapping[str, Any],
    ) -> tuple[list[str], str]:
        """Set `candidates`: the overrides and search ranges of each name; returns the names and the
        baseline.
        """
        first_method = [
            f"method={name}" for name in (methods or [])[:1] if "method" not in self.overrides
        ]
        method_baseline = str(
            (self._compose(*first_method) if first_method else self.sample).method.baseline
        )
        if methods is None and not given_candidates:
            methods = [method_baseline, *plain(self.config.default_methods)[method_baseline]]
        self.candidates: dict[str, tuple[list[str], Mapping[str, Any]]] = {}
        for name in methods or []:
            if name in self.candidates:
                raise SettingError(
                    f"methods must be a list of at least one name, each given once, got {methods!r}"
                )
            self.candidates[name] = [f"method={name}"], {}
        default_method = [] if "method" in self.overrides else [f"method={method_baseline}"]
        for name, (overrides, search) in _described(given_candidates).items():
            if name in self.candidates:
                raise SettingError(
                    f"the candidate {name} is named twice: give each a name of its own"
                )
            method_override = (
                [] if any(word.startswith("method=") for word in overrides) else default_method
            )
            self.candidates[name] = [*method_override, *overrides], search
        if (
            baseline in (None, CANDIDATE_BASELINE)
            and given_candidates
            and method_baseline not in self.candidates
        ):
            self.candidates = {CANDIDATE_BASELINE: (default_method, {})} | self.candidates
        baseline_name = baseline or (
            CANDIDATE_BASELINE if CANDIDATE_BASELINE in self.candidates else method_baseline
        )
        if baseline_name in names("method"):
            self.candidates.setdefault(baseline_name, ([f"method={baseline_name}"], {}))
        if baseline_name not in self.candidates:
            raise SettingError(
                f"no candidate is called {baseline_name}: {nearest(baseline_name, self.candidates)}"
            )
        return list(self.candidates), baseline_name

    def _configure(self) -> None:
        """Compose each candidate as a run of it would be, and refuse two that are the same."""
        first_values = knob_overrides({name: values[0] for name, values in self.swept.items()})
        unread_settings = []
        for name in self.plan.candidates:
            overrides, search = self.candidates[name]
            with of_candidate(name, self.plan.baseline):
                for group in (key.partition(".")[0] for key in search if "." in key):
                    if group not in self.sample:  # ++ would add it, and nothing would read it
                        raise SettingError(f"there is no {group}: {nearest(group, GROUPS)}")
                self.configured[name], unread = checked_settings(
                    self._compose(*first_values, *overrides)
                )
                unread_settings.append(set(unread))
                epochs = self.configured[name].trainer.max_epochs
                self.plan.own_epochs[name] = check_count("trainer.max_epochs", epochs, least=1)
                for config in (self.configured[name], *self._searched(name)):
                    check_trainer(plain(config.trainer))
                    for key in OF_SCORES:
                        own_value, shared_value = (
                            OmegaConf.select(config, key),
                            OmegaConf.select(self.sample, key),
                        )
                        if own_value != shared_value:
                            raise SettingError(
                                f"{key} is {own_value}, not {shared_value}: set one for all"
                            )
        for setting in set.intersection(*unread_settings):
            raise SettingError(f"no method of the comparison has method.{setting}")
        name_of: dict[str, str] = {}
        for name, config in self.configured.items():
            config_text = str(sorted(identity_of(config).config.items()))
            if not self.candidates[name][1] and name_of.setdefault(config_text, name) != name:
                same = f"{name_of[config_text]} and {name} are the same run"
                raise SettingError(f"{same}: leave one out, or change a setting of it")

    def _searched(self, name: str) -> list[DictConfig]:
        """The configurations of a candidate at each value of its own search, or at a range's ends
        and default.
        """
        (overrides, search), configs = self.candidates[name], []
        for key, description in search.items():
            knob = setting_range(description)
            values = (
                knob.values if isinstance(knob, Choice) else (knob.low, knob.default, knob.high)
            )
            configs += [
                checked_settings(self._compose(*overrides, *knob_overrides({key: v})))[0]
                for v in values
            ]
        return configs

    def _own_modules(
        self,
        methods: Sequence[str] | None,
        baseline: str | None,
        given_candidates: Mapping[str, Any],
    ) -> tuple[list[str], str]:
        if self.swept:
            raise SettingError(
                f"{', '.join(self.swept)}: a list of values is for the app's methods; of a module "
                "of your own give "
                "one value, or the range of a loss (losses.NAME.search)"
            )
        if self.split_seed == PER_SEED:
            raise SettingError(
                "data of your own get one data.split_seed, not per_seed: give a number or none"
            )
        if given_candidates and (methods or self.sample.losses):
            raise SettingError(
                "candidates of your own module are compared as they are: leave methods and losses "
                "out"
            )
        for key in (key for key in self.overrides if key.partition(".")[0] in OF_MODELS):
            raise SettingError(
                f"{key} is read by the app's models alone; an argument of yours is +module.NAME=..."
            )
        config, keys = self.sample, {".".join(key.split(".")[:2]) for key in self.overrides}
        name = str(config.name)
        if name == config.data.name:
            name = str(config.module._target_).rpartition(".")[2]
        losses = None
        if given_candidates:
            baseline = baseline or CANDIDATE_BASELINE
            unchanged: dict[str, Any] = (
                {CANDIDATE_BASELINE: []} if baseline == CANDIDATE_BASELINE else {}
            )
            described_candidates = _described(unchanged | dict(given_candidates), own=True)
            candidates = {}
            for label, description in described_candidates.items():
                with of_candidate(label, baseline):
                    candidates[label] = self._own_candidate(keys, *description)
            candidates = baseline_first(candidates, baseline)
        else:
            fixed_settings = {
                key: value for key, value in plain(config.method).items() if f"method.{key}" in keys
            }
            own_losses = {str(key): _own_loss(node) for key, node in plain(config.losses).items()}
            losses = OwnLosses(methods or None, own_losses, fixed_settings, baseline)
            candidates = {name: self._own_candidate(keys, [], {})}
        module, trainer = config.module, plain(config.trainer)
        trainer.pop("_target_")
        self.own = OwnModules(
            candidates, losses, module.replaces, module.monitor, module.mode, trainer, name
        )
        return self.own.names, baseline or BASELINE

    def _own_candidate(
        self, keys: Collection[str], overrides: Sequence[str], search: Mapping[str, Any]
    ) -> OwnCandidate:
        """The candidate of a module and data of the user's own. Their arguments are what the
        command or the candidate sets: ``+module.hidden=64``, ``+data.root=files``; the settings of
        the app's data are not passed on.
        """
        config = self._compose(*overrides)
        target = located(config.module._target_)
        located(config.data._target_)  # a mistake in it is answered here, not at the first run
        arguments = {
            key: value for key, value in plain(config.module).items() if key not in OWN_SETTINGS
        }
        descriptions = {
            key.removeprefix("module."): description for key, description in search.items()
        }
        check_arguments(target, {**arguments, **descriptions}, "module.")
        ranges = {
            key: setting_range(description, arguments.get(key))
            for key, description in descriptions.items()
        }
        keys = {*keys, *_keys(overrides)}
        data_arguments = {
            key: value for key, value in plain(config.data).items() if f"data.{key}" in keys
        }
        data = functools.partial(instantiate, {"_target_": config.data._target_, **data_arguments})
        return OwnCandidate(functools.partial(target, **arguments), data, ranges)

    def _classify(self, override: Override) -> None:
        """Store an override as a setting of the comparison, a knob to search, or a setting of every
        run.
        """
        key = override.get_key_element().lstrip("+~")
        values = None
        if override.is_sweep_override():
            values = [
                OmegaConf.create(f"value: {text}").value
                for text in override.sweep_string_iterator()
            ]
        if key in self.settings:
            self.settings[key] = values if values is not None else plain(override.value())
        elif key == "seed" or (key == "method" and values is not None):
            self.settings[f"{key}s"] = values if values is not None else [plain(override.value())]
        elif key == "data.split_seed" and values is None:
            self.split_seed = plain(override.value())
            if self.split_seed not in (None, PER_SEED):
                self.overrides[key] = f"++{key}={self.split_seed}"
        elif values is None:
            line = str(override.input_line)
            self.overrides[key] = f"++{line.lstrip('+')}" if key.startswith("method.") else line
        elif (key.startswith("method.") and key.count(".") == 1) or key == RATE_KEY:
            self.swept[key.rpartition(".")[2]] = values
        else:
            raise SettingError(
                f"{key} cannot be swept in a comparison: runs differ in candidate, seed and tuned "
                "settings. "
                "Make one comparison for each value (a value that holds a comma needs quotes "
                "inside the shell's)"
            )

    def _compose(self, *more: str) -> DictConfig:
        return self.loader.load_sweep_config(self.config, [*self.overrides.values(), *more])

    # --- the look

    def look(self, console: Console) -> Subject:
        """Look at candidates and data, and refuse what would end every run; prints the messages of
        the data.
        """
        if self.own is not None:
            subject = self.own.subject(
                self.plan, self.sample.search.lr_factor, self.directory, self.n_jobs
            )
            if self._in_this_process:
                return subject
            self.directory.mkdir(parents=True, exist_ok=True)
            (self.directory / MODULES_FILE).write_bytes(self.own.pickled())
            return subject._replace(execute=self._run_by_launcher)
        data, messages = self._read_data()
        for name in self.configured:
            with of_candidate(name, self.plan.baseline):
                self._check_candidate(name, data)
        execute: Execute = self._run_by_launcher
        if self._in_this_process:
            execute = self._run_locally
            if self.n_jobs > 1:
                end_processes()
        console.print("\n".join(messages), markup=False, highlight=False)
        splits = {None: "official", PER_SEED: PER_SEED}.get(self.split_seed, "fixed")
        facts: dict[str, Any] = {
            "name": str(self.sample.name),
            "score": self.sample.data.score,
            "splits": splits,
        }
        spaces = {name: self.space(name) for name in self.configured}
        if not any(RATE in space for space in spaces.values()):
            rates = " or ".join(
                dict.fromkeys(f"{config.optimizer.lr:g}" for config in self.configured.values())
            )
            facts["notes"] = [f"The learning rate was not tuned: all candidates ran at {rates}."]
        facts["changes"] = {name: self.changes(name) for name in self.configured}
        shared = dict(identity_of(self.sample).config) | {
            key: str(values) for key, values in self.swept.items()
        }
        settings = {key: value for key, value in shared.items() if not key.startswith("method.")}
        settings |= {
            key: value
            for key, value in self.overrides.items()
            if key.startswith(("method.", "search."))
        }
        settings |= {
            f"candidates.{name}": str(spec)
            for name, spec in self.candidates.items()
            if spec[0] != [f"method={name}"]
        }
        identity = RunIdentity.of(settings, {"data": data_digest(data)})
        whole_data = data
        if data.splits_by_seed and (
            data.shots or data.imbalance
        ):  # other seeds test the rows left out
            with collected_messages():
                whole_data = read_data(self._compose("data.shots=null", "data.imbalance=null"))
        return Subject(
            self.plan.with_spaces(spaces, named_examples(whole_data), **facts), execute, identity
        )

    def _read_data(self) -> tuple[BenchmarkDataModule, list[str]]:
        """The data and their messages; sets a split seed that is left to the data."""
        try:
            with collected_messages() as messages:
                data = read_data(self.sample)
        except (SettingError, OmegaConfBaseException):
            raise
        except Exception as error:  # any error here would end every run
            cause = (
                error.__cause__
                if isinstance(error, InstantiationException) and error.__cause__
                else error
            )
            raise SettingError(
                f"the data cannot be read, so no run has started: {cause}"
            ) from error
        if self.split_seed is not None and not data.splits_by_seed:
            raise SettingError(
                f"data={self.sample.data.name} has an official test split, which a comparison "
                "keeps: leave "
                "data.split_seed out"
            )
        if self.split_seed is None and data.splits_by_seed:
            self.split_seed = PER_SEED
        return data, messages

    def _check_candidate(self, name: str, data: BenchmarkDataModule) -> None:
        """Refuse a candidate whose runs would fail, be scored on other examples, or not depend on
        the learning rate.
        """
        config = self.configured[name]
        for candidate_config in (config, *self._searched(name)):
            own_data = (
                data if candidate_config.data == self.sample.data else read_data(candidate_config)
            )
            if own_data is not data and scored_examples(own_data) != scored_examples(data):
                raise SettingError(
                    "other validation or test examples: candidates are judged by the same ones"
                )
            made_module(candidate_config, own_data)
        if RATE in self.space(name):
            doubled_rate = self._compose(
                *self.candidates[name][0], f"{RATE_KEY}={2 * config.optimizer.lr}"
            )
            if first_rates(doubled_rate) == first_rates(config):
                hint = "leave out its own rate (as max_lr), or set search.lr_factor=null"
                raise SettingError(f"lr_scheduler hides the learning rate, which is tuned: {hint}")
        if self._in_this_process:  # other machines may have other devices
            try:
                check_processes(self.n_jobs, instantiate(config.trainer, logger=False).world_size)
            except InstantiationException as error:
                raise SettingError(
                    f"the settings of trainer are refused: {error.__cause__ or error}"
                ) from error

    def space(self, name: str) -> Space:
        """What is tuned of a candidate: the learning rate, the ``search`` of its method, and its
        own.
        """
        config = self.configured[name]
        space: dict[str, Any] = {}
        if self.sample.search.lr_factor is not None:
            space[RATE] = learning_rates(float(config.optimizer.lr), self.sample.search.lr_factor)
        overrides, search = self.candidates[name]
        requested_knobs: list[str] = []
        space |= knobs(
            config.method,
            {key.removeprefix("method.") for key in [*self.overrides, *_keys(overrides)]},
        )
        for (
            key,
            description,
        ) in search.items():  # a range of the candidate's own takes the place of its method's
            knob = RATE if key == RATE_KEY else key.removeprefix("method.")
            space[knob] = setting_range(description, plain(OmegaConf.select(config, key)))
            requested_knobs += [knob] * (self.plan.trials > 1)  # a single trial takes the default
        # a neutral value makes a method its baseline only if nothing else differs
        baseline, method_alone = self.plan.baseline, [f"method={config.method.name}"]
        contains = baseline == config.method.baseline and overrides == method_alone
        contains = contains and self.candidates[baseline] == (
            [f"method={baseline}"],
            {},
        )  # not one of that name
        if not contains:
            space = {knob: replace(dimension, neutral=None) for knob, dimension in space.items()}
        own = {
            key.rpartition(".")[2]
            for key in [*_keys(overrides), *search]
            if key.startswith(("method.", RATE_KEY))
        }
        for knob in filter(
            ({RATE, *map(str, config.method)} - own).__contains__, self.swept
        ):  # in the order given
            neutral = space[knob].neutral if knob in space else None
            values = [value for value in self.swept[knob] if value != neutral] or [neutral]
            space[knob] = Choice(values, values[0], neutral)
            requested_knobs.append(knob)
        self.plan.check_values(name, {knob: space[knob] for knob in requested_knobs})
        return space

    def changes(self, name: str) -> dict[str, list[str]]:
        """The settings unlike the baseline's, with both values.

        The name of another method stands for its settings, and a setting for those that are
        interpolated from it.
        """
        own, base = (
            identity_of(self.configured[candidate]).config
            for candidate in (name, self.plan.baseline)
        )
        keys = sorted(key for key in own.keys() | base.keys() if own.get(key) != base.get(key))
        keys = [key for key in keys if not _follows_another(self.configured[name], key)]
        if own["method.name"] != base["method.name"]:
            keys = ["method.name", *(key for key in keys if not key.startswith("method."))]
        return {key: [base.get(key, "null"), own.get(key, "null")] for key in keys}

    # --- the runs

    def overrides_of(self, run: Run) -> list[str]:
        """The overrides of the job that makes a run."""
        if self.own is not None:
            return [*self.overrides.values(), f"+comparison={override_value(vars(run))}"]
        run_fields = run.about(self.plan.epochs(run.candidate))
        return [
            *self.overrides.values(),
            *self.candidates[self.plan.tuned_as(run.candidate)][0],
            *knob_overrides(run.settings),
            *([f"++data.split_seed={run.seed}"] if self.split_seed == PER_SEED else []),
            f"trainer.max_epochs={run_fields['epochs']}",
            f"test={str(run.phase == 'final').lower()}",
            f"seed={run.seed}",
            f"+comparison={override_value(run_fields)}",
        ]

    @property
    def _in_this_process(self) -> bool:
        return type(self.launcher).__name__ == "BasicLauncher"

    def _run_locally(self, runs: Sequence[Run]) -> Iterable[tuple[Run, Outcome]]:
        """Make runs in this process, or in several of this machine."""
        composed = {
            run: self.loader.load_sweep_config(self.config, self.overrides_of(run)) for run in runs
        }
        configs = {run: job_config(composed[run], self.directory / run.folder) for run in runs}
        return execution(lambda run: run_job(configs[run]), self.n_jobs)(runs)

    def _run_by_launcher(self, runs: Sequence[Run]) -> Iterator[tuple[Run, Outcome]]:
        """Make runs by Hydra's launcher, which gets them all at once."""
        jobs = [[*self.overrides_of(run), f"hydra.sweep.subdir='{run.folder}'"] for run in runs]
        for run, job in zip(runs, self.launcher.launch(jobs, initial_job_idx=0), strict=True):
            if job.status == JobStatus.COMPLETED:
                yield run, Result.read(self.directory / run.folder / RESULT_FILE)
            else:
                yield run, f"{run}: {type(job._return_value).__name__}: {job._return_value}"


def _follows_another(config: DictConfig, key: str) -> bool:
    """Whether a setting is an interpolation, as ``${method.lr_scale}`` of a callback."""
    group, _, setting = key.rpartition(".")
    node = OmegaConf.select(config, group)
    return (
        isinstance(node, DictConfig)
        and setting in node
        and OmegaConf.is_interpolation(node, setting)
    )


def identity_of(config: DictConfig) -> RunIdentity:
    """The identity of the runs of a configuration, without their seeds."""
    run_keys = [str(key) for key in config if key not in OF_COMPARISON | {"seed"}]
    return RunIdentity.of(comparable_config(OmegaConf.masked_copy(config, run_keys)))


def job_config(config: DictConfig, folder: Path) -> DictConfig:
    """The configuration of a run's job: without the comparison's settings, and with the run's
    folder.
    """
    config = OmegaConf.masked_copy(config, [str(key) for key in config if key not in OF_COMPARISON])
    with open_dict(config):
        config.output_dir = str(folder)
    return config


def run_job(config: DictConfig) -> Result:
    """Make a run of a comparison by its configuration."""
    result = one_job(config)
    shutil.rmtree(Path(config.output_dir) / "checkpoints", ignore_errors=True)
    return result


def launched_job(config: DictConfig) -> Result:
    """Make a run in a job of a launcher; the user's own modules are those that the look has
    pickled.
    """
    folder = Path(config.output_dir)
    with quiet_training():
        if not config.module._target_:
            return run_job(job_config(config, folder))
        run = Run(**plain(config.comparison))
        modules: OwnModules = cloudpickle.loads(
            (folder.parents[run.folder.count("/")] / MODULES_FILE).read_bytes()
        )
        return modules.make_in_job(run, folder)


def sweep(
    config: DictConfig, launcher: Launcher, loader: ConfigLoader, arguments: Sequence[str]
) -> None:
    """Make the comparison that the command asks for, print and write its report, and raise if runs
    have failed.
    """
    job = ConfiguredComparison(config, launcher, loader, arguments)
    directory, console = job.directory, Console()
    console.print(f"The runs are in {directory}.", markup=False, highlight=False)
    with quiet_training():
        subject = job.look(console)
        command = [
            "as-lightning-compare",
            *(word for word in arguments if not word.startswith("data_dir=")),
        ]
        subject.plan.facts = {**subject.plan.facts, "commands": [shlex.join(command)]}
        record = run_comparison(subject, directory, console)
    publish([record], directory / "report")
    if failed := record.failures:
        raise SettingError(
            f"{len(failed)} runs have failed; the first: {failed[0]}. The report is of the others"
        )


def _described(
    candidates: Mapping[str, Any], own: bool = False
) -> dict[str, tuple[list[str], Mapping[str, Any]]]:
    """The overrides and search ranges of each given candidate; those of ``own`` modules may set two
    groups alone.
    """
    parsed = {}
    for name, description in candidates.items():
        fields = description if isinstance(description, Mapping) else {"overrides": description}
        for key in fields.keys() - {"overrides", "search"}:
            raise SettingError(
                f"candidates.{name} has {key}: {nearest(key, ['overrides', 'search'])}"
            )
        overrides = fields.get("overrides", [])
        if isinstance(overrides, str) or not isinstance(overrides, Sequence):
            expected = "a list of overrides, as [model.width=256]"
            raise SettingError(f"candidates.{name} must be {expected}, got {description}")
        parsed[str(name)] = texts, search = [*map(str, overrides)], fields.get("search") or {}
        for key in [*_keys(texts), *(() if own else search)]:
            group = key.partition(".")[0]
            if key in RUN_KEYS or (
                group not in ("module", "data") if own else group in OF_COMPARISON
            ):
                hint = ": of a module of your own it sets module.* and data.*" if own else ""
                raise SettingError(
                    f"candidates.{name} cannot set {key}, which is the same for all candidates{hint}"
                )
    return parsed


def _keys(overrides: Sequence[str]) -> list[str]:
    return [word.lstrip("+~").partition("=")[0] for word in overrides]


def _own_loss(node: Mapping[str, Any]) -> Any:
    """A configured loss, or if it has a ``search``, a pair of its factory and the ranges of its
    arguments.
    """
    arguments = _with_code(
        {"_target_": None, **node}
    )  # so that the digest of the loss covers its code
    ranges = arguments.pop("search", None)
    return (functools.partial(instantiate, arguments), ranges) if ranges else instantiate(arguments)


def _with_code(node: Any) -> Any:
    """A configuration with classes and functions in the place of their names."""
    if not isinstance(node, dict):
        return [*map(_with_code, node)] if isinstance(node, list) else node
    return {
        key: located(str(part)) if key == "_target_" else _with_code(part)
        for key, part in node.items()
    }


def first_rates(config: DictConfig) -> dict[str, Any]:
    """The entries for the learning rate in an optimizer's group after its schedule was made."""
    optimizer = instantiate(config.optimizer)([torch.nn.Parameter(torch.zeros(1))])
    if config.lr_scheduler is not None:
        instantiate(config.lr_scheduler)(optimizer, total_steps=100)
    return {key: value for key, value in optimizer.param_groups[0].items() if "lr" in key}


def data_digest(data: BenchmarkDataModule) -> str:
    """A digest of the examples at one seed, whatever their split; of those of the test alone if
    they have no names.
    """
    rows = [
        row
        for split in data.splits
        if data.texts or split == "test"
        for row in examples(data, split)
    ]
    return digest(*sorted(rows))


def scored_examples(data: BenchmarkDataModule) -> str:
    """A digest of the validation and test examples, by which settings are chosen and candidates
    judged.
    """
    return digest(*examples(data, "validation"), *examples(data, "test"))


def examples(data: BenchmarkDataModule, split: str) -> list[str]:
    """Name and target of each example of a split."""
    pairs = zip(data.example_names(split), data.splits[split].targets, strict=True)
    return [f"{name} {target.tolist()}" for name, target in pairs]


def named_examples(data: BenchmarkDataModule) -> dict[int, str]:
    """All examples by their ids: the text or the file."""
    names = [name for split in data.splits for name in data.example_names(split)]
    return dict(zip(example_ids(names).tolist(), names, strict=True))


def knob_overrides(settings: Mapping[str, Any]) -> list[str]:
    """The overrides that give a run its tuned settings: a method's, or any that a candidate names
    by its path.
    """
    keys = {
        name: RATE_KEY if name == RATE else name if "." in name else f"method.{name}"
        for name in settings
    }
    marks = {name: "" if name == RATE else "++" for name in settings}
    return [
        f"{marks[name]}{keys[name]}={override_value(value)}" for name, value in settings.items()
    ]
