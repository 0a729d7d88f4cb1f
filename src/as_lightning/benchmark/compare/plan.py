"""What a comparison is asked to do: methods, budgets, trials, seeds."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from omegaconf import OmegaConf

from as_lightning.benchmark.packages import config_dir
from as_lightning.benchmark.report.record import run_folder
from as_lightning.benchmark.report.verdicts import Design

FIRST_TUNING_SEED = 1000
MAX_BUDGET = 2.0
AUTO = "auto"
SETTINGS = (
    "methods",
    "baseline",
    "budgets",
    "trials",
    "seeds",
    "max_seeds",
    "max_hours",
    "tuning_seeds",
    "equal_within",
)


@functools.cache
def _defaults() -> dict[str, Any]:
    content = OmegaConf.to_container(OmegaConf.load(config_dir() / "compare.yaml"))
    assert isinstance(content, dict)
    return {name: content[name] for name in (*SETTINGS, "search")}


def default_setting(name: str) -> Any:
    """The default of a setting of the comparison: ``conf/compare.yaml`` is the one place that states it."""
    return _defaults()[name]


@dataclass(frozen=True)
class Run:
    """One training.

    Attributes:
        phase: ``tuning`` reads no test data, ``final`` does.
        method: the method's name.
        settings: the values of what is tuned, e.g. ``{"lr": 0.001, "delta": 0.1}``.
        budget: the share of the full training.
        seed: of the run.
        trial: the number of the trial; 0 in the final runs.
    """

    phase: Literal["tuning", "final"]
    method: str
    settings: Mapping[str, Any] = field(hash=False)
    budget: float
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
        chosen = ", ".join(f"{n}={v:.3g}" if isinstance(v, float) else f"{n}={v}" for n, v in self.settings.items())
        return f"{self.method}, {self.phase}, budget {self.budget:g}, seed {self.seed}" + (f", {chosen}" * bool(chosen))


def default_baseline(methods: Sequence[str]) -> str:
    """What the methods are compared with: for methods of several labels alone, softmax over one label and the others.

    >>> default_baseline(["multilabel_as_softmax", "bce"]), default_baseline(["as_softmax", "bce"])
    ('multilabel_softmax', 'softmax')
    """
    return "multilabel_softmax" if all(name.startswith(("multilabel_", "bce")) for name in methods) else "softmax"


@dataclass(frozen=True)
class ComparisonPlan:
    """What is compared, and how thoroughly. ``None`` takes the default of ``conf/compare.yaml``.

    Args:
        methods: their names; the baseline is put first, and added where it is missing.
        full_epochs: the epochs of budget 1.
        baseline: what the others are compared with.
        budgets: shares of the full training, in (0, 2], for all methods; by default the baseline has 0.5 and 1, the
            others have 1. The largest is the full budget.
        trials: settings that each method tries, at least 1.
        seeds: ``"auto"`` adds seeds until all is decided; a number, or a list, fixes them.
        max_seeds: the most seeds of ``"auto"``.
        max_hours: the most hours of training, in all runs; no look begins that would exceed them.
        tuning_seeds: of each trial: how many (1000, 1001, ...), or which; none of them may be in ``seeds``.
        equal_within: in points (hundredths of the score), what counts as equal.

    Attributes:
        design: at how many seeds verdicts are sought.

    Raises:
        ValueError: if one of these is not as said.

    >>> plan = ComparisonPlan.of(["as_softmax"], full_epochs=12, seeds=3)
    >>> plan.methods, plan.budgets_of("softmax"), plan.budgets_of("as_softmax"), plan.design.looks
    (('softmax', 'as_softmax'), (0.5, 1.0), (1.0,), (3,))
    """

    methods: tuple[str, ...]
    baseline: str
    full_epochs: int
    baseline_budgets: tuple[float, ...]
    method_budgets: tuple[float, ...]
    trials: int
    seeds: tuple[int, ...]
    tuning_seeds: tuple[int, ...]
    design: Design
    max_hours: float | None

    @classmethod
    def of(
        cls,
        methods: Sequence[str],
        full_epochs: int,
        baseline: str | None = None,
        budgets: float | Sequence[float] | None = None,
        trials: int | None = None,
        seeds: Literal["auto"] | int | Sequence[int] | None = None,
        max_seeds: int | None = None,
        max_hours: float | None = None,
        tuning_seeds: int | Sequence[int] | None = None,
        equal_within: float | None = None,
    ) -> ComparisonPlan:
        """Check the settings, and fill in the defaults."""
        if isinstance(methods, str) or not methods:
            raise ValueError(f"methods must be a list of at least one name, got {methods!r}")
        base = baseline or default_baseline(methods)
        both = _budgets(budgets, full_epochs)
        trials = _whole("trials", default_setting("trials") if trials is None else trials)
        tuning = _seeds(_given("tuning_seeds", tuning_seeds), "tuning_seeds", FIRST_TUNING_SEED)
        equal = _positive("equal_within", _given("equal_within", equal_within), "a positive number of points")
        hours = _given("max_hours", max_hours)
        hours = None if hours is None else _positive("max_hours", hours, "a positive number of hours")
        asked = _given("seeds", seeds)
        most = _whole("max_seeds", _given("max_seeds", max_seeds))
        if asked == AUTO:
            looks = Design(equal_within=equal).looks
            if most < looks[0]:
                raise ValueError(
                    f"max_seeds={most} is below the first look at {looks[0]} seeds: give at least {looks[0]}, or a "
                    f"fixed number of seeds as in seeds={most}"
                )
            looks = (*(look for look in looks if look < most), most) if most < looks[-1] else looks
            design, final = Design(equal_within=equal, looks=looks), tuple(range(looks[-1]))
        else:
            final = _seeds(asked, "seeds", 0)
            design = Design.fixed(len(final), equal_within=equal)
        if shared := set(final) & set(tuning):
            raise ValueError(
                f"seeds {sorted(shared)} are in seeds and in tuning_seeds: settings must be chosen by other runs than "
                "those that judge them"
            )
        names = tuple(dict.fromkeys([base, *methods]))
        return cls(names, base, full_epochs, *both, trials, final, tuning, design, hours)

    @property
    def full_budget(self) -> float:
        """The largest budget: methods are tuned at it, and compared at it first."""
        return self.method_budgets[-1]

    def budgets_of(self, method: str) -> tuple[float, ...]:
        """The budgets of a method, ascending."""
        return self.baseline_budgets if method == self.baseline else self.method_budgets

    def epochs(self, budget: float) -> int:
        """The whole epochs of a budget, at least 1."""
        return epochs_of(budget, self.full_epochs)

    def cost(self, tuning: int) -> tuple[tuple[int, float], tuple[int, float]]:
        """The fewest and the most runs, each with their length in trainings of budget 1.

        The fewest: every method is decided at the first look, and is worse, so that none has smaller budgets.

        Args:
            tuning: the number of trials in all.
        """
        runs, length = tuning * len(self.tuning_seeds), tuning * len(self.tuning_seeds) * self.full_budget
        first, last = self.design.looks[0], self.design.looks[-1]
        least = [budget for method in self.methods for budget in self.budgets_of(method)[-1:]]
        least += self.baseline_budgets[:-1]
        most = [budget for method in self.methods for budget in self.budgets_of(method)]
        return (
            (runs + first * len(least), length + first * sum(least)),
            (runs + last * len(most), length + last * sum(most)),
        )


def epochs_of(budget: float, full_epochs: int) -> int:
    """The whole epochs of a budget, at least 1.

    >>> epochs_of(0.25, 6), epochs_of(0.5, 1)
    (2, 1)
    """
    return max(1, round(budget * full_epochs))


def _budgets(given: Any, full_epochs: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The budgets of the baseline and of the methods; of those with the same number of epochs the largest."""
    asked = default_setting("budgets") if given is None else given
    pair = (asked["baseline"], asked["methods"]) if isinstance(asked, Mapping) else (asked, asked)
    checked = []
    for budgets in pair:
        if isinstance(budgets, str) or not isinstance(budgets, (int, float, Sequence)):
            raise ValueError(f"budgets must be a share of the training or a list of shares, got {budgets!r}")
        shares = [budgets] if isinstance(budgets, (int, float)) else list(budgets)
        for share in shares:
            number = isinstance(share, (int, float)) and not isinstance(share, bool)
            if not number or not 0 < share <= MAX_BUDGET:
                raise ValueError(f"a budget is a share of the training, in (0, {MAX_BUDGET:g}], got {share!r}")
        if not shares:
            raise ValueError("budgets must hold at least one share of the training, e.g. 1")
        by_epochs = {epochs_of(share, full_epochs): float(share) for share in sorted(shares)}
        checked.append(tuple(sorted(by_epochs.values())))
    return checked[0], checked[1]


