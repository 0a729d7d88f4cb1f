"""The plan of a comparison: candidates, trials, seeds."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import yaml

from as_lightning.bench.packages import config_dir
from as_lightning.comparison.search import FINALISTS, Space
from as_lightning.functional.argument_checks import check_count, check_number
from as_lightning.statistics.score_names import known_unit
from as_lightning.statistics.verdicts import Design

FIRST_TUNING_SEED = 1000
LAST_LOOK = {True: 40, False: 20}  # the most seeds of a race, and without one
# at other values these would contradict max_epochs, or leave no weights to score
UNCHANGED = {"max_steps": -1, "max_time": None, "fast_dev_run": False, "enable_checkpointing": True}


@functools.cache
def default_settings() -> dict[str, Any]:
    settings = yaml.safe_load((config_dir() / "compare.yaml").read_text(encoding="utf-8"))
    del settings["defaults"], settings["trainer"]
    return dict(settings)


# settings of a plan
DESIGN = default_settings().keys() - {"search", "candidates", "default_methods"}
DESIGN -= {"methods", "baseline", "n_jobs", "call"}


@dataclass(frozen=True)
class Run:
    """One training; ``tuning`` reads no test data, ``final`` does."""

    phase: Literal["tuning", "final"]
    candidate: str
    settings: Mapping[str, Any] = field(hash=False)  # the tuned ones, as {"lr": 0.001}
    seed: int
    trial: int = 0

    @property
    def folder(self) -> str:
        """Where the run's files lie, below the comparison's folder."""
        if self.phase == "tuning":
            return f"tuning/{self.candidate}/trial={self.trial},seed={self.seed}"
        return f"{self.candidate}/seed={self.seed}"

    def about(self, epochs: int) -> dict[str, Any]:
        """Return the fields of the run's result that identify the run."""
        return {
            "candidate": self.candidate,
            "phase": self.phase,
            "trial": self.trial,
            "epochs": epochs,
            "settings": dict(self.settings),
        }

    def __str__(self) -> str:
        words = [self.candidate, self.phase, f"seed {self.seed}"]
        for name, value in self.settings.items():
            shown = f"{value:.3g}" if isinstance(value, float) else value
            words.append(f"{name}={shown}")
        return ", ".join(words)


