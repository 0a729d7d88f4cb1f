"""The user's own modules in a comparison: a first look at them and their data, and their runs.

The first look raises at once for what would fail every run, or spoil it silently.
"""

from __future__ import annotations

import copy
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, NamedTuple

import cloudpickle
import lightning.pytorch as pl
from lightning.fabric.utilities.data import sized_len
from lightning.pytorch.callbacks import DeviceStatsMonitor, LearningRateMonitor, ProgressBar
from lightning.pytorch.utilities.model_helpers import is_overridden
from lightning.pytorch.utilities.parsing import (
    lightning_getattr,
    lightning_hasattr,
    lightning_setattr,
)
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils.data import DistributedSampler

from as_lightning.bench.run.checkpoint_io import WholeFileCheckpointIO
from as_lightning.bench.run.fingerprint import Fingerprint, digest, loaders_of, of_split, user_files
from as_lightning.bench.run.identity import RunIdentity
from as_lightning.bench.run.predictions import PredictionRecorder
from as_lightning.bench.run.recorder import RunRecorder
from as_lightning.bench.run.result import Result
from as_lightning.bench.run.resume import BestWeights
from as_lightning.bench.run.runner import Made, finished_or_made, metrics_of_test, trained
from as_lightning.bench.run.settings import nearest
from as_lightning.callbacks import MaskingMonitor, TemperatureScaling
from as_lightning.compare.engine import Subject, end_processes, execution
from as_lightning.compare.next_runs import Outcome, best_validation
from as_lightning.compare.own_loss import (
    BASELINE,
    FIRST_LOOK,
    OwnLosses,
    TargetFinder,
    TrainingLoss,
    check_arguments,
)
from as_lightning.compare.plan import (
    ComparisonPlan,
    Run,
    check_processes,
    check_trainer,
    of_candidate,
)
from as_lightning.compare.search import RATE, Range, Space, learning_rates
from as_lightning.functional.variants.class_counts import class_counts_of
from as_lightning.report.table import checked_mode

RATES = ("lr", "learning_rate")
SHARED = (
    "logger",
    "profiler",
    "default_root_dir",
)  # of the trainer: all runs share them, and they change no number
CHECKED: set[tuple[str, str]] = (
    set()
)  # candidates and summaries of modules that this process makes as the look did
QUIET = {
    "logger": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "num_sanity_val_steps": 0,
}
ONE_PROCESS = {"devices": 1, "num_nodes": 1, "strategy": "auto"}
LOOK = {
    **dict.fromkeys(("limit_train_batches", "limit_val_batches", "limit_test_batches"), 1),
    "val_check_interval": 1.0,  # Lightning refuses an interval that is longer than the epoch
}


class OwnCandidate(NamedTuple):
    """The factory of a candidate's module, and its data."""

    factory: Callable[..., pl.LightningModule]
    datamodule: Any  # of which each run gets a copy, or a function that makes one
    search: Space = MappingProxyType({})  # arguments of the factory that are tuned


