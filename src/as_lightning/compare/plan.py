"""The plan of a comparison: candidates, budgets, trials, seeds."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import yaml

from as_lightning.bench.packages import config_dir
from as_lightning.compare.search import FINALISTS, Choice, Space, settings_in
from as_lightning.functional.argument_checks import check_count, check_number
from as_lightning.report.record import run_folder
from as_lightning.statistics.verdicts import Design

FIRST_TUNING_SEED = 1000
MAX_BUDGET = 2.0
# at other values these would contradict max_epochs, or leave no weights to score
UNCHANGED = {"max_steps": -1, "max_time": None, "fast_dev_run": False, "enable_checkpointing": True}


@functools.cache
def default_settings() -> dict[str, Any]:
    """The defaults of a comparison's settings: ``conf/compare.yaml`` is the one place that states
    them.
    """
    settings = yaml.safe_load((config_dir() / "compare.yaml").read_text(encoding="utf-8"))
    return {name: value for name, value in settings.items() if name not in ("defaults", "trainer")}


@dataclass(frozen=True)
class Run:
    """One training; ``tuning`` reads no test data, ``final`` does."""

    phase: Literal["tuning", "final"]
    candidate: str
    settings: Mapping[str, Any] = field(
        hash=False
    )  # the tuned ones, e.g. {"lr": 0.001, "delta": 0.1}
    budget: float  # the share of the full training
    seed: int
    trial: int = 0

    @property
    def folder(self) -> str:
        """Where the run's files lie, below the comparison's folder."""
        if self.phase == "tuning":
            return f"tuning/{self.candidate}/trial={self.trial},seed={self.seed}"
        return run_folder(self.candidate, self.budget, self.seed)

    def about(self, full_epochs: int) -> dict[str, Any]:
        """The fields of the run's result that identify the run."""
        epochs = epochs_of(self.budget, full_epochs)
        fields = {
            "phase": self.phase,
            "budget": self.budget,
            "epochs": epochs,
            "settings": dict(self.settings),
        }
        return {"candidate": self.candidate, **fields}

    def __str__(self) -> str:
        chosen = [
            f"{name}={v:.3g}" if isinstance(v, float) else f"{name}={v}"
            for name, v in self.settings.items()
        ]
        return ", ".join(
            [self.candidate, self.phase, f"budget {self.budget:g}", f"seed {self.seed}", *chosen]
        )


class ComparisonPlan:
    """What is compared, and how thoroughly: the settings of ``conf/compare.yaml``; None takes the
    default there.

    ``candidates`` are names; ``baseline`` is added if it is none of them. What is tuned of each
    candidate, and the subject's fields of the comparison's record, come from a look at the subject:
    see `of`.

    >>> plan = ComparisonPlan(["as_softmax"], "softmax", full_epochs=12, seeds=3)
    >>> plan.candidates, plan.budgets_of("softmax"), plan.budgets_of("as_softmax"), plan.design.looks
    (('softmax', 'as_softmax'), (0.5, 1.0), (1.0,), (3,))
    """

    def __init__(
        self, candidates: Sequence[str], baseline: str, full_epochs: Any, **settings: Any
    ) -> None:
        if not candidates or len(set(candidates)) < len(candidates):
            raise ValueError(
                f"methods must be a list of at least one name, each given once, got {candidates!r}"
            )
        resolved = default_settings() | {
            name: value for name, value in settings.items() if value is not None
        }
        self.baseline = baseline
        self.candidates = tuple(dict.fromkeys([baseline, *candidates]))  # the baseline first
        self.spaces: Mapping[str, Space] = {name: {} for name in self.candidates}
        self.facts: Mapping[str, Any] = {}
        self.examples: Mapping[int, str] = {}
        self.full_epochs = check_count("trainer.max_epochs", full_epochs, least=1)  # of budget 1
        budgets = resolved["budgets"]  # shares of the full training
        self.candidate_budgets = _budgets(1 if budgets is None else budgets, full_epochs)
        self.baseline_budgets = (
            _budgets([0.5, 1], full_epochs) if budgets is None else self.candidate_budgets
        )
        if len(self.candidates) == len(self.baseline_budgets) == 1:
            raise ValueError(
                f"nothing is compared with {self.baseline}: name another candidate, or a second "
                "budget"
            )
        self.trials = check_count("trials", resolved["trials"], least=1)
        self.max_hours = resolved["max_hours"]
        if self.max_hours is not None:
            check_number(
                "max_hours", self.max_hours, lambda hours: hours > 0, "a positive number of hours"
            )
        most = check_count("max_seeds", resolved["max_seeds"], least=1)
        design = Design(equal_within=resolved["equal_within"])
        if resolved["seeds"] == "auto":
            if not design.looks[0] <= most <= design.looks[-1]:
                raise ValueError(
                    f"max_seeds={most} is outside the looks at {design.looks[0]} to "
                    f"{design.looks[-1]} seeds: give a "
                    f"number of these, or a fixed number of seeds as in seeds={most}"
                )
            looks = (*(look for look in design.looks if look < most), most)
            self.seeds = tuple(range(looks[-1]))
        else:
            self.seeds = _seeds("seeds", resolved["seeds"], 0)
            looks = (len(self.seeds),)
        self.design = replace(design, looks=looks, seeds=self.seeds, candidates=self.candidates)
        self.tuning_seeds = _seeds("tuning_seeds", resolved["tuning_seeds"], FIRST_TUNING_SEED)
        if shared := set(self.seeds) & set(self.tuning_seeds):
            raise ValueError(
                f"seeds {sorted(shared)} are in seeds and in tuning_seeds: settings must be chosen "
                "by other runs than "
                "those that judge them"
            )

    def of(
        self, spaces: Mapping[str, Space], examples: Mapping[int, str] | None = None, **facts: Any
    ) -> ComparisonPlan:
        """This plan with what is tuned of each candidate, the test examples by their ids, and
        fields of the record.
        """
        plan = copy.copy(self)
        plan.spaces, plan.examples = (
            {name: spaces[name] for name in self.candidates},
            examples or {},
        )
        plan.facts = facts
        return plan

    def check_values(self, name: str, space: Space) -> None:
        """Raise ``ValueError`` if a candidate's trials cannot try all values of a list that was
        asked for.
        """
        for knob, dimension in space.items():
            values = (
                [v for v in dimension.values if v != dimension.neutral]
                if isinstance(dimension, Choice)
                else []
            )
            if len(values) > self.trials:
                raise ValueError(
                    f"{name}: trials={self.trials} cannot try all {len(values)} values of {knob} "
                    f"({', '.join(map(str, values))}): ask for trials={len(values)} or more"
                )

    @property
    def tunes(self) -> bool:
        """Whether anything is tuned."""
        return self.trials > 1 and any(self.spaces.values())

    @property
    def containing(self) -> list[str]:
        """The candidates that are the baseline at a neutral value; its trials are theirs too, and
        come first.
        """
        if not self.tunes:
            return []
        return [
            name
            for name in self.candidates[1:]
            if any(d.neutral is not None for d in self.spaces[name].values())
        ]

    @property
    def full_budget(self) -> float:
        """The largest budget: candidates are tuned at it, and compared at it first."""
        return self.candidate_budgets[-1]

    def budgets_of(self, candidate: str) -> tuple[float, ...]:
        """The budgets of a candidate, ascending."""
        return self.baseline_budgets if candidate == self.baseline else self.candidate_budgets

    def runs(self) -> tuple[int, int]:
        """The fewest and the most runs.

        The fewest: each candidate that contains the baseline is tuned to be the baseline, by the
        baseline's trials. Every other candidate is worse at the first look, so that none runs at
        smaller budgets.
        """
        spaces = self.spaces.values() if self.tunes else ()
        trials = sum(int(min(self.trials, settings_in(space))) for space in spaces)
        tuned = sum(map(bool, spaces))
        repeated = FINALISTS * (
            len(self.tuning_seeds) - 1
        )  # trainings of a candidate beyond the first tuning seed
        baseline_arms, others, looks = (
            len(self.baseline_budgets),
            len(self.candidates) - 1,
            self.design.looks,
        )
        most_arms, contained = (
            baseline_arms + others * len(self.candidate_budgets),
            len(self.containing),
        )
        least = (
            trials
            + repeated * (tuned - contained)
            + looks[0] * (baseline_arms + others - contained)
        )
        return least, trials + repeated * tuned + looks[-1] * most_arms