class ComparisonPlan:
    """What is compared, and how thoroughly: the settings of ``conf/compare.yaml``; None takes the
    default there.

    ``candidates`` are names; ``baseline`` is added if it is none of them. With ``half_epochs`` the
    baseline trained for half the epochs is one more candidate, called ``half``: it is not tuned,
    and takes the settings chosen for the baseline. What is tuned of each candidate comes from a
    look at them: see `with_spaces`.
    """

    def __init__(
        self, candidates: Sequence[str], baseline: str, full_epochs: Any, **settings: Any
    ) -> None:
        resolved = default_settings().copy()
        for name, value in settings.items():
            if value is not None:
                resolved[name] = value
        self.baseline = baseline
        self.candidates = tuple(dict.fromkeys([baseline, *candidates]))  # the baseline first
        self.spaces: Mapping[str, Space] = {name: {} for name in self.candidates}
        self.facts: Mapping[str, Any] = {}
        self.full_epochs = check_count("trainer.max_epochs", full_epochs, least=1)
        self.own_epochs: dict[str, int] = {}  # of candidates that set trainer.max_epochs
        self.half: str | None = None
        if resolved["half_epochs"] and self.full_epochs > 1:
            self.half = f"{baseline}_half"
        self.family = (*self.candidates, *filter(None, [self.half]))
        if len(set(self.family)) < max(2, len(self.family)):
            raise ValueError(
                "a comparison needs two candidates, each with a name of its own, got "
                f"{', '.join(self.family)}"
            )
        self.trials = check_count("trials", resolved["trials"], least=1)
        self.max_hours = resolved["max_hours"]
        if self.max_hours is not None:
            check_number(
                "max_hours", self.max_hours, lambda hours: hours > 0, "a positive number of hours"
            )
        self.equal_is_said = resolved["equal_within"] is not None
        self.design = _design(resolved, self.family)
        self.race = bool(resolved["race"]) and len(self.design.looks) > 1
        self.seeds = self.design.seeds
        self.tuning_seeds = _seeds("tuning_seeds", resolved["tuning_seeds"], FIRST_TUNING_SEED)
        if shared := set(self.seeds) & set(self.tuning_seeds):
            raise ValueError(
                f"seeds {sorted(shared)} are in seeds and in tuning_seeds: settings must be chosen "
                "by other runs than those that judge them"
            )

    def with_spaces(self, spaces: Mapping[str, Space], **facts: Any) -> ComparisonPlan:
        """Return this plan with what is tuned of each candidate, and fields of the record."""
        score = facts.get("score", "")
        if score and known_unit(score) == "raw" and not self.equal_is_said:
            raise ValueError(
                f"say equal_within, the difference in {score} that counts as none: of an accuracy "
                "and the like it is 0.5 points, of another score nobody knows it but you"
            )
        plan = copy.copy(self)
        plan.spaces = {name: spaces[name] for name in self.candidates}
        plan.facts = facts
        return plan

    def epochs(self, candidate: str) -> int:
        if candidate == self.half:
            return max(1, round(self.epochs(self.baseline) / 2))
        return self.own_epochs.get(candidate, self.full_epochs)

    @property
    def tunes(self) -> bool:
        return self.trials > 1 and any(self.spaces.values())

    def most_runs(self) -> int:
        of_search = self.trials + FINALISTS * (len(self.tuning_seeds) - 1)
        tuned = len(self.candidates) if self.tunes else 0
        return of_search * tuned + self.design.looks[-1] * len(self.family)


@contextmanager
def of_candidate(name: str, first: str) -> Iterator[None]:
    """Note the candidate on an error, unless it is the ``first``: all would meet that one."""
    try:
        yield
    except Exception as error:
        if name != first:  # as add_note of Python 3.11
            vars(error).setdefault("__notes__", []).append(f"in the candidate {name}")
        raise


def check_trainer(trainer: Mapping[str, Any]) -> None:
    for name, needed in UNCHANGED.items():
        if trainer.get(name, needed) != needed:
            raise ValueError(
                f"trainer must not set {name}={trainer[name]!r}: a run trains for max_epochs, and "
                "the weights of its best validation are scored"
            )


def _design(settings: Mapping[str, Any], family: tuple[str, ...]) -> Design:
    design = Design(candidates=family)
    if settings["equal_within"] is not None:
        design = replace(design, equal_within=settings["equal_within"])
    last = LAST_LOOK[bool(settings["race"])]
    most = last
    if settings["max_seeds"] is not None:
        most = check_count("max_seeds", settings["max_seeds"], least=1)
    if settings["seeds"] != "auto":
        seeds = _seeds("seeds", settings["seeds"], 0)
        return replace(design, looks=(len(seeds),), seeds=seeds)
    first = design.looks[0]
    if not first <= most <= last:
        raise ValueError(
            f"max_seeds={most} is outside the looks at {first} to {last} seeds: give a number of "
            f"these, or a fixed number of seeds as in seeds={most}"
        )
    return replace(design, looks=tuple(range(first, most + 1)), seeds=tuple(range(most)))


def _seeds(name: str, asked: Any, first: int) -> tuple[int, ...]:
    """Return the seeds of a list in ascending order, or that many from ``first`` on."""
    seeds = range(first, first + asked) if type(asked) is int else asked
    numbers = isinstance(seeds, (list, tuple, range)) and set(map(type, seeds)) == {int}
    if not numbers or len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise ValueError(
            f"{name} must be {'auto, ' * (name == 'seeds')}a number of seeds, or a list of "
            f"different whole numbers of at least 0, got {asked!r}"
        )
    return tuple(sorted(seeds))