@dataclass
class OwnModules:
    """What is compared, as `compare` takes it, and what `look` has found.

    Either one module that is trained by several ``losses``, or several ``candidates``, of which the
    first is the baseline, each with the loss that it has.
    """

    candidates: Mapping[str, OwnCandidate]
    losses: OwnLosses | None
    replaces: str | None
    monitor: str
    mode: Any  # "max", "min", or None: as the monitor's name says
    trainer: Mapping[str, Any]
    name: str = "comparison"
    # what the first look finds
    test_metric: str | None = None  # None where the validation split is scored
    rates: dict[str, Range] = field(
        default_factory=dict
    )  # of the candidates whose learning rate can be tuned
    target: str | int | None = (
        None  # its key or position in a batch; None where calibration cannot be measured
    )
    several: bool = False  # whether the targets of the module's own loss are no class indices
    ignore_index: int = -100  # of that loss
    inputs: dict[str, dict[str, str]] = field(
        default_factory=dict
    )  # digests of each candidate's module and data
    changes: dict[str, dict[str, Any]] = field(
        default_factory=dict
    )  # of each candidate to the baseline
    notes: list[str] = field(default_factory=list)
    processes: int = 1  # of each run
    of_trainer: dict[str, str] = field(default_factory=dict)  # a digest of each argument
    files: dict[str, str] = field(
        default_factory=dict
    )  # digests of the user's code, for other processes
    looked_at: dict[str, str] = field(
        default_factory=dict
    )  # `_module_summary` of each candidate; empty if it changes
    _about: dict[str, Any] = field(
        default_factory=dict
    )  # class and hyperparameters of the first candidate's module
    _tuned_modules: dict[str, str] = field(
        default_factory=dict
    )  # digests by candidate and arguments
    _written: dict[str, set[str]] = field(
        default_factory=dict
    )  # files of each candidate that have changed in a look

    def __post_init__(self) -> None:
        self.half: tuple[str | None, str] = None, ""  # its name, and that of the baseline
        for name, candidate in self.candidates.items():
            if not callable(candidate.factory) or isinstance(candidate.factory, nn.Module):
                raise TypeError(
                    f"{name}: expected a function that makes a fresh module, e.g. compare(lambda: "
                    "LitModel(lr=1e-3), "
                    f"...); got {type(candidate.factory).__name__}: one module cannot be trained "
                    "several times from "
                    "its start"
                )
            check_arguments(candidate.factory, candidate.search)
        self.mode = checked_mode(self.mode, self.monitor)
        if not isinstance(self.trainer, Mapping):
            raise TypeError(
                f'trainer must be the arguments of each run\'s Trainer, as {{"max_epochs": 10}}, '
                f"got {self.trainer!r}"
            )
        for name in self.trainer.keys() - (
            known := inspect.signature(pl.Trainer).parameters.keys()
        ):
            raise ValueError(
                f"trainer has {name!r}, which lightning.Trainer does not take: "
                f"{nearest(name, known)}"
            )
        check_trainer(self.trainer)
        if re.search("spawn|fork|notebook", strategy := str(self.trainer.get("strategy", "auto"))):
            raise ValueError(
                f"trainer must not set strategy={strategy!r}: what its processes measure does not "
                "come back to this "
                'one; take strategy="ddp"'
            )
        callbacks = self.trainer.get("callbacks") or []
        callbacks = [callbacks] if isinstance(callbacks, pl.Callback) else callbacks
        logging_callbacks = (
            () if self.trainer.get("logger") else (LearningRateMonitor, DeviceStatsMonitor)
        )
        unused = (ProgressBar, MaskingMonitor, TemperatureScaling, *logging_callbacks)
        reason = "the runs have what they need of it, and without a logger of the trainer's nothing is logged"
        self.notes += [
            f"{type(c).__name__} was left out: {reason}."
            for c in callbacks
            if isinstance(c, unused)
        ]
        self.trainer = {
            **self.trainer,
            "callbacks": [c for c in callbacks if not isinstance(c, unused)],
        }

    @property
    def names(self) -> list[str]:
        """What is compared: the losses, or the candidates."""
        return list(self.candidates if self.losses is None else self.losses.names)

    def label(self, name: str) -> str:
        """The candidate that a compared name is of: all losses share one module."""
        return self.tuned_as(name) if self.losses is None else next(iter(self.candidates))

    def tuned_as(self, name: str) -> str:
        """The candidate whose module and loss the runs of a compared name have."""
        return self.half[1] if name == self.half[0] else name

    def epochs(self, run: Run) -> int:
        """The epochs of a run."""
        most: int = self.trainer["max_epochs"]
        return max(1, round(most / 2)) if run.candidate == self.half[0] else most

    def candidate(self, name: str) -> OwnCandidate:
        """The factory and the data of a compared name."""
        return self.candidates[self.label(name)]

    # --- the first look

    def subject(
        self, plan: ComparisonPlan, lr_factor: float | None, directory: Path, n_jobs: int = 1
    ) -> Subject:
        """The subject of a comparison whose runs will lie below ``directory``, after a `look`."""
        self.half = plan.half, plan.baseline
        self.processes = pl.Trainer(**{**QUIET, **self._trainer_arguments()}).world_size
        check_processes(n_jobs, self.processes)
        data, self.files = self.look(lr_factor), user_files()
        if n_jobs > 1:
            self.pickled()
            end_processes()
        spaces: dict[str, Space] = {}
        for name in self.names:
            rates = self.rates.get(self.label(name))
            search, rate_argument = (
                self.candidate(name).search,
                rate_name(self.candidate(name).factory),
            )
            own_space = {
                RATE if key == rate_argument else key: d for key, d in search.items()
            }  # replaces `rates`
            own_space = own_space if self.losses is None else self.losses.knobs[name]
            if plan.trials > 1 and (self.losses is None or name in self.losses.losses):
                plan.check_values(name, own_space)
            spaces[name] = {**({} if rates is None else {RATE: rates}), **own_space}
            # neutral is where a method is softmax, or where a loss of the user's is the module's
            # own
            contains_baseline = self.losses is not None and (
                not self.several or name in self.losses.losses
            )
            if plan.baseline != BASELINE or not contains_baseline:
                spaces[name] = {
                    key: replace(dimension, neutral=None) for key, dimension in spaces[name].items()
                }
        facts: dict[str, Any] = {
            "name": self.name,
            "score": (self.test_metric or self.monitor).removeprefix("test/"),
            "mode": self.mode,
            "notes": self.notes,
        }
        facts |= {"split": "validation" if self.test_metric is None else "test"}
        facts |= {"changes": self.changes} if self.losses is None else {}
        make = self.make if n_jobs == 1 else self.make_in_job
        make_all = execution(lambda run: make(run, directory / run.folder), n_jobs)

        def execute(runs: Sequence[Run]) -> Iterable[tuple[Run, Outcome]]:
            for run in runs:  # in this process: another one may have other files
                self._tuned(run)
            return make_all(runs)

        return Subject(
            plan.with_spaces(spaces, **facts), execute, RunIdentity.of({}, {"data": data})
        )

    def look(self, lr_factor: float | None) -> str:
        """Train each on a batch, and raise for what would fail the comparison, or spoil it
        silently.

        The first learning rates are the module's, times and divided by ``lr_factor``; None tunes no
        rate. Returns a digest of the validation and test examples.
        """
        examples, modules, first = {}, {}, next(iter(self.candidates))
        for name in self.candidates:
            with of_candidate(name, first):
                examples[name], modules[name] = self._look_at_parts(name, lr_factor)
                if examples[name] != examples[first]:
                    raise ValueError(
                        f"other validation or test examples than {first} has: compare on the same "
                        "ones"
                    )
        before = self._states()
        arguments = {
            name: Fingerprint(value, name)
            for name, value in self.trainer.items()
            if name not in SHARED
        }
        self._first_look(first)
        look_results = {}
        for name in self.names:
            with of_candidate(name, self.names[0]):
                look_results[name] = self._look_at(name)
        self._note_rates(look_results, lr_factor)
        for name, content in modules.items():
            self._written[name] = content.changing()
            self.inputs[name]["module"] = self._digest_of(content, name)
        for argument, content in arguments.items():
            content.leave_out(content.changing())
            self.of_trainer[argument] = content.digest
            if content.unread:
                self.notes.append(
                    f"What {content.unread[0]} is cannot be told, so runs in the folder are made "
                    "anew."
                )
        for place in (
            place
            for name, state in self._states().items()
            for place in state.differing(before[name])
        ):
            place = re.sub(r"\.(state|_modules|_parameters|_buffers)\b", "", place)
            raise ValueError(
                f"{place} goes on from run to run: a run has changed it, and the next one begins "
                "with it; let the "
                "function make it anew at each call, or copy it there (copy.deepcopy)"
            )
        return examples[first]

    def _look_at_parts(self, name: str, lr_factor: float | None) -> tuple[str, Fingerprint]:
        """Look at a candidate's module and data, without training; returns a digest of its
        validation and test examples, and the module's fingerprint.
        """
        module, second = self._fresh(name), self._fresh(name)
        if module is second:
            raise ValueError(
                "the factory returned the same object twice: it must make a new module at each "
                "call, as "
                "lambda: LitModel(...) does, or the second run would go on from the first one's "
                "weights"
            )
        fingerprint, second_fingerprint = Fingerprint(module, name), Fingerprint(second, name)
        self.looked_at[name] = (
            summary if (summary := _module_summary(module)) == _module_summary(second) else ""
        )
        rates = None if lr_factor is None else self._rates(name, module, lr_factor)
        if rates is not None:
            self.rates[name] = rates
        data_fingerprint, examples, training_digest = self._same_splits(name)
        fingerprint.take(data_fingerprint)
        self.inputs[name] = {"module": "", "data": digest(data_fingerprint.digest, training_digest)}
        fingerprint.unread += [*fingerprint.differing(second_fingerprint), *data_fingerprint.unread]
        if fingerprint.unread:
            consequence = f"so runs of {name} that are in the folder are made anew"
            self.notes.append(f"What {fingerprint.unread[0]} is cannot be told, {consequence}.")
        facts = {"module": type(module).__name__, **dict(module.hparams)}
        self._about = self._about or facts
        keys = dict.fromkeys([*self._about, *facts])
        differing = {key: [self._about.get(key), facts.get(key)] for key in keys}
        self.changes[name] = {
            k: [str(v) for v in pair] for k, pair in differing.items() if pair[0] != pair[1]
        }
        return examples, fingerprint

    def _fresh(self, name: str, **arguments: Any) -> pl.LightningModule:
        pl.seed_everything(0, workers=True, verbose=False)
        made = self.candidates[name].factory(**arguments)
        return checked(made, pl.LightningModule, "the factory must return a module")

    def _tuned(self, run: Run) -> dict[str, str]:
        """A digest of the module with arguments that are tuned: they may lead to code that the look
        has not seen.
        """
        name = self.label(run.candidate)
        arguments = {
            key: value for key, value in run.settings.items() if key in self.candidates[name].search
        }
        if arguments and (digest_key := f"{name} {arguments}") not in self._tuned_modules:
            self._tuned_modules[digest_key] = self._digest_of(
                Fingerprint(self._fresh(name, **arguments), name), name
            )
        return {"tuned": self._tuned_modules[digest_key]} if arguments else {}

    def _digest_of(self, fingerprint: Fingerprint, name: str) -> str:
        """The digest of a fingerprint without the files that a training writes."""
        fingerprint.leave_out(self._written[name])
        return fingerprint.digest

    def _states(self) -> dict[str, Fingerprint]:
        """Fingerprints of what must be the same before each run: losses, makers of data, and
        modules under one seed.

        Parts of a module that differ at each call are left out. Of a maker of data only random
        generators and streams count: data sets may count or keep what is read.
        """
        states = {}
        for name, (_, data, _) in self.candidates.items():
            first, second = (
                Fingerprint(self._fresh(name), name),
                Fingerprint(self._fresh(name), name),
            )
            states[name] = first
            first.parts = {
                p: text for p, text in first.lasting().items() if second.parts.get(p) == text
            }
            data_maker = (
                data if callable(data) else type(data)
            )  # of a data module each run gets a copy
            states[f"data of {name}"] = data_state = Fingerprint(data_maker, f"the data of {name}")
            data_state.parts = data_state.lasting(of_data=True)
        for name, (loss, _) in ({} if self.losses is None else self.losses.losses).items():
            states[name] = Fingerprint(loss, f"losses[{name!r}]")
        return states

    def _rates(self, name: str, module: pl.LightningModule, factor: float) -> Range | None:
        """The range of learning rates around that of a candidate's module; None if its rate cannot
        be set.
        """
        factory = self.candidates[name].factory
        argument, attribute = rate_name(factory), rate_name(module)
        rate = inspect.signature(factory).parameters[argument].default if argument else None
        if not isinstance(rate, (int, float)) and attribute:
            rate = lightning_getattr(module, attribute)
        return learning_rates(float(rate), factor) if isinstance(rate, (int, float)) else None

    def _same_splits(self, name: str) -> tuple[Fingerprint, str, str]:
        """The set-up data's fingerprint, and digests of validation and test, which must not vary,
        and of training.
        """
        split_digests = []
        for seed in (1, 0):
            data = self._set_up(name, seed, "fit", "test")
            if seed == 0:  # before they are read, which may open files
                trainer, data.trainer = data.trainer, None
                fingerprint, data.trainer = Fingerprint(data, type(data).__name__), trainer
            split_digests.append(
                digest(of_split(data, "val_dataloader"), of_split(data, "test_dataloader"))
            )
        training_digest = ""  # if it needs a process group, as a user's sampler may
        with suppress(Exception):
            training_digest = of_split(data, "train_dataloader", alike=True)
        if split_digests[0] != split_digests[1]:
            raise ValueError(
                f"{type(data).__name__} makes other validation or test splits each time it is set "
                "up, so that runs "
                "would be tested on examples that others were trained on: split by a generator "
                "with a seed of its own, "
                "as in random_split(dataset, lengths, torch.Generator().manual_seed(0))"
            )
        return fingerprint, split_digests[0], training_digest

    def _first_look(self, name: str) -> None:
        """Find the target in the batch and the test metric, and note what is missing."""
        finder = TargetFinder()
        if self.losses is not None:
            self.losses.losses[FIRST_LOOK] = (finder.loss, {})
        with TemporaryDirectory() as folder:
            look = Run("tuning", name if self.losses is None else FIRST_LOOK, {}, 0)
            trainer, module, data = self._parts(look, folder, self._look_limits(folder), finder)
            self._trained(look, trainer, module, data)
            tests = is_overridden("test_step", module) and is_overridden("test_dataloader", data)
            metric = name_in_test(self.monitor)
            self.test_metric = (
                metric if tests and metric in metrics_of_test(trainer, module, data) else None
            )
        if self.losses is not None:
            del self.losses.losses[FIRST_LOOK]
            if not finder.places:
                raise ValueError(
                    f"training_step of {type(module).__name__} never called the loss that was put "
                    "in: name the "
                    "attribute that it calls as loss(logits, target), or call a Hugging Face model "
                    "as "
                    "self.model(..., labels=labels)"
                )
            self.target = None if finder.hidden else finder.source.target
            self.several, self.ignore_index = finder.several, finder.ignore_index
            if (place := finder.source.target) is not None:
                self.losses.counted = functools.partial(self._class_counts, place, finder.classes)
        notes = {
            "Calibration was not measured, and predictions were not stored: the target of the "
            "training loss "
            "is no part of the batch by itself, or validation_step does not call "
            "self(x).": self.target is None and self.losses is not None,
            "Here softmax is the module's own loss as it is, with all that it "
            "does.": not finder.softmax,
            f"The scores are of the validation split: there is no {metric} of a test_step on the "
            "batches of a "
            "test_dataloader. They are too high: the same split chose settings and "
            "epoch.": self.test_metric is None,
        }
        self.notes += [note for note, holds in notes.items() if holds]

    def _class_counts(self, target: str | int, classes: int, seed: int) -> Tensor:
        """How many training targets each class has in a run of the seed, which some
        losses ask for.
        """
        data = self._set_up(next(iter(self.candidates)), seed, "fit")
        loaders = loaders_of(data.train_dataloader())
        for loader in loaders:
            sampler = getattr(getattr(loader, "batch_sampler", None), "sampler", None)
            if isinstance(
                sampler, DistributedSampler
            ):  # by default it asks the process group, which may be there
                size = len(sampler.dataset)  # type: ignore[arg-type]
                vars(sampler).update(num_replicas=1, rank=0, num_samples=size, total_size=size)
        limit = data.trainer and data.trainer.limit_train_batches
        batch_limit = (
            limit if isinstance(limit, int) else None
        )  # of a stream, which may have no end
        batches = (
            islice(loader, batch_limit if sized_len(loader) is None else None) for loader in loaders
        )
        targets = (batch[target] for loader_batches in batches for batch in loader_batches)
        return class_counts_of(targets, classes, ignore_index=self.ignore_index)

    def _set_up(self, name: str, seed: int, *stages: str) -> pl.LightningDataModule:
        """The data as `_parts` makes them, set up for these stages as in a run."""
        pl.seed_everything(seed, workers=True, verbose=False)
        data = self.data(name)
        # of one process, to which a sampler of the user's own gives the whole data
        kwargs: dict[str, Any] = {
            **QUIET,
            **self._trainer_arguments(),
            **ONE_PROCESS,
            "callbacks": [],
            "max_epochs": 1,
        }
        data.trainer = pl.Trainer(**kwargs)
        data.prepare_data()
        for stage in stages:
            data.setup(stage)
        return data

    def _note_rates(self, look_results: Mapping[str, list[Any]], lr_factor: float | None) -> None:
        """Leave out learning rates that change no training, and say why."""
        for name, candidate in self.candidates.items():
            trained_as, rates = name if self.losses is None else BASELINE, self.rates.get(name)
            if rates is None and rate_name(candidate.factory) in candidate.search:
                continue  # it is tuned by a range of the candidate's own
            if rates is None:
                reason = "has no argument or hyperparameter lr"
            elif self._look_at(trained_as, lr=2 * rates.default) == look_results[trained_as]:
                del self.rates[name]
                reason = "trains the same whatever its lr is (configure_optimizers must read the lr that is tuned)"
            else:
                continue
            reason = (
                f"{type(candidate.factory()).__name__} {reason}"
                if lr_factor
                else "search.lr_factor is null"
            )
            scope = "all candidates" if self.losses is not None else f"all runs of {name}"
            self.notes.append(f"The learning rate was not tuned: {reason}, so {scope} had its own.")

    def _look_at(self, name: str, **settings: float) -> list[Any]:
        """Train and validate on one batch; return numbers that differ at another learning rate."""
        look = Run("tuning", name, settings, 0)
        with TemporaryDirectory() as folder:
            trainer, module, data = self._parts(look, folder, self._look_limits(folder))
            result, _ = self._trained(look, trainer, module, data)
        if len(result.evaluations) < 2:
            note = f"{self.monitor} is not logged in every epoch: of those that log it the best one is scored."
            self.notes = [*dict.fromkeys([*self.notes, note])]
        groups = [group for optimizer in trainer.optimizers for group in optimizer.param_groups]
        numbers = [
            {k: v for k, v in group.items() if isinstance(v, (int, float))} for group in groups
        ]
        return [*numbers, *(float(part.detach().double().sum()) for part in module.parameters())]

    def _look_limits(self, folder: str) -> dict[str, Any]:
        """The trainer's limits in a look: two validations, as some metrics skip one; a limit of 0
        batches stays.
        """
        left_out = {name: 0 for name in LOOK if self.trainer.get(name) == 0}
        every = min(self.trainer.get("check_val_every_n_epoch", 1) or 1, self.trainer["max_epochs"])
        limits = LOOK | left_out | {"check_val_every_n_epoch": every, "max_epochs": 2 * every}
        return limits | {"default_root_dir": folder}

    # --- runs

    def module(self, run: Run) -> pl.LightningModule:
        """A fresh module for a run; it trains by the run's loss where losses are compared."""
        name, settings = self.tuned_as(run.candidate), run.settings
        factory, rate = self.candidate(name).factory, settings.get(RATE)
        argument = rate_name(factory)
        arguments = {argument: rate} if rate is not None and argument else {}
        if self.losses is None:
            arguments |= {key: value for key, value in settings.items() if key != RATE}
        module = factory(**arguments)
        checked(module, pl.LightningModule, "the factory must return a module at each call")
        if rate is not None and not argument:
            lightning_setattr(module, str(rate_name(module)), rate)
        if self.losses is not None:
            self.losses.put_in(module, name, self.replaces, settings, run.seed)
        return module

    def data(self, name: str) -> pl.LightningDataModule:
        """A copy of the data module of a candidate, or a new one where a function makes it."""
        datamodule = self.candidate(name).datamodule
        if callable(datamodule):
            data = datamodule()
        else:
            try:
                data = copy.deepcopy(datamodule)
            except Exception as error:
                kind = type(datamodule).__name__
                raise TypeError(
                    f"{kind} cannot be copied for each run ({error}): give a function that makes "
                    "it, as in "
                    f"lambda: {kind}()"
                ) from None
        hint = "LightningDataModule.from_datasets(train, validation, test) makes one"
        return checked(data, pl.LightningDataModule, hint)

    def pickled(self) -> bytes:
        """This object for other processes; a TypeError if it cannot be pickled."""
        try:
            return bytes(cloudpickle.dumps(self))
        except Exception as error:
            raise TypeError(
                "n_jobs or a launcher needs modules, data, losses and trainer that can be pickled, "
                "for other "
                f"processes: {error}; let the functions make what cannot, or leave n_jobs out"
            ) from None

    def make(self, run: Run, place: Path) -> Result:
        """Make one run in its folder; one that is there with the same settings and inputs is read
        instead.
        """
        inputs = self.inputs[self.label(run.candidate)] | self._tuned(run)
        config = {
            **run.about(self.epochs(run)),
            "seed": run.seed,
            "loss": {} if self.losses is None else self.losses.facts(self.tuned_as(run.candidate)),
            "replaces": self.replaces,
            "monitor": self.monitor,
            "mode": self.mode,
            "trainer": self.of_trainer,
        }
        return finished_or_made(
            place, config, inputs, lambda: self._make(run, config, inputs), self.processes
        )

    def make_in_job(self, run: Run, place: Path) -> Result:
        """`make` in another process; refuses code files of the user's that have changed since the
        look.
        """
        files_now = _files_of_this_process()
        for path in (
            path
            for path in self.files.keys() & files_now.keys()
            if self.files[path] != files_now[path]
        ):
            raise ValueError(
                f"{path} has changed since the comparison has begun: start it again in a new "
                "process"
            )
        first = self.looked_at[name := self.label(run.candidate)]
        if first and (name, first) not in CHECKED:
            if (fresh := _module_summary(self._fresh(name))) != first:
                raise ValueError(
                    f"{name} is another one in another process, {fresh} in the place of {first}: "
                    "what a script sets in "
                    "other files (constants, defaults) is not set there; give it to the factory, "
                    "as in partial(make, "
                    "hidden=64), or leave n_jobs out"
                )
            CHECKED.add((name, first))
        return self.make(run, place)

    def _make(self, run: Run, config: dict[str, Any], inputs: dict[str, str]) -> Made:
        epochs = self.epochs(run)
        every = self.trainer.get("check_val_every_n_epoch", 1)
        limits = {"max_epochs": epochs, "check_val_every_n_epoch": every and min(every, epochs)}
        test_metric = self.test_metric if run.phase == "final" else None
        with TemporaryDirectory() as folder:
            result_fields: dict[str, Any] = {
                "config": config,
                "inputs": inputs,
                "test_metric": test_metric,
            }
            result, predictions = self._trained(
                run, *self._parts(run, folder, limits), **result_fields
            )
        if run.phase == "final" and test_metric is None:
            result.metrics = {
                self.monitor: best_validation(result, 1.0 if self.mode == "max" else -1.0)[0]
            }
        if "calibration_error_unscaled" in result.metrics:
            result.metrics.setdefault(
                "calibration_error", result.metrics["calibration_error_unscaled"]
            )
        return result, predictions

    def _trainer_arguments(self) -> dict[str, Any]:
        """A copy of the trainer's arguments for one run; only those named in `SHARED` go on to the
        next one.
        """
        shared = [self.trainer.get(name) for name in SHARED]
        return copy.deepcopy(dict(self.trainer), {id(value): value for value in shared})

    def _parts(
        self, run: Run, folder: str, limits: Mapping[str, Any], *more: pl.Callback
    ) -> tuple[pl.Trainer, pl.LightningModule, pl.LightningDataModule]:
        """The trainer, module and data of a run; ``limits`` replace arguments of the trainer."""
        pl.seed_everything(run.seed, workers=True, verbose=False)
        module = self.module(run)
        # the data of a seed and their order are the same, however many random numbers a module has
        # drawn
        pl.seed_everything(run.seed, workers=True, verbose=False)
        data = self.data(run.candidate)
        best = BestWeights(
            folder,
            filename="best",
            monitor=self.monitor,
            mode=self.mode,
            save_on_train_epoch_end=False,
        )
        loss_callbacks = (
            [] if self.losses is None else self.losses.callbacks(self.tuned_as(run.candidate))
        )
        kwargs = self._trainer_arguments()
        callbacks = [*kwargs["callbacks"], *loss_callbacks, RunRecorder(self.monitor), *more]
        kinds = () if self.target is None else (TemperatureScaling, PredictionRecorder)
        for measuring in (kind(ignore_index=self.ignore_index) for kind in kinds):
            measuring.source.target = self.target
            callbacks.append(measuring)
        # a logger's files stay; arguments that the user sets replace these defaults
        settings = {
            **QUIET,
            "default_root_dir": None if kwargs.get("logger") else folder,
            **kwargs,
            **limits,
        }
        settings["callbacks"] = [*callbacks, best]
        if str(settings.get("strategy", "auto")).startswith(("auto", "ddp")) and not settings.get(
            "plugins"
        ):
            settings["plugins"] = [
                WholeFileCheckpointIO()
            ]  # the time that it takes is not the training's
        return pl.Trainer(**settings), module, data

    def _trained(
        self,
        run: Run,
        trainer: pl.Trainer,
        module: pl.LightningModule,
        data: pl.LightningDataModule,
        **fields: Any,
    ) -> Made:
        all_fields: dict[str, Any] = {
            "name": self.name,
            "seed": run.seed,
            "config": {},
            "test_metric": None,
        } | fields
        all_fields |= run.about(self.epochs(run))
        result_and_predictions = trained(trainer, module, data, score=self.monitor, **all_fields)
        if not result_and_predictions[0].evaluations:
            if not trainer.callback_metrics:
                raise ValueError(
                    f"no batch was trained and validated: {type(data).__name__} needs training "
                    "data and, to choose "
                    "settings by, validation data of a val_dataloader, and "
                    f"{type(module).__name__} a validation_step"
                )
            logged = ", ".join(name for name in trainer.callback_metrics if name != self.monitor)
            raise ValueError(
                f"monitor {self.monitor!r} is never logged in a validation: there is {logged}; "
                "name one of these as monitor=... (on the command line module.monitor=...)"
            )
        loss_replaced = (
            self.losses is not None
            and self.replaces is not None
            and self.tuned_as(run.candidate) != BASELINE
        )
        if loss_replaced and not any(isinstance(part, TrainingLoss) for part in module.modules()):
            raise ValueError(
                f"{self.replaces} has been set to another loss while {type(module).__name__} "
                "trained, which has taken "
                f"the place of {run.candidate}: change the loss that is there, as in "
                f"self.{self.replaces}.weight = ..."
            )
        own_ids = {id(parameter) for parameter in module.parameters()}
        for optimizer in trainer.optimizers:
            if own_ids.isdisjoint(
                id(parameter) for group in optimizer.param_groups for parameter in group["params"]
            ):
                raise ValueError(
                    f"the {type(optimizer).__name__} that configure_optimizers returned trains no "
                    "parameter of this "
                    f"{type(module).__name__}: make it anew at each call, from self.parameters() "
                    "or a part of them"
                )
        return result_and_predictions