@contextmanager
def of_candidate(name: str, first: str) -> Iterator[None]:
    """Note the candidate on an error; one of the ``first`` candidate gets no note, since all would
    meet it.
    """
    try:
        yield
    except Exception as error:
        if name != first:
            vars(error).setdefault("__notes__", []).append(
                f"in the candidate {name}"
            )  # as add_note of Python 3.11
        raise


def check_trainer(trainer: Mapping[str, Any]) -> None:
    """Refuse arguments of the trainer that a comparison cannot allow."""
    refused = [name for name, needed in UNCHANGED.items() if trainer.get(name, needed) != needed]
    for name in [
        *refused,
        *(["limit_val_batches"] if trainer.get("limit_val_batches") == 0 else []),
    ]:
        raise ValueError(
            f"trainer must not set {name}={trainer[name]!r}: budgets are shares of max_epochs, and "
            "the weights of the "
            "best validation are scored"
        )


def check_processes(n_jobs: int, processes: int) -> None:
    """Refuse to make several runs at once if each has several processes: they would
    share one port.
    """
    if n_jobs > 1 and processes > 1:
        raise ValueError(
            f"n_jobs={n_jobs} is for runs of one process, and these have {processes}: choose one"
        )


def epochs_of(budget: float, full_epochs: int) -> int:
    """The whole epochs of a budget, at least 1."""
    return max(1, round(budget * full_epochs))


def _budgets(asked: Any, full_epochs: int) -> tuple[float, ...]:
    """The shares in ascending order; of those with the same number of epochs the largest."""
    expected = f"a share of the training, in (0, {MAX_BUDGET:g}], or a list of at least one"
    entries = asked if asked and isinstance(asked, (list, tuple)) else [asked]
    shares = [
        check_number("budgets", share, lambda share: 0 < share <= MAX_BUDGET, expected)
        for share in entries
    ]
    return tuple({epochs_of(share, full_epochs): share for share in sorted(shares)}.values())


def _seeds(name: str, asked: Any, first: int) -> tuple[int, ...]:
    """The seeds of a list in ascending order, or that many from ``first`` on."""
    seeds = range(first, first + asked) if type(asked) is int else asked
    valid = isinstance(seeds, (list, tuple, range)) and all(
        type(seed) is int and seed >= 0 for seed in seeds
    )
    if not valid or not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(
            f"{name} must be {'auto, ' * (name == 'seeds')}a number of seeds, or a list of "
            "different whole numbers of "
            f"at least 0, got {asked!r}"
        )
    return tuple(sorted(seeds))