def _given(name: str, value: Any) -> Any:
    return default_setting(name) if value is None else value


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    return value


def _positive(name: str, value: Any, expected: str) -> float:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not (number and math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be {expected}, got {value!r}")
    return float(value)


def _seeds(seeds: Any, name: str, first: int) -> tuple[int, ...]:
    if isinstance(seeds, bool) or not isinstance(seeds, (int, Sequence)) or isinstance(seeds, str):
        auto = f"{AUTO!r}, " if name == "seeds" else ""
        raise ValueError(f"{name} must be {auto}a number of seeds or a list of them, got {seeds!r}")
    if isinstance(seeds, int):
        return tuple(range(first, first + _whole(name, seeds)))
    if not seeds:
        raise ValueError(f"{name} must be at least one seed, got none")
    for seed in seeds:
        if not isinstance(seed, (int, float)) or isinstance(seed, bool) or seed != int(seed) or seed < 0:
            raise ValueError(f"{name}: a seed must be a whole number of at least 0, got {seed!r}")
    whole = sorted(int(seed) for seed in seeds)
    repeated = [seed for seed, after in itertools.pairwise(whole) if seed == after]
    if repeated:
        raise ValueError(f"{name}: seed {repeated[0]} is given twice: give each seed once")
    return tuple(whole)