_files_of_this_process = functools.cache(user_files)  # as its first run has read them


def baseline_first(
    candidates: Mapping[str, OwnCandidate], baseline: str
) -> dict[str, OwnCandidate]:
    """The candidates in the order of `OwnModules`; a ``ValueError`` if there is no such
    baseline.
    """
    if baseline not in candidates:
        raise ValueError(f"no candidate is called {baseline}: {nearest(baseline, candidates)}")
    return {baseline: candidates[baseline], **candidates}


def checked(made: Any, kind: type, hint: str) -> Any:
    """The object that a user's function has made; a TypeError unless it is of that class of
    ``lightning``.
    """
    if isinstance(made, kind):
        return made
    if any(base.__module__.startswith("pytorch_lightning") for base in type(made).__mro__):
        hint = "it is of the package pytorch_lightning: import it from lightning.pytorch instead"
    raise TypeError(f"expected a {kind.__name__}, got {type(made).__name__}: {hint}")


def _module_summary(module: pl.LightningModule) -> str:
    """What is the same in every process: a module's number of weights, learning rate and plain
    hyperparameters.
    """
    weights = sum(weight.numel() for weight in module.parameters() if not is_lazy(weight))
    plain = {
        name: value
        for name, value in module.hparams.items()
        if isinstance(value, (bool, int, float, str))
    }
    rate = rate_name(module)
    return f"{weights} weights, {plain | ({rate: str(lightning_getattr(module, rate))} if rate else {})}"


def rate_name(owner: Any) -> str | None:
    """The argument of a factory, or the attribute or hyperparameter of a module, that is its
    learning rate.
    """
    if isinstance(owner, pl.LightningModule):
        return next((name for name in RATES if lightning_hasattr(owner, name)), None)
    return next((name for name in RATES if name in inspect.signature(owner).parameters), None)


def name_in_test(metric: str) -> str:
    """The test metric's name: that of a validation metric with ``test`` for the first word ``val``
    (or alike).

    >>> [name_in_test(name) for name in ("val/acc", "valid_acc", "acc/validation", "val/eval_f1", "interval")]
    ['test/acc', 'test_acc', 'acc/test', 'test/eval_f1', 'interval']
    """
    return re.sub(r"(?<![A-Za-z0-9])(validation|valid|val)(?![a-z])", "test", metric, count=1)
