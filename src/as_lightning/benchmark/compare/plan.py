"""What a comparison is asked to do: methods, budgets, trials, seeds."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import yaml

from as_lightning.benchmark.compare.search import FINALISTS
from as_lightning.benchmark.packages import config_dir
from as_lightning.benchmark.report.record import run_folder
from as_lightning.benchmark.report.verdicts import Design
from as_lightning.functional.argument_checks import check_count, check_number

METHODS = ("softmax", "as_softmax", "as_speed")
FIRST_TUNING_SEED = 1000
MAX_BUDGET = 2.0


@functools.cache
def default_settings() -> dict[str, Any]:
    """What holds where a setting is not given: ``conf/compare.yaml`` is the one place that states it."""
    settings = yaml.safe_load((config_dir() / "compare.yaml").read_text(encoding="utf-8"))
    return {name: value for name, value in settings.items() if name not in ("defaults", "trainer")}


@dataclass(frozen=True)
class Run:
    """One training; ``tuning`` reads no test data, ``final`` does."""

    phase: Literal["tuning", "final"]
    method: str
    settings: Mapping[str, Any] = field(hash=False)  # of what is tuned, e.g. {"lr": 0.001, "delta": 0.1}
    budget: float  # the share of the full training
    seed: int
    trial: int = 0

    @property
    def folder(self) -> str:
        """Where the run's files lie, below the comparison's folder."""
        if self.phase == "tuning":
            return f"tuning/{self.method}/trial={self.trial},seed={self.seed}"
        return run_folder(self.method, self.budget, self.seed)

    def about(self, epochs: int) -> dict[str, Any]:
        """What the run's record says of it."""
        return {"phase": self.phase, "budget": self.budget, "epochs": epochs, "settings": dict(self.settings)}

    def __str__(self) -> str:
        chosen = [f"{name}={v:.3g}" if isinstance(v, float) else f"{name}={v}" for name, v in self.settings.items()]
        return ", ".join([self.method, self.phase, f"budget {self.budget:g}", f"seed {self.seed}", *chosen])


class ComparisonPlan:
    """What is compared, and how thoroughly: the settings of ``conf/compare.yaml``; None takes the default there.

    >>> plan = ComparisonPlan(["as_softmax"], full_epochs=12, seeds=3)
    >>> plan.methods, plan.budgets_of("softmax"), plan.budgets_of("as_softmax"), plan.design.looks
    (('softmax', 'as_softmax'), (0.5, 1.0), (1.0,), (3,))
    """

    def __init__(self, methods: Sequence[str], full_epochs: Any, baseline: str | None = None, **settings: Any) -> None:
        if isinstance(methods, str) or not methods or len(set(methods)) < len(methods):
            raise ValueError(f"methods must be a list of at least one name, each given once, got {methods!r}")
        if not isinstance(baseline, str | None):
            raise ValueError(f"baseline must be the name of one method, got {baseline!r}")
        asked = default_settings() | {name: value for name, value in settings.items() if value is not None}
        several_labels = all(name.startswith(("multilabel_", "bce")) for name in methods)
        self.baseline = baseline or ("multilabel_softmax" if several_labels else "softmax")
        self.methods = tuple(dict.fromkeys([self.baseline, *methods]))  # the baseline first
        self.full_epochs = check_count("trainer.max_epochs", full_epochs, least=1)  # of budget 1
        budgets = asked["budgets"]
        if not isinstance(budgets, Mapping):
            budgets = {"baseline": budgets, "methods": budgets}
        self.baseline_budgets = _budgets(budgets["baseline"], full_epochs)  # shares of the full training, ascending
        self.method_budgets = _budgets(budgets["methods"], full_epochs)
        if self.full_budget not in self.baseline_budgets:
            raise ValueError(f"the baseline's budgets must hold the largest of the methods, {self.full_budget:g}")
        if len(self.methods) == len(self.baseline_budgets) == 1:
            raise ValueError(f"nothing is compared with {self.baseline}: name another method, or a second budget")
        self.trials = check_count("trials", asked["trials"], least=1)
        self.max_hours = asked["max_hours"]
        if self.max_hours is not None:
            check_number("max_hours", self.max_hours, lambda hours: hours > 0, "a positive number of hours")
        most = check_count("max_seeds", asked["max_seeds"], least=1)
        design = Design(equal_within=asked["equal_within"])
        if asked["seeds"] == "auto":
            if not design.looks[0] <= most <= design.looks[-1]:
                raise ValueError(
                    f"max_seeds={most} is outside the looks at {design.looks[0]} to {design.looks[-1]} seeds: give a "
                    f"number of these, or a fixed number of seeds as in seeds={most}"
                )
            looks = (*(look for look in design.looks if look < most), most)
            self.seeds = tuple(range(looks[-1]))
        else:
            self.seeds = _seeds("seeds", asked["seeds"], 0)
            looks = (len(self.seeds),)
        self.design = replace(design, looks=looks, seeds=self.seeds, methods=self.methods)
        self.tuning_seeds = _seeds("tuning_seeds", asked["tuning_seeds"], FIRST_TUNING_SEED)
        if shared := set(self.seeds) & set(self.tuning_seeds):
            raise ValueError(
                f"seeds {sorted(shared)} are in seeds and in tuning_seeds: settings must be chosen by other runs than "
                "those that judge them"
            )

    @property
    def full_budget(self) -> float:
        """The largest budget: methods are tuned at it, and compared at it first."""
        return self.method_budgets[-1]

    def budgets_of(self, method: str) -> tuple[float, ...]:
        """The budgets of a method, ascending."""
        return self.baseline_budgets if method == self.baseline else self.method_budgets

    def runs(self, trials: int, tuned: int, contained: int) -> tuple[int, int]:
        """The fewest and the most runs: so many trials of so many methods, of which so many contain the baseline.

        The fewest: these are tuned to be the baseline by its own trials, and every other method is decided at the first
        look, and is worse, so that none has smaller budgets.
        """
        repeated = FINALISTS * (len(self.tuning_seeds) - 1)  # trainings of a method beyond the first tuning seed
        baseline, others, looks = len(self.baseline_budgets), len(self.methods) - 1, self.design.looks
        most = baseline + others * len(self.method_budgets)
        least = trials + repeated * (tuned - contained) + looks[0] * (baseline + others - contained)
        return least, trials + repeated * tuned + looks[-1] * most


def epochs_of(budget: float, full_epochs: int) -> int:
    """The whole epochs of a budget, at least 1."""
    return max(1, round(budget * full_epochs))


def _budgets(asked: Any, full_epochs: int) -> tuple[float, ...]:
    """The shares in ascending order; of those with the same number of epochs the largest."""
    expected = f"a share of the training, in (0, {MAX_BUDGET:g}], or a list of at least one"
    given = asked if asked and isinstance(asked, (list, tuple)) else [asked]
    shares = [check_number("budgets", share, lambda share: 0 < share <= MAX_BUDGET, expected) for share in given]
    return tuple({epochs_of(share, full_epochs): share for share in sorted(shares)}.values())


def _seeds(name: str, asked: Any, first: int) -> tuple[int, ...]:
    """The seeds of a list in ascending order, or so many from ``first`` on."""
    seeds = range(first, first + asked) if type(asked) is int else asked
    whole = isinstance(seeds, (list, tuple, range)) and all(type(seed) is int and seed >= 0 for seed in seeds)
    if not whole or not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(
            f"{name} must be {'auto, ' * (name == 'seeds')}a number of seeds, or a list of different whole numbers of "
            f"at least 0, got {asked!r}"
        )
    return tuple(sorted(seeds))
